//! The store: batches go to the journal and to memory, rows are read from memory and, under it, from the database's
//! tables. It knows nothing of clocks, nor of how memory becomes tables.

use std::iter::Peekable;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use fjall::{Database, Keyspace, Readable, Snapshot};
use wayleave_core::ids::{Epoch, ShardId};
use wayleave_core::time::Time;
use wayleave_engine::fences::{Fences, Turn};
use wayleave_engine::{Commit, Error, Expect, Fence, Key, Row, Scan, Value, Write};

use crate::blocks::BLOCK_BYTES;
use crate::fence_row;
use crate::memtable::Found;
use crate::partitions::{Partition, Partitions, Place, lock, shard_of};
use crate::record::{self, Record};
use crate::syncer::Syncer;
use crate::trouble;

/// What a batch counts for at least, whatever it holds: alone it fills a block of the journal, which is read again at open.
const BATCH_BYTES_MIN: usize = BLOCK_BYTES / 2;

/// All rows: those in memory and those in tables.
pub(crate) struct Store {
    // The order of the fields is the order in which they end: the last sync, then the database.
    pub(crate) syncer: Syncer,
    pub(crate) partitions: Partitions,
    pub(crate) rows: Keyspace,
    pub(crate) database: Database,
    /// Memory that the active rows of all shards take, or half of what they take of the journal, whichever is more.
    pub(crate) active_bytes: AtomicUsize,
    /// From so much on they are frozen and go to a table.
    pub(crate) freeze_bytes: usize,
    pub(crate) flush: Mutex<Flush>,
    /// Told when there is something to flush, and when there is room again.
    pub(crate) flush_changed: Condvar,
}

/// What the flushing thread and the batches tell each other.
#[derive(Default)]
pub(crate) struct Flush {
    pub(crate) closing: bool,
}

type Guard<'a> = (ShardId, MutexGuard<'a, Partition>);

impl Store {
    pub(crate) fn new(
        syncer: Syncer,
        partitions: Partitions,
        (database, rows): (Database, Keyspace),
        (freeze_bytes, journal_bytes): (usize, usize),
    ) -> Self {
        let active: usize = partitions.with_all(|all| all.iter().map(|(_, partition)| partition.active.bytes()).sum());
        let active = active.max(journal_bytes / 2);
        let (active_bytes, flush, flush_changed) = (AtomicUsize::new(active), Mutex::default(), Condvar::new());
        Self { syncer, partitions, rows, database, active_bytes, freeze_bytes, flush, flush_changed }
    }

    /// When the latest of all batches was committed.
    pub(crate) fn last_committed(&self) -> Time {
        self.partitions.with_all(|all| all.iter().map(|(_, partition)| partition.at).max()).unwrap_or(Time::ZERO)
    }

    /// Makes this process the owner of a shard.
    pub(crate) fn own(&self, shard: ShardId, expects: &[Expect], at: Time) -> Result<(Turn, Commit), Error> {
        self.syncer.check()?;
        let shards = shards_of(&[], expects, &[], std::iter::once(shard));
        let places = self.partitions.at(&shards);
        let mut guards = lock_all(&places);
        self.check_rows(&guards, expects)?;
        let old = partition(&mut guards, shard).map(|partition| partition.turn).unwrap_or_default();
        let turn = Turn { epoch: Epoch(old.epoch.0.saturating_add(1)), seq: old.seq };
        let turns = [(shard, turn)];
        let durable = self.syncer.append(&record::encode_batch(at, &turns, &[]))?;
        self.apply(&mut guards, &turns, &[], at);
        Ok((turn, durable))
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
        self.wait_for_room();
        let shards = shards_of(fences, expects, writes, std::iter::empty());
        let places = self.partitions.at(&shards);
        let mut guards = lock_all(&places);
        let mut known = Fences::default();
        for fence in fences {
            if let Some(partition) = partition(&mut guards, fence.shard) {
                known.set(fence.shard, partition.turn);
            }
        }
        let turns = known.check(fences)?;
        self.check_rows(&guards, expects)?;
        // Inside the locks: the order in the journal is the order in which the batches of a shard were applied.
        let durable = self.syncer.append(&record::encode_batch(at, &turns, writes))?;
        self.apply(&mut guards, &turns, writes, at);
        Ok(durable)
    }

    fn apply(&self, guards: &mut [Guard<'_>], turns: &[(ShardId, Turn)], writes: &[Write], at: Time) {
        let grown = apply(guards, turns, writes, at).max(BATCH_BYTES_MIN);
        let held = self.active_bytes.fetch_add(grown, Ordering::Relaxed).wrapping_add(grown);
        if held >= self.freeze_bytes && held.wrapping_sub(grown) < self.freeze_bytes {
            self.tell_flush();
        }
    }

    /// Wakes whoever waits for something to flush, or for room.
    pub(crate) fn tell_flush(&self) {
        // The lock lies between their look and their sleep: nobody misses it.
        drop(self.flush.lock().unwrap_or_else(PoisonError::into_inner));
        self.flush_changed.notify_all();
    }

    /// Waits while memory is full and its rows cannot go to tables fast enough.
    fn wait_for_room(&self) {
        let full = || self.active_bytes.load(Ordering::Relaxed) >= self.freeze_bytes * 3 / 2;
        if !full() {
            return;
        }
        let flush = self.flush.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = |flush: &mut Flush| full() && !flush.closing && self.syncer.check().is_ok();
        drop(self.flush_changed.wait_while(flush, wait));
    }

    /// Whether rows are as expected.
    fn check_rows(&self, guards: &[Guard<'_>], expects: &[Expect]) -> Result<(), Error> {
        for (key, expected) in expects {
            let holds = match in_memory(guards, key) {
                Some(found) => found == expected.as_deref(),
                None => {
                    let found = self.rows.get(key).map_err(|error| trouble::on_read(&error))?;
                    found.as_deref() == expected.as_deref()
                }
            };
            if !holds {
                return Err(Error::Conflict);
            }
        }
        Ok(())
    }

    /// The values of keys.
    pub(crate) fn get(&self, keys: &[Key]) -> Result<Vec<Option<Value>>, Error> {
        self.syncer.check()?;
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut shards: Vec<ShardId> = keys.iter().map(|key| shard_of(key)).collect();
        shards.sort_unstable();
        shards.dedup();
        let places = self.partitions.at(&shards);
        // All locks, then one snapshot: a batch is seen wholly or not at all, wherever its rows are by now.
        let guards = lock_all(&places);
        let snapshot = self.database.snapshot();
        let get = |key: &Key| match in_memory(&guards, key) {
            Some(found) => Ok(found.map(<[u8]>::to_vec)),
            None => Ok(snapshot.get(&self.rows, key)?.map(|value| value.to_vec())),
        };
        keys.iter().map(get).collect::<Result<_, _>>().map_err(|error| trouble::on_read(&error))
    }

    /// The rows of scans.
    pub(crate) fn scan(&self, scans: &[Scan]) -> Result<Vec<Vec<Row>>, Error> {
        self.syncer.check()?;
        let scans_of = |scan: &Scan| (shard_of(&scan.from), shard_of(&scan.to));
        let first = scans.iter().map(|scan| scans_of(scan).0).min().unwrap_or(ShardId(0));
        let last = scans.iter().map(|scan| scans_of(scan).1).max().unwrap_or(ShardId(0));
        let places = self.partitions.between(first, last);
        let guards: Vec<MutexGuard<'_, Partition>> = places.iter().map(|place| lock(place)).collect();
        let snapshot = self.database.snapshot();
        let scan = |scan: &Scan| self.scan_one(&guards, &snapshot, scan);
        scans.iter().map(scan).collect::<Result<_, _>>().map_err(|error: fjall::Error| trouble::on_read(&error))
    }

    fn scan_one(
        &self,
        guards: &[MutexGuard<'_, Partition>],
        snapshot: &Snapshot,
        scan: &Scan,
    ) -> Result<Vec<Row>, fjall::Error> {
        let mut found = Vec::new();
        if scan.from >= scan.to || scan.limit == 0 {
            return Ok(found);
        }
        let in_memory = guards.iter().flat_map(|partition| {
            let frozen = partition.frozen.iter().flat_map(|table| table.range(&scan.from, &scan.to));
            Over { upper: partition.active.range(&scan.from, &scan.to).peekable(), lower: frozen.peekable() }
        });
        let in_tables = snapshot.range::<&[u8], _>(&self.rows, scan.from.as_slice()..scan.to.as_slice());
        let mut in_tables = in_tables.map(|row| row.into_inner());
        let mut in_memory = in_memory.peekable();
        let mut table_row = next_row(&mut in_tables)?;
        while found.len() < scan.limit {
            let from_memory = match (in_memory.peek(), &table_row) {
                (None, None) => break,
                (Some((upper, _)), Some((lower, _))) if upper == lower => {
                    table_row = next_row(&mut in_tables)?;
                    true
                }
                (Some((upper, _)), Some((lower, _))) => upper < lower,
                (upper, _) => upper.is_some(),
            };
            let next = if from_memory {
                in_memory.next()
            } else {
                let lower = std::mem::replace(&mut table_row, next_row(&mut in_tables)?);
                lower.map(|(key, value)| (key, Some(value)))
            };
            if let Some((key, Some(value))) = next.filter(|(key, _)| !fence_row::is_own_key(key)) {
                found.push(Row { key, value });
            }
        }
        Ok(found)
    }
}

/// Applies what a record of the journal says.
pub(crate) fn replay(partitions: &Partitions, record: Record) {
    let Record::Batch { at, turns, writes } = record else { return };
    let shards = shards_of(&[], &[], &writes, turns.iter().map(|(shard, _)| *shard));
    let places = partitions.at(&shards);
    let mut guards = lock_all(&places);
    apply(&mut guards, &turns, &writes, at);
}

/// Applies a batch to the shards that it touches; returns by how much their memory grew, wrapping if it shrank.
fn apply(guards: &mut [Guard<'_>], turns: &[(ShardId, Turn)], writes: &[Write], at: Time) -> usize {
    for (shard, turn) in turns {
        if let Some(partition) = partition(guards, *shard) {
            partition.set_turn(*turn, at);
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

type Pair = Result<(fjall::UserKey, fjall::UserValue), fjall::Error>;

fn next_row(rows: &mut impl Iterator<Item = Pair>) -> Result<Option<(Key, Value)>, fjall::Error> {
    Ok(rows.next().transpose()?.map(|(key, value)| (key.to_vec(), value.to_vec())))
}

/// Two sources in order, of which the upper one hides the lower one.
struct Over<A: Iterator<Item = Found>, B: Iterator<Item = Found>> {
    upper: Peekable<A>,
    lower: Peekable<B>,
}

impl<A: Iterator<Item = Found>, B: Iterator<Item = Found>> Iterator for Over<A, B> {
    type Item = Found;
    fn next(&mut self) -> Option<Found> {
        let Some((upper, _)) = self.upper.peek() else { return self.lower.next() };
        match self.lower.peek() {
            Some((lower, _)) if lower < upper => self.lower.next(),
            Some((lower, _)) if lower == upper => {
                self.lower.next();
                self.upper.next()
            }
            _ => self.upper.next(),
        }
    }
}

fn lock_all(places: &[(ShardId, Place)]) -> Vec<Guard<'_>> {
    places.iter().map(|(shard, place)| (*shard, lock(place))).collect()
}

/// What memory knows of a row: nothing, that it was removed, or its value.
fn in_memory<'a>(guards: &'a [Guard<'_>], key: &[u8]) -> Option<Option<&'a [u8]>> {
    let shard = shard_of(key);
    guards.iter().find(|(s, _)| *s == shard).and_then(|(_, partition)| partition.get(key))
}

fn partition<'a>(guards: &'a mut [Guard<'_>], shard: ShardId) -> Option<&'a mut Partition> {
    guards.iter_mut().find(|(s, _)| *s == shard).map(|(_, partition)| &mut **partition)
}

/// All shards that a batch touches, in order.
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
