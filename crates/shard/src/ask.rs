//! What a shard can be asked, and what it tells: plain values, so that an owner on another node is asked in the same
//! words as one in this process.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use wayleave_core::frontier::listing::{GroupPlace, LeasePlace, QueueNames, Room};
use wayleave_core::frontier::move_host::{Moving, Way};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{
    HandOut, Parent, Release, Released, RequestId, Reservation, Reserve, UrlToFetch,
};
use wayleave_core::frontier::requeue::{Rework, Reworked};
use wayleave_core::frontier::rework::{JobRow, Stage};
use wayleave_core::frontier::view::{
    CrawlPart, CrawlScan, CrawlView, GroupView, HostFilter, HostView, ReservationView, Stats, UrlFilter, UrlView,
};
use wayleave_core::ids::{HostId, QueueId, ShardId, Token};
use wayleave_core::names::{Alias, CrawlName, HostName};
use wayleave_core::settings::{CrawlChanges, PaceChanges};
use wayleave_core::time::{Millis, Time};
use wayleave_engine::{Batch, Key};

/// Where a listing of URLs goes on: at this key, or after this queue where the key is empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UrlPlace {
    pub queue: QueueId,
    pub key: Key,
}

/// A page of URLs and where the next one starts.
pub(crate) type UrlPage = (Vec<UrlView>, Option<UrlPlace>);

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

/// One question to the owner of a shard.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// Which hosts of this shard live with an alias.
    Moved,
    Active,
    SetActive(bool),
    Renew {
        token: Token,
        lease: Millis,
    },
    /// Keeps a reservation alive while its release stores what was found on these pages; tells what that inherits.
    Keep {
        token: Token,
        lease: Millis,
        pages: Vec<Box<str>>,
    },
    Host(HostName),
    Hosts {
        filter: HostFilter,
        after: Option<HostId>,
        room: Room,
    },
    Groups {
        filter: HostFilter,
        after: Option<GroupPlace>,
        room: Room,
    },
    Group(HostName),
    Reservations {
        after: Option<LeasePlace>,
        room: Room,
    },
    Crawl(CrawlName),
    /// Looks through hosts for what a crawl waits for.
    ScanCrawl {
        crawl: CrawlName,
        after: Option<HostId>,
    },
    Crawls {
        after: Option<CrawlName>,
        most: usize,
    },
    Queues {
        crawl: CrawlName,
        inactive: bool,
        after: Option<HostId>,
        skip: usize,
        most: usize,
    },
    Stats,
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
    QueuesOf {
        crawl: CrawlName,
        host: Option<HostName>,
    },
    SetDefaultDelay(Option<Millis>),
    HandOut(HandOut),
    Reserve(Reserve),
    Release(Release),
    Lookup {
        crawl: CrawlName,
        host: HostName,
        url: Box<str>,
    },
    Urls {
        filter: UrlFilter,
        after: Option<UrlPlace>,
        room: Room,
    },
    Purge {
        queue: QueueId,
        before: Time,
        after: Option<Key>,
    },
    /// Let hosts go to another shard.
    Give {
        hosts: Vec<HostName>,
        way: Way,
        to: ShardId,
    },
    /// Take hosts in; `part` is the giver's side of the one commit.
    Take {
        moving: Vec<Moving>,
        way: Way,
        part: Batch,
    },
    /// The jobs over many URLs.
    Jobs,
    /// Takes note of a job; one that is known stays as it is.
    StartJob(Box<JobRow>),
    /// Stops a job, or remembers that it is not to begin.
    CancelJob(Box<JobRow>),
    /// All shards have heard of a job: it begins.
    BeginJob(Token),
    /// How much the other shards have heard of a job of this one's.
    SetStage(Token, Stage),
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
    /// Some URLs of a host that are handed out.
    InHand(HostName),
    /// What was granted for a request before. Of a node it is asked for several shards at once.
    Requested {
        holder: Arc<str>,
        request: RequestId,
        shards: Vec<ShardId>,
    },
}

impl Ask {
    /// The host that must live in the shard, else the question came to the wrong one.
    pub fn host(&self) -> Option<&HostName> {
        match self {
            Self::Host(host)
            | Self::SetHost { host, .. }
            | Self::DeleteQueue { host, .. }
            | Self::SetQueueLimit { host, .. }
            | Self::Lookup { host, .. }
            | Self::ReworkUrls { host, .. }
            | Self::Revoke(Revoke::Host(host))
            | Self::RevokeHolds { host, .. }
            | Self::InHand(host) => Some(host),
            Self::HandOut(request) => request.host.as_ref(),
            Self::Urls { filter, .. } => filter.host.as_ref(),
            _ => None,
        }
    }

    /// Whether somebody waits who fetches pages.
    pub const fn is_visit(&self) -> bool {
        matches!(self, Self::HandOut(_) | Self::Reserve(_) | Self::Release(_))
    }

    /// Whether it is a slice of a listing, which waits for everything else.
    pub const fn is_listing(&self) -> bool {
        matches!(
            self,
            Self::Hosts { .. }
                | Self::Groups { .. }
                | Self::Reservations { .. }
                | Self::ScanCrawl { .. }
                | Self::Crawls { .. }
                | Self::Queues { .. }
                | Self::Urls { .. }
        )
    }

    /// Whether the answer changes nothing: if it is lost, the question may simply be asked again.
    pub const fn only_looks(&self) -> bool {
        matches!(
            self,
            Self::Moved
                | Self::Active
                | Self::Host(_)
                | Self::Hosts { .. }
                | Self::Groups { .. }
                | Self::Group(_)
                | Self::Reservations { .. }
                | Self::Crawl(_)
                | Self::ScanCrawl { .. }
                | Self::Crawls { .. }
                | Self::Queues { .. }
                | Self::Stats
                | Self::QueuesOf { .. }
                | Self::Lookup { .. }
                | Self::Urls { .. }
                | Self::Requested { .. }
                | Self::Jobs
                | Self::InHand(_)
        )
    }
}

/// Makes the enum of answers, and the way from each kind of answer to the enum and back.
macro_rules! told {
    ($($name:ident($kind:ty),)+) => {
        /// What an owner tells.
        #[derive(Clone, Debug, Serialize, Deserialize)]
        pub(crate) enum Told { $($name($kind),)+ }

        $(
            impl From<$kind> for Told {
                fn from(value: $kind) -> Self {
                    Self::$name(value)
                }
            }

            impl TryFrom<Told> for $kind {
                type Error = Refusal;

                fn try_from(told: Told) -> Result<Self, Refusal> {
                    match told {
                        Told::$name(value) => Ok(value),
                        _ => Err(Refusal::Corrupt("a node answered another question than the one asked".to_owned())),
                    }
                }
            }
        )+
    };
}

/// A slice of a listing, and the place after which the next one starts.
pub(crate) type Slice<T, P> = (Vec<T>, Option<P>);

told! {
    Done(()),
    Flag(bool),
    Count(u64),
    At(Time),
    Moved(Vec<(HostName, Alias)>),
    Host(HostView),
    Hosts(Slice<HostView, HostId>),
    Groups(Slice<GroupView, GroupPlace>),
    Group(Option<GroupView>),
    OneGroup(GroupView),
    Names(Vec<HostName>),
    Reservations(Slice<ReservationView, LeasePlace>),
    Crawl(Option<CrawlPart>),
    Scanned((CrawlScan, Option<HostId>)),
    Crawls((Vec<CrawlView>, bool)),
    Queues((QueueNames, Option<HostId>)),
    Stats((Stats, Vec<CrawlName>)),
    QueueIds(Vec<QueueId>),
    HandedOut(Vec<UrlToFetch>),
    Reserved(Vec<Reservation>),
    Parents(Vec<Option<Parent>>),
    Released(Released),
    Url(Option<UrlView>),
    Urls(UrlPage),
    Purged((u64, Option<Key>)),
    Jobs(Vec<JobRow>),
    Reworked(Reworked),
    InHand(Vec<UrlView>),
}
