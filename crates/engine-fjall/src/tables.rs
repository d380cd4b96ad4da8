//! The sorted tables below the memtables, behind one small trait: fjall in production, a map in the simulator.
//!
//! Only the flush thread adds tables, each durably and atomically. The trait knows nothing about the journal.

use std::sync::{Arc, Mutex, PoisonError};

use fjall::{Database, Keyspace, PersistMode, Readable};
use wayleave_engine::{Error, Key, Value};

use crate::memtable::Memtable;
use crate::trouble;

/// A row of a table.
pub(crate) type TableRow = (Key, Value);

/// A store of tables.
pub(crate) trait Tables: Send + Sync + 'static {
    /// A consistent view.
    type Snapshot: Snapshot;

    /// A consistent view of the current rows.
    fn snapshot(&self) -> Self::Snapshot;

    /// Adds a table with all rows and tombstones of these memtables, which are in key order.
    ///
    /// # Errors
    /// The reason, for the operator. Nothing was added.
    fn add(&self, rows: &[Arc<Memtable>]) -> Result<(), String>;

    /// The number of L0 tables.
    fn young(&self) -> usize;

    /// Requests a compaction; a request that finds another one running is dropped.
    ///
    /// # Errors
    /// The reason, for the operator.
    fn ask_for_merge(&self) -> Result<(), String>;

    /// Whether a compaction is running.
    fn merging(&self) -> bool;

    /// Whether the compaction threads are alive.
    ///
    /// # Errors
    /// If one has ended with an error or a panic: then nothing is compacted until the store is reopened.
    fn check(&self) -> Result<(), String>;
}

/// A consistent view of all tables.
pub(crate) trait Snapshot: Send + 'static {
    /// The value of a key.
    ///
    /// # Errors
    /// If it cannot be read.
    fn get(&self, key: &[u8]) -> Result<Option<Value>, Error>;

    /// The rows of a key range, end exclusive.
    fn range(&self, from: &[u8], to: &[u8]) -> impl Iterator<Item = Result<TableRow, Error>>;
}

fn read(row: fjall::Result<(fjall::UserKey, fjall::UserValue)>) -> Result<TableRow, Error> {
    match row {
        Ok((key, value)) => Ok((key.to_vec(), value.to_vec())),
        Err(error) => Err(trouble::on_read(&error)),
    }
}

/// fjall's tables.
pub(crate) struct FjallTables {
    // Field order is drop order.
    rows: Keyspace,
    database: Database,
    /// Held while a table is added: fjall meanwhile holds a lock that its health check needs.
    adding: Mutex<()>,
}

impl FjallTables {
    pub(crate) fn new(rows: Keyspace, database: Database) -> Self {
        Self { rows, database, adding: Mutex::default() }
    }

    /// The keyspace of all rows.
    #[cfg(test)]
    pub(crate) fn rows(&self) -> &Keyspace {
        &self.rows
    }
}

/// A snapshot of fjall's tables.
pub(crate) struct FjallSnapshot {
    rows: Keyspace,
    snapshot: fjall::Snapshot,
}

impl Tables for FjallTables {
    type Snapshot = FjallSnapshot;

    fn snapshot(&self) -> FjallSnapshot {
        FjallSnapshot { rows: self.rows.clone(), snapshot: self.database.snapshot() }
    }

    fn add(&self, rows: &[Arc<Memtable>]) -> Result<(), String> {
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let add = || {
            let mut table = self.rows.start_ingestion()?;
            for rows in rows {
                rows.each(|key, value| match value {
                    Some(value) => table.write(key, value),
                    None => table.write_tombstone(key),
                })?;
            }
            table.finish()
        };
        add().map_err(|error| trouble::describe(&error))
    }

    fn young(&self) -> usize {
        self.rows.l0_table_count()
    }

    fn ask_for_merge(&self) -> Result<(), String> {
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        // fjall checks for compactions only when an ingestion ends; an empty one adds no table.
        self.rows.start_ingestion().and_then(|empty| empty.finish()).map_err(|error| trouble::describe(&error))
    }

    fn merging(&self) -> bool {
        self.database.active_compactions() > 0
    }

    fn check(&self) -> Result<(), String> {
        // The watchdog must not block behind a table that a hanging disk does not take.
        let Ok(_adding) = self.adding.try_lock() else { return Ok(()) };
        // Writes nothing, because fjall's own journal is unused; it only reports whether a thread has died.
        self.database.persist(PersistMode::Buffer).map_err(|error| trouble::describe(&error))
    }
}

impl Snapshot for FjallSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Value>, Error> {
        let found = self.snapshot.get(&self.rows, key).map_err(|error| trouble::on_read(&error))?;
        Ok(found.map(|value| value.to_vec()))
    }

    fn range(&self, from: &[u8], to: &[u8]) -> impl Iterator<Item = Result<TableRow, Error>> {
        let rows = self.snapshot.range::<&[u8], _>(&self.rows, from..to);
        rows.map(|row| read(row.into_inner()))
    }
}
