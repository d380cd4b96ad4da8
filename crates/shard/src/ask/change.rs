//! Calls that change something and are no part of a visit.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use wayleave_core::frontier::move_host::{Moving, Way};
use wayleave_core::frontier::requeue::Rework;
use wayleave_core::frontier::rework::{JobRow, Stage};
use wayleave_core::ids::{QueueId, ShardId, Token};
use wayleave_core::names::{Alias, CrawlName, HostName};
use wayleave_core::settings::{CrawlChanges, PaceChanges};
use wayleave_core::time::{Millis, Time};
use wayleave_engine::{Batch, Key};

/// Which reservations are to end before their time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Revoke {
    /// The one with this token.
    Token(Token),
    /// All of this holder.
    Holder(Arc<str>),
    /// All of this host.
    Host(HostName),
}

/// Settings and deletions, decided on the memory of the owner alone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum AdminChange {
    SetActive(bool),
    SetHost {
        host: HostName,
        changes: PaceChanges,
        replace: bool,
        ready_at: Option<Time>,
    },
    /// Changes an alias itself; tells which hosts it has.
    SetGroup {
        alias: Alias,
        changes: PaceChanges,
        replace: bool,
    },
    DeleteGroup(Alias),
    SetCrawl {
        crawl: CrawlName,
        changes: CrawlChanges,
        replace: bool,
        /// Whether the crawl may be refused because there are too many. Only the first shard that is asked may: the others must not
        /// refuse what that one has stored.
        bounded: bool,
    },
    DeleteCrawl {
        crawl: CrawlName,
        /// When the call was made.
        at: Time,
    },
    DeleteQueue {
        crawl: CrawlName,
        host: HostName,
    },
    SetQueueLimit {
        crawl: CrawlName,
        host: HostName,
        limit: Option<u64>,
    },
    SetDefaultDelay(Option<Millis>),
}

/// What becomes of the jobs over many URLs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum JobChange {
    /// Takes note of a job; one that is known stays as it is.
    StartJob(Box<JobRow>),
    /// Stops a job, or remembers that it is not to begin.
    CancelJob(Box<JobRow>),
    /// All shards have heard of a job: it begins.
    BeginJob(Token),
    /// How much the other shards have heard of a job of this one's.
    SetStage(Token, Stage),
    /// Jobs have ended in all shards: some no longer count, some are forgotten.
    SettleJobs { ended: Vec<Token>, forgotten: Vec<Token> },
}

/// Changes of URLs, whose rows are read first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum UrlChange {
    Purge {
        queue: QueueId,
        before: Time,
        after: Option<Key>,
    },
    /// Requeues or deletes some URLs of a queue.
    ReworkUrls {
        crawl: CrawlName,
        host: HostName,
        urls: Vec<Box<str>>,
        what: Rework,
    },
    /// Ends reservations before their time.
    Revoke(Revoke),
    /// Ends holds of a host before their time, a slice at a time.
    RevokeHolds {
        host: HostName,
        after: Option<Key>,
    },
}

/// A move of hosts between two shards.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum HostMove {
    /// Let hosts go to another shard.
    Give { hosts: Vec<HostName>, way: Way, to: ShardId },
    /// Take hosts in; `part` is the giver's side of the one commit.
    Take { moving: Vec<Moving>, way: Way, part: Batch },
}

impl AdminChange {
    pub(super) const fn host(&self) -> Option<&HostName> {
        match self {
            Self::SetHost { host, .. } | Self::DeleteQueue { host, .. } | Self::SetQueueLimit { host, .. } => {
                Some(host)
            }
            Self::SetActive(_)
            | Self::SetGroup { .. }
            | Self::DeleteGroup(_)
            | Self::SetCrawl { .. }
            | Self::DeleteCrawl { .. }
            | Self::SetDefaultDelay(_) => None,
        }
    }
}

impl UrlChange {
    pub(super) const fn host(&self) -> Option<&HostName> {
        match self {
            Self::ReworkUrls { host, .. } | Self::Revoke(Revoke::Host(host)) | Self::RevokeHolds { host, .. } => {
                Some(host)
            }
            Self::Purge { .. } | Self::Revoke(Revoke::Token(_) | Revoke::Holder(_)) => None,
        }
    }
}
