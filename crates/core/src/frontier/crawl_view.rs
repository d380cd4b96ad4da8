//! A crawl as counted by one shard, and how much of its page limit is used. Whether it is finished is decided in
//! [`super::finished`].

use super::state::{Crawl, State};
use super::view::CrawlView;
use crate::counted::{counted, counted_are};
use crate::ids::CrawlNo;

impl State {
    /// A crawl's counters. Nothing is scanned, so many crawls can be listed.
    pub(super) fn view_crawl(&self, no: CrawlNo) -> Option<CrawlView> {
        let crawl = self.crawl_of(no)?;
        let left = crawl.counts.scheduled();
        Some(CrawlView {
            crawl: crawl.name.clone(),
            settings: crawl.settings,
            counts: crawl.counts,
            queues: crawl.queues,
            active_queues: crawl.active_queues,
            waits_for: (left > 0).then(|| format!("{} queued or handed out", counted_are(left, "URL"))),
            last_visit_at: None,
            over_limit: 0,
            limit_reached: crawl.limit_reached().filter(|_| self.is_spent(no)),
        })
    }
}

impl Crawl {
    /// Which part of its page limit is used up.
    pub(super) fn limit_reached(&self) -> Option<String> {
        let (name, limit) = (&self.name, counted(self.settings.limits.pages?, "page"));
        Some(match self.counts.reserved + self.elsewhere.reserved {
            0 => format!("crawl '{name}' has reached its limit of {limit}"),
            out => format!("all that its limit of {limit} leaves to crawl '{name}' is handed out ({out})"),
        })
    }
}
