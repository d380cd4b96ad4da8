//! Admission control for listings: a fixed number run concurrently, a bounded number queue, further ones are refused.
//!
//! A permit covers one page. A page is fetched slice by slice, so when its reader disconnects, the call is dropped, its
//! permit is released and no further slice is requested.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wayleave_core::frontier::refusal::Refusal;

use crate::routing::router::{Answer, stopping};

/// The listing permits of a process.
pub(crate) struct ListingPermits {
    at_work: Arc<Semaphore>,
    /// Covers running and queued listings.
    places: Arc<Semaphore>,
    most: usize,
}

/// Permission to list one page.
pub(crate) struct Place {
    _at_work: OwnedSemaphorePermit,
    _place: OwnedSemaphorePermit,
}

impl ListingPermits {
    pub fn new(at_work: usize, waiting: usize) -> Self {
        let most = at_work + waiting;
        Self { at_work: Arc::new(Semaphore::new(at_work)), places: Arc::new(Semaphore::new(most)), most }
    }

    /// Waits for a permit.
    ///
    /// # Errors
    /// If the line is as long as it may be.
    pub async fn enter(&self) -> Answer<Place> {
        let place = self.places.clone().try_acquire_owned().map_err(|_| Refusal::ManyListings(self.most))?;
        // The semaphore is never closed.
        let at_work = self.at_work.clone().acquire_owned().await.map_err(|_| stopping())?;
        Ok(Place { _at_work: at_work, _place: place })
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn the_next_waits_its_turn_and_the_one_past_the_bound_is_refused() {
        let listings = ListingPermits::new(1, 1);
        let first = listings.enter().await.unwrap();
        let mut second = Box::pin(listings.enter());
        assert!(second.as_mut().now_or_never().is_none());
        assert_eq!(listings.enter().await.err(), Some(Refusal::ManyListings(2)));
        drop(second);
        let mut second = Box::pin(listings.enter());
        assert!(second.as_mut().now_or_never().is_none(), "who went away has left its place in line");
        drop(first);
        assert!(second.await.is_ok());
    }
}
