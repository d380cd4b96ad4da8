//! Plans an assignment, given the health of its servers.

use std::collections::BTreeSet;

use super::assignment::Copies;
use super::row::{PlacementState, Write};
use super::state::{Ix, State};
use crate::fleet::{Judged, RowNo};
use crate::time::Time;

/// Servers that are compared for one copy. The emptiest one is the best choice unless capacities differ much; then
/// one of the next may end up less full with the chunk than it.
const COMPARED: usize = 8;

impl State {
    /// Brings an assignment to what its servers allow now. `avoid` is a server that has just lost its copy: it is chosen only
    /// if there is no other. A chunk that finds no server waits in its row.
    pub(super) fn reconcile(&mut self, chunk: u64, row: RowNo, avoid: Option<Ix>, now: Time, out: &mut Vec<Write>) {
        if !self.chunks.contains_key(&chunk) {
            return;
        }
        let next = self.plan(chunk, row, avoid, now);
        self.lay(chunk, row, next, None, now, out);
        let Some(row) = self.rows.get_mut(&row) else { return };
        if next.chosen.is_some() {
            row.unplaced.remove(&chunk);
            row.blocked.remove(&chunk);
        } else if !row.takes_copies() {
            row.unplaced.insert(chunk);
        } else {
            row.unplaced.remove(&chunk);
            row.blocked.insert(chunk);
        }
    }

    fn plan(&self, chunk: u64, row: RowNo, avoid: Option<Ix>, now: Time) -> Copies {
        let now_is = self.copies_in(chunk, row);
        let is_here = |ix: &Ix| self.servers.get(ix).is_some_and(|server| !server.facts.removed);
        let chosen = now_is.chosen.filter(|(ix, _)| is_here(ix));
        let former = now_is.former.filter(is_here);
        match (chosen, former) {
            (None, None) => {
                let target = self.pick_first(chunk, row, avoid);
                target.map_or_else(Copies::default, |ix| Copies::only(ix, PlacementState::Assigned))
            }
            (Some((ix, state)), None) => self.plan_only(chunk, row, (ix, state), avoid, now),
            (None, Some(ix)) => self.plan_only(chunk, row, (ix, PlacementState::Ready), avoid, now),
            (Some(to), Some(from)) => {
                let instead = || self.plan_only(chunk, row, (from, PlacementState::Ready), avoid, now);
                let stays = Copies { chosen: Some(to), former: Some(from), lost: now_is.lost };
                let from_stays = self.servers.get(&from).is_some_and(|s| s.is_alive() && !s.is_drained());
                match to {
                    (ix, PlacementState::Ready) if self.is_alive(ix) => Copies::only(ix, PlacementState::Ready),
                    // Ready, but readers cannot reach it, while the former copy is well.
                    (_, PlacementState::Ready) if from_stays => instead(),
                    // Both are lost. The copy that was ready last is given up only for another.
                    (ix, PlacementState::Ready) if self.must_leave(ix, now) && !self.is_alive(from) => {
                        self.pick(chunk, row, avoid, false).map_or(stays, |other| Copies::moving(other, ix, true))
                    }
                    // The lost server is back before its chunk was fetched by another.
                    _ if now_is.lost && from_stays => instead(),
                    (ix, _) if self.must_leave(ix, now) => instead(),
                    // A move that does not come to its end. The former copy stays if it can; else another server tries.
                    (ix, state) if state != PlacementState::Ready && self.is_overdue(chunk, ix, now) => {
                        let other = || {
                            self.pick(chunk, row, avoid, self.is_alive(from))
                                .map(|other| Copies::moving(other, from, now_is.lost))
                        };
                        if from_stays { Copies::only(from, PlacementState::Ready) } else { other().unwrap_or(stays) }
                    }
                    _ => stays,
                }
            }
        }
    }

    /// An assignment with one copy: it stays, or a new one is begun elsewhere.
    fn plan_only(
        &self,
        chunk: u64,
        row: RowNo,
        (ix, state): (Ix, PlacementState),
        avoid: Option<Ix>,
        now: Time,
    ) -> Copies {
        let target = if state == PlacementState::Ready {
            self.must_leave(ix, now).then(|| self.pick(chunk, row, avoid, self.is_alive(ix))).flatten()
        } else if self.is_overdue(chunk, ix, now) {
            self.pick_first(chunk, row, avoid)
        } else if self.must_leave(ix, now) || self.is_kept_back(ix, state) {
            // Not from one doubted server to another.
            let probe_suspects = self.servers.get(&ix).is_some_and(super::state::Server::is_probe_suspect);
            if probe_suspects { self.pick(chunk, row, avoid, false) } else { self.pick_first(chunk, row, avoid) }
        } else {
            None
        };
        match target {
            None => Copies::only(ix, state),
            Some(to) if state == PlacementState::Ready => {
                let lost = self.servers.get(&ix).is_some_and(|server| server.facts.judged == Judged::Failed);
                Copies::moving(to, ix, lost)
            }
            Some(to) => Copies::only(to, PlacementState::Assigned),
        }
    }

    /// The server for a chunk without a server in the row: an eligible one, else one that is suspect only by its
    /// probes.
    fn pick_first(&self, id: u64, no: RowNo, avoid: Option<Ix>) -> Option<Ix> {
        let row = self.rows.get(&no)?;
        self.pick_of(id, if row.eligible.is_empty() { &row.probe_suspects } else { &row.eligible }, avoid, false)
    }

    /// The server that would be the least full with the chunk, of those that have no copy of it. One that rests only if
    /// the chunk is not served.
    fn pick(&self, id: u64, row: RowNo, avoid: Option<Ix>, served: bool) -> Option<Ix> {
        self.pick_of(id, &self.rows.get(&row)?.eligible, avoid, served)
    }

    fn pick_of(&self, id: u64, servers: &BTreeSet<(u128, Ix)>, avoid: Option<Ix>, served: bool) -> Option<Ix> {
        let chunk = self.chunks.get(&id)?;
        let eligible = servers.iter().filter_map(|(_, ix)| Some((*ix, self.servers.get(ix)?)));
        let free = eligible.filter(|(_, server)| !server.copies.contains_key(&id));
        let best = |resting: bool| {
            let others = free.clone().filter(|(ix, server)| Some(*ix) != avoid && (resting || server.takes_moves()));
            others.take(COMPARED).min_by_key(|(ix, server)| (server.fullness(chunk.weight()), *ix))
        };
        let last = || free.clone().find(|(ix, server)| Some(*ix) == avoid && (!served || server.takes_moves()));
        best(false).or_else(|| (!served).then(|| best(true)).flatten()).or_else(last).map(|(ix, _)| ix)
    }
}
