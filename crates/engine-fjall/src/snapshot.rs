//! Snapshots: all rows of an open store at one moment, taken online.
//!
//! The flush thread takes them, because no other thread adds tables: right after a flush the tables contain exactly the
//! frozen rows of all shards, fence rows included. Everything acknowledged before the request is among them, because
//! the freeze follows the request. The rows are then read without a lock.

use std::io::Write;
use std::sync::Arc;

use tokio::sync::oneshot;
use wayleave_engine::Error;

use crate::flusher::DONE_KEY;
use crate::lsm::{FjallSnapshot, FjallTables};
use crate::snapshot_file::{SnapshotCounts, SnapshotHeader, SnapshotWriter};
use crate::store::Store;

/// All rows of a store at one moment. It pins files on disk, so it should be short-lived.
pub struct Snapshot {
    header: SnapshotHeader,
    tables: FjallSnapshot,
}

impl Snapshot {
    /// Requests a snapshot from the flush thread, and waits for it.
    ///
    /// # Errors
    /// If the store cannot flush its memtables.
    pub(crate) async fn take(store: Arc<Store<FjallTables>>, header: SnapshotHeader) -> Result<Self, Error> {
        store.syncer.check()?;
        let (wanted, taken) = oneshot::channel();
        store.ask_for_snapshot(wanted);
        let failed = || Error::Unavailable("the store is closing, or could not write its rows to a table".into());
        match taken.await {
            Ok(tables) => Ok(Self { header, tables }),
            // The syncer knows why the store failed, if it did.
            Err(_) => store.syncer.check().and(Err(failed())),
        }
    }

    /// The header of the snapshot.
    #[must_use]
    pub const fn header(&self) -> SnapshotHeader {
        self.header
    }

    /// Writes it as a snapshot file. Slow; blocks the thread.
    ///
    /// # Errors
    /// If a row cannot be read, or `out` cannot be written.
    pub fn write(self, out: impl Write) -> std::io::Result<SnapshotCounts> {
        let mut writer = SnapshotWriter::begin(out, self.header)?;
        for row in self.tables.all() {
            let (key, value) = row.map_err(|error| std::io::Error::other(error.to_string()))?;
            // It refers to files of a journal that is not part of the snapshot.
            if key != DONE_KEY {
                writer.row(&key, &value)?;
            }
        }
        writer.finish()
    }
}
