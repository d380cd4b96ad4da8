//! The store: checks batches, appends them to the journal and applies them to the memtables. Reads are in
//! [`crate::reads`]. It knows nothing about clocks or flushing.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::oneshot;
use wayleave_core::ids::{Epoch, ShardId};
use wayleave_core::time::Time;
use wayleave_engine::fences::{FenceState, Fences};
use wayleave_engine::{Commit, Error, Expect, Fence, Write};

use crate::blocks::BLOCK_BYTES;
use crate::merger::Merging;
use crate::partitions::{Partition, Partitions, SharedPartition, lock, shard_of};
use crate::record::{self, Record};
use crate::syncer::Syncer;
use crate::tables::{Snapshot, Tables};

/// The minimum size that a batch counts for in the journal: on its own it fills a block.
const BATCH_BYTES_MIN: usize = BLOCK_BYTES / 2;

/// All rows: the memtables over the tables.
pub(crate) struct Store<T: Tables> {
    // Field order is drop order: the last sync, then the tables.
    pub(crate) syncer: Syncer,
    pub(crate) partitions: Partitions,
    pub(crate) tables: T,
    /// The latest commit time of any batch, fenced or not, in milliseconds: roles are judged by it too.
    last_committed: AtomicU64,
    /// The memory of the active memtables.
    pub(crate) active_bytes: AtomicUsize,
    /// The size of the journal files that contain them.
    pub(crate) journal_bytes: AtomicUsize,
    /// The size that triggers a flush.
    pub(crate) freeze_bytes: usize,
    pub(crate) flush: Mutex<Flush<T::Snapshot>>,
    /// Notified when there is something to flush, and when there is room again.
    pub(crate) flush_changed: Condvar,
    pub(crate) merging: Mutex<Merging>,
    /// Notified when there may be something to merge.
    pub(crate) merging_changed: Condvar,
    /// Why batches are refused at the moment although the store is healthy: the disk is nearly full.
    pub(crate) refuses: Mutex<Option<String>>,
    /// Why callers should add nothing at the moment: the disk has little more room than merges need.
    pub(crate) refuses_growth: Mutex<Option<String>>,
    /// What was written to the journal since the start, and how much that may be before the watchdog has looked again: on a busy
    /// machine its looks may be far apart.
    pub(crate) appended: AtomicU64,
    pub(crate) growth_until: AtomicU64,
}

/// What callers hear that add more than there was room for at the watchdog's last look.
const GROWS_TOO_FAST: &str = "the disk of the data folder is filling up: free some space, or delete crawls or URLs; nothing was \
    added, and new URLs are accepted again automatically";

/// State shared by the flush thread and committing threads.
pub(crate) struct Flush<S> {
    pub(crate) closing: bool,
    /// Requests for a snapshot after the next flush.
    pub(crate) wanted: Vec<oneshot::Sender<S>>,
    /// Whether the thread has ended: no more snapshots.
    pub(crate) over: bool,
    /// Since when commits have been waiting for room.
    pub(crate) stalled_since: Option<Instant>,
}

pub(crate) type Guard<'a> = (ShardId, MutexGuard<'a, Partition>);

/// The initial state of a store.
pub(crate) struct Start<T> {
    pub(crate) syncer: Syncer,
    pub(crate) partitions: Partitions,
    pub(crate) tables: T,
    /// The latest commit time.
    pub(crate) last_committed: Time,
    /// The memtable size that triggers a flush.
    pub(crate) freeze_bytes: usize,
    /// The size of the journal that the next open would replay.
    pub(crate) journal_bytes: usize,
}

impl<T: Tables> Store<T> {
    pub(crate) fn new(start: Start<T>) -> Self {
        let Start { syncer, partitions, tables, last_committed, freeze_bytes, journal_bytes } = start;
        let active: usize = partitions.with_all(|all| all.iter().map(|(_, partition)| partition.active.bytes()).sum());
        Self {
            syncer,
            partitions,
            tables,
            last_committed: AtomicU64::new(last_committed.0),
            active_bytes: AtomicUsize::new(active),
            journal_bytes: AtomicUsize::new(journal_bytes),
            freeze_bytes,
            flush: Mutex::new(Flush { closing: false, wanted: Vec::new(), over: false, stalled_since: None }),
            flush_changed: Condvar::new(),
            merging: Mutex::default(),
            merging_changed: Condvar::new(),
            refuses: Mutex::default(),
            refuses_growth: Mutex::default(),
            appended: AtomicU64::new(0),
            growth_until: AtomicU64::new(u64::MAX),
        }
    }

    /// Why callers should add nothing at the moment, if so.
    pub(crate) fn refuses_growth(&self) -> Option<String> {
        let refused = self.refuses_growth.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_over = || self.appended.load(Ordering::Relaxed) > self.growth_until.load(Ordering::Relaxed);
        refused.or_else(|| is_over().then(|| GROWS_TOO_FAST.to_owned()))
    }

    /// The latest commit time of any batch.
    pub(crate) fn last_committed(&self) -> Time {
        Time(self.last_committed.load(Ordering::Relaxed))
    }

    /// Takes ownership of a shard.
    pub(crate) fn own(&self, shard: ShardId, expects: &[Expect], at: Time) -> Result<(FenceState, Commit), Error> {
        self.syncer.check()?;
        let shards = shards_of(&[], expects, &[], std::iter::once(shard));
        let places = self.partitions.at(&shards);
        let mut guards = lock_all(&places);
        self.check_rows(&guards, expects)?;
        let owned = partition(&mut guards, shard);
        if let Some(why) = owned.as_ref().and_then(|partition| partition.fence_lost.clone()) {
            return Err(Error::Corrupt(why));
        }
        let old = owned.map(|partition| partition.fence).unwrap_or_default();
        let fence = FenceState { epoch: Epoch(old.epoch.0.saturating_add(1)), seq: old.seq };
        let fence_states = [(shard, fence)];
        let record = record::encode_batch(at, &fence_states, &[]);
        let durable = self.syncer.append(&record)?;
        self.apply(&mut guards, &fence_states, &[], at, record.len());
        Ok((fence, durable))
    }

    /// Checks and applies a batch.
    pub(crate) fn commit(
        &self,
        fences: &[Fence],
        expects: &[Expect],
        writes: &[Write],
        at: Time,
    ) -> Result<Commit, Error> {
        self.syncer.check()?;
        self.check_refusal()?;
        self.wait_for_room();
        // What was true before the wait may not be any more.
        self.check_refusal()?;
        self.warm(expects)?;
        let shards = shards_of(fences, expects, writes, std::iter::empty());
        let places = self.partitions.at(&shards);
        let mut guards = lock_all(&places);
        let mut known = Fences::default();
        for fence in fences {
            if let Some(partition) = partition(&mut guards, fence.shard) {
                known.set(fence.shard, partition.fence);
            }
        }
        let fence_states = known.check(fences)?;
        self.check_rows(&guards, expects)?;
        // Under the locks: the order in the journal is the order in which a shard's batches were applied.
        let record = record::encode_batch(at, &fence_states, writes);
        let durable = self.syncer.append(&record)?;
        self.apply(&mut guards, &fence_states, writes, at, record.len());
        Ok(durable)
    }

    fn check_refusal(&self) -> Result<(), Error> {
        let refuses = self.refuses.lock().unwrap_or_else(PoisonError::into_inner);
        refuses.as_ref().map_or(Ok(()), |why| Err(Error::Unavailable(why.clone())))
    }

    fn apply(
        &self,
        guards: &mut [Guard<'_>],
        fence_states: &[(ShardId, FenceState)],
        writes: &[Write],
        at: Time,
        record_bytes: usize,
    ) {
        // Under the locks of all shards that the batch touches, so a freeze sees it together with the batch's rows.
        self.last_committed.fetch_max(at.0, Ordering::Relaxed);
        let grown = apply(guards, fence_states, writes, at);
        let held = self.active_bytes.fetch_add(grown, Ordering::Relaxed).wrapping_add(grown);
        let written = record_bytes.max(BATCH_BYTES_MIN);
        let journal = self.journal_bytes.fetch_add(written, Ordering::Relaxed) + written;
        self.appended.fetch_add(written as u64, Ordering::Relaxed);
        let crossed = |after: usize, by: usize, limit: usize| after >= limit && after.wrapping_sub(by) < limit;
        if crossed(held, grown, self.freeze_bytes) || crossed(journal, written, self.journal_bytes_max()) {
            self.notify_flush();
        }
    }

    /// The size of the journal that triggers a flush: rows that are replaced again and again fill it, not the memtables.
    fn journal_bytes_max(&self) -> usize {
        self.freeze_bytes.saturating_mul(2)
    }

    /// Whether memtables or journal are so full that they should be flushed.
    pub(crate) fn is_full(&self) -> bool {
        self.active_bytes.load(Ordering::Relaxed) >= self.freeze_bytes
            || self.journal_bytes.load(Ordering::Relaxed) >= self.journal_bytes_max()
    }

    /// Wakes threads waiting for something to flush, or for room.
    pub(crate) fn notify_flush(&self) {
        // Locking between their check and their wait prevents a lost wake-up.
        drop(self.flush.lock().unwrap_or_else(PoisonError::into_inner));
        self.flush_changed.notify_all();
    }

    /// Requests a flush of everything, followed by a snapshot.
    pub(crate) fn ask_for_snapshot(&self, wanted: oneshot::Sender<T::Snapshot>) {
        let mut flush = self.flush.lock().unwrap_or_else(PoisonError::into_inner);
        if !flush.closing && !flush.over {
            flush.wanted.push(wanted);
            self.flush_changed.notify_all();
        }
    }

    /// Back-pressure: waits while the memtables are full and flushing cannot keep up.
    fn wait_for_room(&self) {
        let full = || {
            self.active_bytes.load(Ordering::Relaxed) >= self.freeze_bytes / 2 * 3
                || self.journal_bytes.load(Ordering::Relaxed) >= self.journal_bytes_max() / 2 * 3
        };
        if !full() {
            return;
        }
        let mut flush = self.flush.lock().unwrap_or_else(PoisonError::into_inner);
        flush.stalled_since.get_or_insert_with(Instant::now);
        let keep_going = || self.syncer.check().and_then(|()| self.check_refusal()).is_ok();
        let wait = |flush: &mut Flush<T::Snapshot>| full() && !flush.closing && keep_going();
        let waited = self.flush_changed.wait_while(flush, wait);
        waited.unwrap_or_else(PoisonError::into_inner).stalled_since = None;
    }

    /// Reads expected rows into the block cache, so that the check under the locks needs no disk I/O.
    fn warm(&self, expects: &[Expect]) -> Result<(), Error> {
        if expects.is_empty() {
            return Ok(());
        }
        let snapshot = self.tables.snapshot();
        expects.iter().try_for_each(|(key, _)| snapshot.get(key).map(drop))
    }

    /// Checks compare-and-swap conditions.
    fn check_rows(&self, guards: &[Guard<'_>], expects: &[Expect]) -> Result<(), Error> {
        if expects.is_empty() {
            return Ok(());
        }
        let snapshot = self.tables.snapshot();
        for (key, expected) in expects {
            let holds = match in_memory(guards, key) {
                Some(found) => found == expected.as_deref(),
                None => snapshot.get(key)?.as_deref() == expected.as_deref(),
            };
            if !holds {
                return Err(Error::Conflict);
            }
        }
        Ok(())
    }
}

/// Applies a journal record; returns the commit time of its batch.
pub(crate) fn replay(partitions: &Partitions, record: Record) -> Time {
    let Record::Batch { at, fence_states, writes } = record else { return Time::ZERO };
    let shards = shards_of(&[], &[], &writes, fence_states.iter().map(|(shard, _)| *shard));
    let places = partitions.at(&shards);
    let mut guards = lock_all(&places);
    apply(&mut guards, &fence_states, &writes, at);
    at
}

/// Applies a batch to its shards; returns the growth of their memory, wrapping if it shrank.
fn apply(guards: &mut [Guard<'_>], fence_states: &[(ShardId, FenceState)], writes: &[Write], at: Time) -> usize {
    for (shard, fence) in fence_states {
        if let Some(partition) = partition(guards, *shard) {
            partition.set_fence(*fence, at);
        }
    }
    let bytes = |guards: &[Guard<'_>]| guards.iter().map(|(_, partition)| partition.active.bytes()).sum::<usize>();
    let before = bytes(guards);
    for write in writes {
        if let Some(partition) = partition(guards, shard_of(&write.key)) {
            partition.active.put(&write.key, write.value.as_deref());
        }
    }
    bytes(guards).wrapping_sub(before)
}

pub(crate) fn lock_all(places: &[(ShardId, SharedPartition)]) -> Vec<Guard<'_>> {
    places.iter().map(|(shard, place)| (*shard, lock(place))).collect()
}

/// Looks a row up in memory: `None` if unknown, `Some(None)` for a tombstone.
pub(crate) fn in_memory<'a>(guards: &'a [Guard<'_>], key: &[u8]) -> Option<Option<&'a [u8]>> {
    let shard = shard_of(key);
    guards.iter().find(|(s, _)| *s == shard).and_then(|(_, partition)| partition.get(key))
}

fn partition<'a>(guards: &'a mut [Guard<'_>], shard: ShardId) -> Option<&'a mut Partition> {
    guards.iter_mut().find(|(s, _)| *s == shard).map(|(_, partition)| &mut **partition)
}

/// The sorted shards that a batch touches.
fn shards_of(
    fences: &[Fence],
    expects: &[Expect],
    writes: &[Write],
    more: impl Iterator<Item = ShardId>,
) -> Vec<ShardId> {
    let fences = fences.iter().map(|fence| fence.shard);
    let expects = expects.iter().map(|(key, _)| shard_of(key));
    let mut shards: Vec<ShardId> = fences.chain(expects).chain(more).collect();
    for write in writes {
        let shard = shard_of(&write.key);
        if shards.last() != Some(&shard) {
            shards.push(shard);
        }
    }
    shards.sort_unstable();
    shards.dedup();
    shards
}
