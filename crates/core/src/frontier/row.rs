//! The rows that the core reads and writes, as values. How they lie in a store is the engine's matter.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use super::request::RequestId;
use super::rework::JobRow;
use super::url_key::UrlKey;
use super::view::LastVisit;
use crate::ids::{CrawlNo, GroupId, HostId, QueueId, Token};
use crate::metadata::Metadata;
use crate::names::{Alias, CrawlName, HostName};
use crate::settings::{CrawlSettings, PaceSettings};
use crate::time::{Millis, Time};

/// A URL that the frontier knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlRow {
    /// When it was first stored.
    pub created: Time,
    /// The URL itself, where its key was cut.
    pub whole: Option<Box<str>>,
    /// Where it is.
    pub place: Place,
}

/// Where a URL is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the queue; its details lie in the due row.
    Queued(Turn),
    /// Handed out in the paced form.
    Held {
        /// The end of the hold.
        until: Time,
        /// Its turn in the queue.
        turn: Turn,
        /// What goes back to the queue with it.
        details: Details,
    },
    /// Handed out in a reservation.
    Reserved {
        /// Which.
        token: Token,
        /// Its turn in the queue.
        turn: Turn,
        /// What goes back to the queue with it.
        details: Details,
    },
    /// Not to be visited again, unless somebody asks for it.
    Done {
        /// How it ended.
        end: End,
        /// The lane that it was in.
        lane: u8,
        /// What goes back to the queue with it then.
        details: Details,
    },
}

/// How a URL ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Fetched.
    Fetched,
    /// Gone.
    Gone,
    /// Set aside.
    Failed,
}

/// A place in the order of a queue: first by lane, then by due time, then by URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Turn {
    /// 0 for priority 9, 9 for priority 0.
    pub lane: u8,
    /// When it is due.
    pub due: Time,
}

/// What is kept with a URL while it is in play.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// Attempts that did not end in a result.
    pub attempts: u32,
    /// Links from the seed.
    pub depth: u32,
    /// The last result.
    pub last: Option<LastVisit>,
    /// The interval after which it is visited again, if that adapts.
    pub interval: Option<Millis>,
    /// The digest of the content at the last visit, if the worker told it.
    pub digest: Option<Box<str>>,
    /// What the client keeps with it.
    pub metadata: Metadata,
}

/// A queued URL in the order of its queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueRow {
    /// When it was first stored.
    pub created: Time,
    /// The URL itself, where its key was cut.
    pub whole: Option<Box<str>>,
    /// What is kept with it.
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
    /// The host's own place in the queue, if it was reserved by time alone.
    pub queued_at: Option<Time>,
    /// Its URLs, all of one queue.
    pub urls: Vec<(QueueId, UrlKey)>,
    /// How many of them an update or a purge has taken away since.
    pub taken_away: u32,
    /// The request that it was granted for, if that may be repeated.
    pub request: Option<Box<RequestId>>,
}

/// The pace of a group: all that politeness remembers of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pace {
    /// The end of the last visit; zero if there was none.
    pub last_end: Time,
    /// How long the last visit took.
    pub last_duration: Millis,
    /// The crawl of the last visit.
    pub last_crawl: CrawlNo,
    /// Barred until this time because the site asked for it.
    pub backoff_until: Time,
    /// How many back-offs are not forgiven yet: every good page halves them.
    pub backoff_count: u32,
    /// The status that the last back-off was for; 0 if none was told.
    pub backoff_status: u16,
    /// The page whose answer asked for it.
    pub asked_by: Option<Arc<str>>,
    /// Not to be visited before this: what is left of the waits of groups that hosts came from.
    pub not_before: Time,
}

/// A lane of a queue: the URLs of one priority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lane {
    /// 0 for priority 9, 9 for priority 0.
    pub lane: u8,
    /// How many URLs wait in it.
    pub count: u32,
    /// No URL in it is due before this.
    pub head: Time,
    /// No row of it lies before this due time and key: where a scan starts, past the rows that were deleted.
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
    /// Visits, for the turn of the lower priorities.
    pub turns: u8,
    /// Pages that were fetched, gone or given up on: one that was visited again counts again.
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
    /// What is set on it.
    pub settings: PaceSettings,
    /// What robots.txt asks for.
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

/// A host's row as it lies in the state, to be written without a copy of it.
#[derive(Clone, Copy, Debug)]
pub struct HostRef<'a> {
    /// Its id.
    pub id: HostId,
    /// Its name.
    pub name: &'a HostName,
    /// The alias it belongs to.
    pub group: Option<GroupId>,
    /// What is set on it.
    pub settings: PaceSettings,
    /// What robots.txt asks for.
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
    /// Its pace and its queues.
    #[must_use]
    pub fn to_part(self) -> HostPart {
        HostPart { id: self.id, pace: self.pace.clone(), queues: self.queues.to_vec() }
    }

    /// The row itself.
    #[must_use]
    pub fn to_row(self) -> HostRow {
        let Self { id, name, group, settings, robots_delay, queued_at, next_queue, pace, queues } = self;
        let (name, pace, queues) = (name.clone(), pace.clone(), queues.to_vec());
        HostRow { id, name, group, settings, robots_delay, queued_at, next_queue, pace, queues }
    }
}

/// What changes most of a host's row: its pace, and some of its queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPart {
    /// The host's id.
    pub id: HostId,
    /// Its pace.
    pub pace: Pace,
    /// Queues as they are now; others are as they were.
    pub queues: Vec<QueueRow>,
}

impl HostRow {
    /// Brings the row up to date.
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
    /// What is set on it.
    pub settings: PaceSettings,
    /// Its pace.
    pub pace: Pace,
}

/// A crawl as one shard keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrawlRow {
    /// Its number in the shard.
    pub no: CrawlNo,
    /// Its name.
    pub name: CrawlName,
    /// What is set on it.
    pub settings: CrawlSettings,
    /// Whether an operator set it up; if not it lives while it has a queue.
    pub kept: bool,
}

/// What holds for a whole shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardRow {
    /// The number of the next host.
    pub next_host: u64,
    /// The number of the next alias.
    pub next_group: u64,
    /// The number of the next crawl.
    pub next_crawl: u32,
    /// Delay where nobody sets one.
    pub default_delay: Option<Millis>,
    /// Whether the paced form serves.
    pub active: bool,
}

impl Default for ShardRow {
    fn default() -> Self {
        Self { next_host: 1, next_group: 1, next_crawl: 1, default_delay: None, active: true }
    }
}

/// A small row that the shard keeps in memory; each is written whenever it changes, whole or, of a host, in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HotRow {
    /// The shard itself.
    Shard(ShardRow),
    /// A crawl.
    Crawl(CrawlRow),
    /// A crawl is gone.
    CrawlGone(CrawlNo),
    /// An alias.
    Alias(AliasRow),
    /// An alias is gone.
    AliasGone(GroupId),
    /// A host.
    Host(HostRow),
    /// A host is gone.
    HostGone(HostId),
    /// A host whose home is here lives with its alias elsewhere.
    Member {
        /// The host.
        host: HostName,
        /// Its alias; none if it has come home.
        alias: Option<Alias>,
    },
}

/// A change to a row that is not kept in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// A URL.
    Url(QueueId, UrlKey, Option<UrlRow>),
    /// A queued URL in its order.
    Due(QueueId, Turn, UrlKey, Option<DueRow>),
    /// A hold by its end; true sets it, false clears it.
    Hold(Time, QueueId, UrlKey, bool),
    /// A reservation.
    Lease(Token, Option<LeaseRow>),
    /// A queue whose rows are to be removed; true sets the job, false clears it.
    Job(QueueId, bool),
    /// A job over many URLs.
    Rework(Token, Option<Box<JobRow>>),
}
