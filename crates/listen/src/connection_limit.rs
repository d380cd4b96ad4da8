//! A bounded number of connection permits. When all are taken, the least recently used connection without a request in
//! progress is evicted, connections without any request so far first: clients that connect and send nothing, or half a
//! header, displace neither new clients nor a worker that rests between two requests. A connection that has just come is
//! not evicted, unless many come at a time: its request may be on its way, and where all others wait it would be the only one
//! that seems idle.
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

/// To find who ends takes a look at every connection. As long as one look follows the other, each finds one more, up to
/// this many, so that thousands of newcomers a second do not each cost a look.
const ENDED_AT_ONCE_MAX: usize = 16;

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
    /// The connections that were last asked to end, and when.
    asked: Vec<u64>,
    asked_at: Option<Instant>,
    /// How often that was in a row.
    streak: usize,
}

struct Seat {
    since: Instant,
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
        let since = Instant::now();
        let seat = Seat { since, responses: Arc::clone(&responses), needed: needed.clone(), leave: leave.clone() };
        let mut taken = self.taken();
        let number = taken.next;
        taken.next += 1;
        taken.by_number.insert(number, seat);
        drop(taken);
        ConnectionPermit { limit: Arc::clone(self), number, responses, needed, leave, _semaphore_permit: permit }
    }

    /// Asks connections to end, and no further ones before they have: the least recently used idle ones, else the one with
    /// the longest wait.
    fn make_room(&self) {
        let mut taken = self.taken();
        let lately = taken.asked_at.is_some_and(|at| at.elapsed() < LOOK_EVERY);
        if lately && taken.asked.iter().any(|number| taken.by_number.contains_key(number)) {
            return;
        }
        taken.streak = if lately { (taken.streak + 1).min(ENDED_AT_ONCE_MAX) } else { 1 };
        let has_just_come = |seat: &Seat| !seat.responses.has_asked() && seat.since.elapsed() < LOOK_EVERY;
        // Many of them are a flood, which must not displace those that rest between two requests.
        let spared = taken.by_number.values().filter(|seat| has_just_come(seat)).count() <= ENDED_AT_ONCE_MAX;
        let is_idle = |seat: &Seat| {
            let busy = seat.responses.busy.load(Ordering::Relaxed) > 0 || seat.needed.is_cancelled();
            !(busy || spared && has_just_come(seat))
        };
        let idle = taken.by_number.iter().filter(|(_, seat)| is_idle(seat));
        let order =
            |(number, seat): &(&u64, &Seat)| (seat.responses.has_asked(), seat.responses.last_request(), **number);
        let mut idle: Vec<_> = idle.map(|seat| (order(&seat), seat.0, seat.1)).collect();
        if idle.len() > taken.streak {
            idle.select_nth_unstable_by_key(taken.streak, |(order, ..)| *order);
            idle.truncate(taken.streak);
        }
        idle.iter().for_each(|(_, _, seat)| seat.needed.cancel());
        let mut asked: Vec<u64> = idle.iter().map(|(_, number, _)| **number).collect();
        if asked.is_empty() {
            let stays = |number| taken.by_number.get(&number).is_some_and(|seat| !seat.leave.is_cancelled());
            let longest = self.waits.longest(stays);
            if let Some(seat) = longest.and_then(|number| taken.by_number.get(&number)) {
                seat.leave.cancel();
            }
            asked.extend(longest);
        }
        (taken.asked, taken.asked_at) = (asked, Some(Instant::now()));
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

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_connection_makes_room_and_one_that_works_never() {
        let (limit, budget) = limit(3);
        let [busy, first, second] = std::array::from_fn(|_| limit.free().unwrap());
        let request = busy.responses.begin(&budget);
        assert!(limit.free().is_none());
        tokio::time::advance(LOOK_EVERY).await;
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
    async fn many_newcomers_at_a_time_have_more_room_made_with_each_look() {
        let (limit, budget) = limit(100);
        let mut permits: Vec<ConnectionPermit> = (0..100).map(|_| limit.free().unwrap()).collect();
        permits.iter().for_each(|permit| drop(permit.responses.begin(&budget)));
        let mut ended = || {
            limit.make_room();
            let before = permits.len();
            permits.retain(|permit| !permit.needed.is_cancelled());
            before - permits.len()
        };
        assert_eq!([ended(), ended(), ended()], [1, 2, 3]);
        tokio::time::advance(LOOK_EVERY).await;
        assert_eq!(ended(), 1, "that was long ago");
        let all: usize = (0..20).map(|_| ended()).sum();
        assert_eq!(all, 93);
        assert!(permits.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_has_just_come_does_not_make_room_for_the_next() {
        let (limit, budget) = limit(2);
        let (waiting, new) = (limit.free().unwrap(), limit.free().unwrap());
        let _request = waiting.responses.begin(&budget);
        let (connection, busy) = (waiting.number, Arc::clone(&waiting.responses.busy));
        let alone = Caller::alone(&CancellationToken::new());
        let caller = Caller { connection, busy, leave: waiting.leave.clone(), ..alone };
        let _wait = limit.waits.join(&caller).unwrap();
        limit.make_room();
        assert!(waiting.leave.is_cancelled() && !new.needed.is_cancelled());
        tokio::time::advance(LOOK_EVERY).await;
        limit.make_room();
        assert!(new.needed.is_cancelled(), "it has sent nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_silent_connections_displaces_none_between_two_requests() {
        let (limit, budget) = limit(50);
        let worker = limit.free().unwrap();
        drop(worker.responses.begin(&budget));
        let mut others: Vec<ConnectionPermit> = (1..50).map(|_| limit.free().unwrap()).collect();
        for _ in 0..100 {
            limit.make_room();
            others.retain(|permit| !permit.needed.is_cancelled());
            others.extend(std::iter::from_fn(|| limit.free()));
        }
        assert!(!worker.needed.is_cancelled());
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
