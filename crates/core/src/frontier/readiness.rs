//! Readiness: what a router must know of a shard to send its callers to the right one, and to wake those who wait.

use super::state::State;
use crate::ids::CrawlNo;
use crate::names::CrawlName;
use crate::time::Time;

impl State {
    /// Since when a group has been ready, and when the next one may become so (its wait, a lease or a hold is over): what
    /// a router needs to ask the right shard.
    #[must_use]
    pub fn readiness(&self) -> (Option<Time>, Option<Time>) {
        (self.schedule.oldest_ready(), self.next_wake())
    }

    /// Since when a group is ready for a crawl.
    #[must_use]
    pub fn crawl_ready(&self, crawl: &str) -> Option<Time> {
        self.schedule.oldest_ready_of(self.crawl_no(crawl)?)
    }

    /// The crawls of which groups became ready or ceased to be so since this was last asked, and since when one is.
    pub fn take_crawls_ready(&mut self, mut tell: impl FnMut(&CrawlName, Option<Time>)) {
        let mut touched = std::mem::take(&mut self.schedule.touched);
        touched.sort_unstable();
        touched.dedup();
        for no in touched.drain(..) {
            if let Some(crawl) = self.crawl_of(no) {
                tell(&crawl.name, self.schedule.oldest_ready_of(no));
            }
        }
        // Its room is used again.
        self.schedule.touched = touched;
    }

    /// The crawls that have a ready group, the one whose turn it is first; at most so many.
    #[must_use]
    pub fn crawls_in_turn(&self, most: usize) -> Vec<CrawlNo> {
        self.schedule.turns.in_order().take(most).collect()
    }

    /// Puts a crawl where visits in all shards have brought its virtual time.
    pub fn set_pass(&mut self, crawl: CrawlNo, pass: u64) {
        self.schedule.turns.set_pass(crawl, pass);
    }

    /// The virtual time that visits took since this was last asked, of those that were of any crawl.
    pub fn take_charged(&mut self) -> Vec<(CrawlNo, u64)> {
        self.schedule.turns.take_charged()
    }

    /// The name of a crawl that this shard has met.
    #[must_use]
    pub fn crawl_name(&self, crawl: CrawlNo) -> Option<&CrawlName> {
        self.crawl_of(crawl).map(|row| &row.name)
    }

    /// How many slots have become ready since this was last asked.
    pub const fn take_newly_ready(&mut self) -> usize {
        std::mem::replace(&mut self.schedule.newly_ready, 0)
    }
}
