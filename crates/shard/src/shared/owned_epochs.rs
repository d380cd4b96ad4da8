//! The epochs under which this process holds its shards. A commit on behalf of another shard's owner must fall within
//! that owner's term.

use std::sync::Mutex;

use wayleave_core::ids::{Epoch, ShardId};
use wayleave_engine::Fence;

use crate::shared::readiness::lock;

/// How this process holds a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EpochState {
    /// Not at all; another node may.
    Not,
    /// Its local owner is about to own the shard in the store.
    Opening,
    /// Its local owner works under this epoch.
    Under(Epoch),
}

/// How this process holds each shard.
pub(crate) struct OwnedEpochs(Mutex<Vec<EpochState>>);

impl OwnedEpochs {
    pub fn new(shards: u16) -> Self {
        Self(Mutex::new(vec![EpochState::Not; shards.into()]))
    }

    pub fn set(&self, shard: ShardId, hold: EpochState) {
        if let Some(slot) = lock(&self.0).get_mut(usize::from(shard.0)) {
            *slot = hold;
        }
    }

    /// Whether a batch may be committed under these fences of other owners.
    pub fn allow(&self, fences: &[Fence]) -> bool {
        allow(&lock(&self.0), fences)
    }

    /// Runs `what` while these fences of other owners hold and `awaited` is true, and keeps their shards from being
    /// opened meanwhile. `None` if they do not hold.
    pub fn while_allowed<T>(
        &self,
        fences: &[Fence],
        awaited: impl FnOnce() -> bool,
        what: impl FnOnce() -> T,
    ) -> Option<T> {
        let held = lock(&self.0);
        (allow(&held, fences) && awaited()).then(what)
    }
}

fn allow(held: &[EpochState], fences: &[Fence]) -> bool {
    fences.iter().all(|fence| match held.get(usize::from(fence.shard.0)) {
        Some(EpochState::Not) => true,
        Some(EpochState::Under(epoch)) => *epoch == fence.epoch,
        Some(EpochState::Opening) | None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_owner_s_fence_does_not_hold_where_the_shard_is_being_opened_or_has_a_newer_epoch() {
        let held = OwnedEpochs::new(2);
        let fences = [Fence { shard: ShardId(1), epoch: Epoch(4), seq: 9 }];
        assert!(held.allow(&fences), "its owner is on another node");
        held.set(ShardId(1), EpochState::Under(Epoch(4)));
        assert_eq!(held.while_allowed(&fences, || true, || 7), Some(7));
        assert_eq!(held.while_allowed(&fences, || false, || 7), None, "nobody waits for it");
        for hold in [EpochState::Opening, EpochState::Under(Epoch(5))] {
            held.set(ShardId(1), hold);
            assert!(!held.allow(&fences));
            assert_eq!(held.while_allowed(&fences, || true, || 7), None);
        }
    }
}
