//! Gives up the index of a built chunk: it is lost, or an operator wants another. The chunk goes back to the index
//! builders, whose input is still there; if that is gone too, they say so, and it is crawled again. Or an operator
//! wants the chunk out of the index: then it is skipped, in the same decision, so that no builder sees it in between.

use super::end::SKIPPED;
use super::row::{ChunkRow, ChunkState, Write};
use super::state::State;
use crate::limits::CHUNK_ATTEMPTS_MAX;
use crate::placement::GiveUpReason;
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
    /// changes nothing. A decision of an operator counts as no loss and forgives those before. Returns whether this is
    /// news.
    pub fn index_lost(
        &mut self,
        before: &ChunkRow,
        (index, why): (u32, &GiveUpReason),
        now: Time,
        writes: &mut Vec<Write>,
    ) -> bool {
        if before.state != ChunkState::Built || before.index != index {
            return false;
        }
        let mut after = before.clone();
        (after.built, after.placed) = (None, false);
        after.index = after.index.saturating_add(1);
        let (state, error) = match why {
            GiveUpReason::Lost(why) => {
                after.indexes_lost = after.indexes_lost.saturating_add(1);
                let exhausted = after.indexes_lost >= CHUNK_ATTEMPTS_MAX;
                let state = if exhausted { ChunkState::SetAside } else { ChunkState::Crawled };
                (state, format!("its index was given up: {why}").into())
            }
            GiveUpReason::BuildAgain => {
                after.indexes_lost = 0;
                (ChunkState::Crawled, "its index was given up: an operator asked for another one".into())
            }
            GiveUpReason::Skip => {
                (after.indexes_lost, after.inputs_lost, after.ended) = (0, 0, [None; 2]);
                (ChunkState::Skipped, SKIPPED.into())
            }
        };
        after.last_error = Some(error);
        after.move_on(state, now);
        after.attempts = after.indexes_lost;
        self.store(Some(before), after, writes);
        true
    }
}
