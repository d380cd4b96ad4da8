//! Moves towards balance, a bounded number per minute.
//!
//! Each move takes a chunk from the fullest eligible server of a row to the emptiest and never overshoots: afterwards
//! the target is no fuller than the source. So the spread only shrinks, and moves end. A server that cannot keep what it
//! fetches gets none: see [`super::rest`].

use super::assignment::Copies;
use super::row::{PlacementState, Write};
use super::state::{Ix, Server, State};
use crate::fleet::RowNo;
use crate::time::{Millis, Time};

const MINUTE: Millis = Millis(60_000);
/// The fullest server of a row may be this much fuller than the emptiest, in percent.
const SKEW_PERCENT: u128 = 108;
/// Chunks of the fullest server that are examined for one move.
const EXAMINED: usize = 16;

struct Move {
    chunk: u64,
    from: Ix,
    to: Ix,
}

impl State {
    /// Begins moves while the minute's budget and `room` last, one row after the other: a row that moves much keeps none of
    /// the others waiting.
    pub(super) fn rebalance(&mut self, room: &mut usize, now: Time, out: &mut Vec<Write>) {
        let mut rows: Vec<RowNo> = self.rows.keys().copied().collect();
        while !rows.is_empty() {
            rows.retain(|no| {
                if *room == 0 || self.budget(now) == 0 {
                    return false;
                }
                let Some(Move { chunk, from, to }) = self.next_move(*no) else { return false };
                self.lay(chunk, *no, Copies::moving(to, from, false), None, now, out);
                self.spend(now);
                *room -= 1;
                true
            });
        }
    }

    /// Whether moves could begin now.
    pub(super) fn may_rebalance(&self, now: Time) -> bool {
        self.budget(now) > 0 && self.wants_moves()
    }

    /// When moves that wait for the budget may continue.
    pub(super) fn budget_renewed_at(&self, now: Time) -> Option<Time> {
        let waits = self.config.moves_per_minute > 0 && self.budget(now) == 0 && self.wants_moves();
        waits.then(|| self.ledger.moves_from.after(MINUTE))
    }

    fn wants_moves(&self) -> bool {
        self.rows.keys().any(|row| self.next_move(*row).is_some())
    }

    fn budget(&self, now: Time) -> u32 {
        let fresh = now >= self.ledger.moves_from.after(MINUTE);
        self.config.moves_per_minute.saturating_sub(if fresh { 0 } else { self.ledger.moves })
    }

    fn spend(&mut self, now: Time) {
        if now >= self.ledger.moves_from.after(MINUTE) {
            (self.ledger.moves_from, self.ledger.moves) = (now, 0);
        }
        self.ledger.moves += 1;
        self.ledger_changed = true;
    }

    /// The next move of a row that is out of balance. None while copies are missing or being replaced: those come
    /// first, and change the balance.
    fn next_move(&self, no: RowNo) -> Option<Move> {
        let row = self.rows.get(&no)?;
        let sweeping = || row.servers.iter().any(|ix| self.sweeping.contains(ix));
        let takes = |(_, ix): &&(u128, Ix)| self.servers.get(ix).is_some_and(Server::takes_moves);
        let ((low, to), (high, from)) = (*row.eligible.iter().find(takes)?, *row.eligible.last()?);
        if self.ledger.frozen || high * 100 <= low * SKEW_PERCENT || row.has_work() || sweeping() {
            return None;
        }
        let (empty, full) = (self.servers.get(&to)?, self.servers.get(&from)?);
        let [here, there] = [full, empty].map(|server| u128::from(server.facts.capacity));
        // After moving this much both would be equally full.
        let ideal = ((high - low).saturating_mul(here).saturating_mul(there) / (here + there)) >> 32;
        let mean = full.load / full.chosen.len().max(1) as u128;
        if ideal < mean {
            return None;
        }
        let ideal = u64::try_from(ideal).unwrap_or(u64::MAX);
        let candidates = full.chosen.range(..=(ideal, u64::MAX)).rev().take(EXAMINED).map(|(_, chunk)| *chunk);
        let settled = |chunk: &u64| {
            let ready = full.copies.get(chunk).is_some_and(|copy| copy.state == PlacementState::Ready);
            ready
                && self.assignment(*chunk, no).is_some_and(|assignment| assignment.former.is_none())
                && !empty.copies.contains_key(chunk)
        };
        candidates.into_iter().find(settled).map(|chunk| Move { chunk, from, to })
    }
}
