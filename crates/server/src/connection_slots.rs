//! A bounded number of connection slots. When all are taken, the least recently used connection without a request in
//! progress is evicted, connections without any request so far first: clients that connect and send nothing, or half a
//! header, displace neither new clients nor a worker that rests between two requests.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::answers::Answers;

/// While every connection is busy, idle ones are looked for this often.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The slots of a server.
pub struct ConnectionSlots {
    free: Arc<Semaphore>,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    next: u64,
    /// Numbers are in order of arrival.
    by_number: HashMap<u64, (Arc<Answers>, CancellationToken)>,
}

/// The slot of one connection; freed on drop.
pub struct ConnectionSlot {
    places: Arc<ConnectionSlots>,
    number: u64,
    /// The responses of the connection.
    pub answers: Arc<Answers>,
    /// Cancelled when the slot is needed.
    pub needed: CancellationToken,
    _permit: Option<OwnedSemaphorePermit>,
}

impl ConnectionSlots {
    /// A set of `most` slots.
    pub fn new(most: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(most)), taken: Mutex::default() }
    }

    /// A free slot, if there is one.
    pub fn free(self: &Arc<Self>) -> Option<ConnectionSlot> {
        let permit = Arc::clone(&self.free).try_acquire_owned().ok()?;
        Some(self.taken_by(Some(permit)))
    }

    /// Waits for a slot that is free or can be freed.
    pub async fn wait(self: &Arc<Self>) -> ConnectionSlot {
        loop {
            if let Some(place) = self.free() {
                return place;
            }
            self.make_room();
            let acquired = tokio::time::timeout(LOOK_EVERY, Arc::clone(&self.free).acquire_owned()).await;
            if let Ok(permit) = acquired {
                return self.taken_by(permit.ok());
            }
        }
    }

    fn taken_by(self: &Arc<Self>, permit: Option<OwnedSemaphorePermit>) -> ConnectionSlot {
        let (answers, needed) = (Arc::<Answers>::default(), CancellationToken::new());
        let mut taken = self.taken();
        let number = taken.next;
        taken.next += 1;
        taken.by_number.insert(number, (Arc::clone(&answers), needed.clone()));
        drop(taken);
        ConnectionSlot { places: Arc::clone(self), number, answers, needed, _permit: permit }
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
            .filter(|(_, (answers, needed))| answers.busy.load(Ordering::Relaxed) == 0 && !needed.is_cancelled());
        let order = |(number, (answers, _)): &(&u64, &(Arc<Answers>, CancellationToken))| {
            (answers.has_asked(), answers.last_request(), **number)
        };
        if let Some((_, (_, needed))) = idle.min_by_key(order) {
            needed.cancel();
        }
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.places.taken().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;

    #[test]
    fn the_longest_idle_connection_makes_room_and_a_busy_one_never() {
        let (places, budget) = (Arc::new(ConnectionSlots::new(3)), Arc::new(Budget::new(1 << 20)));
        let [busy, first, second] = std::array::from_fn(|_| places.free().unwrap());
        let request = busy.answers.begin(&budget);
        assert!(places.free().is_none());
        // The first one has had a request since the second arrived.
        while first.answers.last_request() <= second.answers.last_request() {
            drop(first.answers.begin(&budget));
        }
        for _ in 0..2 {
            places.make_room();
            assert!(second.needed.is_cancelled() && !first.needed.is_cancelled(), "one at a time");
        }
        drop(second);
        places.make_room();
        assert!(first.needed.is_cancelled());
        drop(first);
        places.make_room();
        assert!(!busy.needed.is_cancelled());
        drop(request);
        places.make_room();
        assert!(busy.needed.is_cancelled(), "it is idle now");
    }

    #[tokio::test]
    async fn a_newcomer_has_the_place_of_the_one_that_was_asked_to_end() {
        let places = Arc::new(ConnectionSlots::new(1));
        let idle = places.free().unwrap();
        let ending = async {
            idle.needed.cancelled().await;
            drop(idle);
        };
        let (newcomer, ()) = tokio::join!(places.wait(), ending);
        assert!(!newcomer.needed.is_cancelled() && places.free().is_none());
    }
}
