//! Back-off for servers that cannot keep what they fetch.
//!
//! A server with a full or read-only disk reports that it is unable to keep copies, or reports every copy gone before it is ready. It stays the emptiest of its row, so
//! moves towards balance, and copies of a drained server, would go to it without end. So after such a report a server gets no
//! chunk that another one serves, for a time that doubles with each further one; then one chunk on trial, until a copy of it
//! is ready. A chunk that no server has is still offered to it, if no other server takes it. A trial may also end without a verdict:
//! the copy is overdue, or its chunk is given up. Then the next tick begins another one.
//!
//! None of this is in the rows: a new owner tries each server once more.

use super::row::PlacementState;
use super::state::{Ix, Server, State, is_unready};
use crate::limits::{REST_MAX, REST_MIN};
use crate::names::MachineId;
use crate::time::{Millis, Time};

impl Server {
    /// Whether it may get chunks that another server serves.
    pub const fn takes_moves(&self) -> bool {
        self.rest.is_none() && (self.refusals == 0 || self.unready == 0)
    }
}

impl State {
    /// A server has reported a copy gone that was never ready, or that it is unable to keep one. Further ones while it rests were
    /// under way before.
    pub(super) fn begin_rest(&mut self, ix: Ix, now: Time) {
        let Some(server) = self.servers.get_mut(&ix).filter(|server| server.rest.is_none()) else { return };
        let span = REST_MIN.0.saturating_mul(1 << server.refusals.min(16)).min(REST_MAX.0);
        server.refusals = server.refusals.saturating_add(1);
        let at = now.after(Millis(span));
        server.rest = Some(at);
        self.rests.insert((at, ix));
    }

    /// A copy on a server is ready: it keeps what it fetches.
    pub(super) fn prove(&mut self, ix: Ix, now: Time) {
        let Some(server) = self.servers.get_mut(&ix).filter(|server| server.refusals > 0) else { return };
        server.refusals = 0;
        let (rest, row) = (server.rest.take(), server.facts.row);
        rest.map(|at| self.rests.remove(&(at, ix)));
        self.woken(row, now);
    }

    /// A copy on a server is in another state, or gone. If it was the last that was not ready, and the server does not rest,
    /// the next tick looks for another.
    pub(super) fn end_trial(&mut self, ix: Ix, was: Option<PlacementState>) {
        let Some(server) = self.servers.get(&ix).filter(|_| was.is_some_and(is_unready)) else { return };
        if server.refusals > 0 && server.rest.is_none() && server.unready == 0 {
            self.rests.insert((Time(0), ix));
        }
    }

    /// Servers whose rest or trial is over may get a chunk on trial.
    pub(super) fn end_rests(&mut self, now: Time) {
        while let Some((at, ix)) = self.rests.first().copied().filter(|(at, _)| *at <= now) {
            self.rests.remove(&(at, ix));
            // One whose trial has ended may rest since.
            let Some(server) = self.servers.get_mut(&ix).filter(|server| server.rest.is_none_or(|rest| rest == at))
            else {
                continue;
            };
            server.rest = None;
            let row = server.facts.row;
            self.woken(row, now);
        }
    }

    /// For the operator of a server that gives up what it should fetch.
    #[must_use]
    pub fn explain_rest(&self, server: &MachineId, now: Time) -> Option<String> {
        let server = self.names.get(server).and_then(|ix| self.servers.get(ix)).filter(|server| server.refusals > 0)?;
        let next = match server.rest {
            Some(at) => format!("gets the next one in {}", at.since(now).in_words()),
            None => "gets one at a time until it has kept one".to_owned(),
        };
        let times = server.refusals;
        Some(format!(
            "it could not fetch, keep or open chunks, {times} times in a row: of chunks that others serve it {next}; its log says why"
        ))
    }
}
