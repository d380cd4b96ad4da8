//! Admission control for listings: a fixed number run concurrently, a bounded number queue, further ones are refused.
//!
//! A permit covers one page. A page is fetched slice by slice, so when its reader disconnects, the call is dropped, its
//! permit is released and no further slice is requested. A page that has taken many slices is returned short, with a
//! cursor.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wayleave_core::frontier::refusal::Refusal;

use crate::routing::router::{CallResult, stopping};

/// The listing permits of a process.
pub(crate) struct ListingPermits {
    running: Arc<Semaphore>,
    /// Covers running and queued listings.
    admitted: Arc<Semaphore>,
    most: usize,
}

/// Permission to list one page.
pub(crate) struct ListingPermit {
    _running: OwnedSemaphorePermit,
    _admitted: OwnedSemaphorePermit,
}

impl ListingPermits {
    pub fn new(running: usize, waiting: usize) -> Self {
        let most = running + waiting;
        Self { running: Arc::new(Semaphore::new(running)), admitted: Arc::new(Semaphore::new(most)), most }
    }

    /// Waits for a permit. Fails if too many listings are queued.
    pub async fn acquire(&self) -> CallResult<ListingPermit> {
        let admitted = self.admitted.clone().try_acquire_owned().map_err(|_| Refusal::ManyListings(self.most))?;
        // The semaphore is never closed.
        let running = self.running.clone().acquire_owned().await.map_err(|_| stopping())?;
        Ok(ListingPermit { _running: running, _admitted: admitted })
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn the_next_waits_its_turn_and_the_one_past_the_bound_is_refused() {
        let listings = ListingPermits::new(1, 1);
        let first = listings.acquire().await.unwrap();
        let mut second = Box::pin(listings.acquire());
        assert!(second.as_mut().now_or_never().is_none());
        assert_eq!(listings.acquire().await.err(), Some(Refusal::ManyListings(2)));
        drop(second);
        let mut second = Box::pin(listings.acquire());
        assert!(second.as_mut().now_or_never().is_none(), "a dropped waiter frees its permit");
        drop(first);
        assert!(second.await.is_ok());
    }
}
