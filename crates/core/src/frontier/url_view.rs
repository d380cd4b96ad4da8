//! Views of URLs: a row with its numbers resolved to names.

use super::row::{Details, UrlRow, UrlStatus};
use super::state::State;
use super::url_key::UrlKey;
use super::view::{UrlState, UrlView};
use crate::ids::{CrawlNo, QueueId};
use crate::limits::PRIORITY_MAX;
use crate::names::{CrawlName, HostName};
use crate::time::Time;

impl State {
    /// The number of a crawl, if it is known to this shard.
    #[must_use]
    pub fn crawl_no(&self, crawl: &str) -> Option<CrawlNo> {
        self.crawl_by_name.get(crawl).copied()
    }

    /// Whether this shard has the queue.
    #[must_use]
    pub fn has_queue(&self, queue: QueueId) -> bool {
        self.find_queue(queue).is_some()
    }

    /// Whether a host of this name lives in this shard.
    #[must_use]
    pub fn has_host(&self, name: &str) -> bool {
        self.host_ix(name).is_some()
    }

    /// The names of a queue's host and crawl.
    #[must_use]
    pub fn queue_names(&self, queue: QueueId) -> Option<(HostName, CrawlName)> {
        let (host, at) = self.find_queue(queue)?;
        let crawl = self.crawl_of(self.queue(host, at).crawl)?;
        Some((self.hosts[host].name.clone(), crawl.name.clone()))
    }

    /// How many URLs a queue has.
    #[must_use]
    pub fn queue_len(&self, queue: QueueId) -> u64 {
        self.find_queue(queue).map_or(0, |(host, at)| self.queue(host, at).counts().total())
    }

    /// The full view of a URL. `queued` are the details of a queued one, from its due row.
    #[must_use]
    pub fn url_view(&self, queue: QueueId, key: &UrlKey, row: UrlRow, queued: Details) -> Option<UrlView> {
        let (host, crawl) = self.queue_names(queue)?;
        let state = row.status.state();
        let (lane, due, held_until, details) = match row.status {
            UrlStatus::Queued(position) => (position.lane, Some(position.due), None, queued),
            UrlStatus::Held { until, position, details } => (position.lane, Some(position.due), Some(until), details),
            UrlStatus::Reserved { token, position, details } => {
                (position.lane, Some(position.due), self.leases.get(&token).map(|lease| lease.expires_at), details)
            }
            UrlStatus::Done { lane, details, .. } => (lane, None, None, details),
        };
        Some(UrlView {
            url: key.url(&host, row.whole.as_deref()),
            host,
            crawl,
            state,
            due_at: due.filter(|due| *due != Time::NEVER),
            held_until,
            created_at: row.created,
            priority: PRIORITY_MAX - lane.min(PRIORITY_MAX),
            depth: details.depth,
            attempts: details.attempts,
            last: details.last,
            metadata: details.metadata,
        })
    }
}

impl UrlStatus {
    /// The state of a URL at this place.
    #[must_use]
    pub const fn state(&self) -> UrlState {
        match self {
            Self::Queued(_) => UrlState::Queued,
            Self::Held { .. } | Self::Reserved { .. } => UrlState::Reserved,
            Self::Done { end, .. } => end.state(),
        }
    }
}
