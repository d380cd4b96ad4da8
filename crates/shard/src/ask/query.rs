//! Read-only calls.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use wayleave_core::frontier::listing::{GroupCursor, LeaseCursor, Room};
use wayleave_core::frontier::request::RequestId;
use wayleave_core::frontier::view::{HostFilter, UrlFilter, UrlView};
use wayleave_core::ids::{HostId, QueueId};
use wayleave_core::names::{CrawlName, GroupName, HostName};
use wayleave_engine::Key;

/// Resume point of a URL listing: at this key, or after this queue if the key is empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UrlCursor {
    pub queue: QueueId,
    pub key: Key,
}

/// A page of URLs, the resume point of the next page, and the hosts of which rows are left out, because they cannot be read.
pub(crate) type UrlPage = (Vec<UrlView>, Option<UrlCursor>, Vec<HostName>);

/// Read-only calls that are answered from memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum StateQuery {
    /// The hosts homed in this shard that live with an alias elsewhere.
    Moved,
    Active,
    Host(HostName),
    Hosts {
        filter: HostFilter,
        after: Option<HostId>,
        room: Room,
    },
    Groups {
        filter: HostFilter,
        after: Option<GroupCursor>,
        room: Room,
    },
    Group(GroupName),
    Reservations {
        after: Option<LeaseCursor>,
        room: Room,
    },
    Crawl(CrawlName),
    /// Scans hosts for work that keeps a crawl from being finished.
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
    QueuesOf {
        crawl: CrawlName,
        host: Option<HostName>,
    },
    /// All bulk jobs.
    Jobs,
    /// Sent to the jobs' home shard: requeues that have not been announced to every shard yet.
    UnheardRequeues,
}

/// Read-only calls that read rows from the store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum RowQuery {
    Lookup {
        crawl: CrawlName,
        host: HostName,
        url: Box<str>,
    },
    Urls {
        filter: UrlFilter,
        after: Option<UrlCursor>,
        room: Room,
    },
    /// A sample of the URLs of a host that are currently handed out.
    InHand(HostName),
    /// The reservations already granted for this request id.
    Requested {
        holder: Arc<str>,
        request: RequestId,
    },
}

impl StateQuery {
    pub(super) const fn host(&self) -> Option<&HostName> {
        match self {
            Self::Host(host) => Some(host),
            Self::Moved
            | Self::Active
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
            | Self::Jobs
            | Self::UnheardRequeues => None,
        }
    }

    pub(super) const fn is_listing(&self) -> bool {
        match self {
            Self::Hosts { .. }
            | Self::Groups { .. }
            | Self::Reservations { .. }
            | Self::ScanCrawl { .. }
            | Self::Crawls { .. }
            | Self::Queues { .. } => true,
            Self::Moved
            | Self::Active
            | Self::Host(_)
            | Self::Group(_)
            | Self::Crawl(_)
            | Self::Stats
            | Self::QueuesOf { .. }
            | Self::Jobs
            | Self::UnheardRequeues => false,
        }
    }
}

impl RowQuery {
    pub(super) const fn host(&self) -> Option<&HostName> {
        match self {
            Self::Lookup { host, .. } | Self::InHand(host) => Some(host),
            Self::Urls { filter, .. } => filter.host.as_ref(),
            Self::Requested { .. } => None,
        }
    }

    pub(super) const fn is_listing(&self) -> bool {
        match self {
            Self::Urls { .. } => true,
            Self::Lookup { .. } | Self::InHand(_) | Self::Requested { .. } => false,
        }
    }
}
