//! A batch on its way to the database: sorted, deduplicated, with the sender of its answer.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::oneshot;
use wayleave_core::ids::{Epoch, ShardId};
use wayleave_engine::rows::key::{OUTSIDE, is_about_nodes};
use wayleave_engine::{Batch, Error, Expect, Fence, Write};

/// Batches that share a lane are committed in order of arrival. A shard is a lane. Rows outside the shards are hashed
/// to lanes by key, so that one locked row delays only batches that need it.
pub(crate) type OrderKey = u32;

/// The kind of transaction that a batch belongs in. Only batches of one kind share a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchKind {
    /// Commits of shard owners.
    Owners,
    /// Compare-and-swaps without a fence. They are refused whenever another node was faster, and that must not split
    /// the transactions of owners.
    CompareAndSwaps,
    /// Node leases and seats. They have a committer of their own, so that a node stays alive whatever delays the
    /// others.
    Nodes,
}

/// The required value of a shard's fence row and its new value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) shard: u16,
    pub(crate) epoch: i64,
    pub(crate) prev: i64,
    pub(crate) next: i64,
}

/// A batch on its way to the database.
pub(crate) struct PendingBatch {
    /// Its sequence number among all batches of this process.
    pub(crate) number: u64,
    /// As given by the caller, for the error when they do not hold.
    pub(crate) fences: Vec<Fence>,
    /// The combined fence per shard, by shard; `None` if they can never hold.
    pub(crate) moves: Option<Vec<Move>>,
    /// By key, deduplicated.
    pub(crate) expects: Vec<(Bytes, Option<Bytes>)>,
    /// By key, the last write of each.
    pub(crate) writes: Vec<(Bytes, Option<Bytes>)>,
    /// The shards that it touches, by fence or by key, sorted.
    pub(crate) shards: Vec<u16>,
    /// The lanes that it touches, sorted.
    pub(crate) lanes: Vec<OrderKey>,
    pub(crate) kind: BatchKind,
    /// The bytes of its keys and values.
    pub(crate) bytes: usize,
    answer: Mutex<Option<oneshot::Sender<Result<(), Error>>>>,
}

impl PendingBatch {
    /// Prepares a batch. Fails with [`Error::Conflict`] if its conditions contradict each other.
    pub(crate) fn new(batch: Batch, answer: oneshot::Sender<Result<(), Error>>) -> Result<Self, Error> {
        let expects = sort_expects(&batch.expects).ok_or(Error::Conflict)?;
        let writes = sort_writes(batch.writes);
        let keys = || writes.iter().chain(&expects).map(|(key, _)| key);
        let mut lanes: Vec<OrderKey> = batch.fences.iter().map(|fence| lane(fence.shard.0, 0)).collect();
        for lane in keys().map(|key| lane_of(key)) {
            // Adjacent keys share a lane, so this removes most duplicates early.
            if lanes.last() != Some(&lane) {
                lanes.push(lane);
            }
        }
        lanes.sort_unstable();
        lanes.dedup();
        let mut shards: Vec<u16> = lanes.iter().map(|lane| (lane >> 16) as u16).collect();
        shards.dedup();
        let kind =
            if lanes.last().is_some_and(|last| *last >= lane(OUTSIDE.0, 0)) && keys().any(|key| is_about_nodes(key)) {
                BatchKind::Nodes
            } else if batch.fences.is_empty() && !expects.is_empty() {
                BatchKind::CompareAndSwaps
            } else {
                BatchKind::Owners
            };
        let size = |(key, value): &(Bytes, Option<Bytes>)| key.len() + value.as_ref().map_or(0, Bytes::len);
        let bytes = writes.iter().chain(&expects).map(size).sum();
        let moves = chain(&batch.fences);
        let fences = batch.fences;
        let answer = Mutex::new(Some(answer));
        Ok(Self { number: 0, fences, moves, expects, writes, shards, lanes, kind, bytes, answer })
    }

    /// Answers the caller. The receiver may be gone; the outcome stays.
    pub(crate) fn answer(&self, outcome: Result<(), Error>) {
        let answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(answer) = answer {
            _ = answer.send(outcome);
        }
    }
}

/// The shard that a key belongs to.
pub(crate) fn shard_of(key: &[u8]) -> u16 {
    let byte = |at: usize| key.get(at).copied().unwrap_or(0);
    u16::from_be_bytes([byte(0), byte(1)])
}

const fn lane(shard: u16, within: u16) -> OrderKey {
    (shard as OrderKey) << 16 | within as OrderKey
}

fn lane_of(key: &[u8]) -> OrderKey {
    let shard = shard_of(key);
    // FNV-1a, folded. A collision only makes batches wait for each other.
    let hash = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    if ShardId(shard) != OUTSIDE {
        return lane(shard, 0);
    }
    let hash = key.iter().fold(0x811c_9dc5, hash);
    lane(shard, (hash ^ hash >> 16) as u16)
}

/// Combines the fences of each shard. Fences of one shard must be consecutive.
fn chain(fences: &[Fence]) -> Option<Vec<Move>> {
    let mut moves: BTreeMap<u16, Move> = BTreeMap::new();
    for fence in fences {
        // Epoch 0 has no owner.
        if fence.epoch == Epoch(0) {
            return None;
        }
        let (epoch, next) = (i64::try_from(fence.epoch.0).ok()?, i64::try_from(fence.seq).ok()?);
        let (shard, prev) = (fence.shard.0, fence.seq.checked_sub(1)?.cast_signed());
        let step = Move { shard, epoch, prev, next };
        match moves.get_mut(&shard) {
            None => drop(moves.insert(shard, step)),
            Some(before) if before.epoch == epoch && before.next == prev => before.next = next,
            Some(_) => return None,
        }
    }
    Some(moves.into_values().collect())
}

/// Sorted by key and deduplicated; `None` if two contradict each other.
pub(crate) fn sort_expects(expects: &[Expect]) -> Option<Vec<(Bytes, Option<Bytes>)>> {
    let mut sorted: BTreeMap<&[u8], Option<&[u8]>> = BTreeMap::new();
    for (key, value) in expects {
        let value = value.as_deref();
        if sorted.insert(key, value).is_some_and(|other| other != value) {
            return None;
        }
    }
    let copy = Bytes::copy_from_slice;
    Some(sorted.into_iter().map(|(key, value)| (copy(key), value.map(copy))).collect())
}

fn sort_writes(writes: Vec<Write>) -> Vec<(Bytes, Option<Bytes>)> {
    let writes = writes.into_iter().map(|write| (Bytes::from(write.key), write.value.map(Bytes::from)));
    last_of_each(writes.collect())
}

/// Sorted by key, the last write of each key.
pub(crate) fn last_of_each(mut writes: Vec<(Bytes, Option<Bytes>)>) -> Vec<(Bytes, Option<Bytes>)> {
    // Stable, so that the last of equal keys is the latest.
    writes.sort_by(|a, b| a.0.cmp(&b.0));
    writes.dedup_by(|later, earlier| {
        let same = later.0 == earlier.0;
        if same {
            std::mem::swap(later, earlier);
        }
        same
    });
    writes
}
