//! The index of a built chunk is given up: it is lost, or an operator wants another. The chunk goes back to the index
//! builders, whose input is still there; if that is gone too, they say so, and it is crawled again.

use super::row::{ChunkRow, ChunkState, Write};
use super::state::State;
use crate::limits::CHUNK_ATTEMPTS_MAX;
use crate::time::Time;

impl ChunkRow {
    /// The number of its index, if placement knows it.
    #[must_use]
    pub fn placed_index(&self) -> Option<u32> {
        (self.state == ChunkState::Built && self.placed).then_some(self.index)
    }
}

impl State {
    /// Placement has given up an index of a chunk. A repetition names an index that is not the present one any more, and
    /// changes nothing. Without a reason an operator asked for it: that counts as no loss and, like every decision of
    /// an operator, forgives those before. Returns whether this is news.
    pub fn index_lost(
        &mut self,
        before: &ChunkRow,
        (index, why): (u32, Option<&str>),
        now: Time,
        writes: &mut Vec<Write>,
    ) -> bool {
        if before.state != ChunkState::Built || before.index != index {
            return false;
        }
        let mut after = before.clone();
        (after.built, after.placed) = (None, false);
        after.index = after.index.saturating_add(1);
        after.indexes_lost = if why.is_some() { after.indexes_lost.saturating_add(1) } else { 0 };
        let why = why.unwrap_or("an operator asked for another one");
        after.last_error = Some(format!("its index was given up: {why}").into());
        let exhausted = after.indexes_lost >= CHUNK_ATTEMPTS_MAX;
        after.move_on(if exhausted { ChunkState::SetAside } else { ChunkState::Crawled }, now);
        after.attempts = after.indexes_lost;
        self.store(Some(before), after, writes);
        true
    }
}
