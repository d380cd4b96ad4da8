//! A model of fjall as a store of tables: an added table is completely there and durable, or not at all.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wayleave_engine::{Error, Key, Value};

use crate::memtable::Memtable;
use crate::tables::{Snapshot, TableRow, Tables};

#[derive(Default)]
struct State {
    rows: Arc<BTreeMap<Key, Value>>,
    fail_next: bool,
}

/// The tables. Clones share them; they outlive every simulated process.
#[derive(Clone, Default)]
pub struct SimTables(Arc<Mutex<State>>);

impl SimTables {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a failure that has not struck yet.
    pub fn heal(&self) {
        self.state().fail_next = false;
    }

    /// Makes the next table fail.
    pub fn fail_next(&self) {
        self.state().fail_next = true;
    }
}

impl Tables for SimTables {
    type Snapshot = Arc<BTreeMap<Key, Value>>;

    fn snapshot(&self) -> Self::Snapshot {
        self.state().rows.clone()
    }

    fn add(&self, rows: &[Arc<Memtable>]) -> Result<(), String> {
        let mut state = self.state();
        if std::mem::take(&mut state.fail_next) {
            return Err("a failure of the simulation".into());
        }
        let all = Arc::make_mut(&mut state.rows);
        for rows in rows {
            rows.each(|key, value| {
                match value {
                    Some(value) => _ = all.insert(key.to_vec(), value.to_vec()),
                    None => _ = all.remove(key),
                }
                Ok::<_, String>(())
            })?;
        }
        Ok(())
    }

    fn young(&self) -> usize {
        0
    }

    fn ask_for_merge(&self) -> Result<(), String> {
        Ok(())
    }

    fn merging(&self) -> bool {
        false
    }

    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

impl Snapshot for Arc<BTreeMap<Key, Value>> {
    fn get(&self, key: &[u8]) -> Result<Option<Value>, Error> {
        Ok(BTreeMap::get(self, key).cloned())
    }

    fn range(&self, from: &[u8], to: &[u8]) -> impl Iterator<Item = Result<TableRow, Error>> {
        let bounds = (Bound::Included(from), Bound::Excluded(to));
        let range = (from < to).then(|| BTreeMap::range::<[u8], _>(self, bounds));
        range.into_iter().flatten().map(|(key, value)| Ok((key.clone(), value.clone())))
    }
}
