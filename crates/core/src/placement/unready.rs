//! Copies that are not ready: the deadline for a server to fetch one, and which servers must give theirs up.
//!
//! A fetch without news for a while is placed elsewhere, if there is another server. The server may repeat `fetching` to
//! keep it. A copy that was only assigned waits longer, as long as its server says anything about any copy:
//! it may have a long list, but only up to a limit. All of it counts from when this state could hear of it at the
//! earliest, so a new owner gives every server its whole time.
//!
//! The times are not in the rows of copies. Each repeated `fetching` would then be a write, and a server with a long list
//! sends thousands; a new owner would also have to add the time without an owner, which is in no row. The price: while
//! shard 0 changes its owner more often than every [`FETCH_SILENCE_MAX`], a copy that is never fetched stays where it is.
//! Meanwhile the map lists it as missing.
//!
//! A copy that was not begun serves no search. Without a former copy it leaves a server that gets no work at once,
//! and does so during a freeze as well, like every first placement. A fetch leaves at once only if its server has
//! failed.

use super::row::{PlacementState, Write};
use super::state::{Copy, Ix, State, is_unready};
use crate::fleet::Judged;
use crate::limits::{ASSIGNED_MAX, FETCH_SILENCE_MAX};
use crate::time::Time;

impl State {
    /// When a copy is overdue; none if it is ready, or nothing was heard yet.
    pub(super) fn overdue_at(&self, chunk: u64, ix: Ix) -> Option<Time> {
        let (server, opened) = (self.servers.get(&ix)?, self.opened?);
        let copy = server.copies.get(&chunk)?;
        let since = copy.since().max(opened);
        match copy.state {
            PlacementState::Fetching => Some(since.after(FETCH_SILENCE_MAX)),
            PlacementState::Assigned => {
                Some(since.max(server.news).after(FETCH_SILENCE_MAX).min(since.after(ASSIGNED_MAX)))
            }
            PlacementState::Ready | PlacementState::Draining => None,
        }
    }

    /// Whether a copy that is not ready should be placed elsewhere.
    pub(super) fn is_overdue(&self, chunk: u64, ix: Ix, now: Time) -> bool {
        self.overdue_at(chunk, ix).is_some_and(|at| at <= now)
    }

    /// Whether a server must not keep a copy that is not ready and the only one.
    pub(super) fn is_kept_back(&self, ix: Ix, state: PlacementState) -> bool {
        let Some(server) = self.servers.get(&ix) else { return true };
        match state {
            PlacementState::Assigned => !server.is_eligible(),
            PlacementState::Fetching => server.facts.judged == Judged::Failed,
            PlacementState::Ready | PlacementState::Draining => false,
        }
    }

    /// Sets the times at which a copy that is not ready is looked at.
    pub(super) fn time_fetch(&mut self, chunk: u64, ix: Ix, now: Time) {
        let Some(server) = self.servers.get_mut(&ix) else { return };
        let Some(Copy { state, .. }) = server.copies.get(&chunk).copied().filter(|copy| is_unready(copy.state)) else {
            return;
        };
        let at = now.after(FETCH_SILENCE_MAX);
        if state == PlacementState::Fetching {
            self.fetches.insert((at, ix, chunk));
        }
        if server.stall.is_none() {
            server.stall = Some(at);
            self.stalls.insert((at, ix));
        }
    }

    /// Looks at copies whose time has come, while `room` lasts.
    pub(super) fn end_fetches(&mut self, room: &mut usize, now: Time, out: &mut Vec<Write>) {
        while let Some((at, ix)) = self.stalls.first().copied().filter(|(at, _)| *at <= now) {
            self.stalls.remove(&(at, ix));
            let Some(server) = self.servers.get_mut(&ix) else { continue };
            server.stall = None;
            if server.unready == 0 {
                continue;
            }
            let opened = self.opened.unwrap_or(now);
            let quiet = server.news.max(opened).after(FETCH_SILENCE_MAX);
            let next = if quiet <= now { now.after(FETCH_SILENCE_MAX) } else { quiet };
            server.stall = Some(next);
            self.stalls.insert((next, ix));
            // One that says something all the time may still leave out a copy.
            if quiet <= now || server.looked_at.max(opened).after(ASSIGNED_MAX) <= now {
                server.looked_at = now;
                self.start_sweep(ix);
            }
        }
        while let Some((at, ix, chunk)) = self.fetches.first().copied().filter(|(at, ..)| *at <= now && *room > 0) {
            self.fetches.remove(&(at, ix, chunk));
            *room -= 1;
            let Some(server) = self.servers.get(&ix) else { continue };
            if server.copies.get(&chunk).is_none_or(|copy| copy.state != PlacementState::Fetching) {
                continue;
            }
            let row = server.facts.row;
            self.reconcile(chunk, row, Some(ix), now, out);
            // It stays, for lack of another server, or because there were news.
            if let Some(due) = self.overdue_at(chunk, ix) {
                let next = if due <= now { now.after(FETCH_SILENCE_MAX) } else { due };
                self.fetches.insert((next, ix, chunk));
            }
        }
    }
}
