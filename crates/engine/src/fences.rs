//! Shard ownership and commit sequence numbers: the fence check, for engines that keep fences in memory.
//!
//! A batch is refused if its epoch is not the shard's present one, or its sequence number is not the next. So an owner
//! that was replaced, and a commit that overtakes another, change nothing. `engine-postgres` does the same in SQL, in its
//! `transaction`.

use std::collections::BTreeMap;

use wayleave_core::ids::{Epoch, ShardId};

use crate::{Error, Fence};

/// The state of a shard's fence: its owner's epoch and its last commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FenceState {
    /// The owner's epoch; 0 if the shard was never owned.
    pub epoch: Epoch,
    /// The sequence number of the last commit; 0 before the first.
    pub seq: u64,
}

/// The fence states of all shards, for engines that keep them in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fences(BTreeMap<ShardId, FenceState>);

impl Fences {
    /// The fence state of a shard.
    #[must_use]
    pub fn state(&self, shard: ShardId) -> FenceState {
        self.0.get(&shard).copied().unwrap_or_default()
    }

    /// Sets the fence state of a shard.
    pub fn set(&mut self, shard: ShardId, state: FenceState) {
        self.0.insert(shard, state);
    }

    /// The fence states of the shards of `fences` after the batch is applied. Several fences of one shard are checked
    /// in sequence, so consecutive batches can be merged into one. Fails with [`Error::Fenced`] if one of them does not
    /// hold.
    pub fn check(&self, fences: &[Fence]) -> Result<Vec<(ShardId, FenceState)>, Error> {
        let mut next: BTreeMap<ShardId, FenceState> = BTreeMap::new();
        for fence in fences {
            let state = next.get(&fence.shard).copied().unwrap_or_else(|| self.state(fence.shard));
            // Epoch 0 has no owner: without this check a caller that never called `own` could write.
            let holds = state.epoch != Epoch(0)
                && fence.epoch == state.epoch
                && state.seq.checked_add(1).is_some_and(|seq| seq == fence.seq);
            if !holds {
                return Err(Error::Fenced { shard: fence.shard.0, epoch: state.epoch.0, seq: state.seq });
            }
            next.insert(fence.shard, FenceState { epoch: state.epoch, seq: fence.seq });
        }
        Ok(next.into_iter().collect())
    }
}
