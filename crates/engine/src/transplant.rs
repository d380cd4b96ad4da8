//! Changes the rows of a store that is copied, restored or salvaged, because the result is another store.
//!
//! The original may continue, or may have continued since a snapshot was taken. So what it may have granted meanwhile must not be
//! granted again: numbers that others know (epochs, chunk ids, the version of the map) are raised well above, and roles notice
//! the change of store. What concerns the nodes of the original is dropped, and pools are paused, because their workers belong
//! to the original until an operator says otherwise.
//!
//! Hosts, aliases and crawls keep their numbers, which are known inside one store only.

use std::iter::Peekable;

use wayleave_core::codec::Damaged;
use wayleave_core::ids::{Epoch, ShardId};
use wayleave_core::pipeline::row::{PipelineRow, Write as PipelineWrite};
use wayleave_core::placement::{LedgerRow, Write as PlacementWrite};
use wayleave_core::roles::Origin;

use crate::fences::FenceState;
use crate::rows::{Kind, chunk, key as keys, placement, pool, role};
use crate::{Key, Row, Write};

/// How far numbers are raised that the original may have granted since.
const SKIPPED: u64 = 1 << 24;

/// The incarnation that copied roles name. No store has it, so every role notices the change of store when it is next used:
/// its epochs are raised, and nothing is granted for one time to live.
const NO_STORE: u64 = u64::MAX;

/// The shard of fleet and placement.
const CONTROL_SHARD: ShardId = ShardId(0);

/// The fence of a shard in the new store. Epochs are raised; commit numbers continue, because rows are named after
/// them.
#[must_use]
pub const fn fence_in_new_store(fence: FenceState) -> FenceState {
    FenceState { epoch: Epoch(fence.epoch.0.saturating_add(SKIPPED)), seq: fence.seq }
}

/// The row in the new store; `None` if it is not part of it. Fails if the row is one that must be changed, and does not
/// decode.
pub fn as_new_store(row: Row) -> Result<Option<Row>, Damaged> {
    let Row { key, value } = row;
    let kind = keys::kind(&key)?;
    let value = match kind {
        // The engine's own, what nodes say of themselves, and what they agree on. The pages that a crawl may still use are
        // granted anew, by what its hosts have used.
        Kind::Fence | Kind::Node | Kind::Seat | Kind::Cluster | Kind::Join | Kind::PageLedger => return Ok(None),
        Kind::Role if key == role::origin_key() => return Ok(Some(raised_origin(role::decode_origin(&value)?))),
        Kind::Role => {
            let mut role = role::decode(&value)?;
            role.incarnation = NO_STORE;
            role::encode(&role)
        }
        Kind::Pipeline => return Ok(Some(raised_pipeline(&key, chunk::decode_pipeline(&value)?)?)),
        Kind::MapLedger => return Ok(Some(raised_ledger(placement::decode_ledger(&value)?))),
        Kind::Pool => {
            let mut row = pool::decode(&key, &value)?;
            row.paused = true;
            pool::encode(&row)
        }
        Kind::Shard
        | Kind::Crawl
        | Kind::Alias
        | Kind::Host
        | Kind::Member
        | Kind::Url
        | Kind::Due
        | Kind::Hold
        | Kind::Lease
        | Kind::Log
        | Kind::DeletedQueue
        | Kind::Standby
        | Kind::BulkJob
        | Kind::Chunk
        | Kind::RestingChunk
        | Kind::Machine
        | Kind::BuiltChunk
        | Kind::Copy
        | Kind::IndexServer
        | Kind::ReturnedChunk
        | Kind::Worker
        | Kind::Match
        | Kind::PoolOwner
        | Kind::ChunkLinks => value,
    };
    Ok(Some(Row { key, value }))
}

fn raised_pipeline(key: &[u8], row: PipelineRow) -> Result<Row, Damaged> {
    let (shard, _) = keys::Parts(key).prefix()?;
    let row = PipelineRow { next_chunk: row.next_chunk.saturating_add(SKIPPED) };
    let written = chunk::encode_write(shard, &PipelineWrite::Pipeline(row)).pop();
    written.and_then(stored).ok_or(Damaged("a pipeline has no row"))
}

/// A role that the new store does not have may have got its epochs since, or its row may be lost.
fn raised_origin(origin: Origin) -> Row {
    let epoch = Epoch(origin.epoch.0.saturating_add(SKIPPED));
    let origin = Origin { epoch, incarnation: NO_STORE, ..origin };
    Row { key: role::origin_key(), value: role::encode_origin(&origin) }
}

fn raised_ledger(row: LedgerRow) -> Row {
    let row = LedgerRow { version: row.version.saturating_add(SKIPPED), ..row };
    let Write { key, value } = placement::encode_write(CONTROL_SHARD, &PlacementWrite::Ledger(row));
    Row { key, value: value.unwrap_or_default() }
}

fn stored(write: Write) -> Option<Row> {
    Some(Row { key: write.key, value: write.value? })
}

/// The rows from which a store of this many shards counts chunks, versions of the map and epochs of new roles, in key
/// order: their values in the new store if the original has none.
#[must_use]
pub fn uncounted(shards: u16) -> Vec<Row> {
    let pipeline = |shard| raised_pipeline(&chunk::pipeline_key(ShardId(shard)), PipelineRow::default()).ok();
    let mut rows: Vec<Row> = (0..shards).filter_map(pipeline).collect();
    rows.extend([raised_ledger(LedgerRow::default()), raised_origin(Origin::default())]);
    rows.sort_by(|a, b| a.key.cmp(&b.key));
    rows
}

/// The rows of a store in key order, on their way into another one.
///
/// It adds the rows from which numbers are counted that the original has not begun to count: it may have begun since.
#[derive(Debug)]
pub struct Transplant {
    /// Rows that the new store has in any case, in key order.
    needed: Peekable<std::vec::IntoIter<Row>>,
    /// Rows up to this one are in the new store already.
    after: Option<Key>,
    /// The shard of the last chunk, and the number after the largest of its chunks: they come before the row that counts them, which
    /// may be lost.
    chunks: (ShardId, u64),
}

impl Transplant {
    /// For a store of this many shards. With `after`, an interrupted copy continues after that row.
    #[must_use]
    pub fn new(shards: u16, after: Option<Key>) -> Self {
        Self { needed: uncounted(shards).into_iter().peekable(), after, chunks: (ShardId(0), 0) }
    }

    /// Takes the next row, and passes on what the new store has up to it. Fails if the row must be changed, and does
    /// not decode. Nothing of it is passed on.
    pub fn take(&mut self, row: Row, mut to: impl FnMut(Row)) -> Result<(), Damaged> {
        self.count_chunk(&row.key);
        while let Some(needed) = self.needed.next_if(|needed| needed.key <= row.key) {
            if needed.key < row.key && self.is_new(&needed.key) {
                to(self.above_chunks(needed));
            }
        }
        if let Some(row) = as_new_store(row)?.filter(|row| self.is_new(&row.key)) {
            to(row);
        }
        Ok(())
    }

    /// Passes on what the new store has after the last row.
    pub fn finish(mut self, mut to: impl FnMut(Row)) {
        while let Some(row) = self.needed.next() {
            if self.is_new(&row.key) {
                to(self.above_chunks(row));
            }
        }
    }

    fn count_chunk(&mut self, key: &[u8]) {
        let mut parts = keys::Parts(key);
        let Ok((shard, kind)) = parts.prefix() else { return };
        if ![Kind::Chunk as u8, Kind::RestingChunk as u8].contains(&kind) {
            return;
        }
        let next = parts.number::<6>().map_or(0, |number| number.saturating_add(1));
        self.chunks = (shard, if self.chunks.0 == shard { self.chunks.1.max(next) } else { next });
    }

    /// A row that counts chunks, above those that its shard has: a store that was copied before has them far above the first ones.
    fn above_chunks(&self, row: Row) -> Row {
        let is_of = keys::Parts(&row.key).prefix() == Ok((self.chunks.0, Kind::Pipeline as u8));
        let Some(counted) = chunk::decode_pipeline(&row.value).ok().filter(|_| is_of) else { return row };
        if counted.next_chunk > self.chunks.1 {
            return row;
        }
        raised_pipeline(&row.key, PipelineRow { next_chunk: self.chunks.1 }).unwrap_or(row)
    }

    fn is_new(&self, key: &Key) -> bool {
        self.after.as_ref().is_none_or(|after| key > after)
    }
}

#[cfg(test)]
#[path = "transplant_tests.rs"]
mod tests;
