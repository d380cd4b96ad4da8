//! The subject of an update or a watch, and the decision on it: plain values.

use wayleave_core::time::Time;
use wayleave_engine::{Batch, Expect, Key, Look, Scan, Value, Write};

/// A record: the row that identifies it, and all rows that a decision on it reads.
#[derive(Clone)]
pub struct Subject {
    /// The row by which callers of one process are ordered, which hints name, and which every write expects unchanged.
    pub key: Key,
    /// What is read, in this order. It includes the row of `key` and every row that may be written.
    pub scans: Vec<Scan>,
    /// What people call it, as in "too many concurrent updates to this role".
    pub name: &'static str,
    /// When time alone changes what the rows mean, as the end of a lease does.
    pub ends: fn(&Look) -> Option<Time>,
}

impl Subject {
    /// A record of a single row, which time does not change.
    #[must_use]
    pub fn row(key: Key, name: &'static str) -> Self {
        Self { scans: vec![only(key.clone())], key, name, ends: |_| None }
    }

    /// Whether a row is among those that are read.
    pub(crate) fn reads(&self, key: &Key) -> bool {
        self.scans.iter().any(|scan| scan.from <= *key && *key < scan.to)
    }
}

/// Who is notified that a record has changed, once others could see the change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// Those who wait in this process.
    pub here: bool,
    /// Those who wait on other nodes.
    pub others: bool,
}

impl News {
    /// A change of this kind wakes no waiter.
    pub const NOBODY: Self = Self { here: false, others: false };
    /// Only this process: other nodes find it with their next poll.
    pub const HERE: Self = Self { here: true, others: false };
    /// Only other nodes: this process knows already.
    pub const OTHERS: Self = Self { here: false, others: true };
    /// All nodes.
    pub const EVERYWHERE: Self = Self { here: true, others: true };

    pub(crate) const fn and(self, other: Self) -> Self {
        Self { here: self.here || other.here, others: self.others || other.others }
    }
}

/// What was decided on a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision<T> {
    /// The rows to write. Without any, the answer is given at once.
    pub writes: Vec<Write>,
    /// Further rows that must be unchanged, besides those written and the subject's own.
    pub depends_on: Vec<Key>,
    /// Who is notified.
    pub news: News,
    /// The answer, given once the writes are durable.
    pub answer: T,
}

impl<T> Decision<T> {
    /// Changes nothing.
    #[must_use]
    pub const fn keep(answer: T) -> Self {
        Self { writes: Vec::new(), depends_on: Vec::new(), news: News::NOBODY, answer }
    }

    /// Writes these rows.
    #[must_use]
    pub const fn write(writes: Vec<Write>, news: News, answer: T) -> Self {
        Self { writes, depends_on: Vec::new(), news, answer }
    }
}

/// The scan of one row.
#[must_use]
pub fn only(key: Key) -> Scan {
    let mut to = key.clone();
    to.push(0);
    Scan { from: key, to, limit: 1 }
}

/// The value that a look has found under a key.
#[must_use]
pub fn value<'a>(look: &'a Look, key: &[u8]) -> Option<&'a Value> {
    // The rows of each scan are in key order.
    let found = |rows: &'a Vec<wayleave_engine::Row>| {
        rows.binary_search_by(|row| row.key.as_slice().cmp(key)).ok().and_then(|at| rows.get(at))
    };
    look.rows.iter().find_map(found).map(|row| &row.value)
}

/// The batch that applies writes decided on a look: it expects every written row, and those that the decision hangs on,
/// as the look has found them.
#[must_use]
pub fn batch(look: &Look, mut writes: Vec<Write>, depends_on: Vec<Key>) -> Batch {
    let mut keys: Vec<Key> = writes.iter().map(|write| write.key.clone()).chain(depends_on).collect();
    keys.sort_unstable();
    keys.dedup();
    let expect = |key: Key| -> Expect {
        let value = value(look, &key).cloned();
        (key, value)
    };
    writes.sort_by(|a, b| a.key.cmp(&b.key));
    Batch { fences: Vec::new(), expects: keys.into_iter().map(expect).collect(), writes }
}
