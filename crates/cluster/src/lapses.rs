//! Tracks lapses of this node's lease, and whether the shard owners from before each lapse are closed.
//!
//! A node is *sure* while no other node can own its shards; its owners may then answer from memory. After a lapse other
//! nodes may have owned its shards, and may have returned them. A renewed lease says nothing about owners from the
//! lease before, so the node becomes sure only when all of those are closed. Lease renewal and seats are two tasks, and
//! these interleavings matter:
//!
//! 1. lapse, close, renew: sure with the renewal.
//! 2. lapse, renew, close: sure with the close, until the end of the lease as last renewed.
//! 3. lapse, renew, lapse, close (begun before the second lapse), renew: the close counts for the first lapse only,
//!    because a pass may have opened shards in between; sure after the second close.
//! 4. The lease expires while a renewal is in flight, unnoticed before its response: that is a lapse too.
//! 5. A renewal finds its own row dead, or gone, though this node's clock says that the lease lasts: the store's clock has
//!    stepped, or another node took this one for dead. Shards may have been taken and given back in between. That is a
//!    lapse, whatever becomes of the renewal.
//! 6. Another process takes over this node's address: its row is gone before its lease has expired, so it is unsure at
//!    once.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use wayleave_shard::{Deadline, Frontier, Moment};

/// The lapses of one node's lease.
pub(crate) struct Lapses(Mutex<State>);

struct State {
    /// The number of lapses, and the last one whose owners are closed.
    lapsed: u64,
    closed: u64,
    /// The end of the lease as last renewed.
    until: Deadline,
}

impl Lapses {
    /// A lease just granted to a node without owners.
    pub fn new(until: Deadline) -> Self {
        Self(Mutex::new(State { lapsed: 0, closed: 0, until }))
    }

    /// The lease has lapsed, or was taken away before its end: other nodes may own this node's shards from now on.
    pub fn on_lapse(&self, frontier: &Frontier) {
        let mut state = self.lock();
        state.lapsed += 1;
        // It is not sure either once its old owners are closed but its lease is not yet renewed.
        state.until = Deadline::after(Moment::now(), Duration::ZERO);
        frontier.set_sure_until(state.until);
    }

    /// The lease was renewed.
    pub fn on_renewed(&self, until: Deadline, frontier: &Frontier) {
        let mut state = self.lock();
        state.until = until;
        state.publish(frontier);
    }

    /// The lapse whose owners are not closed yet.
    pub fn pending(&self) -> Option<u64> {
        let state = self.lock();
        (state.closed < state.lapsed).then_some(state.lapsed)
    }

    /// All owners from before this lapse are closed.
    pub fn on_closed(&self, lapse: u64, frontier: &Frontier) {
        let mut state = self.lock();
        state.closed = state.closed.max(lapse);
        state.publish(frontier);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Under the lock, so that the two tasks cannot overtake each other.
    fn publish(&self, frontier: &Frontier) {
        if self.closed == self.lapsed {
            frontier.set_sure_until(self.until);
        }
    }
}
