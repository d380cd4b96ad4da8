//! Totals on the wire, and the counts that every view carries.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use wayleave_core::frontier::view;

/// URLs by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    /// Waiting to be handed out.
    pub queued: u64,
    /// Handed out.
    pub reserved: u64,
    /// Fetched for good.
    pub fetched: u64,
    /// No longer existing.
    pub gone: u64,
    /// Given up.
    pub failed: u64,
}

impl From<view::Counts> for Counts {
    fn from(counts: view::Counts) -> Self {
        let view::Counts { queued, reserved, fetched, gone, failed } = counts;
        Self { queued, reserved, fetched, gone, failed }
    }
}

/// Totals of the whole frontier, in constant time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Stats {
    /// Known hosts.
    pub hosts: u64,
    /// Aliases.
    pub aliases: u64,
    /// Crawls.
    pub crawls: u64,
    /// Queues: one per host and crawl.
    pub queues: u64,
    /// Current reservations.
    pub reservations: u64,
    /// URLs on hold in the paced form (URLFrontier's GetURLs).
    pub holds: u64,
    /// Pairs of group and crawl that may be visited now.
    pub ready: u64,
    /// Pairs of group and crawl that wait for a time.
    pub waiting: u64,
    /// URLs by state.
    pub urls: Counts,
}

impl From<view::Stats> for Stats {
    fn from(stats: view::Stats) -> Self {
        let view::Stats { hosts, aliases, crawls, queues, reservations, holds, ready, waiting, urls } = stats;
        Self { hosts, aliases, crawls, queues, reservations, holds, ready, waiting, urls: urls.into() }
    }
}
