//! The place of a chunk in a row, and the one function that changes it, with everything that is counted from it.

use super::row::{CopyRole, PlacementRow, PlacementState, Write};
use super::state::{Copy, Ix, State, is_unready};
use crate::fleet::RowNo;
use crate::ids::ChunkId;
use crate::time::Time;

/// The place of a chunk in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Assignment {
    pub row: RowNo,
    /// Whether the former copy's server was lost.
    pub lost: bool,
    pub chosen: Option<Ix>,
    pub former: Option<Ix>,
}

/// The copies of an assignment, with the state of the chosen one. A former copy is ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Copies {
    pub chosen: Option<(Ix, PlacementState)>,
    pub former: Option<Ix>,
    pub lost: bool,
}

impl Copies {
    /// One copy and no other.
    pub const fn only(ix: Ix, state: PlacementState) -> Self {
        Self { chosen: Some((ix, state)), former: None, lost: false }
    }

    /// A new copy, and the one that serves until it is ready.
    pub const fn moving(to: Ix, from: Ix, lost: bool) -> Self {
        Self { chosen: Some((to, PlacementState::Assigned)), former: Some(from), lost }
    }

    /// The server that readers are sent to, if it is alive.
    pub fn holder(&self) -> Option<Ix> {
        let ready = self.chosen.filter(|(_, state)| *state == PlacementState::Ready);
        self.former.or_else(|| ready.map(|(ix, _)| ix))
    }

    fn servers(&self) -> [Option<Ix>; 2] {
        [self.chosen.map(|(ix, _)| ix), self.former]
    }

    fn copy_on(&self, ix: Ix) -> Option<(PlacementState, CopyRole)> {
        match (self.chosen, self.former) {
            (Some((chosen, state)), _) if chosen == ix => Some((state, CopyRole::Chosen)),
            (_, Some(former)) if former == ix => {
                Some((PlacementState::Ready, if self.lost { CopyRole::Lost } else { CopyRole::Leaving }))
            }
            _ => None,
        }
    }
}

impl State {
    /// The assignment of a chunk in a row.
    pub(super) fn assignment(&self, chunk: u64, row: RowNo) -> Option<&Assignment> {
        self.chunks.get(&chunk)?.assignments.iter().find(|assignment| assignment.row == row)
    }

    /// The copies of an assignment.
    pub(super) fn copies_in(&self, chunk: u64, row: RowNo) -> Copies {
        let Some(assignment) = self.assignment(chunk, row) else { return Copies::default() };
        let state_on = |ix: Ix| self.servers.get(&ix).and_then(|server| server.copies.get(&chunk)).copied();
        let chosen = assignment.chosen.and_then(|ix| Some((ix, state_on(ix)?.state)));
        Copies { chosen, former: assignment.former, lost: assignment.lost }
    }

    /// Changes an assignment. A copy that is in it no longer is drained, or forgotten if it is `gone` or its server is.
    pub(super) fn lay(
        &mut self,
        chunk: u64,
        row: RowNo,
        next: Copies,
        gone: Option<Ix>,
        now: Time,
        out: &mut Vec<Write>,
    ) {
        let before = self.copies_in(chunk, row);
        if before == next {
            return;
        }
        for ix in before.servers().into_iter().flatten().filter(|ix| next.copy_on(*ix).is_none()) {
            let removed = self.servers.get(&ix).is_none_or(|server| server.facts.removed);
            if removed || gone == Some(ix) {
                self.erase(chunk, ix, out);
            } else {
                self.record(chunk, ix, (PlacementState::Draining, CopyRole::Chosen), now, out);
            }
        }
        for ix in next.servers().into_iter().flatten() {
            if let Some(copy) = next.copy_on(ix).filter(|copy| before.copy_on(ix) != Some(*copy)) {
                self.record(chunk, ix, copy, now, out);
            }
        }
        let [was, is] = [before, next].map(|copies| copies.chosen.map(|(ix, _)| ix));
        if was != is {
            self.weigh(chunk, was, false);
            self.weigh(chunk, is, true);
        }
        self.store_cell(chunk, row, next);
        let [was, is] = [before.holder(), next.holder()];
        if was != is {
            self.count_holder(row, was, false);
            self.count_holder(row, is, true);
        }
    }

    fn store_cell(&mut self, id: u64, row: RowNo, next: Copies) {
        let (Some(chunk), Some(counts)) = (self.chunks.get_mut(&id), self.rows.get_mut(&row)) else { return };
        let at = chunk.assignments.iter().position(|assignment| assignment.row == row);
        let [chosen, former] = next.servers();
        let assignment = Assignment { row, lost: next.lost, chosen, former };
        match at {
            Some(at) if next == Copies::default() => {
                chunk.assignments.swap_remove(at);
                counts.placed -= 1;
            }
            Some(at) => chunk.assignments.iter_mut().skip(at).take(1).for_each(|place| *place = assignment),
            None => {
                chunk.assignments.push(assignment);
                counts.placed += 1;
            }
        }
    }

    /// Writes the copy of a chunk on a server.
    pub(super) fn record(
        &mut self,
        chunk: u64,
        ix: Ix,
        (state, role): (PlacementState, CopyRole),
        now: Time,
        out: &mut Vec<Write>,
    ) {
        let Some(server) = self.servers.get_mut(&ix) else { return };
        let copy = Copy::new(state, now);
        server.listed.take();
        let was = server.copies.insert(chunk, copy).map(|was| was.state);
        server.draining -= usize::from(was == Some(PlacementState::Draining));
        server.draining += usize::from(state == PlacementState::Draining);
        server.unready -= usize::from(was.is_some_and(is_unready));
        server.unready += usize::from(is_unready(state));
        let row = PlacementRow { row: server.facts.row, state, role, since: copy.since() };
        out.push(Write::Placement(ChunkId(chunk), server.id.clone(), Some(row)));
        self.time_fetch(chunk, ix, now);
        self.end_trial(ix, was);
    }

    /// Forgets the copy of a chunk on a server.
    pub(super) fn erase(&mut self, chunk: u64, ix: Ix, out: &mut Vec<Write>) {
        let Some(server) = self.servers.get_mut(&ix) else { return };
        if let Some(was) = server.copies.remove(&chunk) {
            server.listed.take();
            server.draining -= usize::from(was.state == PlacementState::Draining);
            server.unready -= usize::from(is_unready(was.state));
            out.push(Write::Placement(ChunkId(chunk), server.id.clone(), None));
            self.end_trial(ix, Some(was.state));
        }
    }

    /// Adds a chunk to a server's load, or takes it away.
    pub(super) fn weigh(&mut self, chunk: u64, ix: Option<Ix>, add: bool) {
        let Some(weight) = self.chunks.get(&chunk).map(super::chunk::Chunk::weight) else { return };
        let Some((ix, server)) = ix.and_then(|ix| Some((ix, self.servers.get_mut(&ix)?))) else { return };
        let before = (server.fullness(0), ix);
        if add {
            server.chosen.insert((weight, chunk));
            server.load += u128::from(weight);
        } else {
            server.chosen.remove(&(weight, chunk));
            server.load -= u128::from(weight);
        }
        let after = (server.fullness(0), ix);
        let Some(row) = self.rows.get_mut(&server.facts.row) else { return };
        for servers in [&mut row.eligible, &mut row.probe_suspects] {
            if servers.remove(&before) {
                servers.insert(after);
            }
        }
    }

    fn count_holder(&mut self, row: RowNo, ix: Option<Ix>, add: bool) {
        let Some(server) = ix.and_then(|ix| self.servers.get_mut(&ix)) else { return };
        let Some(counts) = self.rows.get_mut(&row) else { return };
        server.listed.take();
        let alive = usize::from(server.is_alive());
        if add {
            server.held += 1;
            counts.served += alive;
        } else {
            server.held -= 1;
            counts.served -= alive;
        }
        self.visible |= alive == 1;
    }
}
