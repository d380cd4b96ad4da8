//! The rows that the core reads and writes, as values. Their encoding is the engine's concern.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use super::bulk_job::JobRow;
use super::request::RequestId;
use super::url_key::UrlKey;
use super::view::LastVisit;
use crate::ids::{ChunkId, CrawlNo, GroupId, HostId, QueueId, Token};
use crate::metadata::Metadata;
use crate::names::{Alias, CrawlName, HostName};
use crate::settings::{CrawlSettings, PaceSettings};
use crate::time::{Millis, Time};

/// A known URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlRow {
    /// When it was first stored.
    pub created: Time,
    /// The full URL, if its key was truncated.
    pub whole: Option<Box<str>>,
    /// Where it is.
    pub status: UrlStatus,
}

/// Where a URL is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UrlStatus {
    /// In the queue; its details are in the due row.
    Queued(QueuePosition),
    /// Handed out in the paced form.
    Held {
        /// The hold's deadline.
        until: Time,
        /// Its queue position.
        position: QueuePosition,
        /// Details that return to the queue with it.
        details: Details,
    },
    /// Handed out in a reservation.
    Reserved {
        /// The reservation.
        token: Token,
        /// Its queue position.
        position: QueuePosition,
        /// Details that return to the queue with it.
        details: Details,
    },
    /// Finished: not to be visited again, unless requeued.
    Done {
        /// How it ended.
        end: End,
        /// The lane that it was in.
        lane: u8,
        /// Details that return to the queue if it is requeued.
        details: Details,
    },
}

/// How a URL ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// Fetched.
    Fetched,
    /// Gone.
    Gone,
    /// Set aside after too many attempts.
    Failed,
}

/// Position in a queue: ordered by lane, then due time, then URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct QueuePosition {
    /// 0 for priority 9, 9 for priority 0.
    pub lane: u8,
    /// When it is due.
    pub due: Time,
}

/// Details of a URL, stored in exactly one of its rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// Attempts without a result.
    pub attempts: u32,
    /// Link distance from the seed.
    pub depth: u32,
    /// The last result.
    pub last: Option<LastVisit>,
    /// The current revisit interval, if adaptive.
    pub interval: Option<Millis>,
    /// Digest of the content at the last visit, if reported.
    pub digest: Option<Box<str>>,
    /// Client metadata.
    pub metadata: Metadata,
}

/// A queued URL, keyed by its queue position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueRow {
    /// When it was first stored.
    pub created: Time,
    /// The full URL, if its key was truncated.
    pub whole: Option<Box<str>>,
    /// Its details.
    pub details: Details,
}

/// A reservation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRow {
    /// Its secret.
    pub token: Token,
    /// The host to visit.
    pub host: HostId,
    /// Who holds it.
    pub holder: Arc<str>,
    /// When it was granted.
    pub granted_at: Time,
    /// When it ends.
    pub expires_at: Time,
    /// The crawl that it was granted for.
    pub crawl: CrawlNo,
    /// The host's own queue time, if it was reserved without URLs.
    pub queued_at: Option<Time>,
    /// Its URLs, all of one queue.
    pub urls: Vec<(QueueId, UrlKey)>,
    /// How many of them an update or purge has removed since.
    pub taken_away: u32,
    /// The idempotent request it was granted for, if any.
    pub request: Option<Box<RequestId>>,
    /// The chunk that it belongs to, if any.
    pub link: Option<Link>,
    /// The chunk that it belonged to, and that ended before this visit did.
    pub ended_chunk: Option<ChunkId>,
}

/// A reservation that belongs to a chunk: its deadline is the chunk's, and its URLs stay reserved when its visit ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The chunk.
    pub chunk: ChunkId,
    /// Whether the visit is in progress. If not, the group is free, and only the URLs are reserved.
    pub visiting: bool,
}

/// The pace of a group: its politeness state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pace {
    /// The end of the last visit; zero if there was none.
    pub last_end: Time,
    /// How long the last visit took.
    pub last_duration: Millis,
    /// The crawl of the last visit.
    pub last_crawl: CrawlNo,
    /// Blocked until this time at the site's request.
    pub backoff_until: Time,
    /// Back-offs not forgiven yet; every good page halves the count.
    pub backoff_count: u32,
    /// The status that caused the last back-off; 0 if none was reported.
    pub backoff_status: u16,
    /// The page whose response caused it.
    pub asked_by: Option<Arc<str>>,
    /// Earliest next visit carried over from groups that hosts came from.
    pub not_before: Time,
}

/// A lane of a queue: the URLs of one priority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lane {
    /// 0 for priority 9, 9 for priority 0.
    pub lane: u8,
    /// Number of URLs queued in it.
    pub count: u32,
    /// Lower bound of the next due time.
    pub head: Time,
    /// Scan cursor: no row has a smaller due time and key. Starting here skips tombstones of deleted rows.
    pub from: (Time, Box<[u8]>),
}

/// The queue of one crawl at one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueRow {
    /// Its number within the host.
    pub no: u32,
    /// Its crawl.
    pub crawl: CrawlNo,
    /// Its lanes.
    pub lanes: Vec<Lane>,
    /// Handed out.
    pub reserved: u32,
    /// Fetched for good.
    pub fetched: u32,
    /// Gone.
    pub gone: u32,
    /// Set aside.
    pub failed: u32,
    /// Pages after which no more are handed out.
    pub limit: Option<u64>,
    /// Visits modulo ten, which gives the lower priorities their turn.
    pub visits_mod_ten: u8,
    /// Pages fetched, gone or given up; a revisited page counts again.
    pub pages: u32,
}

/// A host with its queues and, while it is a group of its own, its pace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRow {
    /// Its id.
    pub id: HostId,
    /// Its name.
    pub name: HostName,
    /// The alias it belongs to.
    pub group: Option<GroupId>,
    /// Its settings.
    pub settings: PaceSettings,
    /// Crawl-delay of robots.txt.
    pub robots_delay: Millis,
    /// When the host itself is queued.
    pub queued_at: Option<Time>,
    /// The number of the next queue.
    pub next_queue: u32,
    /// Its pace, while it has no alias.
    pub pace: Pace,
    /// Its queues.
    pub queues: Vec<QueueRow>,
}

/// Borrowed view of a host's row, written without copying it.
#[derive(Clone, Copy, Debug)]
pub struct HostRef<'a> {
    /// Its id.
    pub id: HostId,
    /// Its name.
    pub name: &'a HostName,
    /// The alias it belongs to.
    pub group: Option<GroupId>,
    /// Its settings.
    pub settings: PaceSettings,
    /// Crawl-delay of robots.txt.
    pub robots_delay: Millis,
    /// When the host itself is queued.
    pub queued_at: Option<Time>,
    /// The number of the next queue.
    pub next_queue: u32,
    /// Its pace, while it has no alias.
    pub pace: &'a Pace,
    /// Its queues.
    pub queues: &'a [QueueRow],
}

impl HostRow {
    /// A new host, which has no queue and is a group of its own.
    #[must_use]
    pub fn new(id: HostId, name: HostName) -> Self {
        Self {
            id,
            name,
            group: None,
            settings: PaceSettings::default(),
            robots_delay: Millis(0),
            queued_at: None,
            next_queue: 0,
            pace: Pace::default(),
            queues: Vec::new(),
        }
    }

    /// The row, borrowed.
    #[must_use]
    pub fn by_ref(&self) -> HostRef<'_> {
        let Self { id, name, group, settings, robots_delay, queued_at, next_queue, pace, queues } = self;
        HostRef {
            id: *id,
            name,
            group: *group,
            settings: *settings,
            robots_delay: *robots_delay,
            queued_at: *queued_at,
            next_queue: *next_queue,
            pace,
            queues,
        }
    }
}

impl HostRef<'_> {
    /// Only its pace and its queues.
    #[must_use]
    pub fn to_part(self) -> HostPart {
        HostPart { id: self.id, pace: self.pace.clone(), queues: self.queues.to_vec() }
    }

    /// The owned row.
    #[must_use]
    pub fn to_row(self) -> HostRow {
        let Self { id, name, group, settings, robots_delay, queued_at, next_queue, pace, queues } = self;
        let (name, pace, queues) = (name.clone(), pace.clone(), queues.to_vec());
        HostRow { id, name, group, settings, robots_delay, queued_at, next_queue, pace, queues }
    }
}

/// Partial update of a host's row: the pace and some queues, which change most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPart {
    /// The host's id.
    pub id: HostId,
    /// Its pace.
    pub pace: Pace,
    /// Changed queues; the others are unchanged.
    pub queues: Vec<QueueRow>,
}

impl HostRow {
    /// Applies a partial update.
    pub fn take_part(&mut self, part: HostPart) {
        self.pace = part.pace;
        for queue in part.queues {
            match self.queues.iter_mut().find(|known| known.no == queue.no) {
                Some(known) => *known = queue,
                None => self.queues.push(queue),
            }
        }
    }
}

/// An alias.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AliasRow {
    /// Its id.
    pub id: GroupId,
    /// Its name.
    pub name: Alias,
    /// Its settings.
    pub settings: PaceSettings,
    /// Its pace.
    pub pace: Pace,
}

/// A crawl as one shard keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrawlRow {
    /// Its number in the shard.
    pub no: CrawlNo,
    /// Its name.
    pub name: CrawlName,
    /// Its settings.
    pub settings: CrawlSettings,
    /// Whether an operator configured it; if not, it is removed with its last queue.
    pub kept: bool,
    /// Grows whenever the crawl's home changes its settings; 0 before it has.
    pub version: u64,
}

/// The row of a whole shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardRow {
    /// The number of the next host.
    pub next_host: u64,
    /// The number of the next alias.
    pub next_group: u64,
    /// The number of the next crawl.
    pub next_crawl: u32,
    /// Default delay, where no other setting applies.
    pub default_delay: Option<Millis>,
    /// Whether the paced form is switched on.
    pub active: bool,
}

impl Default for ShardRow {
    fn default() -> Self {
        Self { next_host: 1, next_group: 1, next_crawl: 1, default_delay: None, active: true }
    }
}

/// A hot row: small, kept in memory, and written on every change, whole or, for a host, in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HotRow {
    /// The shard itself.
    Shard(ShardRow),
    /// A crawl.
    Crawl(CrawlRow),
    /// A crawl was removed.
    CrawlGone(CrawlNo),
    /// An alias.
    Alias(AliasRow),
    /// An alias was removed.
    AliasGone(GroupId),
    /// A host.
    Host(HostRow),
    /// A host was removed.
    HostGone(HostId),
    /// A host whose home is this shard lives with an alias elsewhere.
    HostAlias {
        /// The host.
        host: HostName,
        /// Its alias; `None` if it has returned home.
        alias: Option<Alias>,
    },
}

/// A write to a row that is not kept in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// A URL.
    Url(QueueId, UrlKey, Option<UrlRow>),
    /// A queued URL, keyed by queue position.
    Due(QueueId, QueuePosition, UrlKey, Option<DueRow>),
    /// A hold, keyed by deadline; true adds it, false removes it.
    Hold(Time, QueueId, UrlKey, bool),
    /// A reservation.
    Lease(Token, Option<LeaseRow>),
    /// A deleted queue whose rows must be removed; true adds the row, false removes it.
    DeletedQueue(QueueId, bool),
    /// A bulk job.
    BulkJob(Token, Option<Box<JobRow>>),
}
