//! Requests to the frontier: plain values, parsed at the API boundary.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

use super::refusal::Refusal;
use super::row::End;
use super::view::LastVisit;
use crate::ids::Token;
use crate::metadata::Metadata;
use crate::names::{CrawlName, GroupName, HostName};
use crate::time::{Millis, Time};

/// A URL to store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Put {
    /// The URL's text.
    pub url: Box<str>,
    /// Its host or queue key.
    pub host: HostName,
    /// Its crawl.
    pub crawl: CrawlName,
    /// New, or an update of a known URL.
    pub kind: PutKind,
    /// Client metadata.
    pub metadata: Metadata,
}

/// How a put treats new and known URLs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PutKind {
    /// Stored if unknown, otherwise ignored.
    Discovered {
        /// Due at this time; now, if absent or in the past.
        at: Option<Time>,
        /// 0 to 9, 9 first.
        priority: u8,
        /// Link distance from the seed.
        depth: u32,
    },
    /// Stored if unknown. A queued URL with a lower priority is raised to this one.
    Wanted {
        /// Due at this time; now, if absent or in the past.
        at: Option<Time>,
        /// 0 to 9, 9 first.
        priority: u8,
        /// Whether the priority was given explicitly, i.e. is not just the default.
        explicit: bool,
        /// Link distance from the seed.
        depth: u32,
        /// Whether a known URL is requeued, unless it is handed out.
        again: bool,
    },
    /// Stored or updated; ends any hold.
    Known {
        /// Due at this time; never again, if absent.
        due: Option<Time>,
    },
    /// Handed out but not delivered: due again now, if the very hold it was handed out under is still in force.
    /// Otherwise another client may have had it since, and nothing changes.
    Undelivered {
        /// When that hold expires.
        held_until: Time,
    },
    /// Found on a page. Stored like `Wanted`, but only in the crawl of that page: a crawl deleted in the meantime is
    /// not recreated.
    Found {
        /// Due at this time; now, if absent or in the past.
        at: Option<Time>,
        /// 0 to 9, 9 first.
        priority: u8,
        /// Whether the priority was given explicitly.
        explicit: bool,
        /// Link distance from the seed.
        depth: u32,
        /// Whether a known URL is requeued, unless it is handed out.
        again: bool,
        /// What the page's shard knew about the crawl.
        since: CrawlSince,
    },
    /// Restored from an export or a dump: stored if unknown, otherwise ignored. What is known here is newer than the file:
    /// a URL that the file calls completed may have gone back to its queue or to its chunk since.
    Restored {
        /// Due at this time, or now if it is zero; completed, if absent.
        due: Option<Time>,
        /// 0 to 9, 9 first.
        priority: u8,
        /// Link distance from the seed.
        depth: u32,
        /// What the other store knew of it. Boxed: every put would be larger by its size.
        past: Box<Past>,
    },
}

/// What another store knew of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// When it was first stored there; now, if absent.
    pub created: Option<Time>,
    /// How it ended, if it is completed.
    pub end: End,
    /// Its last result.
    pub last: Option<LastVisit>,
    /// Attempts without a result.
    pub attempts: u32,
}

impl Past {
    /// Nothing but that it was fetched, if it is completed.
    pub const UNKNOWN: Self = Self { created: None, end: End::Fetched, last: None, attempts: 0 };
}

impl PutKind {
    /// Whether this kind usually carries a new URL.
    #[must_use]
    pub const fn is_new(&self) -> bool {
        matches!(self, Self::Discovered { .. } | Self::Wanted { .. } | Self::Found { .. } | Self::Restored { .. })
    }
}

/// Distinguishes successive crawls of the same name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrawlSince {
    /// When a crawl of this name was last deleted, as far as the page's shard knows.
    pub deleted_at: Time,
    /// When it answered.
    pub as_of: Time,
}

impl Put {
    /// Converts a put into one for a link found on a page, in the crawl of that page.
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
            // A link has no past here, and leaves a known URL as it is.
            PutKind::Restored { due: at, priority, depth, .. } => {
                PutKind::Found { at, priority, explicit: false, depth, again: false, since }
            }
            kind => kind,
        };
        self
    }
}

/// Outcome of a put.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PutOutcome {
    /// It was unknown and has been stored.
    Added,
    /// It was known and has been updated.
    Updated,
    /// It was known and has been requeued.
    Requeued,
    /// It was known and is unchanged.
    Known,
    /// Permanently rejected, and why.
    Rejected(Box<str>),
    /// It could not be stored now; try again.
    Failed(Box<Refusal>),
    /// Its host does not live in the shard that was asked; try again.
    Moved,
}

/// Requests groups to visit, exclusively, each with a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserve {
    /// The requester.
    pub holder: Arc<str>,
    /// At most this many groups.
    pub groups: usize,
    /// At most this many URLs of each; 0 reserves the host alone.
    pub urls: usize,
    /// Only of this crawl.
    pub crawl: Option<CrawlName>,
    /// Duration of the lease.
    pub lease: Millis,
    /// Long-poll timeout.
    pub wait: Millis,
    /// Idempotency id: if present, live reservations already granted for it are returned again.
    pub request: Option<RequestId>,
}

/// A holder's own id for a request, with a digest of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestId {
    /// The id.
    pub id: Arc<str>,
    /// Digest of the request: reusing an id for a different request is an error. It need not resist forgery, because it
    /// is only compared among the requests of one holder.
    pub asks: u64,
}

impl Reserve {
    /// Gives the request an id under which it may be repeated.
    #[must_use]
    pub fn named(mut self, id: &str) -> Self {
        let crawl = self.crawl.as_deref();
        let asks = format!("{} {} {} {crawl:?}", self.groups, self.urls, self.lease.0);
        self.request = Some(RequestId { id: id.into(), asks: super::url_key::hash(&asks, REQUEST_SEED) });
        self
    }
}

/// Part of the storage format of reservations; it never changes.
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
    /// Link distance from the seed.
    pub depth: u32,
    /// Earlier attempts without a result.
    pub attempts: u32,
    /// Client metadata.
    pub metadata: Metadata,
    /// When its hold expires, in the paced form; `None` in a reservation.
    pub held_until: Option<Time>,
}

/// How a visit to a URL ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It was fetched.
    Fetched,
    /// Try again.
    Retry,
    /// It no longer exists.
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
    /// Size of the response.
    pub bytes: Option<u64>,
    /// Crawl-delay of robots.txt.
    pub crawl_delay: Option<Millis>,
    /// Retry-After of the server.
    pub retry_after: Option<Millis>,
    /// When to visit again.
    pub next_at: Option<Time>,
    /// Whether the content changed since the last visit, if the worker knows.
    pub changed: Option<bool>,
    /// Digest of the content. Where `changed` is absent, a digest that differs from the last one means a change.
    pub digest: Option<Box<str>>,
}

impl UrlResult {
    /// A result with nothing but an outcome.
    #[must_use]
    pub fn new(url: impl Into<Box<str>>, outcome: Outcome) -> Self {
        Self {
            url: url.into(),
            outcome,
            status: None,
            duration: None,
            bytes: None,
            crawl_delay: None,
            retry_after: None,
            next_at: None,
            changed: None,
            digest: None,
        }
    }
}

/// Ends a reservation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// Its token.
    pub token: Token,
    /// Results of its URLs; those without one return unchanged.
    pub results: Vec<UrlResult>,
    /// Queues the host itself for this time.
    pub ready_at: Option<Time>,
}

/// What links found on a page inherit from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// The page's crawl.
    pub crawl: CrawlName,
    /// Link distance of the page from the seed.
    pub depth: u32,
    /// Distinguishes successive crawls of the same name.
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

/// Requests URLs in the paced form: each URL is held for a time, and the group's delay starts at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandOut {
    /// Only from this queue.
    pub host: Option<HostName>,
    /// Only of this crawl.
    pub crawl: Option<CrawlName>,
    /// At most this many queues.
    pub queues: usize,
    /// At most this many URLs of each.
    pub urls: usize,
    /// Only queues with fewer URLs on hold than this: the limit the caller asked for, even where it gets fewer URLs at
    /// once.
    pub held_below: Option<u32>,
    /// Duration of each hold.
    pub hold: Millis,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A put is moved from queue to queue, by the thousand.
    #[test]
    fn no_kind_of_put_makes_all_puts_large() {
        assert!(size_of::<PutKind>() <= 40, "{}", size_of::<PutKind>());
    }
}
