//! A model of the tables: a table that is added is completely there and durable, or not at all; merges replace tables
//! atomically; blocks may become unreadable.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wayleave_engine::{Error, Key, Value};

use crate::memtable::Memtable;
use crate::tables::{MergeFailure, MergeKind, Sizes, Snapshot, TableRow, Tables};

#[derive(Clone, Default)]
struct SimTable {
    /// Rows and tombstones.
    rows: BTreeMap<Key, Option<Value>>,
    /// Keys whose block cannot be read.
    unreadable: BTreeSet<Key>,
}

#[derive(Default)]
struct State {
    /// Oldest first.
    tables: Vec<Arc<SimTable>>,
    fail_next: bool,
    fail_merge: Option<MergeFailure>,
}

/// The tables. Clones share them; they outlive every simulated process.
#[derive(Clone, Default)]
pub struct SimTables(Arc<Mutex<State>>);

impl SimTables {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes failures that have not struck yet, and makes every block readable again.
    pub fn heal(&self) {
        let mut state = self.state();
        (state.fail_next, state.fail_merge) = (false, None);
        for table in state.tables.iter_mut().filter(|table| !table.unreadable.is_empty()) {
            Arc::make_mut(table).unreadable.clear();
        }
    }

    /// Makes the next table fail.
    pub fn fail_next(&self) {
        self.state().fail_next = true;
    }

    /// Makes the next merge run out of space.
    pub fn fill_up_next_merge(&self) {
        self.state().fail_merge = Some(MergeFailure::Full);
    }

    /// Makes the block of one stored row unreadable, chosen by `below` (a random number below its argument) among rows
    /// that `may` allows; returns its key.
    pub fn damage(&self, below: impl Fn(u64) -> u64, may: impl Fn(&[u8]) -> bool) -> Option<Key> {
        let mut state = self.state();
        let all: Vec<(usize, Key)> = (state.tables.iter().enumerate())
            .flat_map(|(at, table)| table.rows.keys().filter(|key| may(key)).map(move |key| (at, key.clone())))
            .collect();
        let (at, key) = all.get(below(all.len() as u64) as usize)?.clone();
        Arc::make_mut(state.tables.get_mut(at)?).unreadable.insert(key.clone());
        Some(key)
    }
}

impl Tables for SimTables {
    type Snapshot = SimSnapshot;

    fn snapshot(&self) -> SimSnapshot {
        SimSnapshot(self.state().tables.clone())
    }

    fn add(&self, rows: &[Arc<Memtable>]) -> Result<(), String> {
        let mut state = self.state();
        if std::mem::take(&mut state.fail_next) {
            return Err("a failure of the simulation".into());
        }
        let mut table = SimTable::default();
        for rows in rows {
            rows.each(|key, value| {
                table.rows.insert(key.to_vec(), value.map(<[u8]>::to_vec));
                Ok::<_, String>(())
            })?;
        }
        state.tables.push(Arc::new(table));
        Ok(())
    }

    /// None: the simulator merges when it likes, and no flush may wait for it.
    fn young(&self) -> usize {
        0
    }

    fn sizes(&self) -> Sizes {
        let state = self.state();
        let rows = state.tables.iter().flat_map(|table| table.rows.values());
        let (mut items, mut tombstones) = (0, 0);
        rows.for_each(|row| (items, tombstones) = (items + 1, tombstones + u64::from(row.is_none())));
        Sizes { items, tombstones, ..Sizes::default() }
    }

    fn merge(&self, kind: MergeKind, _: u64) -> Result<bool, MergeFailure> {
        let mut state = self.state();
        if let Some(failure) = state.fail_merge.take() {
            return Err(failure);
        }
        if state.tables.len() < 2 && kind == MergeKind::Due {
            return Ok(false);
        }
        let mut merged = SimTable::default();
        for table in &state.tables {
            if !table.unreadable.is_empty() {
                return Err(MergeFailure::Damaged("a block of the simulation".into()));
            }
            merged.rows.extend(table.rows.clone());
        }
        merged.rows.retain(|_, row| row.is_some());
        state.tables = vec![Arc::new(merged)];
        Ok(kind == MergeKind::Due)
    }

    fn stop_merging(&self, _: bool) {}
}

/// A consistent view of simulated tables.
pub struct SimSnapshot(Vec<Arc<SimTable>>);

fn unreadable() -> Error {
    Error::Corrupt("a block of the simulation cannot be read".into())
}

impl Snapshot for SimSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Value>, Error> {
        for table in self.0.iter().rev() {
            if table.unreadable.contains(key) {
                return Err(unreadable());
            }
            if let Some(row) = table.rows.get(key) {
                return Ok(row.clone());
            }
        }
        Ok(None)
    }

    fn past_damage(&self, (from, to): (&[u8], &[u8]), _: usize) -> Result<(Key, Vec<TableRow>), Error> {
        let bad = self.0.iter().flat_map(|table| table.unreadable.iter().find(|key| key.as_slice() >= from));
        let Some(bad) = bad.min().filter(|key| key.as_slice() < to) else { return Ok((to.to_vec(), Vec::new())) };
        let newer = self.get(bad).ok().flatten();
        Ok(([bad, &[0][..]].concat(), newer.map(|value| (bad.clone(), value)).into_iter().collect()))
    }

    fn range(&self, from: &[u8], to: &[u8]) -> impl Iterator<Item = Result<TableRow, Error>> {
        let mut rows: BTreeMap<&Key, Result<&Option<Value>, Error>> = BTreeMap::new();
        for table in self.0.iter().filter(|_| from < to) {
            // A scan reads the blocks of all tables, whether or not a newer row hides the damaged one.
            for (key, row) in table.rows.range::<[u8], _>((Bound::Included(from), Bound::Excluded(to))) {
                let bad = table.unreadable.contains(key) || rows.get(key).is_some_and(Result::is_err);
                rows.insert(key, if bad { Err(unreadable()) } else { Ok(row) });
            }
        }
        let read = |(key, row): (&Key, Result<&Option<Value>, Error>)| match row {
            Ok(row) => row.clone().map(|value| Ok((key.clone(), value))),
            Err(error) => Some(Err(error)),
        };
        rows.into_iter().filter_map(read).collect::<Vec<_>>().into_iter()
    }
}
