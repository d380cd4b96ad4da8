//! A bounded number of connection permits. When all are taken, the least recently used connection without a request in
//! progress is evicted, connections without any request so far first: clients that connect and send nothing, or half a
//! header, displace neither new clients nor a worker that rests between two requests.
//!
//! If every connection has a request in progress, the one with the longest wait, of those whose requests all wait, is
//! asked to leave: its calls answer with what they have, and then it closes. A request that arrives on it meanwhile is
//! answered too, if it does not take too long.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::responses::ResponsesInFlight;
use crate::waits::Waits;

/// While every connection is busy, idle ones are looked for this often. A connection that was asked to end and has not
/// after this time no longer keeps another one from being asked.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The permits of a server.
pub struct ConnectionLimit {
    free: Arc<Semaphore>,
    waits: Arc<Waits>,
    /// Cancelled when all connections are to leave.
    stopping: CancellationToken,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    next: u64,
    /// Numbers are in order of arrival.
    by_number: HashMap<u64, Seat>,
    /// The connection that was last asked to end, and when.
    asked: Option<(u64, Instant)>,
}

struct Seat {
    responses: Arc<ResponsesInFlight>,
    needed: CancellationToken,
    leave: CancellationToken,
}

/// The permit of one connection; freed on drop.
pub struct ConnectionPermit {
    limit: Arc<ConnectionLimit>,
    /// The number of the connection.
    pub number: u64,
    /// The responses of the connection.
    pub responses: Arc<ResponsesInFlight>,
    /// Cancelled when the permit is needed at once.
    pub needed: CancellationToken,
    /// Cancelled when the connection is to end after the responses to its requests.
    pub leave: CancellationToken,
    _semaphore_permit: Option<OwnedSemaphorePermit>,
}

impl ConnectionLimit {
    /// A set of `most` permits for connections with these waits.
    pub fn new(most: usize, waits: Arc<Waits>, stopping: CancellationToken) -> Self {
        Self { free: Arc::new(Semaphore::new(most)), waits, stopping, taken: Mutex::default() }
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
        let leave = self.stopping.child_token();
        let seat = Seat { responses: Arc::clone(&responses), needed: needed.clone(), leave: leave.clone() };
        let mut taken = self.taken();
        let number = taken.next;
        taken.next += 1;
        taken.by_number.insert(number, seat);
        drop(taken);
        ConnectionPermit { limit: Arc::clone(self), number, responses, needed, leave, _semaphore_permit: permit }
    }

    /// Asks a connection to end, one at a time: the least recently used idle one, else the one with the longest wait.
    fn make_room(&self) {
        let mut taken = self.taken();
        if taken.asked.is_some_and(|(number, at)| at.elapsed() < LOOK_EVERY && taken.by_number.contains_key(&number)) {
            return;
        }
        let is_idle = |seat: &Seat| seat.responses.busy.load(Ordering::Relaxed) == 0 && !seat.needed.is_cancelled();
        let idle = taken.by_number.iter().filter(|(_, seat)| is_idle(seat));
        let order =
            |(number, seat): &(&u64, &Seat)| (seat.responses.has_asked(), seat.responses.last_request(), **number);
        let asked = if let Some((number, seat)) = idle.min_by_key(order) {
            seat.needed.cancel();
            Some(*number)
        } else {
            let stays = |number| taken.by_number.get(&number).is_some_and(|seat| !seat.leave.is_cancelled());
            let longest = self.waits.longest(stays);
            if let Some(seat) = longest.and_then(|number| taken.by_number.get(&number)) {
                seat.leave.cancel();
            }
            longest
        };
        taken.asked = asked.map(|number| (number, Instant::now()));
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
    use crate::waits::Caller;

    fn limit(most: usize) -> (Arc<ConnectionLimit>, Arc<Budget>) {
        let budget = Arc::new(Budget::new(1 << 20));
        let waits = Arc::new(Waits::new(&budget, usize::MAX));
        (Arc::new(ConnectionLimit::new(most, waits, CancellationToken::new())), budget)
    }

    #[test]
    fn the_longest_idle_connection_makes_room_and_one_that_works_never() {
        let (limit, budget) = limit(3);
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

    #[tokio::test(start_paused = true)]
    async fn of_connections_that_only_wait_the_one_with_the_longest_wait_leaves() {
        let (limit, budget) = limit(3);
        let permits: [ConnectionPermit; 3] = std::array::from_fn(|_| limit.free().unwrap());
        let _requests = [0, 1, 2, 2].map(|n: usize| permits[n].responses.begin(&budget));
        let wait = |permit: &ConnectionPermit| {
            let alone = Caller::alone(&CancellationToken::new());
            let (connection, busy) = (permit.number, Arc::clone(&permit.responses.busy));
            limit.waits.join(&Caller { connection, busy, leave: permit.leave.clone(), ..alone }).unwrap()
        };
        // The third connection has waited longest, and has a request that does not wait.
        let waits = [2, 1, 0].map(|n| wait(&permits[n]));
        let left = || permits.each_ref().map(|permit| (permit.leave.is_cancelled(), permit.needed.is_cancelled()));
        for _ in 0..2 {
            limit.make_room();
            assert_eq!(left(), [(false, false), (true, false), (false, false)], "one at a time");
        }
        assert!(waits[1].hurry().is_cancelled() && !waits[2].hurry().is_cancelled());
        // Its client does not read the answer.
        tokio::time::advance(LOOK_EVERY).await;
        limit.make_room();
        assert_eq!(left().map(|(leaves, _)| leaves), [true, true, false]);
        tokio::time::advance(LOOK_EVERY).await;
        limit.make_room();
        assert!(!permits[2].leave.is_cancelled(), "it works");
    }

    #[tokio::test]
    async fn a_newcomer_has_the_permit_of_the_one_that_was_asked_to_end() {
        let (limit, _) = limit(1);
        let idle = limit.free().unwrap();
        let ending = async {
            idle.needed.cancelled().await;
            drop(idle);
        };
        let (newcomer, ()) = tokio::join!(limit.wait(), ending);
        assert!(!newcomer.needed.is_cancelled() && limit.free().is_none());
    }
}
