//! Snapshots: all rows of an open store at one moment, taken online.
//!
//! The flush thread takes them, because no other thread adds tables: right after a flush the tables contain exactly the
//! frozen rows of all shards, fence rows included. Everything acknowledged before the request is among them, because
//! the freeze follows the request. The rows are then read without a lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::oneshot;
use wayleave_core::ids::{Epoch, ShardId};
use wayleave_engine::fences::FenceState;
use wayleave_engine::snapshot_file::SnapshotHeader;
use wayleave_engine::{Error, Key, Row};

use crate::fence_row::{self, FenceRow};
use crate::lsm::{AFTER_ALL, FjallSnapshot, FjallTables};
use crate::partitions::{self, Partition};
use crate::store::Store;
use crate::tables::{Snapshot as _, Tables};

/// The fence of a shard whose own cannot be read, in copies: far above all that the shard can have had, because rows are
/// named after commits.
const FENCE_LOST: FenceState = FenceState { epoch: Epoch(1 << 40), seq: 1 << 40 };

/// All rows of a store at one moment. It pins files on disk, so it should be short-lived.
pub struct Snapshot {
    header: SnapshotHeader,
    tables: FjallSnapshot,
}

impl Snapshot {
    /// Requests a snapshot from the flush thread, and waits for it.
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
            let lost = FenceRow { fence: FENCE_LOST, at: header.at };
            let row = match tables.get(&fence_row::key(shard)) {
                Ok(None) => continue,
                Ok(Some(value)) => FenceRow::decode(&value).unwrap_or(lost),
                // Its block holds other rows of the shard, so reading these says that they are damaged.
                Err(Error::Corrupt(_)) => lost,
                Err(error) => return Err(error),
            };
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

    /// At most `limit` rows from a key on, in order, without the engine's own. Blocks the thread. Fails with
    /// [`Error::Corrupt`] if a row cannot be read.
    pub fn page(&self, from: &[u8], limit: usize) -> Result<Vec<Row>, Error> {
        let rows = self
            .tables
            .range(from, &AFTER_ALL)
            .filter(|row| !matches!(row, Ok((key, _)) if fence_row::is_own_key(key)));
        rows.take(limit).map(|row| row.map(|(key, value)| Row { key, value })).collect()
    }

    /// Where the damage ends that [`Snapshot::page`] meets at this key, and at most `limit` rows before its end that it does
    /// not concern. Blocks the thread.
    pub fn past_damage(&self, from: &[u8], limit: usize) -> Result<(Key, Vec<Row>), Error> {
        let (end, rows) = self.tables.past_damage((from, &AFTER_ALL), limit)?;
        let rows = rows.into_iter().filter(|(key, _)| !fence_row::is_own_key(key));
        Ok((end, rows.map(|(key, value)| Row { key, value }).collect()))
    }
}

/// The fences of a store's shards.
pub(crate) fn fences<T: Tables>(store: &Store<T>, shards: u16) -> BTreeMap<ShardId, FenceState> {
    let shards: Vec<ShardId> = (0..shards).map(ShardId).collect();
    let fence = |partition: &Partition| if partition.fence_lost.is_some() { FENCE_LOST } else { partition.fence };
    let places = store.partitions.at(&shards).into_iter();
    let fences = places.map(|(shard, place)| (shard, fence(&partitions::lock(&place))));
    fences.filter(|(_, fence)| *fence != FenceState::default()).collect()
}
