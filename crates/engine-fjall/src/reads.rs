//! Reads: merge the memtables over the tables.
//!
//! A read locks its shards, copies the matching rows from memory, takes a snapshot of the tables and releases the
//! locks: disk I/O holds no lock, so a cold scan blocks no commit. Both sources are from the moment under the locks, so
//! a batch is seen entirely or not at all, even if a flush moves its rows meanwhile.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::iter::Peekable;

use wayleave_core::ids::ShardId;
use wayleave_engine::{Error, Key, Row, Scan, Value};

use crate::fence_row;
use crate::memtable::Found;
use crate::partitions::{Partition, lock, shard_of};
use crate::store::{Store, in_memory, lock_all};
use crate::tables::{Snapshot, Tables};

/// Rows copied from memory beyond a scan's limit, to make up for tombstones. Small, because every scan pays for it and
/// most scans begin after the deleted rows.
const SLACK: usize = 4;

impl<T: Tables> Store<T> {
    /// Point lookups.
    pub(crate) fn get(&self, keys: &[Key]) -> Result<Vec<Option<Value>>, Error> {
        self.syncer.check()?;
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut shards: Vec<ShardId> = keys.iter().map(|key| shard_of(key)).collect();
        shards.sort_unstable();
        shards.dedup();
        let places = self.partitions.at(&shards);
        let guards = lock_all(&places);
        let known: Vec<Option<Option<Value>>> =
            keys.iter().map(|key| in_memory(&guards, key).map(|found| found.map(<[u8]>::to_vec))).collect();
        if known.iter().all(Option::is_some) {
            return Ok(known.into_iter().map(Option::flatten).collect());
        }
        let snapshot = self.tables.snapshot();
        drop(guards);
        keys.iter().zip(known).map(|(key, known)| known.map_or_else(|| snapshot.get(key), Ok)).collect()
    }

    /// Range scans.
    pub(crate) fn scan(&self, scans: &[Scan]) -> Result<Vec<Vec<Row>>, Error> {
        self.syncer.check()?;
        let scans_of = |scan: &Scan| (shard_of(&scan.from), shard_of(&scan.to));
        let first = scans.iter().map(|scan| scans_of(scan).0).min().unwrap_or(ShardId(0));
        let last = scans.iter().map(|scan| scans_of(scan).1).max().unwrap_or(ShardId(0));
        let places = self.partitions.between(first, last);
        let mut slack = SLACK;
        loop {
            let guards: Vec<_> = places.iter().map(|place| lock(place)).collect();
            let copies: Vec<Copied> = scans.iter().map(|scan| Copied::of(&guards, scan, slack)).collect();
            let snapshot = self.tables.snapshot();
            drop(guards);
            let merge = |(scan, copied): (&Scan, Copied)| merge(&snapshot, scan, copied);
            let found = scans.iter().zip(copies).map(merge).collect::<Result<Option<Vec<_>>, _>>()?;
            if let Some(found) = found {
                return Ok(found);
            }
            // Tombstones ended the copy before the limit was reached: retry with a larger one, at a later moment.
            slack = slack.saturating_mul(8);
        }
    }
}

impl<T: Tables> Store<T> {
    /// Where the damage ends that this scan meets, and about as many rows before its end as the scan's limit that it does not
    /// concern. As in [`Store::scan`], the disk is read without the locks.
    pub(crate) fn past_damage(&self, scan: &Scan) -> Result<(Key, Vec<Row>), Error> {
        self.syncer.check()?;
        let places = self.partitions.between(shard_of(&scan.from), shard_of(&scan.to));
        let guards: Vec<_> = places.iter().map(|place| lock(place)).collect();
        let Copied { rows: in_memory, more } = Copied::of(&guards, scan, 0);
        let snapshot = self.tables.snapshot();
        drop(guards);
        let (mut end, rows) = snapshot.past_damage((&scan.from, &scan.to), scan.limit)?;
        if let Some((last, _)) = in_memory.last().filter(|_| more) {
            // Memory may hide what follows.
            end = end.min([last.as_slice(), &[0]].concat());
        }
        let mut found: BTreeMap<Key, Value> = rows.into_iter().collect();
        for (key, value) in in_memory {
            match value {
                Some(value) => found.insert(key, value),
                None => found.remove(&key),
            };
        }
        found.retain(|key, _| *key < end && !fence_row::is_own_key(key));
        Ok((end, found.into_iter().map(|(key, value)| Row { key, value }).collect()))
    }
}

/// The in-memory rows in the range of a scan.
struct Copied {
    rows: Vec<Found>,
    /// Whether memory has more rows after these.
    more: bool,
}

impl Copied {
    fn of(guards: &[std::sync::MutexGuard<'_, Partition>], scan: &Scan, slack: usize) -> Self {
        if scan.from >= scan.to || scan.limit == 0 {
            return Self { rows: Vec::new(), more: false };
        }
        let mut rows = guards.iter().flat_map(|partition| {
            let frozen = partition.frozen.iter().flat_map(|table| table.range(&scan.from, &scan.to));
            Over { upper: partition.active.range(&scan.from, &scan.to).peekable(), lower: frozen.peekable() }
        });
        let enough = scan.limit.saturating_add(slack);
        let copied: Vec<Found> = rows.by_ref().take(enough).collect();
        let more = copied.len() == enough && rows.next().is_some();
        Self { rows: copied, more }
    }
}

/// Merges the rows of a scan; `None` if the copy does not reach far enough.
fn merge(snapshot: &impl Snapshot, scan: &Scan, copied: Copied) -> Result<Option<Vec<Row>>, Error> {
    let mut found = Vec::new();
    if scan.from >= scan.to || scan.limit == 0 {
        return Ok(Some(found));
    }
    let mut in_memory = copied.rows.into_iter().peekable();
    // Peeked only while rows are wanted: those before damage are returned, and the next scan meets it.
    let mut in_tables = snapshot.range(&scan.from, &scan.to).peekable();
    while found.len() < scan.limit {
        let order = match (in_memory.peek(), in_tables.peek()) {
            // Memory may hide the next rows of the tables.
            (None, _) if copied.more => return Ok(None),
            (_, Some(Err(error))) => return Err(error.clone()),
            (None, None) => break,
            (Some((upper, _)), Some(Ok((lower, _)))) => upper.cmp(lower),
            (Some(_), None) => Ordering::Less,
            (None, Some(Ok(_))) => Ordering::Greater,
        };
        let lower = if order.is_ge() { in_tables.next().transpose()? } else { None };
        let next = if order.is_le() { in_memory.next() } else { lower.map(|(key, value)| (key, Some(value))) };
        if let Some((key, Some(value))) = next.filter(|(key, _)| !fence_row::is_own_key(key)) {
            found.push(Row { key, value });
        }
    }
    Ok(Some(found))
}

/// Merges two sorted sources; the upper one shadows the lower one.
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
