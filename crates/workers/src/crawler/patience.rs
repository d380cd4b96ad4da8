//! Repeats reports that the server cannot take now, while the caller keeps the lease.
//!
//! A server whose disk fills up takes no new URLs, and so no report that found some (`store_full`); nothing of such a report is
//! applied, and renewals continue. If the work were given up, its pages would be fetched again and again, and its chunk set aside
//! after a few attempts, though nothing is wrong with it.

use std::time::Duration;

use tokio::time::sleep;
use wayleave_api::Code;
use wayleave_client::Error;

use super::Crawler;
use crate::limits::OUTAGE_PAUSE;

/// Whether the server's store takes no new URLs: the report was not applied.
pub(super) fn is_full(error: &Error) -> bool {
    error.code() == Some(Code::StoreFull)
}

/// How long to wait before a report is sent again to a full store, as the server asks.
pub(super) const FULL_PAUSE: Duration = match Code::StoreFull.retry_after_secs() {
    Some(secs) => Duration::from_secs(secs as u64),
    None => OUTAGE_PAUSE,
};

impl Crawler {
    /// Reports, again while it fails in a way that `passes`. The caller drops it when the lease is lost. Once the crawler has to
    /// stop, there is one more attempt.
    pub(super) async fn until_taken<T, R>(
        &self,
        passes: impl Fn(&Error) -> bool,
        report: impl Fn() -> R,
    ) -> Result<T, Error>
    where
        R: Future<Output = Result<T, Error>>,
    {
        let mut waits = false;
        loop {
            let stopping = self.stop.is_cancelled();
            let error = match report().await {
                Err(error) if passes(&error) && !stopping => error,
                ended => return ended,
            };
            if !std::mem::replace(&mut waits, true) {
                tracing::warn!(error = %error, "a report waits: it is sent again, and its lease is kept");
            }
            let pause = if is_full(&error) { self.full_pause } else { OUTAGE_PAUSE };
            tokio::select! {
                () = sleep(pause) => {}
                () = self.stop.cancelled() => {}
            }
        }
    }
}
