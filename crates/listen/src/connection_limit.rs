//! A bounded number of connection permits. When all are taken, the least recently used connection without a request in
//! progress is evicted, connections without any request so far first: clients that connect and send nothing, or half a
//! header, displace neither new clients nor a worker that rests between two requests.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::responses::ResponsesInFlight;

/// While every connection is busy, idle ones are looked for this often.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The permits of a server.
pub struct ConnectionLimit {
    free: Arc<Semaphore>,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    next: u64,
    /// Numbers are in order of arrival.
    by_number: HashMap<u64, (Arc<ResponsesInFlight>, CancellationToken)>,
}

/// The permit of one connection; freed on drop.
pub struct ConnectionPermit {
    limit: Arc<ConnectionLimit>,
    number: u64,
    /// The responses of the connection.
    pub responses: Arc<ResponsesInFlight>,
    /// Cancelled when the permit is needed.
    pub needed: CancellationToken,
    _semaphore_permit: Option<OwnedSemaphorePermit>,
}

impl ConnectionLimit {
    /// A set of `most` permits.
    pub fn new(most: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(most)), taken: Mutex::default() }
    }

    /// A free permit, if there is one.
    pub fn free(self: &Arc<Self>) -> Option<ConnectionPermit> {
        let permit = Arc::clone(&self.free).try_acquire_owned().ok()?;
        Some(self.taken_by(Some(permit)))
    }

    /// Waits for a permit that is free or can be freed.
    pub async fn wait(self: &Arc<Self>) -> ConnectionPermit {
        loop {
            if let Some(permit) = self.free() {
                return permit;
            }
            self.make_room();
            let acquired = tokio::time::timeout(LOOK_EVERY, Arc::clone(&self.free).acquire_owned()).await;
            if let Ok(permit) = acquired {
                return self.taken_by(permit.ok());
            }
        }
    }

    fn taken_by(self: &Arc<Self>, permit: Option<OwnedSemaphorePermit>) -> ConnectionPermit {
        let (responses, needed) = (Arc::<ResponsesInFlight>::default(), CancellationToken::new());
        let mut taken = self.taken();
        let number = taken.next;
        taken.next += 1;
        taken.by_number.insert(number, (Arc::clone(&responses), needed.clone()));
        drop(taken);
        ConnectionPermit { limit: Arc::clone(self), number, responses, needed, _semaphore_permit: permit }
    }

    /// Asks the least recently used idle connection to close; one at a time.
    fn make_room(&self) {
        let taken = self.taken();
        if taken.by_number.values().any(|(_, needed)| needed.is_cancelled()) {
            return;
        }
        let idle = taken
            .by_number
            .iter()
            .filter(|(_, (responses, needed))| responses.busy.load(Ordering::Relaxed) == 0 && !needed.is_cancelled());
        let order = |(number, (responses, _)): &(&u64, &(Arc<ResponsesInFlight>, CancellationToken))| {
            (responses.has_asked(), responses.last_request(), **number)
        };
        if let Some((_, (_, needed))) = idle.min_by_key(order) {
            needed.cancel();
        }
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.limit.taken().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;

    #[test]
    fn the_longest_idle_connection_makes_room_and_a_busy_one_never() {
        let (limit, budget) = (Arc::new(ConnectionLimit::new(3)), Arc::new(Budget::new(1 << 20)));
        let [busy, first, second] = std::array::from_fn(|_| limit.free().unwrap());
        let request = busy.responses.begin(&budget);
        assert!(limit.free().is_none());
        // The first one has had a request since the second arrived.
        while first.responses.last_request() <= second.responses.last_request() {
            drop(first.responses.begin(&budget));
        }
        for _ in 0..2 {
            limit.make_room();
            assert!(second.needed.is_cancelled() && !first.needed.is_cancelled(), "one at a time");
        }
        drop(second);
        limit.make_room();
        assert!(first.needed.is_cancelled());
        drop(first);
        limit.make_room();
        assert!(!busy.needed.is_cancelled());
        drop(request);
        limit.make_room();
        assert!(busy.needed.is_cancelled(), "it is idle now");
    }

    #[tokio::test]
    async fn a_newcomer_has_the_permit_of_the_one_that_was_asked_to_end() {
        let limit = Arc::new(ConnectionLimit::new(1));
        let idle = limit.free().unwrap();
        let ending = async {
            idle.needed.cancelled().await;
            drop(idle);
        };
        let (newcomer, ()) = tokio::join!(limit.wait(), ending);
        assert!(!newcomer.needed.is_cancelled() && limit.free().is_none());
    }
}
