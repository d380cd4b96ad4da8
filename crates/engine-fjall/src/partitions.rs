//! The in-memory part of each shard: its fence state and its memtables. A shard's lock is held from the check of a
//! batch until it is applied; several locks are taken in the order of shard numbers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use wayleave_core::ids::ShardId;
use wayleave_core::time::Time;
use wayleave_engine::fences::FenceState;

use crate::memtable::Memtable;

/// One shard.
#[derive(Debug, Default)]
pub(crate) struct Partition {
    pub(crate) fence: FenceState,
    /// The time of its last commit.
    pub(crate) at: Time,
    /// Why the stored fence cannot be read, if so: then the shard may have no owner.
    pub(crate) fence_lost: Option<String>,
    /// Whether the fence state has changed since it was last flushed.
    pub(crate) fence_changed: bool,
    /// The active memtable: rows that changed since the last freeze.
    pub(crate) active: Memtable,
    /// The frozen memtable, which is being flushed.
    pub(crate) frozen: Option<Arc<Memtable>>,
}

impl Partition {
    /// Looks a row up in memory: `None` if unknown, `Some(None)` for a tombstone.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        self.active.get(key).or_else(|| self.frozen.as_ref()?.get(key))
    }

    pub(crate) fn set_fence(&mut self, fence: FenceState, at: Time) {
        (self.fence, self.fence_changed, self.fence_lost) = (fence, true, None);
        self.at = self.at.max(at);
    }
}

/// A shared handle of a shard.
pub(crate) type SharedPartition = Arc<Mutex<Partition>>;

/// All shards seen so far.
#[derive(Default)]
pub(crate) struct Partitions(RwLock<BTreeMap<ShardId, SharedPartition>>);

/// The shard of a key. A key that is too short is padded with zeros, which preserves key order.
pub(crate) fn shard_of(key: &[u8]) -> ShardId {
    let byte = |at: usize| key.get(at).copied().unwrap_or(0);
    ShardId(u16::from_be_bytes([byte(0), byte(1)]))
}

pub(crate) fn lock(place: &Mutex<Partition>) -> MutexGuard<'_, Partition> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Partitions {
    /// These shards, created on first use. `shards` is sorted, and so is the result.
    pub(crate) fn at(&self, shards: &[ShardId]) -> Vec<(ShardId, SharedPartition)> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let find = |shard: &ShardId| Some((*shard, known.get(shard)?.clone()));
        if let Some(found) = shards.iter().map(find).collect() {
            return found;
        }
        drop(known);
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        shards.iter().map(|shard| (*shard, all.entry(*shard).or_default().clone())).collect()
    }

    /// The shards from one to another, both inclusive.
    pub(crate) fn between(&self, first: ShardId, last: ShardId) -> Vec<SharedPartition> {
        if first > last {
            return Vec::new();
        }
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.range(first..=last).map(|(_, place)| place.clone()).collect()
    }

    /// Runs `act` with all shards locked.
    pub(crate) fn with_all<T>(&self, act: impl FnOnce(&mut [(ShardId, MutexGuard<'_, Partition>)]) -> T) -> T {
        // Held as well, so that no shard is created meanwhile.
        let known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = known.iter().map(|(shard, place)| (*shard, lock(place))).collect();
        act(&mut all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_follow_the_order_of_keys() {
        let keys: [&[u8]; 7] = [&[], &[0, 0, 9], &[0, 1], &[0, 1, 0], &[1], &[1, 0, 0], &[1, 1]];
        assert!(keys.is_sorted());
        assert!(keys.map(shard_of).is_sorted());
    }
}
