//! A task beside an owner that carries what the owner keeps for other shards, batch by batch, until nothing is left. What it
//! carries is durable and every step may be repeated, so it may end at any point: the next owner starts it again.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::mpsc;

use crate::routing::router::{CallResult, Router};

/// Retry interval.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Wakes the task, which ends with it.
#[derive(Default)]
pub(crate) struct Courier(Option<mpsc::Sender<()>>);

impl Courier {
    /// Has batches carried until there is none; the first call starts the task. `carry` tells whether there was a batch, and
    /// `what` what is carried.
    pub fn wake<F>(
        &mut self,
        router: &Weak<Router>,
        what: &'static str,
        carry: impl Fn(Arc<Router>) -> F + Send + 'static,
    ) where
        F: Future<Output = CallResult<bool>> + Send + 'static,
    {
        let task = self.0.get_or_insert_with(|| {
            let (wake, wakes) = mpsc::channel(1);
            tokio::spawn(carry_all(router.clone(), wakes, what, carry));
            wake
        });
        // Full: it will look again anyway.
        _ = task.try_send(());
    }
}

/// Carries whenever it is woken, until the owner ends.
async fn carry_all<F: Future<Output = CallResult<bool>>>(
    router: Weak<Router>,
    mut wakes: mpsc::Receiver<()>,
    what: &str,
    carry: impl Fn(Arc<Router>) -> F,
) {
    while wakes.recv().await.is_some() {
        while !wakes.is_closed() {
            let Some(router) = router.upgrade() else { return };
            match carry(router).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(refusal) => {
                    tracing::debug!(%refusal, "{what} cannot be told to other shards; retrying");
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
            }
        }
    }
}
