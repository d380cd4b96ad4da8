//! The values that cross the engine contract: keys, rows, scans, and batches with their fences.

use serde::{Deserialize, Serialize};
use wayleave_core::ids::{Epoch, ShardId};
use wayleave_core::time::Time;

/// An ordered key: two bytes of shard, one byte of row kind, then the row's name. Kind 0 is reserved for engines;
/// callers neither read nor write it.
pub type Key = Vec<u8>;
/// A value.
pub type Value = Vec<u8>;

/// A row in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its key.
    pub key: Key,
    /// Its value.
    pub value: Value,
}

/// A change to one row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// The row's key.
    pub key: Key,
    /// The new value; `None` deletes the row.
    pub value: Option<Value>,
}

/// A range scan in key order: from `from` (inclusive) to `to` (exclusive), at most `limit` rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The first key, inclusive.
    pub from: Key,
    /// The end key, exclusive.
    pub to: Key,
    /// At most this many rows.
    pub limit: usize,
}

/// A fencing condition: the batch applies only if `shard` is still owned under `epoch` and its last commit was `seq -
/// 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    /// The shard.
    pub shard: ShardId,
    /// The owner's epoch.
    pub epoch: Epoch,
    /// The sequence number of this commit.
    pub seq: u64,
}

/// A compare-and-swap condition: the row must have this value (`None`: must be absent).
pub type Expect = (Key, Option<Value>);

/// A consistent read of rows with the store's own time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// The store's time at the read. Never later than the time of any change that the read did not see.
    pub now: Time,
    /// Identifies the store instance; changes on failover or restore. Grants made shortly before the change may be
    /// lost.
    pub incarnation: u64,
    /// Since when this process knows the store's clock to have run evenly. Leases that were granted or renewed before may end
    /// earlier by this clock than their holders expect: a process acts on the end of a lease only one time to live later.
    pub steady_since: Time,
    /// The rows of each scan, in the order of the scans.
    pub rows: Vec<Vec<Row>>,
}

/// Writes that are applied atomically.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// Fences, which must all hold. Several fences of one shard are checked in sequence.
    pub fences: Vec<Fence>,
    /// Compare-and-swap conditions; a mismatch is a conflict.
    pub expects: Vec<Expect>,
    /// The writes. If a key occurs twice, the later write wins.
    pub writes: Vec<Write>,
}
