//! The engine contract. Two guarantees make pipelining possible: a batch is visible to reads once [`Engine::commit`]
//! has returned, and it is durable once its [`Commit`] resolves, together with every earlier batch that touches one of
//! its shards, by fence or by key. Rows outside the shards are independent of each other: only batches that touch a
//! common row keep their order.

use futures::future::BoxFuture;
use wayleave_core::ids::{Epoch, ShardId};
use wayleave_core::time::Time;

use crate::{Batch, Error, Expect, Key, Look, Row, Scan, Value};

/// A boxed future.
pub type Pending<'a, T> = BoxFuture<'a, Result<T, Error>>;
/// Resolves once a batch is durable.
pub type Commit = BoxFuture<'static, Result<(), Error>>;

/// An ordered, durable store.
pub trait Engine: Send + Sync + 'static {
    /// The store's time: monotonic, also across restarts, and unaffected by steps of the wall clock.
    fn now(&self) -> Time;

    /// Takes ownership of a shard: durably increments its epoch, which fences out every older owner. Returns the new
    /// epoch and the sequence number of the shard's last commit. If `expects` does not hold, this is a conflict and no
    /// owner is fenced out: a node that lost its right to the shard while it was suspended cannot take it back.
    fn own<'a>(&'a self, shard: ShardId, expects: &'a [Expect]) -> Pending<'a, (Epoch, u64)>;

    /// The values of `keys`, in their order. Callers sort the keys first, because stores read adjacent keys cheaply.
    fn get_many<'a>(&'a self, keys: &'a [Key]) -> Pending<'a, Vec<Option<Value>>>;

    /// The rows of each scan, in the order of the scans.
    fn scan_many<'a>(&'a self, scans: &'a [Scan]) -> Pending<'a, Vec<Vec<Row>>>;

    /// How a scan continues past an unreadable first row: the key at which rows are readable again, beyond `from` and
    /// at most `to`, and those rows before it that the damage certainly does not affect, in order. All other rows of
    /// this gap may be older than the unreadable ones. An engine that cannot know skips the whole range.
    fn past_damage<'a>(&'a self, scan: &'a Scan) -> Pending<'a, (Key, Vec<Row>)> {
        Box::pin(std::future::ready(Ok((scan.to.clone(), Vec::new()))))
    }

    /// The rows of each scan with the store's own time and incarnation, in one consistent read. Leases are judged by
    /// this where several nodes share a store. Rows that this node has just committed may be missing until they are
    /// durable.
    fn look<'a>(&'a self, scans: &'a [Scan]) -> Pending<'a, Look>;

    /// Applies a batch. Once this returns, the batch is visible to reads (or was refused); once the future resolves, it
    /// is durable. Refusals (fenced, conflict, unavailable) change nothing.
    fn commit(&self, batch: Batch) -> Commit;

    /// Why the store wants no new URLs for now, if so: its disk is filling up. Callers refuse what would add work and
    /// carry on with everything else (renewals, releases, deletions), which the store still accepts.
    fn refuses_growth(&self) -> Option<String> {
        None
    }
}
