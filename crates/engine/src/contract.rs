//! The engine contract. Two promises make pipelining possible: a batch is visible to reads as soon as
//! [`Engine::commit`] has returned, and it is durable once its [`Commit`] resolves, with every batch before it that touches
//! a shard of its own, by fence or by key. Rows outside the shards are independent of each other: there only batches that
//! touch a common row keep their order.

use futures::future::BoxFuture;
use wayleave_core::ids::{Epoch, ShardId};
use wayleave_core::time::Time;

use crate::{Batch, Error, Expect, Key, Look, Row, Scan, Value};

/// An answer that may take a while.
pub type Pending<'a, T> = BoxFuture<'a, Result<T, Error>>;
/// Resolves once a batch is durable.
pub type Commit = BoxFuture<'static, Result<(), Error>>;

/// An ordered, durable store.
pub trait Engine: Send + Sync + 'static {
    /// The store's time: never goes back, not even over a restart, and is not moved by steps of the wall clock.
    fn now(&self) -> Time;

    /// Makes the caller the owner of a shard: its epoch grows by one, durably, and every older owner is fenced out.
    /// Returns the new epoch and the number of the shard's last commit. Where `expects` does not hold the answer is a
    /// conflict and nobody is fenced out: so that an owner who lost the right to a shard while it slept cannot take it.
    fn own<'a>(&'a self, shard: ShardId, expects: &'a [Expect]) -> Pending<'a, (Epoch, u64)>;

    /// The values of `keys`, in their order. Callers sort keys first: stores read neighbours cheaply.
    fn get_many<'a>(&'a self, keys: &'a [Key]) -> Pending<'a, Vec<Option<Value>>>;

    /// The rows of each scan, in its order.
    fn scan_many<'a>(&'a self, scans: &'a [Scan]) -> Pending<'a, Vec<Vec<Row>>>;

    /// The rows of each scan with the store's own time and incarnation, read in one step: what leases are judged by where
    /// several nodes share a store. Rows that this node has only just committed may be missing until they are durable.
    fn look<'a>(&'a self, scans: &'a [Scan]) -> Pending<'a, Look>;

    /// Applies a batch. When this returns, reads see it (or it has been refused); when the answer resolves it is
    /// durable. Refusals (fenced, conflict, unavailable) leave nothing behind.
    fn commit(&self, batch: Batch) -> Commit;
}
