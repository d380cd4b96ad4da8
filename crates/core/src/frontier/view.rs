//! Read-only views of the frontier: states with reasons, counts, pages of listings.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use super::bulk_job::JobState;
use super::requeue::{BulkAction, BulkOutcome};
use crate::ids::{ChunkId, Token};
use crate::metadata::Metadata;
use crate::names::{CrawlName, GroupName, HostName};
use crate::settings::{CrawlSettings, PaceSettings};
use crate::time::{Millis, Time};
use crate::words::words;

/// The state of a group (and of a host in it).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum State {
    /// May be reserved now.
    Ready,
    /// Must wait for its delay or its next due URL.
    Waiting,
    /// Reserved.
    Busy,
    /// Blocked until a time.
    Blocked,
    /// Paused by an operator.
    Paused,
    /// Has no URL that will ever be due.
    Idle,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Ready, Self::Waiting, Self::Busy, Self::Blocked, Self::Paused, Self::Idle];

    /// Parses the name on the wire.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.as_str() == word)
    }
}

words!(State, as_str: Ready "ready", Waiting "waiting", Busy "busy", Blocked "blocked", Paused "paused", Idle "idle");

/// URLs by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Queued.
    pub queued: u64,
    /// Handed out, as reservation or hold.
    pub reserved: u64,
    /// Fetched for good.
    pub fetched: u64,
    /// Gone.
    pub gone: u64,
    /// Set aside after too many attempts.
    pub failed: u64,
}

impl Counts {
    /// Queued or handed out: will be served again.
    #[must_use]
    pub const fn scheduled(&self) -> u64 {
        self.queued + self.reserved
    }

    /// Will never be served again.
    #[must_use]
    pub const fn completed(&self) -> u64 {
        self.fetched + self.gone + self.failed
    }

    /// All of them.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.scheduled() + self.completed()
    }

    /// Adds another's counts.
    pub const fn add(&mut self, other: &Self) {
        self.queued += other.queued;
        self.reserved += other.reserved;
        self.fetched += other.fetched;
        self.gone += other.gone;
        self.failed += other.failed;
    }
}

/// A state with its reason and the time it will change, if that is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The state.
    pub state: State,
    /// Why, in a sentence; never empty.
    pub reason: String,
    /// When it may be visited next, if time alone decides.
    pub ready_at: Option<Time>,
}

/// A visit in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveVisit {
    /// The host that is visited.
    pub host: HostName,
    /// Who visits it.
    pub holder: Arc<str>,
    /// When its lease expires, unless it is released or renewed before.
    pub expires_at: Time,
    /// The chunk that it was for, if that ended before: its crawler may not know yet.
    pub ended_chunk: Option<ChunkId>,
}

/// The queue of one crawl at one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueView {
    /// The crawl.
    pub crawl: CrawlName,
    /// Its URLs.
    pub counts: Counts,
    /// When its next URL is due.
    pub next_due: Option<Time>,
    /// Pages after which no more are handed out.
    pub limit: Option<u64>,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostView {
    /// Its name.
    pub host: HostName,
    /// Its group: an alias, or its own name.
    pub group: GroupName,
    /// Whether the group is an alias.
    pub aliased: bool,
    /// Its standing.
    pub standing: Standing,
    /// Visits to its group in progress, whatever its state.
    pub visits: Vec<LiveVisit>,
    /// Its URLs.
    pub counts: Counts,
    /// Its queues.
    pub queues: Vec<QueueView>,
    /// Its settings.
    pub settings: PaceSettings,
    /// Crawl-delay of robots.txt, as reported by a worker.
    pub crawl_delay: Option<Millis>,
    /// The delay in force for its group.
    pub delay: Millis,
    /// The end of the last visit to its group.
    pub last_visit_at: Option<Time>,
    /// When the host itself is queued, without URLs.
    pub queued_at: Option<Time>,
}

/// A live reservation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationView {
    /// Its token.
    pub token: Token,
    /// Its group.
    pub group: GroupName,
    /// The host to visit.
    pub host: HostName,
    /// Who holds it.
    pub holder: Arc<str>,
    /// When it was granted.
    pub granted_at: Time,
    /// When it ends.
    pub expires_at: Time,
    /// How many URLs it carries.
    pub urls: usize,
}

/// A group: an alias with its hosts, or a single host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupView {
    /// Its name.
    pub group: GroupName,
    /// Whether it is an alias.
    pub aliased: bool,
    /// Its hosts.
    pub hosts: Vec<HostName>,
    /// Its standing.
    pub standing: Standing,
    /// Visits in progress, whatever its state.
    pub visits: Vec<LiveVisit>,
    /// Its URLs.
    pub counts: Counts,
    /// Its settings.
    pub settings: PaceSettings,
    /// The delay in force.
    pub delay: Millis,
    /// The end of the last visit.
    pub last_visit_at: Option<Time>,
}

/// A crawl.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrawlView {
    /// Its name.
    pub crawl: CrawlName,
    /// Its settings.
    pub settings: CrawlSettings,
    /// Its URLs.
    pub counts: Counts,
    /// Its queues, including empty ones.
    pub queues: u64,
    /// Its queues that hold scheduled URLs.
    pub active_queues: u64,
    /// Why it is not finished; `None` if nothing of it is handed out or can become due.
    pub waits_for: Option<String>,
    /// The end of the last visit to a group that has URLs of it, if it is finished.
    pub last_visit_at: Option<Time>,
    /// Queued URLs that limits hold back, if it is finished.
    pub over_limit: u64,
    /// Which limit holds URLs back, in a sentence.
    pub limit_reached: Option<String>,
}

/// A crawl as one shard knows it from counters and schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrawlPart {
    /// The view.
    pub view: CrawlView,
    /// Whether it takes a scan of all hosts to know if it is finished.
    pub unsure: bool,
    /// Pages that count against its limit here.
    pub used: u64,
    /// Whether URLs are queued here that its page limit holds back.
    pub spent: bool,
}

/// The result of scanning hosts for work of a crawl.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrawlScan {
    /// Why it is not finished.
    pub waits_for: Option<String>,
    /// The end of the last visit to a group that has URLs of it.
    pub last_visit_at: Option<Time>,
    /// What holds queued URLs of it back.
    pub held_back: Option<String>,
}

/// The state of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum UrlState {
    /// Queued.
    Queued,
    /// Handed out, as reservation or hold.
    Reserved,
    /// Fetched for good.
    Fetched,
    /// Gone.
    Gone,
    /// Set aside after too many attempts.
    Failed,
}

impl UrlState {
    /// Parses the name on the wire.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Queued, Self::Reserved, Self::Fetched, Self::Gone, Self::Failed].into_iter().find(|s| s.as_str() == word)
    }
}

words!(UrlState, as_str: Queued "queued", Reserved "reserved", Fetched "fetched", Gone "gone", Failed "failed");

/// The last result of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastVisit {
    /// When it was reported.
    pub at: Time,
    /// The HTTP status, if it was reported.
    pub status: Option<u16>,
    /// Whether it was set aside for too many attempts.
    pub exhausted: bool,
}

/// The full view of a URL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UrlView {
    /// The URL's text.
    pub url: Box<str>,
    /// Its host or queue key.
    pub host: HostName,
    /// Its crawl.
    pub crawl: CrawlName,
    /// Its state.
    pub state: UrlState,
    /// When it is due, while it is queued or handed out.
    pub due_at: Option<Time>,
    /// When its reservation or hold expires.
    pub held_until: Option<Time>,
    /// When it was first stored.
    pub created_at: Time,
    /// 0 to 9; not kept for a finished URL.
    pub priority: u8,
    /// Link distance from the seed; not kept for a finished URL.
    pub depth: u32,
    /// Attempts without a result.
    pub attempts: u32,
    /// Its last result.
    pub last: Option<LastVisit>,
    /// Client metadata; not kept for a finished URL.
    pub metadata: Metadata,
}

/// A bulk job, summed over all shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobView {
    /// Its id.
    pub id: Token,
    /// The operation.
    pub what: BulkAction,
    /// Which URLs.
    pub filter: UrlFilter,
    /// Only to those stored (delete) or last visited (requeue) before this.
    pub before: Option<Time>,
    /// When it started.
    pub started_at: Time,
    /// When it ended.
    pub ended_at: Option<Time>,
    /// Its state.
    pub state: JobState,
    /// Result so far.
    pub outcome: BulkOutcome,
    /// URLs examined so far.
    pub looked_at: u64,
    /// Number of shards.
    pub shards: u16,
    /// Shards that are done.
    pub shards_done: u16,
}

impl Default for JobView {
    fn default() -> Self {
        Self {
            id: Token([0; 16]),
            what: BulkAction::Requeue,
            filter: UrlFilter::default(),
            before: None,
            started_at: Time::ZERO,
            ended_at: None,
            state: JobState::Running,
            outcome: BulkOutcome::default(),
            looked_at: 0,
            shards: 0,
            shards_done: 0,
        }
    }
}

/// Which URLs to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UrlFilter {
    /// Only of this crawl.
    pub crawl: Option<CrawlName>,
    /// Only of this host.
    pub host: Option<HostName>,
    /// Only in this state.
    pub state: Option<UrlState>,
    /// Only with this text in the URL.
    pub contains: Option<Box<str>>,
    /// Whether `contains` ignores case.
    pub ignore_case: bool,
}

/// Which hosts or groups to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFilter {
    /// Only in this state.
    pub state: Option<State>,
    /// Only with a queue of this crawl.
    pub crawl: Option<CrawlName>,
}

/// One page of a listing and the cursor of the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The rows.
    pub items: Vec<T>,
    /// Opaque cursor of the next page; `None` at the end.
    pub next: Option<String>,
    /// Hosts whose unreadable rows are left out.
    pub damaged: Vec<HostName>,
}

/// Totals, maintained incrementally so that reading them takes constant time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Hosts.
    pub hosts: u64,
    /// Aliases.
    pub aliases: u64,
    /// Crawls.
    pub crawls: u64,
    /// Queues.
    pub queues: u64,
    /// Live reservations.
    pub reservations: u64,
    /// URLs on hold in the paced form.
    pub holds: u64,
    /// (group, crawl) entries that may be visited now.
    pub ready: u64,
    /// (group, crawl) entries that wait for a time.
    pub waiting: u64,
    /// URLs by state.
    pub urls: Counts,
}
