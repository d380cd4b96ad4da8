//! Announces built chunks to placement, which another shard keeps. A chunk comes to rest when placement has
//! acknowledged it.
//!
//! The flag `placed` is part of the row. Until it is set the row stays among those in progress, so a reload finds the
//! chunks that are still to be announced without looking at those at rest. An announcement may be repeated; the flag is
//! set once.

use super::row::{ChunkRow, ChunkState, Write};
use super::state::State;
use crate::ids::ChunkId;
use crate::time::Time;

impl State {
    /// Built chunks that placement may not know yet, in the order of their ids; their rows must be read.
    #[must_use]
    pub fn unplaced(&self, most: usize) -> Vec<ChunkId> {
        self.unplaced.iter().take(most).copied().collect()
    }

    /// Whether there are any.
    #[must_use]
    pub fn has_unplaced(&self) -> bool {
        !self.unplaced.is_empty()
    }

    /// Placement knows a built chunk, or has `refused` it for good: then it is set aside, and may be built anew. Returns
    /// whether this is news.
    pub fn placed(&mut self, before: &ChunkRow, refused: Option<&str>, now: Time, writes: &mut Vec<Write>) -> bool {
        if !self.unplaced.contains(&before.id) {
            return false;
        }
        let mut after = before.clone();
        match refused {
            None => after.placed = true,
            Some(why) => {
                after.built = None;
                after.index = after.index.saturating_add(1);
                after.last_error = Some(format!("its index could not be placed: {why}").into());
                after.move_on(ChunkState::SetAside, now);
            }
        }
        self.store(Some(before), after, writes);
        true
    }
}
