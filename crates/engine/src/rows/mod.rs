//! Rows: how each kind lies in a store. One file a kind; a kind's number never changes; every value begins with the
//! version of its layout, and a version that is not known is refused.
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
//! | 17 | rework | job id | until enough later jobs have ended |
//!
//! Rows 1 to 5 are *hot*: the shard keeps them in memory. They are written packed, one log row a commit, and written
//! out row by row from time to time. Kinds 12 to 16 lie outside the shards, under [`key::OUTSIDE`].

pub mod cluster;
pub mod due;
pub mod hold;
pub mod host;
pub mod hot;
pub mod job;
pub mod key;
pub mod lease;
pub mod log;
pub mod node;
pub mod rework;
pub mod role;
pub mod seat;
pub mod standby;
pub mod url;

use wayleave_core::frontier::row::Write as CoreWrite;
use wayleave_core::ids::ShardId;

use crate::Write;

/// The number of a row kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The engine's own.
    Fence = 0,
    /// What holds for a whole shard.
    Shard = 1,
    /// A crawl.
    Crawl = 2,
    /// An alias.
    Alias = 3,
    /// A host.
    Host = 4,
    /// A host that lives with an alias elsewhere.
    Member = 5,
    /// A URL.
    Url = 6,
    /// A queued URL in its order.
    Due = 7,
    /// A hold by its end.
    Hold = 8,
    /// A reservation.
    Lease = 9,
    /// Hot rows of one commit.
    Log = 10,
    /// A queue whose rows are to be removed.
    Job = 11,
    /// A role: who is its primary.
    Role = 12,
    /// One who stands for election.
    Standby = 13,
    /// A Wayleave process.
    Node = 14,
    /// Which node a shard belongs to.
    Seat = 15,
    /// What all nodes of a store agree on.
    Cluster = 16,
    /// A job over many URLs.
    Rework = 17,
}

/// A change of the core as a change to a row of the store. `shard` is the one that writes.
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
        CoreWrite::Rework(id, row) => Write { key: rework::key(shard, *id), value: row.as_deref().map(rework::encode) },
    }
}

#[cfg(test)]
mod role_tests;
#[cfg(test)]
mod tests;
