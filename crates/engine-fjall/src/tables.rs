//! The sorted tables under the rows in memory, behind one small trait: fjall in production, a map in the simulator.
//!
//! Only the flusher adds a table, and what it adds is durable, wholly or not at all. It knows nothing of the journal.

use std::sync::{Arc, Mutex, PoisonError};

use fjall::{Database, Keyspace, PersistMode, Readable};
use wayleave_engine::{Error, Key, Value};

use crate::memtable::Memtable;
use crate::trouble;

/// A row of a table.
pub(crate) type TableRow = (Key, Value);

/// Rows in tables.
pub(crate) trait Tables: Send + Sync + 'static {
    /// The rows at one moment.
    type Snapshot: Snapshot;

    /// The rows as they are now.
    fn snapshot(&self) -> Self::Snapshot;

    /// Adds a table with all rows and removals of these memtables, which follow each other in the order of their keys.
    ///
    /// # Errors
    /// Why not, for the operator. Then nothing was added.
    fn add(&self, rows: &[Arc<Memtable>]) -> Result<(), String>;

    /// The number of tables that are not yet merged with others.
    fn young(&self) -> usize;

    /// Asks for a merge: a request that found another merge at work was used up in vain.
    ///
    /// # Errors
    /// Why not, for the operator.
    fn ask_for_merge(&self) -> Result<(), String>;

    /// Whether tables are being merged at this moment.
    fn merging(&self) -> bool;

    /// Whether the threads that merge are alive.
    ///
    /// # Errors
    /// If one has ended with an error or a panic: then nothing is merged any more until the store is opened again.
    fn check(&self) -> Result<(), String>;
}

/// The rows of all tables at one moment.
pub(crate) trait Snapshot: Send + 'static {
    /// The value of a key.
    ///
    /// # Errors
    /// If it cannot be read.
    fn get(&self, key: &[u8]) -> Result<Option<Value>, Error>;

    /// The rows from one key on, up to another one.
    fn range(&self, from: &[u8], to: &[u8]) -> impl Iterator<Item = Result<TableRow, Error>>;
}

impl FjallSnapshot {
    /// All rows.
    pub(crate) fn all(&self) -> impl Iterator<Item = Result<TableRow, Error>> {
        self.snapshot.iter(&self.rows).map(|row| read(row.into_inner()))
    }
}

fn read(row: fjall::Result<(fjall::UserKey, fjall::UserValue)>) -> Result<TableRow, Error> {
    match row {
        Ok((key, value)) => Ok((key.to_vec(), value.to_vec())),
        Err(error) => Err(trouble::on_read(&error)),
    }
}

/// fjall's tables.
pub(crate) struct FjallTables {
    // The order of the fields is the order in which they end.
    rows: Keyspace,
    database: Database,
    /// Held while a table is added: the database holds a lock of its own meanwhile that asking it for its health needs.
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
        // The database asks for a merge only when an ingestion ends; one without rows adds no table.
        self.rows.start_ingestion().and_then(|empty| empty.finish()).map_err(|error| trouble::describe(&error))
    }

    fn merging(&self) -> bool {
        self.database.active_compactions() > 0
    }

    fn check(&self) -> Result<(), String> {
        // Whoever watches must not wait behind a table that a disk does not take.
        let Ok(_adding) = self.adding.try_lock() else { return Ok(()) };
        // Writes nothing, for nothing goes through the database's own journal; it only tells whether a thread has died.
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
