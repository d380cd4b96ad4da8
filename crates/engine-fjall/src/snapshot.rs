//! Snapshots: all rows of an open store at one moment, while it goes on.
//!
//! The flushing thread takes them, for nobody else adds tables: right after a flush the tables hold exactly the rows that
//! were frozen, of all shards at one moment, with their fence rows. What was acknowledged before the snapshot was asked for
//! is among them, because the freeze comes after the question. The rows are then read without any lock.

use std::io::Write;
use std::sync::Arc;

use tokio::sync::oneshot;
use wayleave_engine::Error;

use crate::flusher::DONE_KEY;
use crate::snapshot_file::{SnapshotCounts, SnapshotHeader, SnapshotWriter};
use crate::store::Store;
use crate::tables::{FjallSnapshot, FjallTables};

/// All rows of a store at one moment. While it lives the store keeps on disk what it needs, so it should not live long.
pub struct Snapshot {
    header: SnapshotHeader,
    tables: FjallSnapshot,
}

impl Snapshot {
    /// Asks the flushing thread for one, and waits for it.
    ///
    /// # Errors
    /// If the store cannot write what it holds in memory.
    pub(crate) async fn take(store: Arc<Store<FjallTables>>, header: SnapshotHeader) -> Result<Self, Error> {
        store.syncer.check()?;
        let (wanted, taken) = oneshot::channel();
        store.ask_for_snapshot(wanted);
        let failed = || Error::Unavailable("the store is closing, or could not write its rows to a table".into());
        match taken.await {
            Ok(tables) => Ok(Self { header, tables }),
            // Why it failed is known to the syncer, which nothing gets past.
            Err(_) => store.syncer.check().and(Err(failed())),
        }
    }

    /// What it is of.
    #[must_use]
    pub const fn header(&self) -> SnapshotHeader {
        self.header
    }

    /// Writes it as a snapshot file. It takes long and blocks the thread.
    ///
    /// # Errors
    /// If a row cannot be read, or `out` not be written.
    pub fn write(self, out: impl Write) -> std::io::Result<SnapshotCounts> {
        let mut writer = SnapshotWriter::begin(out, self.header)?;
        for row in self.tables.all() {
            let (key, value) = row.map_err(|error| std::io::Error::other(error.to_string()))?;
            // It counts files of a journal that is not part of the snapshot.
            if key != DONE_KEY {
                writer.row(&key, &value)?;
            }
        }
        writer.finish()
    }
}
