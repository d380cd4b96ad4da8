//! Calls that change state and are not part of a visit.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use wayleave_core::frontier::bulk_job::{JobPhase, JobRow};
use wayleave_core::frontier::move_host::{Moving, Way};
use wayleave_core::frontier::page_ledger::PageLedger;
use wayleave_core::frontier::requeue::BulkAction;
use wayleave_core::ids::{QueueId, ShardId, Token};
use wayleave_core::names::{Alias, CrawlName, HostName};
use wayleave_core::settings::{CrawlChanges, CrawlSettings, PaceChanges};
use wayleave_core::time::{Millis, Time};
use wayleave_engine::{Batch, Key};

/// Selects the reservations to revoke.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Revoke {
    /// The reservation with this token.
    Token(Token),
    /// Every reservation of this holder.
    Holder(Arc<str>),
    /// Every reservation on this host.
    Host(HostName),
}

/// Settings and deletions. They are decided on in-memory state alone and read no rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum AdminChange {
    SetActive(bool),
    SetHost {
        host: HostName,
        changes: PaceChanges,
        replace: bool,
        ready_at: Option<Time>,
    },
    /// Changes the settings of an alias; returns its member hosts.
    SetGroup {
        alias: Alias,
        changes: PaceChanges,
        replace: bool,
    },
    DeleteGroup(Alias),
    Crawl(CrawlChange),
    /// Sent to the crawl's home first, which numbers the deletion, and then with that number to all others. The answer has
    /// the number of URLs and that of the deletion.
    DeleteCrawl {
        crawl: CrawlName,
        number: Option<Time>,
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

/// The settings of a crawl, step by step; see `owner::frontier::set_crawl`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum CrawlChange {
    /// Sent to the crawl's home first, which may refuse it: changes, and whether they replace all settings; `None` to spread
    /// what is set once more. `again` if these changes were decided before. The answer is a [`CrawlSet`].
    Decide { crawl: CrawlName, changes: Option<(CrawlChanges, bool)>, again: bool },
    /// Sent to all others: what the home has decided. Older settings than a shard has, or than a deletion that it has heard
    /// of, change nothing there. The answer is the number of pages used.
    Follow { crawl: CrawlName, settings: CrawlSettings, version: u64, round: u64 },
    /// Sent to the home, which answers whether this version is in force: what each shard had used when it followed, if a
    /// ledger is to be opened or removed. The answer is a [`CrawlSettled`].
    Settle { crawl: CrawlName, version: u64, used: Option<Vec<(ShardId, u64)>> },
    /// Sent to all others: what the ledger has of each shard, since they followed in this round.
    Share { crawl: CrawlName, round: u64, ledger: PageLedger },
}

/// What the home of a crawl has decided.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct CrawlSet {
    pub settings: CrawlSettings,
    /// Of these settings.
    pub version: u64,
    /// Pages used there.
    pub used: u64,
    /// Whether a ledger is to be opened or removed.
    pub ledger: bool,
    /// A number that no other round has.
    pub round: u64,
}

/// Whether what the home has decided is in force.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CrawlSettled {
    pub in_force: bool,
    /// The ledger, if shards may use what they have in it without asking.
    pub ledger: Option<PageLedger>,
}

/// Changes to bulk jobs (requeue or delete of many URLs).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum JobChange {
    /// Registers a job. Idempotent: a job that is already known is left unchanged.
    StartJob(Box<JobRow>),
    /// Cancels a job. A shard that does not know the job yet records it as cancelled, so that it never starts.
    CancelJob(Box<JobRow>),
    /// Every shard has registered the job: start it.
    BeginJob(Token),
    /// Sent to the job's home shard: how far its announcement has reached the other shards.
    SetStage(Token, JobPhase),
    /// Jobs that have ended on every shard: `ended` no longer count against the limit, `forgotten` are removed.
    ConcludeJobs { ended: Vec<Token>, forgotten: Vec<Token> },
}

/// Changes to URLs. Their rows are read first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum UrlChange {
    Purge {
        queue: QueueId,
        before: Time,
        after: Option<Key>,
    },
    /// Requeues or deletes the given URLs of one queue.
    ChangeUrls {
        crawl: CrawlName,
        host: HostName,
        urls: Vec<Box<str>>,
        what: BulkAction,
    },
    /// Revokes reservations.
    Revoke(Revoke),
    /// Revokes the holds of a host, one slice per call.
    RevokeHolds {
        host: HostName,
        after: Option<Key>,
    },
}

/// A move of hosts between two shards.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum HostMove {
    /// Sent to the giving shard: export these hosts to shard `to`.
    Give { hosts: Vec<HostName>, way: Way, to: ShardId },
    /// Sent to the taking shard: adopt these hosts. `part` is the giver's half of the shared commit.
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
            | Self::Crawl(_)
            | Self::DeleteCrawl { .. }
            | Self::SetDefaultDelay(_) => None,
        }
    }
}

impl UrlChange {
    pub(super) const fn host(&self) -> Option<&HostName> {
        match self {
            Self::ChangeUrls { host, .. } | Self::Revoke(Revoke::Host(host)) | Self::RevokeHolds { host, .. } => {
                Some(host)
            }
            Self::Purge { .. } | Self::Revoke(Revoke::Token(_) | Revoke::Holder(_)) => None,
        }
    }
}
