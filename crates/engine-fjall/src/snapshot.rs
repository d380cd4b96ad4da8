//! Snapshots: all rows of an open store at one moment, taken online.
//!
//! The flush thread takes them, because no other thread adds tables: right after a flush the tables contain exactly the
//! frozen rows of all shards, fence rows included. Everything acknowledged before the request is among them, because
//! the freeze follows the request. The rows are then read without a lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::oneshot;
use wayleave_core::ids::ShardId;
use wayleave_engine::fences::FenceState;
use wayleave_engine::snapshot_file::SnapshotHeader;
use wayleave_engine::{Error, Row};

use crate::fence_row::{self, FenceRow};
use crate::lsm::{FjallSnapshot, FjallTables};
use crate::partitions;
use crate::store::Store;
use crate::tables::{Snapshot as _, Tables};

/// After every key.
const END: [u8; 8] = [0xff; 8];

/// All rows of a store at one moment. It pins files on disk, so it should be short-lived.
pub struct Snapshot {
    header: SnapshotHeader,
    tables: FjallSnapshot,
}

impl Snapshot {
    /// Requests a snapshot from the flush thread, and waits for it.
    ///
    /// # Errors
    /// If the store cannot flush its memtables, or a fence row cannot be read.
    pub(crate) async fn take(store: Arc<Store<FjallTables>>, mut header: SnapshotHeader) -> Result<Self, Error> {
        store.syncer.check()?;
        let (wanted, taken) = oneshot::channel();
        store.ask_for_snapshot(wanted);
        let failed = || Error::Unavailable("the store is closing, or could not write its rows to a table".into());
        let Ok(tables) = taken.await else {
            // The syncer knows why the store failed, if it did.
            return store.syncer.check().and(Err(failed()));
        };
        for shard in (0..header.shards).map(ShardId) {
            let Some(value) = tables.get(&fence_row::key(shard))? else { continue };
            let damaged = || Error::Corrupt(format!("the fence row of shard {} cannot be read", shard.0));
            let row = FenceRow::decode(&value).ok_or_else(damaged)?;
            header.fences.insert(shard, row.fence);
            header.at = header.at.max(row.at);
        }
        Ok(Self { header, tables })
    }

    /// The header of the snapshot.
    #[must_use]
    pub const fn header(&self) -> &SnapshotHeader {
        &self.header
    }

    /// At most `limit` rows from a key on, in order, without the engine's own. Blocks the thread.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a row cannot be read.
    pub fn page(&self, from: &[u8], limit: usize) -> Result<Vec<Row>, Error> {
        let rows =
            self.tables.range(from, &END).filter(|row| !matches!(row, Ok((key, _)) if fence_row::is_own_key(key)));
        rows.take(limit).map(|row| row.map(|(key, value)| Row { key, value })).collect()
    }
}

/// The fences of a store's shards.
pub(crate) fn fences<T: Tables>(store: &Store<T>, shards: u16) -> BTreeMap<ShardId, FenceState> {
    let shards: Vec<ShardId> = (0..shards).map(ShardId).collect();
    let fences = store.partitions.at(&shards).into_iter().map(|(shard, place)| (shard, partitions::lock(&place).fence));
    fences.filter(|(_, fence)| *fence != FenceState::default()).collect()
}
