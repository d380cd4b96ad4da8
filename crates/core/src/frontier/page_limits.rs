//! Page limits of a whole crawl over all shards: what this shard has used of them, and what it may still use.
//!
//! The core sees one shard. The caller ensures that all shards together stay within the limit: before planning a visit
//! it sets how much this shard may use ([`State::allow_pages`]), and at all other times what the others use
//! ([`State::set_used_elsewhere`]). A crawl whose limit is used up is closed: its groups keep their positions in the
//! schedule, and no visit of it is planned.

use super::state::State;
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
    /// Whether a group of it is ready here.
    pub ready: bool,
}

impl State {
    /// The crawls that have a page limit.
    pub fn page_limits(&self) -> impl Iterator<Item = PageLimit> {
        self.page_limited.iter().filter_map(|no| {
            let crawl = self.crawl_of(*no)?;
            let limit = crawl.settings.limits.pages?;
            let ready = self.schedule.has_ready(*no);
            let (name, used, queued) = (crawl.name.clone(), crawl.used(), crawl.counts.queued);
            Some(PageLimit { crawl: *no, name, limit, used, queued, ready })
        })
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

    /// Allows this shard to hand out exactly this many more pages of a crawl, until it is told what the others use.
    pub fn allow_pages(&mut self, crawl: CrawlNo, pages: u64) {
        let Some(row) = self.crawl_of(crawl) else { return };
        let Some(limit) = row.settings.limits.pages else { return };
        let elsewhere = limit.saturating_sub(row.used()).saturating_sub(pages);
        self.set_used_elsewhere(crawl, elsewhere);
    }

    /// Maintains the set of crawls with a page limit.
    pub(super) fn note_page_limit(&mut self, crawl: CrawlNo) {
        let bounded = self.crawl_of(crawl).is_some_and(|row| row.settings.limits.pages.is_some());
        if bounded {
            self.page_limited.insert(crawl);
        } else {
            self.page_limited.remove(&crawl);
        }
        self.follow_limit(crawl);
    }
}
