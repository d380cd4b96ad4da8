//! Self-check: recounts everything from scratch, and checks what must always hold. It walks all chunks.

use std::collections::BTreeSet;

use super::assignment::Assignment;
use super::row::PlacementState;
use super::state::{Row, Server, State, is_unready};
use crate::fleet::RowNo;

impl State {
    /// Checks the state; the error names what does not hold, which is a bug.
    pub fn self_check(&self) -> Result<(), String> {
        for (id, chunk) in &self.chunks {
            let rows: BTreeSet<RowNo> = chunk.assignments.iter().map(|assignment| assignment.row).collect();
            hold(rows.len() == chunk.assignments.len(), || format!("chunk {id} has two assignments in a row"))?;
            chunk.assignments.iter().try_for_each(|assignment| self.check_cell(*id, assignment))?;
        }
        let untaken = self.returns.iter().filter(|(_, row)| !row.taken).map(|(id, _)| id);
        hold(self.untaken.iter().eq(untaken), || "chunks that have left are miscounted".to_owned())?;
        let ends = self.return_ends.len() + self.untaken.len();
        hold(ends == self.returns.len(), || "a chunk that has left is never removed".to_owned())?;
        hold(self.marks.keys().all(|id| self.chunks.contains_key(id)), || "a mark has no chunk".to_owned())?;
        self.servers.iter().try_for_each(|(ix, server)| self.check_server(*ix, server))?;
        self.rows.iter().try_for_each(|(no, row)| self.check_row(*no, row))?;
        let map = self.map();
        let missing = self.missing(&map.rows, self.chunks.keys().copied());
        hold(map.missing == missing, || "the map does not name what is missing".to_owned())
    }

    fn check_cell(&self, id: u64, assignment: &Assignment) -> Result<(), String> {
        let Some(chosen) = assignment.chosen else {
            return Err(format!("chunk {id} has an assignment without a chosen copy"));
        };
        hold(assignment.former != Some(chosen), || format!("chunk {id} moves to where it is"))?;
        hold(assignment.former.is_some() || !assignment.lost, || {
            format!("chunk {id} has lost a former copy that it does not have")
        })?;
        for (ix, former) in [(Some(chosen), false), (assignment.former, true)] {
            let Some(server) = ix.map(|ix| self.servers.get(&ix)) else { continue };
            let Some(server) = server.filter(|server| server.facts.row == assignment.row) else {
                return Err(format!("chunk {id} is on a server that is not in row {}", assignment.row.0));
            };
            let state = server.copies.get(&id).map(|copy| copy.state);
            let good = if former { state == Some(PlacementState::Ready) } else { state.is_some_and(is_wanted) };
            hold(good, || format!("chunk {id} on '{}' is {state:?}", server.id))?;
        }
        Ok(())
    }

    fn check_server(&self, ix: u16, server: &Server) -> Result<(), String> {
        let id = &server.id;
        let wanted = server.copies.iter().filter(|(_, copy)| is_wanted(copy.state));
        let mut held = 0;
        let mut chosen = BTreeSet::new();
        for (chunk, _) in wanted {
            let Some(assignment) = self.assignment(*chunk, server.facts.row) else {
                return Err(format!("'{id}' has a stray {chunk}"));
            };
            hold(assignment.chosen == Some(ix) || assignment.former == Some(ix), || {
                format!("chunk {chunk} does not know '{id}'")
            })?;
            held += usize::from(self.copies_in(*chunk, server.facts.row).holder() == Some(ix));
            if assignment.chosen == Some(ix) {
                chosen.extend(self.chunks.get(chunk).map(|known| (known.weight(), *chunk)));
            }
        }
        let load: u128 = chosen.iter().map(|(weight, _)| u128::from(*weight)).sum();
        let draining = server.copies.values().filter(|copy| !is_wanted(copy.state)).count();
        let unready = server.copies.values().filter(|copy| is_unready(copy.state)).count();
        let counts = (server.held, server.draining, server.unready);
        hold((held, draining, unready) == counts, || format!("'{id}' miscounts its copies"))?;
        let listed = server.listed.get().is_none_or(|listed| *listed == self.list_copies(ix, server));
        hold(listed, || format!("the map has other copies of '{id}'"))?;
        let rests = server.rest.is_none_or(|at| self.rests.contains(&(at, ix)) && server.refusals > 0);
        hold(rests, || format!("'{id}' may rest without end"))?;
        hold(unready == 0 || server.stall.is_some(), || format!("'{id}' may keep copies that it never fetches"))?;
        hold(chosen == server.chosen && load == server.load, || format!("'{id}' miscounts its load"))?;
        let key = (server.fullness(0), ix);
        let listed = self.rows.get(&server.facts.row).is_some_and(|row| row.eligible.contains(&key));
        hold(listed == server.is_eligible(), || format!("'{id}' is listed as eligible: {listed}"))?;
        let listed = self.rows.get(&server.facts.row).is_some_and(|row| row.probe_suspects.contains(&key));
        hold(listed == server.is_probe_suspect(), || format!("'{id}' is listed as doubted: {listed}"))
    }

    fn check_row(&self, no: RowNo, row: &Row) -> Result<(), String> {
        let placed = self.chunks.keys().filter(|id| self.assignment(**id, no).is_some()).count();
        let served = self.chunks.keys().filter(|id| self.holder(**id, no).is_some()).count();
        hold((placed, served) == (row.placed, row.served), || format!("row {} miscounts its assignments", no.0))?;
        hold(row.eligible.len() + row.probe_suspects.len() <= row.servers.len(), || {
            format!("row {} lists a server twice", no.0)
        })?;
        let waits = |id: &u64| {
            let later = row.backfill.is_some_and(|from| from <= *id);
            later || row.unplaced.contains(id) || row.blocked.contains(id)
        };
        let lost = self.chunks.keys().find(|id| self.assignment(**id, no).is_none() && !waits(id));
        hold(lost.is_none(), || format!("chunk {lost:?} is forgotten in row {}", no.0))?;
        let stray = row
            .unplaced
            .union(&row.blocked)
            .find(|id| self.assignment(**id, no).is_some() || !self.chunks.contains_key(id));
        hold(stray.is_none(), || format!("chunk {stray:?} waits in row {} without need", no.0))
    }
}

const fn is_wanted(state: PlacementState) -> bool {
    !matches!(state, PlacementState::Draining)
}

fn hold(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}
