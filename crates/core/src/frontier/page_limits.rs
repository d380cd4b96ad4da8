//! Page limits of a whole crawl over all shards: what this shard has used of them, and what it may still use.
//!
//! The core sees one shard. The caller ensures that all shards together stay within the limit. Before URLs are taken
//! for a planned visit, it sets how much this shard may use ([`State::allow_pages`]); at all other times it sets what
//! the others use ([`State::set_used_elsewhere`]). A crawl whose limit is used up is closed: its groups keep their
//! positions in the schedule, and no visit of it is planned.

use std::collections::BTreeSet;

use super::state::State;
use super::view::Counts;
use crate::ids::CrawlNo;
use crate::names::CrawlName;

/// A crawl with a page limit, as this shard knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageLimit {
    /// Its number here.
    pub crawl: CrawlNo,
    /// Its name.
    pub name: CrawlName,
    /// The limit.
    pub limit: u64,
    /// Pages that count against it here: fetched ones, and those handed out.
    pub used: u64,
    /// URLs that are queued here.
    pub queued: u64,
}

impl State {
    /// The crawls that have a limit over all shards: of URLs, hosts or pages.
    pub fn limited(&self) -> impl Iterator<Item = CrawlNo> {
        self.limited.iter().copied()
    }

    /// Whether any crawl has a limit over all shards.
    #[must_use]
    pub fn has_limited(&self) -> bool {
        !self.limited.is_empty()
    }

    /// Whether a crawl has a limit over all shards.
    #[must_use]
    pub fn is_limited(&self, crawl: CrawlNo) -> bool {
        self.limited.contains(&crawl)
    }

    /// The crawls with a limit over all shards whose counts or limits changed since the last call, with those that have
    /// none any more.
    pub fn take_limits_changed(&mut self) -> BTreeSet<CrawlNo> {
        std::mem::take(&mut self.limits_changed)
    }

    /// The URLs and hosts of a crawl that has a limit over all shards.
    #[must_use]
    pub fn limited_counts(&self, crawl: CrawlNo) -> Option<(&CrawlName, Counts, u64)> {
        let row = self.crawl_of(crawl).filter(|_| self.is_limited(crawl))?;
        Some((&row.name, row.counts, row.queues))
    }

    /// Sets what other shards count for a crawl with a limit over all shards.
    pub fn set_elsewhere(&mut self, crawl: CrawlNo, counts: Counts, hosts: u64) {
        if let Some(crawl) = self.crawls.get_mut(&crawl) {
            crawl.elsewhere = counts;
            crawl.hosts_elsewhere = hosts;
        }
    }

    /// A crawl's page limit, if it has one.
    #[must_use]
    pub fn page_limit_of(&self, no: CrawlNo) -> Option<PageLimit> {
        let crawl = self.crawl_of(no)?;
        let limit = crawl.settings.limits.pages?;
        let (name, used, queued) = (crawl.name.clone(), crawl.used(), crawl.counts.queued);
        Some(PageLimit { crawl: no, name, limit, used, queued })
    }

    /// The crawls that have a page limit.
    pub fn page_limits(&self) -> impl Iterator<Item = PageLimit> {
        self.limited.iter().filter_map(|no| self.page_limit_of(*no))
    }

    /// Pages that count here against a crawl's limit.
    #[must_use]
    pub fn pages_used(&self, crawl: CrawlNo) -> u64 {
        self.crawl_of(crawl).map_or(0, super::state::Crawl::used)
    }

    /// Sets what other shards use of a crawl's page limit.
    pub fn set_used_elsewhere(&mut self, crawl: CrawlNo, used: u64) {
        if let Some(row) = self.crawls.get_mut(&crawl).filter(|row| row.used_elsewhere != used) {
            row.used_elsewhere = used;
            self.follow_limit(crawl);
        }
    }

    /// Allows this shard to hand out exactly this many more pages of a crawl, until it learns what the others use.
    pub fn allow_pages(&mut self, crawl: CrawlNo, pages: u64) {
        let Some(row) = self.crawl_of(crawl) else { return };
        let Some(limit) = row.settings.limits.pages else { return };
        let elsewhere = limit.saturating_sub(row.used()).saturating_sub(pages);
        self.set_used_elsewhere(crawl, elsewhere);
    }

    /// Maintains the set of crawls with a limit over all shards. Must be called after every change of settings.
    pub(super) fn note_limits(&mut self, crawl: CrawlNo) {
        let bounded = self.crawl_of(crawl).is_some_and(|row| {
            let limits = &row.settings.limits;
            limits.urls.is_some() || limits.pages.is_some() || limits.hosts.is_some()
        });
        let changed = if bounded { self.limited.insert(crawl) } else { self.limited.remove(&crawl) };
        if bounded || changed {
            self.limits_changed.insert(crawl);
        }
        self.follow_limit(crawl);
    }

    /// The counts of a crawl change. It must be called wherever they do.
    pub(super) fn note_limited(&mut self, crawl: CrawlNo) {
        if !self.limited.is_empty() && self.limited.contains(&crawl) {
            self.limits_changed.insert(crawl);
        }
    }
}
