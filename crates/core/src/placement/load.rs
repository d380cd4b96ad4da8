//! Builds the state from its rows.

use super::assignment::Assignment;
use super::chunk::Chunk;
use super::give_up::IndexAttempt;
use super::row::{BuiltRow, CopyRole, LedgerRow, PlacementRow, PlacementState, ReturnRow, ServerRow, Write};
use super::state::{Config, Copy, Ix, State, is_unready};
use crate::ids::ChunkId;
use crate::names::MachineId;

/// The rows contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("damaged placement rows: {0}")]
pub struct Damaged(pub String);

impl State {
    /// Loads a state from its rows. Work that was begun is picked up by ticks. Fails if a copy names a server that has
    /// no row, or a chunk has two chosen copies in a row.
    pub fn load(
        config: Config,
        ledger: Option<LedgerRow>,
        servers: impl IntoIterator<Item = (MachineId, ServerRow)>,
        chunks: impl IntoIterator<Item = (ChunkId, BuiltRow)>,
        returns: impl IntoIterator<Item = (ChunkId, ReturnRow)>,
        placements: impl IntoIterator<Item = (ChunkId, MachineId, PlacementRow)>,
    ) -> Result<Self, Damaged> {
        let mut state = Self::new(config);
        state.ledger = ledger.unwrap_or_default();
        for (id, facts) in servers {
            let removed = facts.removed;
            let drained = facts.desired == crate::fleet::Desired::Drain;
            let ix = state.enter(id, facts);
            state.time_failure(ix);
            if removed || drained {
                state.start_sweep(ix);
            }
        }
        let rows = state.rows.len();
        for (id, BuiltRow { artifact, index, unfetched }) in chunks {
            state.chunks.insert(id.0, Chunk::new(&artifact, rows));
            if (index, unfetched) != (0, 0) {
                state.marks.insert(id.0, IndexAttempt { index, unfetched });
            }
        }
        for (id, row) in returns {
            state.load_return(id.0, Some(row));
        }
        for (chunk, server, row) in placements {
            state.load_copy(chunk.0, &server, row)?;
        }
        state.count_loaded();
        Ok(state)
    }

    fn load_copy(&mut self, id: u64, name: &MachineId, copy: PlacementRow) -> Result<(), Damaged> {
        let ix = self.names.get(name).copied();
        let found = ix.and_then(|ix| Some((ix, self.servers.get_mut(&ix)?)));
        let Some((ix, server)) = found.filter(|(_, server)| server.facts.row == copy.row) else {
            return Err(Damaged(format!(
                "chunk {id} is placed on server '{name}' in row {}, which has no row",
                copy.row.0
            )));
        };
        server.listed.take();
        server.copies.insert(id, Copy::new(copy.state, copy.since));
        server.unready += usize::from(is_unready(copy.state));
        if copy.state == PlacementState::Draining {
            server.draining += 1;
            return Ok(());
        }
        let Some(chunk) = self.chunks.get_mut(&id) else {
            return Err(Damaged(format!("chunk {id} is placed on server '{name}' and has no row")));
        };
        let (row, empty) = (copy.row, Assignment { row: copy.row, lost: false, chosen: None, former: None });
        let at =
            chunk.assignments.iter().position(|assignment| assignment.row == row).unwrap_or(chunk.assignments.len());
        if at == chunk.assignments.len() {
            chunk.assignments.push(empty);
            self.rows.entry(row).and_modify(|row| row.placed += 1);
        }
        let Some(assignment) = chunk.assignments.get_mut(at) else { return Ok(()) };
        let place = if copy.role == CopyRole::Chosen { &mut assignment.chosen } else { &mut assignment.former };
        if place.replace(ix).is_some() {
            return Err(Damaged(format!("chunk {id} has two copies for one place in row {}", row.0)));
        }
        assignment.lost |= copy.role == CopyRole::Lost;
        self.time_fetch(id, ix, copy.since);
        if copy.role == CopyRole::Chosen {
            self.weigh(id, Some(ix), true);
        } else {
            self.start_sweep(ix);
        }
        Ok(())
    }

    /// Counts who serves what. Rows in which every chunk has a copy need no backfill.
    fn count_loaded(&mut self) {
        let numbers: Vec<Ix> = self.servers.keys().copied().collect();
        for ix in numbers {
            let Some(server) = self.servers.get(&ix) else { continue };
            let (no, alive) = (server.facts.row, server.is_alive());
            let serves = |chunk: &&u64| self.copies_in(**chunk, no).holder() == Some(ix);
            let held = server.copies.keys().filter(serves).count();
            let keeps_back = server.keeps_work_back();
            self.servers.entry(ix).and_modify(|server| server.held = held);
            if keeps_back {
                self.start_sweep(ix);
            }
            self.rows.entry(no).and_modify(|row| row.served += if alive { held } else { 0 });
        }
        for row in self.rows.values_mut() {
            row.backfill = (row.placed < self.chunks.len()).then_some(0);
        }
    }

    /// All rows, as they are durable.
    #[must_use]
    pub fn rows(&self) -> Vec<Write> {
        let ledger = std::iter::once(Write::Ledger(self.ledger));
        let servers = self.names.values().filter_map(|ix| self.servers.get(ix));
        let servers = servers.map(|server| Write::Server(server.id.clone(), Some(server.facts.clone())));
        let chunks = self.chunks.keys().map(|id| Write::Chunk(ChunkId(*id), self.built_row(*id)));
        let returns = self.returns.iter().map(|(id, row)| Write::Return(ChunkId(*id), Some(row.clone())));
        let copies = self.names.values().filter_map(|ix| Some((*ix, self.servers.get(ix)?)));
        let copies = copies.flat_map(|(ix, server)| {
            server.copies.iter().map(move |(chunk, held)| {
                let row = server.facts.row;
                let assignment = self.assignment(*chunk, row).filter(|assignment| assignment.former == Some(ix));
                let role = assignment.map_or(CopyRole::Chosen, |assignment| {
                    if assignment.lost { CopyRole::Lost } else { CopyRole::Leaving }
                });
                let copy = PlacementRow { row, state: held.state, role, since: held.since() };
                Write::Placement(ChunkId(*chunk), server.id.clone(), Some(copy))
            })
        });
        ledger.chain(servers).chain(chunks).chain(returns).chain(copies).collect()
    }
}
