//! Row kinds and their encodings, one file per kind. A kind's number never changes. Every value begins with the version
//! of its layout; unknown versions are refused.
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
//! | 11 | job | host, queue | until the queue's rows are removed |
//! | 12 | role | role name; the origin of new roles under no name | until deletion |
//! | 13 | standby | role name, uuid | until its deadline |
//! | 14 | node | node id | while the node lives |
//! | 15 | seat | shard number | as long as the shard: which node it belongs to |
//! | 16 | cluster | nothing | as long as the store: what its nodes agree on |
//! | 17 | bulk job | job id | until enough later jobs have ended |
//! | 18 | page ledger | crawl name | while the crawl has a page limit, in a store of several nodes |
//! | 19 | join | nothing | from the first join on: counts joins, so that they conflict |
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
//! Kinds 1 to 5 are *hot*: the shard keeps them in memory. Each commit writes the changed ones as one log row; a
//! checkpoint writes them individually from time to time. Kinds 12 to 16, 18 and 19 are outside the
//! shards, under [`key::OUTSIDE`]; kinds 23 to 28 are in shard 0 only.

pub mod bulk_job;
pub mod chunk;
pub mod chunk_links;
pub mod cluster;
pub mod due;
pub mod hold;
pub mod host;
pub mod hot;
mod ip_address;
pub mod job;
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

use wayleave_core::frontier::row::Write as CoreWrite;
use wayleave_core::ids::ShardId;

use crate::Write;

/// The number of a row kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The engine's own.
    Fence = 0,
    /// The state of a whole shard.
    Shard = 1,
    /// A crawl.
    Crawl = 2,
    /// An alias.
    Alias = 3,
    /// A host.
    Host = 4,
    /// A host that belongs to an alias in another shard.
    Member = 5,
    /// A URL.
    Url = 6,
    /// A queued URL, in queue order.
    Due = 7,
    /// A hold, ordered by its deadline.
    Hold = 8,
    /// A reservation.
    Lease = 9,
    /// The hot rows of one commit.
    Log = 10,
    /// A deleted queue whose rows are still to be removed.
    Job = 11,
    /// A role and its primary.
    Role = 12,
    /// A candidate for a role.
    Standby = 13,
    /// A Wayleave process.
    Node = 14,
    /// Which node owns a shard.
    Seat = 15,
    /// What all nodes of a store agree on.
    Cluster = 16,
    /// A job over many URLs.
    BulkJob = 17,
    /// The grants of a crawl's page limit.
    PageLedger = 18,
    /// The number of joins.
    Join = 19,
    /// A chunk in progress.
    Chunk = 20,
    /// A chunk that is placed, set aside or skipped.
    RestingChunk = 21,
    /// What the pipeline of a shard keeps besides its chunks.
    Pipeline = 22,
    /// A machine of the fleet.
    Machine = 23,
    /// A built chunk, as placement knows it.
    BuiltChunk = 24,
    /// A copy of a built chunk on an index server.
    Copy = 25,
    /// An index server, as placement knows it.
    IndexServer = 26,
    /// The version of the map, and what else concerns all of placement.
    MapLedger = 27,
    /// A chunk that has left placement.
    ReturnedChunk = 28,
    /// A pool of workers.
    Pool = 29,
    /// A worker of a pool.
    Worker = 30,
    /// A client's request for a worker.
    Match = 31,
    /// The label of what the pools of a shard have started.
    PoolOwner = 32,
    /// Links of a chunk in progress.
    ChunkLinks = 33,
}

impl Kind {
    /// Every kind; each has its number as its place.
    pub const ALL: [Self; 34] = [
        Self::Fence,
        Self::Shard,
        Self::Crawl,
        Self::Alias,
        Self::Host,
        Self::Member,
        Self::Url,
        Self::Due,
        Self::Hold,
        Self::Lease,
        Self::Log,
        Self::Job,
        Self::Role,
        Self::Standby,
        Self::Node,
        Self::Seat,
        Self::Cluster,
        Self::BulkJob,
        Self::PageLedger,
        Self::Join,
        Self::Chunk,
        Self::RestingChunk,
        Self::Pipeline,
        Self::Machine,
        Self::BuiltChunk,
        Self::Copy,
        Self::IndexServer,
        Self::MapLedger,
        Self::ReturnedChunk,
        Self::Pool,
        Self::Worker,
        Self::Match,
        Self::PoolOwner,
        Self::ChunkLinks,
    ];
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
        CoreWrite::Job(queue, set) => Write { key: job::key(shard, *queue), value: set.then(Vec::new) },
        CoreWrite::BulkJob(id, row) => {
            Write { key: bulk_job::key(shard, *id), value: row.as_deref().map(bulk_job::encode) }
        }
    }
}

#[cfg(test)]
mod role_tests;
#[cfg(test)]
mod tests;
