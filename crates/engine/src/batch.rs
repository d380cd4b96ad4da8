//! What goes to an engine: keys, values, scans, and batches with their fences.

use serde::{Deserialize, Serialize};
use wayleave_core::ids::{Epoch, ShardId};
use wayleave_core::time::Time;

/// An ordered key. The first two bytes are the shard that the row belongs to, the third is the row's kind. Kind 0 is kept
/// for engines: callers neither read nor write it.
pub type Key = Vec<u8>;
/// A value.
pub type Value = Vec<u8>;

/// A row as it lies in the store.
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
    /// The new value; none deletes the row.
    pub value: Option<Value>,
}

/// Rows in key order: from `from` (included) up to `to` (left out), at most `limit` of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The first key.
    pub from: Key,
    /// The end, itself left out.
    pub to: Key,
    /// At most this many rows.
    pub limit: usize,
}

/// A batch counts only if `shard` is still owned under `epoch` and its last commit was `seq - 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    /// The shard.
    pub shard: ShardId,
    /// The owner's epoch.
    pub epoch: Epoch,
    /// The number of this commit.
    pub seq: u64,
}

/// A row that must have this value (none: must be absent).
pub type Expect = (Key, Option<Value>);

/// Rows as they lie in the store itself, and the store's own time at which they lay there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// The store's time when it read the rows: never ahead of the time at which a later change counts.
    pub now: Time,
    /// Changes when another store has stepped in for this one, as after a failover: what was granted shortly before may
    /// be lost.
    pub incarnation: u64,
    /// When the store's clock was last seen to step forward, by its time after the step; zero if it never was. Leases that
    /// were granted before then end earlier by this clock than their holders count.
    pub stepped_at: Time,
    /// The rows of each scan, in its order.
    pub rows: Vec<Vec<Row>>,
}

/// Writes that become durable together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// All must hold. Fences of one shard count one after the other.
    pub fences: Vec<Fence>,
    /// What must hold of rows, else the batch is a conflict.
    pub expects: Vec<Expect>,
    /// The changes. If a key comes twice the later one counts.
    pub writes: Vec<Write>,
}
