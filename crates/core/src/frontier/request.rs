//! What the frontier can be asked: plain values, parsed at the door.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::ids::Token;
use crate::metadata::Metadata;
use crate::names::{CrawlName, GroupName, HostName};
use crate::time::{Millis, Time};

/// Priority of URLs that name none; 9 goes first, 0 last.
pub const PRIORITY_DEFAULT: u8 = 5;
/// The highest priority.
pub const PRIORITY_MAX: u8 = 9;

/// A URL to be stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Put {
    /// The URL's text.
    pub url: Box<str>,
    /// Its host or queue key.
    pub host: HostName,
    /// Its crawl.
    pub crawl: CrawlName,
    /// New, or an update of a known one.
    pub kind: PutKind,
    /// What the client keeps with it.
    pub metadata: Metadata,
}

/// Whether a URL is new or known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PutKind {
    /// Stored if it is unknown, else nothing changes.
    Discovered {
        /// Due at this time; now, if none or past.
        at: Option<Time>,
        /// 0 to 9, 9 first.
        priority: u8,
        /// Links from the seed.
        depth: u32,
    },
    /// Stored if it is unknown. One that is queued with a lower priority is raised to this one.
    Wanted {
        /// Due at this time; now, if none or past.
        at: Option<Time>,
        /// 0 to 9, 9 first.
        priority: u8,
        /// Whether the priority was asked for, and is not just the one of those that name none.
        explicit: bool,
        /// Links from the seed.
        depth: u32,
        /// Whether a known one is queued anew, unless it is handed out.
        again: bool,
    },
    /// Stored or updated; ends any hold.
    Known {
        /// Due at this time; never again, if none.
        due: Option<Time>,
    },
    /// Handed out and not delivered: due again now, if the very hold that it was given under still lasts. Else somebody
    /// else may have had it since, and nothing changes.
    Undelivered {
        /// When that hold ends.
        held_until: Time,
    },
    /// Found on a page, and stored like a wanted one, but only in the crawl of that page: one that was deleted meanwhile is not
    /// made anew.
    Found {
        /// Due at this time; now, if none or past.
        at: Option<Time>,
        /// 0 to 9, 9 first.
        priority: u8,
        /// Whether the priority was asked for.
        explicit: bool,
        /// Links from the seed.
        depth: u32,
        /// Whether a known one is queued anew, unless it is handed out.
        again: bool,
        /// What the page's shard told of the crawl.
        since: CrawlSince,
    },
}

impl PutKind {
    /// Whether the URL is mostly a new one.
    #[must_use]
    pub const fn is_new(&self) -> bool {
        matches!(self, Self::Discovered { .. } | Self::Wanted { .. } | Self::Found { .. })
    }
}

/// Which of the crawls that had one name, one after the other, a page is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrawlSince {
    /// When a crawl of this name was last deleted, as far as the page's shard knows.
    pub deleted_at: Time,
    /// When it said so.
    pub told_at: Time,
}

impl Put {
    /// The same put for a URL that was found on a page, in the crawl of that page.
    #[must_use]
    pub fn found(mut self, on: &Parent) -> Self {
        let since = on.since;
        self.kind = match self.kind {
            PutKind::Discovered { at, priority, depth } => {
                PutKind::Found { at, priority, explicit: false, depth, again: false, since }
            }
            PutKind::Wanted { at, priority, explicit, depth, again } => {
                PutKind::Found { at, priority, explicit, depth, again, since }
            }
            kind => kind,
        };
        self
    }
}

/// What became of a put.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PutOutcome {
    /// It was unknown and is stored.
    Added,
    /// It was known and is updated.
    Updated,
    /// It was known and is queued anew.
    Requeued,
    /// It was known and stays as it was.
    Known,
    /// It is refused for good, and why.
    Rejected(Box<str>),
    /// It could not be stored now; try again.
    Failed(Box<str>),
    /// Its host does not live in the shard that was asked; try again.
    Moved,
}

/// Asks for groups to visit, exclusively, each with a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserve {
    /// Who asks.
    pub holder: Arc<str>,
    /// At most this many groups.
    pub groups: usize,
    /// At most this many URLs of each; 0 reserves the host alone.
    pub urls: usize,
    /// Only of this crawl.
    pub crawl: Option<CrawlName>,
    /// How long the reservation holds.
    pub lease: Millis,
    /// How long to wait for a group to become ready.
    pub wait: Millis,
    /// Which request this is, if it may be repeated: what was granted for it before and is not over is told again.
    pub request: Option<RequestId>,
}

/// A holder's own name for a request, with what the request asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestId {
    /// The name.
    pub id: Arc<str>,
    /// A digest of what is asked for: the same name for something else is a mistake of the caller's. It does not need to
    /// withstand forgery, for it is compared within the requests of one holder only.
    pub asks: u64,
}

impl Reserve {
    /// Gives the request a name under which it may be repeated.
    #[must_use]
    pub fn named(mut self, id: &str) -> Self {
        let crawl = self.crawl.as_deref();
        let asks = format!("{} {} {} {crawl:?}", self.groups, self.urls, self.lease.0);
        self.request = Some(RequestId { id: id.into(), asks: super::url_key::hash(&asks, REQUEST_SEED) });
        self
    }
}

/// Part of the format of reservations: it never changes.
const REQUEST_SEED: u64 = 0x2c1b_3c6d_91e1_0da5;

/// A lease on a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// The secret that renews and releases it.
    pub token: Token,
    /// The group: its alias, or the host's own name.
    pub group: GroupName,
    /// The host to visit.
    pub host: HostName,
    /// Who holds it.
    pub holder: Arc<str>,
    /// When it was granted.
    pub granted_at: Time,
    /// When it ends.
    pub expires_at: Time,
    /// The delay to keep between two requests.
    pub delay: Millis,
    /// The URLs to fetch.
    pub urls: Vec<UrlToFetch>,
}

/// A URL that was handed out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UrlToFetch {
    /// The URL's text.
    pub url: Box<str>,
    /// Its host or queue key.
    pub host: HostName,
    /// Its crawl.
    pub crawl: CrawlName,
    /// 0 to 9.
    pub priority: u8,
    /// Links from the seed.
    pub depth: u32,
    /// Earlier attempts that did not end in a result.
    pub attempts: u32,
    /// What the client keeps with it.
    pub metadata: Metadata,
    /// When its hold ends, in the paced form; none in a reservation.
    pub held_until: Option<Time>,
}

/// How a visit to a URL ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It was fetched.
    Fetched,
    /// It is to be tried again.
    Retry,
    /// It does not exist any more.
    Gone,
    /// It cannot be fetched.
    Failed,
}

/// The result of one URL of a reservation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UrlResult {
    /// The URL, as it was handed out.
    pub url: Box<str>,
    /// How it ended.
    pub outcome: Outcome,
    /// The HTTP status.
    pub status: Option<u16>,
    /// How long the fetch took.
    pub duration: Option<Millis>,
    /// How much was fetched.
    pub bytes: Option<u64>,
    /// What robots.txt asks for.
    pub crawl_delay: Option<Millis>,
    /// What the server asked for.
    pub retry_after: Option<Millis>,
    /// When to visit again.
    pub next_at: Option<Time>,
    /// Whether the content had changed since the last visit, if the worker knows.
    pub changed: Option<bool>,
    /// A digest of the content: where `changed` is not told, another one than at the last visit means that it had.
    pub digest: Option<Box<str>>,
}

/// Ends a reservation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// Which.
    pub token: Token,
    /// What became of its URLs; those not named go back untouched.
    pub results: Vec<UrlResult>,
    /// Puts the host itself back into the queue at this time.
    pub ready_at: Option<Time>,
}

/// What links found on a page inherit of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// The page's crawl.
    pub crawl: CrawlName,
    /// Links from the seed to the page.
    pub depth: u32,
    /// Which of the crawls of this name it is.
    pub since: CrawlSince,
}

/// The answer to a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Released {
    /// The group.
    pub group: GroupName,
    /// When it may be visited again.
    pub ready_at: Time,
}

/// Asks for URLs in the paced form: each URL is held for a time, the group's delay starts at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandOut {
    /// Only this queue's.
    pub host: Option<HostName>,
    /// Only of this crawl.
    pub crawl: Option<CrawlName>,
    /// At most this many queues.
    pub queues: usize,
    /// At most this many URLs of each.
    pub urls: usize,
    /// Only queues with fewer than this on hold: what the caller asked for, also where it is given fewer URLs at once.
    pub held_below: Option<u32>,
    /// How long each URL is held.
    pub hold: Millis,
}
