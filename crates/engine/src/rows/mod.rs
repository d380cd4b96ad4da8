//! Row kinds and their encodings, one file per kind. A kind's number never changes. Every value begins with the number of
//! its format ([`crate::format`]); unknown ones are refused.
//!
//! | number | kind | key after shard and kind | lifetime |
//! |---|---|---|---|
//! | 0 | fence | nothing | the engine's own |
//! | 1 | shard | nothing | as long as the shard |
//! | 2 | crawl | number | first URL or setting until deletion |
//! | 3 | alias | id | until deletion |
//! | 4 | host | id | first URL or setting until its last queue is deleted |
//! | 5 | member | host name | while the host lives with an alias |
//! | 6 | url | host, queue, URL | until deletion or purge |
//! | 7 | due | host, queue, lane, due time, URL | while the URL is queued |
//! | 8 | hold | end, host, queue, URL | while the URL is on hold |
//! | 9 | lease | token | while the reservation lives |
//! | 10 | log | commit number | until the hot rows in it are written out |
//! | 11 | deleted queue | host, queue | until the queue's rows are removed |
//! | 12 | role | role name; the origin of new roles under no name | until deletion |
//! | 13 | standby | role name, uuid | until its deadline |
//! | 14 | node | node id | while the node lives |
//! | 15 | seat | shard number | as long as the shard: which node it belongs to |
//! | 16 | cluster | nothing | as long as the store: what its nodes agree on |
//! | 17 | bulk job | job id | until enough later jobs have ended |
//! | 18 | page ledger | crawl name | while the crawl has a page limit, in a store of several nodes |
//! | 19 | join | nothing | from the first join on: counts joins, so that they conflict, and has the format of the store |
//! | 20 | chunk | id | while it is in progress |
//! | 21 | resting chunk | id | once it is placed, set aside or skipped, until it is tried again |
//! | 22 | pipeline | nothing | from the first chunk on |
//! | 23 | machine | name | until it is deleted |
//! | 24 | built chunk | id | from when it is placed until it is gone |
//! | 25 | copy | chunk id, server | until the server has deleted it |
//! | 26 | index server | name | until it has left the fleet and its copies are forgotten |
//! | 27 | map ledger | nothing | from the first machine or built chunk on |
//! | 28 | returned chunk | id | from when it leaves placement until an hour after its pipeline knows |
//! | 29 | pool | name | from its first setting until it is deleted and nothing of it is left |
//! | 30 | worker | pool, number | from before it is created until nothing of it is left |
//! | 31 | match | pool, client | from when it is queued until it has ended and its reservations are given back |
//! | 32 | pool owner | nothing | from the first pool of the shard on |
//! | 33 | chunk links | chunk id, slice | while the chunk is in progress and has more links than its row |
//!
//! Kinds 12 to 16, 18 and 19 are outside the shards, under [`key::OUTSIDE`]; kinds 23 to 28 are in shard 0 only.
//!
//! **Hot rows** (kinds 1 to 5) are kept in memory and rebuilt when a shard is opened. Each commit writes those it changed as
//! one log row, so a batch that touches a thousand hosts writes one row; of a known host only the pace and the changed
//! queues. A checkpoint writes the rows one by one and truncates the log: when the log has grown, and a minute after a
//! deletion at the latest, so that names of deleted hosts do not stay. Opening reads the rows and replays the log.
//!
//! **URLs** stay in the store. Each has a `url` row (identity, in byte order) and, while queued, a `due` row. Its details
//! (metadata, attempts, depth) are in exactly one of the two. Keys omit the `scheme://host` that the queue implies.
//!
//! **Chunks** in progress have one row with their first 16 links; the others are in rows of 16 links each. A renewal writes
//! the first row, a report the rows of the links that it names. A chunk that comes to rest becomes one row of another
//! kind, so that opening a shard does not read it.

pub mod bulk_job;
pub mod chunk;
pub mod chunk_links;
pub mod cluster;
pub mod deleted_queue;
pub mod due;
mod field;
pub mod hold;
pub mod host;
pub mod hot;
pub mod join;
pub mod key;
pub mod lease;
pub mod log;
pub mod machine;
pub mod match_row;
pub mod node;
pub mod page_ledger;
pub mod placement;
pub mod pool;
pub mod pool_owner;
pub mod role;
pub mod seat;
pub mod standby;
pub mod url;
pub mod worker;

use std::fmt::Debug;

use wayleave_core::codec::Damaged;
use wayleave_core::frontier::row::Write as CoreWrite;
use wayleave_core::ids::ShardId;

use crate::{Row, Write};

/// Lists the kinds of rows; each has its number as its place.
macro_rules! kinds {
    ($($number:literal $kind:ident),* $(,)?) => {
        /// The number of a row kind; see the table above.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the table of this module says what each is")]
        #[repr(u8)]
        pub enum Kind {
            $($kind = $number,)*
        }

        impl Kind {
            /// Every kind; each has its number as its place.
            pub const ALL: [Self; [$($number),*].len()] = [$(Self::$kind),*];
        }
    };
}
kinds! {
    0 Fence, 1 Shard, 2 Crawl, 3 Alias, 4 Host, 5 Member, 6 Url, 7 Due, 8 Hold, 9 Lease, 10 Log, 11 DeletedQueue, 12 Role,
    13 Standby, 14 Node, 15 Seat, 16 Cluster, 17 BulkJob, 18 PageLedger, 19 Join, 20 Chunk, 21 RestingChunk,
    22 Pipeline, 23 Machine, 24 BuiltChunk, 25 Copy, 26 IndexServer, 27 MapLedger, 28 ReturnedChunk, 29 Pool,
    30 Worker, 31 Match, 32 PoolOwner, 33 ChunkLinks,
}

/// Converts a change decided by the core into a write to a row. `shard` is the writing shard.
#[must_use]
pub fn encode(shard: ShardId, write: &CoreWrite) -> Write {
    match write {
        CoreWrite::Url(queue, key, row) => {
            Write { key: url::key(*queue, &key.0), value: row.as_ref().map(url::encode) }
        }
        CoreWrite::Due(queue, position, key, row) => {
            Write { key: due::key(*queue, *position, &key.0), value: row.as_ref().map(due::encode) }
        }
        CoreWrite::Hold(until, queue, key, set) => {
            Write { key: hold::key(shard, *until, *queue, &key.0), value: set.then(Vec::new) }
        }
        CoreWrite::Lease(token, row) => {
            Write { key: lease::key(shard, *token), value: row.as_ref().map(lease::encode) }
        }
        CoreWrite::DeletedQueue(queue, set) => {
            Write { key: deleted_queue::key(shard, *queue), value: set.then(Vec::new) }
        }
        CoreWrite::BulkJob(id, row) => {
            Write { key: bulk_job::key(shard, *id), value: row.as_deref().map(bulk_job::encode) }
        }
    }
}

/// What a row of any kind says, from its key and value alone.
pub fn decode(row: &Row) -> Result<Box<dyn Debug>, Damaged> {
    let Row { key, value } = row;
    Ok(match key::kind(key)? {
        Kind::Fence => Box::new(value.clone()),
        Kind::Shard | Kind::Crawl | Kind::Alias | Kind::Host | Kind::Member => Box::new(hot::decode(key, Some(value))?),
        Kind::Url => Box::new((url::parse_key(key)?, url::decode(value)?)),
        Kind::Due => Box::new((due::parse_key(key)?, due::decode(value)?)),
        Kind::Hold => Box::new(hold::parse_key(key)?),
        Kind::Lease => Box::new(lease::decode(value)?),
        Kind::Log => Box::new((log::parse_key(key)?, log::decode(value)?)),
        Kind::DeletedQueue => Box::new(deleted_queue::parse_key(key)?),
        Kind::Role if *key == role::origin_key() => Box::new(role::decode_origin(value)?),
        Kind::Role => Box::new((role::parse_key(key)?, role::decode(value)?)),
        Kind::Standby => Box::new((standby::parse_key(key)?, standby::decode(value)?)),
        Kind::Node => Box::new(node::decode(value)?),
        Kind::Seat => Box::new((seat::parse_key(key)?, seat::decode(value)?)),
        Kind::Cluster => Box::new(cluster::decode(value)?),
        Kind::BulkJob => Box::new(bulk_job::decode(value)?),
        Kind::PageLedger => Box::new((page_ledger::parse_key(key)?, page_ledger::decode(value)?)),
        Kind::Join => Box::new(join::decode(value)?),
        Kind::Chunk | Kind::RestingChunk => Box::new(chunk::decode(value)?),
        Kind::Pipeline => Box::new(chunk::decode_pipeline(value)?),
        Kind::Machine => Box::new((machine::parse_key(key)?, machine::decode(value)?)),
        Kind::BuiltChunk => Box::new(placement::decode_chunk(key, value)?),
        Kind::Copy => Box::new(placement::decode_copy(key, value)?),
        Kind::IndexServer => Box::new(placement::decode_server(key, value)?),
        Kind::MapLedger => Box::new(placement::decode_ledger(value)?),
        Kind::ReturnedChunk => Box::new(placement::decode_return(key, value)?),
        Kind::Pool => Box::new(pool::decode(key, value)?),
        Kind::Worker => Box::new((worker::parse_key(key)?, worker::decode(value)?)),
        Kind::Match => Box::new((match_row::parse_key(key)?, match_row::decode(value)?)),
        Kind::PoolOwner => Box::new(pool_owner::decode(value)?),
        Kind::ChunkLinks => Box::new(chunk_links::decode(value)?),
    })
}

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests;
