//! Copies of chunks as an export carries them, and their restoration.
//!
//! A copy stays on its server, so nothing moves: one that was ready is ready, and its server says so if it has lost it;
//! one that was on its way is assigned again; one that was to be deleted still is. The servers are restored before, and get
//! no new work until they report.
//!
//! 1. A server is not known here, or is in another row: its copy is left out, and the row gets another one.
//! 2. The chunk is known here: nothing is changed, so a repeated import is harmless.
//! 3. Two copies in one row: the one that is ready serves until the other is. Of two that are ready one is surplus.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::assignment::Copies;
use super::build::Built;
use super::refusal::Refusal;
use super::row::{CopyRole, PlacementState, Write};
use super::state::{Ix, State, is_unready};
use crate::fleet::RowNo;
use crate::ids::ChunkId;
use crate::names::MachineId;
use crate::pipeline::row::Artifact;
use crate::time::Time;

/// A copy outside of any store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedCopy {
    /// The server.
    pub server: MachineId,
    /// Its row.
    pub row: RowNo,
    /// Its state.
    pub state: PlacementState,
}

/// The copies of one chunk, and its index with its number, if it is built.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedCopies {
    /// The chunk.
    pub chunk: ChunkId,
    /// Its index.
    pub built: Option<(Artifact, u32)>,
    /// Its copies.
    pub copies: Vec<CarriedCopy>,
}

impl State {
    /// The copies of a chunk, in every state, by server.
    #[must_use]
    pub fn carry(&self, chunk: ChunkId) -> Vec<CarriedCopy> {
        let servers = self.names.values().filter_map(|ix| self.servers.get(ix)).filter(|server| !server.facts.removed);
        let copies = servers.filter_map(|server| {
            let state = server.copies.get(&chunk.0)?.state;
            Some(CarriedCopy { server: server.id.clone(), row: server.facts.row, state })
        });
        copies.collect()
    }

    /// Restores the copies of a chunk that is not known here.
    ///
    /// # Errors
    /// If its artifact is malformed, or another than the one that is known.
    pub fn restore(&mut self, carried: &CarriedCopies, now: Time, out: &mut Vec<Write>) -> Result<(), Refusal> {
        let chunk = carried.chunk;
        if let Some((_, index)) = &carried.built {
            // An import that ended in between had restored it here alone, and it was given up for want of a pipeline that
            // knew it. The pipeline is about to learn of the index that was given up, so it is placed once more.
            self.forget_return(chunk.0, *index, out);
        }
        let fresh = match &carried.built {
            // Its rows are laid out below, before anything is placed.
            Some((artifact, index)) => self.enter_built(chunk, artifact, *index, out)? == Built::New,
            None => !self.chunks.contains_key(&chunk.0),
        };
        if !fresh {
            return Ok(());
        }
        let mut rows: BTreeMap<RowNo, Vec<(Ix, PlacementState)>> = BTreeMap::new();
        for copy in &carried.copies {
            let Some(ix) = self.names.get(&copy.server).copied() else { continue };
            let known = self.servers.get(&ix).filter(|server| !server.facts.removed && server.facts.row == copy.row);
            if known.is_none_or(|server| server.copies.contains_key(&chunk.0)) {
                continue;
            }
            if copy.state == PlacementState::Draining {
                self.record(chunk.0, ix, (PlacementState::Draining, CopyRole::Chosen), now, out);
            } else if carried.built.is_some() {
                let copies = rows.entry(copy.row).or_default();
                if copies.iter().all(|(known, _)| *known != ix) {
                    copies.push((ix, copy.state));
                }
            }
        }
        for (row, copies) in rows {
            let ready = copies.iter().find(|(_, state)| *state == PlacementState::Ready).map(|(ix, _)| *ix);
            let coming = copies.iter().find(|(_, state)| is_unready(*state)).map(|(ix, _)| *ix);
            let next = match (ready, coming) {
                (Some(from), Some(to)) => Copies::moving(to, from, false),
                (Some(only), None) => Copies::only(only, PlacementState::Ready),
                (None, Some(only)) => Copies::only(only, PlacementState::Assigned),
                (None, None) => continue,
            };
            for (ix, _) in copies.into_iter().filter(|(ix, _)| Some(*ix) != ready && Some(*ix) != coming) {
                self.record(chunk.0, ix, (PlacementState::Draining, CopyRole::Chosen), now, out);
            }
            self.lay(chunk.0, row, next, None, now, out);
        }
        if carried.built.is_some() {
            self.place_in_all_rows(chunk, now, out);
        }
        self.finish(out);
        Ok(())
    }

    /// Never publishes a version of the map below this one from now on.
    pub fn raise_version(&mut self, least: u64, out: &mut Vec<Write>) {
        if self.ledger.version < least {
            self.ledger.version = least;
            self.ledger_changed = true;
        }
        self.finish(out);
    }
}
