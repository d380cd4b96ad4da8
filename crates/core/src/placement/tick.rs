//! Does deferred work, a slice at a time.

use super::row::{PlacementState, Write};
use super::state::{Ix, Row, State};
use crate::fleet::RowNo;
use crate::limits::SLICE_ROWS;
use crate::time::Time;

/// What a tick left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticked {
    /// Whether there is more to do now: tick again.
    pub more: bool,
}

impl State {
    /// Does a slice of the waiting work.
    pub fn tick(&mut self, now: Time, out: &mut Vec<Write>) -> Ticked {
        self.opened.get_or_insert(now);
        while let Some((at, ix)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, ix));
            self.start_sweep(ix);
        }
        self.end_rests(now);
        // Half a slice for each, so that a new row with many chunks and a lost server do not hold each other up.
        let mut room = SLICE_ROWS / 2;
        self.place_waiting(&mut room, now, out);
        room += SLICE_ROWS / 2;
        self.forget_returns(&mut room, now, out);
        self.end_fetches(&mut room, now, out);
        self.sweep(&mut room, now, out);
        self.rebalance(&mut room, now, out);
        self.finish(out);
        let late = self.fetches.first().is_some_and(|(at, ..)| *at <= now)
            || self.return_ends.first().is_some_and(|(at, _)| *at <= now);
        Ticked { more: late || self.has_work() || self.may_rebalance(now) }
    }

    /// When to tick next, if there is no more to do now.
    #[must_use]
    pub fn next_tick(&self, now: Time) -> Option<Time> {
        let renewed = self.budget_renewed_at(now);
        let timers = self.timers.first().into_iter().chain(self.stalls.first()).chain(self.rests.first());
        let timers = timers.map(|(at, _)| *at);
        let chunks = self.fetches.first().map(|(at, ..)| *at).into_iter();
        let chunks = chunks.chain(self.return_ends.first().map(|(at, _)| *at));
        timers.chain(chunks).chain(renewed).min()
    }

    fn has_work(&self) -> bool {
        !self.sweeping.is_empty() || self.rows.values().any(Row::has_work)
    }

    /// Places chunks that have no copy in a row.
    fn place_waiting(&mut self, room: &mut usize, now: Time, out: &mut Vec<Write>) {
        let rows: Vec<RowNo> = self.rows.iter().filter(|(_, row)| row.has_work()).map(|(no, _)| *no).collect();
        let share = (*room / rows.len().max(1)).max(1);
        for no in rows {
            let chunks = self.waiting_in(no, share.min(*room));
            *room -= chunks.len().min(*room);
            for chunk in chunks {
                self.reconcile(chunk, no, None, now, out);
            }
        }
    }

    /// Some chunks that may have no copy in a row. They are looked at once: one that finds no place is put back.
    fn waiting_in(&mut self, no: RowNo, count: usize) -> Vec<u64> {
        let Some(row) = self.rows.get_mut(&no) else { return Vec::new() };
        let mut chunks: Vec<u64> = std::iter::from_fn(|| row.unplaced.pop_first()).take(count).collect();
        if let Some(from) = row.backfill.filter(|_| chunks.len() < count) {
            let mut rest = self.chunks.range(from..).map(|(id, _)| *id);
            chunks.extend(rest.by_ref().take(count - chunks.len()));
            row.backfill = rest.next();
        }
        chunks
    }

    /// Looks at the copies of servers that have left, failed, come back or are drained.
    fn sweep(&mut self, room: &mut usize, now: Time, out: &mut Vec<Write>) {
        while let Some(ix) = self.sweeping.first().copied() {
            let Some(server) = self.servers.get_mut(&ix) else {
                self.sweeping.remove(&ix);
                continue;
            };
            let (no, removed) = (server.facts.row, server.facts.removed);
            let mut rest = server.copies.range(server.sweep..);
            let copies: Vec<(u64, PlacementState)> =
                rest.by_ref().take(*room).map(|(id, copy)| (*id, copy.state)).collect();
            let next = rest.next().map(|(id, _)| *id);
            *room -= copies.len();
            for (chunk, state) in copies {
                if state != PlacementState::Draining {
                    self.reconcile(chunk, no, None, now, out);
                } else if removed {
                    self.erase(chunk, ix, out);
                }
            }
            match next {
                Some(next) => {
                    self.servers.entry(ix).and_modify(|server| server.sweep = next);
                    return;
                }
                None => self.swept(ix, removed, now, out),
            }
        }
    }

    fn swept(&mut self, ix: Ix, removed: bool, now: Time, out: &mut Vec<Write>) {
        self.sweeping.remove(&ix);
        if removed {
            self.forget(ix, now, out);
        }
    }
}
