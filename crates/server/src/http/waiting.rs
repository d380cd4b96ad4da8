//! Calls that wait: each has a place among all waits of the port before it sleeps, and answers early when it loses that
//! place or the server stops.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::Extensions;
use axum::http::request::Parts;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use wayleave_api::{Code, Problem};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::time::Millis;
use wayleave_listen::{Caller, Wait, Waits};
use wayleave_shard::{CallResult, Patience};

use super::app::App;
use super::refused::Refused;

/// After how long a call that may not wait should be repeated.
const RETRY_AFTER_MS: u64 = 5_000;

/// A body that has brought nothing whole for so long waits, as a long poll does.
pub const QUIET: Duration = Duration::from_secs(1);

/// How a call waits. It takes a place when it first has to.
pub struct Waiting {
    waits: Arc<Waits>,
    caller: Caller,
    place: Option<Wait>,
    refused: bool,
}

impl FromRequestParts<App> for Waiting {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.extensions, app))
    }
}

impl Waiting {
    /// For a request with these extensions.
    pub fn of(extensions: &Extensions, app: &App) -> Self {
        let caller = extensions.get::<Caller>().cloned().unwrap_or_else(|| Caller::alone(&app.stopping));
        Self { waits: Arc::clone(&app.waits), caller, place: None, refused: false }
    }

    /// Takes a place. The token is cancelled when the call is to answer. None if the call may not wait.
    pub fn begin(&mut self) -> Option<CancellationToken> {
        if self.place.is_none() {
            self.place = self.waits.join(&self.caller);
            self.refused = self.place.is_none();
        }
        self.place.as_ref().map(|place| place.hurry().clone())
    }

    /// Gives the place back, until it has to wait again.
    pub fn end(&mut self) {
        (self.place, self.refused) = (None, false);
    }

    /// Whether it may not wait.
    pub const fn is_refused(&self) -> bool {
        self.refused
    }

    /// Makes a call that changes nothing while it waits. It is made again without waiting when it has to answer, and
    /// only so if it may not wait.
    pub async fn call<T, E, F>(&mut self, wait: Millis, call: impl Fn(Millis) -> F) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>>,
    {
        self.call_and_end(wait, &call, || call(Millis(0))).await
    }

    /// The same for a call that may change something while it waits, and is ended by another one.
    pub async fn call_and_end<T, E, F, G>(
        &mut self,
        wait: Millis,
        call: impl Fn(Millis) -> F,
        end: impl FnOnce() -> G,
    ) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>>,
        G: Future<Output = Result<T, E>>,
    {
        let hurry = if wait.0 > 0 { self.begin() } else { None };
        let Some(hurry) = hurry else { return call(Millis(0)).await };
        tokio::select! {
            biased;
            answer = call(wait) => answer,
            () = hurry.cancelled() => end().await,
        }
    }

    /// Refuses a call that may not wait, unless it has what it asked for.
    pub fn check(&self, has_it: bool) -> Result<(), Refused> {
        if self.refused && !has_it { Err(refused()) } else { Ok(()) }
    }

    /// What to say to a caller whose call was refused.
    pub fn explain(&self, refusal: Refusal) -> Refused {
        if self.refused { refused() } else { refusal.into() }
    }
}

impl Patience for Waiting {
    fn sleep(&mut self) -> CallResult<BoxFuture<'static, ()>> {
        let hurry = self.begin().ok_or(Refusal::Overloaded)?;
        Ok(hurry.cancelled_owned().boxed())
    }
}

fn refused() -> Refused {
    let detail = "as many calls wait as may, and this address or connection has its share of them; ask again later or without \
                  a wait, use fewer connections, or let the server have more memory (--requests-mb) and file descriptors";
    Problem::new(Code::Overloaded, detail).with("retry_after_ms", RETRY_AFTER_MS).into()
}
