//! The sorted tables below the memtables, behind one small trait: an LSM tree in production, a model in the simulator.
//!
//! Only the flush thread adds tables, each durably and atomically, and only the merge thread merges them. The trait knows
//! nothing about the journal.

use std::sync::Arc;
use std::time::Duration;

use wayleave_engine::{Error, Key, Value};

use crate::memtable::Memtable;

/// The number of L0 tables from which on they are merged.
pub(crate) const YOUNG_TABLES_DUE: u8 = 8;

/// Above this number of L0 tables callers should add nothing, and a merge of everything gives way.
pub(crate) const YOUNG_TABLES_MANY: usize = 64;
/// From this number of L0 tables on every batch is refused. The tree counts them in one byte, so 256 would make the manifest
/// unreadable.
pub(crate) const YOUNG_TABLES_LIMIT: usize = 160;

/// A row of a table.
pub(crate) type TableRow = (Key, Value);

/// Which tables a merge takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MergeKind {
    /// The next merge that keeps reads fast, if one is due.
    Due,
    /// All tables into one run, which drops every deleted row.
    All,
}

/// Why a merge did not finish. Its input is unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MergeFailure {
    /// It was asked to stop.
    Stopped,
    /// The disk is full.
    Full,
    /// A table cannot be read.
    Damaged(String),
    /// Anything else.
    Failed(String),
    /// The manifest on disk is not the one in memory: only a restart makes sure which tables are in use.
    Unsure(String),
}

/// What merges may have to do, by the actual sizes of tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// The bytes of all tables.
    pub(crate) all: u64,
    /// The most bytes that the next due merge can write before it frees its input.
    pub(crate) next_merge: u64,
    /// Rows and tombstones in all tables.
    pub(crate) items: u64,
    /// Tombstones among them.
    pub(crate) tombstones: u64,
    /// The age of the oldest table with a tombstone.
    pub(crate) tombstone_age: Duration,
}

/// A store of tables.
pub(crate) trait Tables: Send + Sync + 'static {
    /// A consistent view.
    type Snapshot: Snapshot;

    /// A consistent view of the current rows.
    fn snapshot(&self) -> Self::Snapshot;

    /// Adds a table with all rows and tombstones of these memtables, which are in key order. The error is the reason,
    /// for the operator. Nothing was added.
    fn add(&self, rows: &[Arc<Memtable>]) -> Result<(), String>;

    /// The number of L0 tables.
    fn young(&self) -> usize;

    /// The sizes that merges depend on.
    fn sizes(&self) -> Sizes;

    /// Runs one merge, which may write about this many bytes; false if none was due. Files that no reader needs any more are
    /// removed. The error says why it did not finish: [`MergeFailure::Full`] also if it would have written more.
    fn merge(&self, kind: MergeKind, bytes_max: u64) -> Result<bool, MergeFailure>;

    /// Finds a table that the last merge could not read, and leaves it out of the next ones; false if none is found. This may read
    /// all tables.
    fn find_unreadable(&self) -> bool {
        false
    }

    /// When the oldest open snapshot was taken, if any is open: a merge keeps what it sees. Instants only grow.
    fn oldest_snapshot(&self) -> Option<u64> {
        None
    }

    /// Makes a running merge end early; with `false` merges may run again.
    fn stop_merging(&self, stop: bool);
}

/// A consistent view of all tables.
pub(crate) trait Snapshot: Send + 'static {
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Value>, Error>;

    /// How a read of a range continues past an unreadable first row: where the damage ends, and rows before its end
    /// that it does not concern, at most `limit`.
    fn past_damage(&self, range: (&[u8], &[u8]), limit: usize) -> Result<(Key, Vec<TableRow>), Error>;

    /// The rows of a key range, end exclusive.
    fn range(&self, from: &[u8], to: &[u8]) -> impl Iterator<Item = Result<TableRow, Error>>;
}
