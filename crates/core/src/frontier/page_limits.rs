//! Limits of pages that hold for a whole crawl, over all shards: what this shard takes of them, and what it may still take.
//!
//! The core sees one shard. Whoever runs the shards sees to it that they together keep within the limit: before a visit is
//! planned it says how much may be taken here ([`State::allow_pages`]), and at all other times what the others take
//! ([`State::set_used_elsewhere`]). A crawl of which nothing is left is closed: its groups keep their places and no visit
//! of it is planned.

use super::state::State;
use crate::ids::CrawlNo;
use crate::names::CrawlName;

/// A crawl with a limit of pages, as this shard knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageLimit {
    /// Its number here.
    pub crawl: CrawlNo,
    /// Its name.
    pub name: CrawlName,
    /// The limit.
    pub limit: u64,
    /// Pages that count against it here: fetched ones, and those that are out.
    pub used: u64,
    /// Whether a group of it is ready here.
    pub ready: bool,
}

impl State {
    /// The crawls that have a limit of pages.
    pub fn page_limits(&self) -> impl Iterator<Item = PageLimit> {
        self.page_bounded.iter().filter_map(|no| {
            let crawl = self.crawl_of(*no)?;
            let limit = crawl.settings.limits.pages?;
            let ready = self.schedule.has_ready(*no);
            Some(PageLimit { crawl: *no, name: crawl.name.clone(), limit, used: crawl.used(), ready })
        })
    }

    /// What counts here against a crawl's limit of pages.
    #[must_use]
    pub fn pages_used(&self, crawl: CrawlNo) -> u64 {
        self.crawl_of(crawl).map_or(0, super::state::Crawl::used)
    }

    /// Takes note of what other shards take of a crawl's limit of pages.
    pub fn set_used_elsewhere(&mut self, crawl: CrawlNo, used: u64) {
        if let Some(row) = self.crawls.get_mut(&crawl).filter(|row| row.used_elsewhere != used) {
            row.used_elsewhere = used;
            self.follow_limit(crawl);
        }
    }

    /// Lets this shard hand out so many more pages of a crawl and no more, until it is told what the others take.
    pub fn allow_pages(&mut self, crawl: CrawlNo, pages: u64) {
        let Some(row) = self.crawl_of(crawl) else { return };
        let Some(limit) = row.settings.limits.pages else { return };
        let elsewhere = limit.saturating_sub(row.used()).saturating_sub(pages);
        self.set_used_elsewhere(crawl, elsewhere);
    }

    /// Keeps the list of crawls that have a limit of pages.
    pub(super) fn note_page_limit(&mut self, crawl: CrawlNo) {
        let bounded = self.crawl_of(crawl).is_some_and(|row| row.settings.limits.pages.is_some());
        if bounded {
            self.page_bounded.insert(crawl);
        } else {
            self.page_bounded.remove(&crawl);
        }
        self.follow_limit(crawl);
    }
}
