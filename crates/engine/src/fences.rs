//! Who owns which shard and how far its commits have come: the check that every engine makes in its own way.

use std::collections::BTreeMap;

use wayleave_core::ids::{Epoch, ShardId};

use crate::{Error, Fence};

/// A shard's owner and its last commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// The owner's epoch; 0 while nobody has ever owned the shard.
    pub epoch: Epoch,
    /// The number of the last commit; 0 before the first.
    pub seq: u64,
}

/// The turns of all shards, for engines that keep them in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fences(BTreeMap<ShardId, Turn>);

impl Fences {
    /// A shard's turn.
    #[must_use]
    pub fn turn(&self, shard: ShardId) -> Turn {
        self.0.get(&shard).copied().unwrap_or_default()
    }

    /// Sets a shard's turn.
    pub fn set(&mut self, shard: ShardId, turn: Turn) {
        self.0.insert(shard, turn);
    }

    /// The turns that the shards of `fences` have once the batch is applied. Fences of one shard count one after the
    /// other, so that batches in a row may be merged into one.
    ///
    /// # Errors
    /// [`Error::Fenced`] if one of them does not hold.
    pub fn check(&self, fences: &[Fence]) -> Result<Vec<(ShardId, Turn)>, Error> {
        let mut next: BTreeMap<ShardId, Turn> = BTreeMap::new();
        for fence in fences {
            let turn = next.get(&fence.shard).copied().unwrap_or_else(|| self.turn(fence.shard));
            // Epoch 0 is nobody's: without this an owner that never called `own` could write.
            let holds = turn.epoch != Epoch(0)
                && fence.epoch == turn.epoch
                && turn.seq.checked_add(1).is_some_and(|seq| seq == fence.seq);
            if !holds {
                return Err(Error::Fenced { shard: fence.shard.0, epoch: turn.epoch.0, seq: turn.seq });
            }
            next.insert(fence.shard, Turn { epoch: turn.epoch, seq: fence.seq });
        }
        Ok(next.into_iter().collect())
    }
}
