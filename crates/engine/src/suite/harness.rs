//! The harness that an engine's tests implement, and the helpers that the checks use.

use std::future::Future;

use wayleave_core::ids::{Epoch, ShardId};

use crate::{Batch, Engine, Error, Fence, Key, Row, Scan, Write};

/// One store under test.
pub trait Harness: Sized {
    /// The engine.
    type Engine: Engine;

    /// A new, empty store.
    fn create() -> impl Future<Output = Self>;

    /// The engine under test.
    fn engine(&self) -> &Self::Engine;

    /// Called before a check waits for a commit; engines that make batches durable only on request do so here.
    fn settle(&self) -> impl Future<Output = ()> {
        std::future::ready(())
    }

    /// Makes the block that holds a durable row unreadable, in the store and in every cache of it.
    fn damage(self, row: &[u8]) -> impl Future<Output = Self>;

    /// Closes the store and opens it again. In-memory engines crash instead.
    fn reopen(self) -> impl Future<Output = Self>;
}

/// A key of the suite: a shard, a row kind that no engine reserves, and a name.
#[must_use]
pub fn key(shard: u16, name: impl AsRef<[u8]>) -> Key {
    let mut key = shard.to_be_bytes().to_vec();
    key.push(1);
    key.extend_from_slice(name.as_ref());
    key
}

/// Writes one row.
#[must_use]
pub fn put(shard: u16, name: &str, value: &str) -> Write {
    Write { key: key(shard, name), value: Some(value.into()) }
}

/// Deletes one row.
#[must_use]
pub fn delete(shard: u16, name: &str) -> Write {
    Write { key: key(shard, name), value: None }
}

/// A batch of writes without fences.
#[must_use]
pub fn batch(writes: impl IntoIterator<Item = Write>) -> Batch {
    Batch { writes: writes.into_iter().collect(), ..Batch::default() }
}

/// A batch of writes with fences, each (shard, epoch, number).
#[must_use]
pub fn fenced(fences: impl IntoIterator<Item = (u16, Epoch, u64)>, writes: impl IntoIterator<Item = Write>) -> Batch {
    let fences = fences.into_iter().map(|(shard, epoch, seq)| Fence { shard: ShardId(shard), epoch, seq }).collect();
    Batch { fences, ..batch(writes) }
}

/// The scan of every row of the suite's kind in a shard.
#[must_use]
pub fn all(shard: u16) -> Scan {
    let mut to = shard.to_be_bytes().to_vec();
    to.push(2);
    Scan { from: key(shard, ""), to, limit: usize::MAX }
}

/// Commits and waits until it is durable or refused.
pub async fn commit<H: Harness>(store: &H, batch: Batch) -> Result<(), Error> {
    let answer = store.engine().commit(batch);
    store.settle().await;
    answer.await
}

/// Owns a shard and waits until that is durable.
pub async fn own<H: Harness>(store: &H, shard: u16) -> Result<(Epoch, u64), Error> {
    let answer = store.engine().own(ShardId(shard), &[]);
    store.settle().await;
    answer.await
}

/// Checks that these rows of a shard have these values; `None` means that the row is absent. Panics if they do not.
pub async fn check<const N: usize>(engine: &impl Engine, shard: u16, rows: [(&str, Option<&str>); N]) {
    let keys: Vec<Key> = rows.iter().map(|(name, _)| key(shard, name)).collect();
    let found = engine.get_many(&keys).await.expect("a read must answer");
    let found: Vec<Option<String>> =
        found.into_iter().map(|value| value.map(|value| String::from_utf8_lossy(&value).into_owned())).collect();
    let expected: Vec<Option<String>> = rows.iter().map(|(_, value)| value.map(str::to_owned)).collect();
    assert_eq!(found, expected, "rows {:?} of shard {shard}", rows.map(|(name, _)| name));
}

/// The rows of one scan. Panics if the engine does not answer.
pub async fn scan(engine: &impl Engine, scan: Scan) -> Vec<Row> {
    let mut answers = engine.scan_many(&[scan]).await.expect("a scan must answer");
    assert_eq!(answers.len(), 1, "one scan, one answer");
    answers.remove(0)
}

/// The names of the rows that a scan returns. Panics if the engine does not answer.
pub async fn names(engine: &impl Engine, which: Scan) -> Vec<String> {
    let rows = scan(engine, which).await;
    rows.iter().map(|row| String::from_utf8_lossy(&row.key[3..]).into_owned()).collect()
}
