//! What a call that waits owes to its caller's port: it asks before it sleeps, and it answers early when it has to.
//!
//! A call can be hurried only while it sleeps. It then looks once more and answers with what it has, so nothing that was
//! granted is dropped.

use std::future::pending;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::Instant;

use crate::routing::router::CallResult;

/// How a caller lets its call wait.
pub trait Patience: Send {
    /// Called before each sleep. The future ends the sleep. Fails if the call may not wait.
    fn sleep(&mut self) -> CallResult<BoxFuture<'static, ()>>;
}

/// As long as the call itself says.
impl Patience for () {
    fn sleep(&mut self) -> CallResult<BoxFuture<'static, ()>> {
        Ok(pending().boxed())
    }
}

/// How a sleep ended.
#[derive(Debug)]
pub(crate) enum Woke<T> {
    /// With what was slept for.
    With(T),
    /// The time was up.
    InTime,
    /// The call is to answer.
    Hurried,
}

impl<T> Woke<T> {
    pub const fn is_hurried(&self) -> bool {
        matches!(self, Self::Hurried)
    }
}

/// Waits for something, but not beyond `until`, nor when the call is to answer. Takes no place if there is nothing to wait
/// for.
pub(crate) async fn nap<T>(
    patience: &mut dyn Patience,
    until: Instant,
    event: impl Future<Output = T> + Send,
) -> CallResult<Woke<T>> {
    let mut event = std::pin::pin!(event);
    if let Some(outcome) = event.as_mut().now_or_never() {
        return Ok(Woke::With(outcome));
    }
    let hurry = patience.sleep()?;
    tokio::select! {
        biased;
        outcome = event => Ok(Woke::With(outcome)),
        () = hurry => Ok(Woke::Hurried),
        () = tokio::time::sleep_until(until) => Ok(Woke::InTime),
    }
}
