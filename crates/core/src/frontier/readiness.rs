//! Readiness: what a router must know of a shard to send callers to the right one and to wake waiters.

use super::state::State;
use crate::ids::CrawlNo;
use crate::names::CrawlName;
use crate::time::Time;

impl State {
    /// Since when a group has been ready, and when the next one may become ready (a delay, lease or hold ends).
    #[must_use]
    pub fn readiness(&self) -> (Option<Time>, Option<Time>) {
        (self.schedule.oldest_ready(), self.next_wake())
    }

    /// Since when a group is ready for a crawl.
    #[must_use]
    pub fn crawl_ready(&self, crawl: &str) -> Option<Time> {
        self.schedule.oldest_ready_of(self.crawl_no(crawl)?)
    }

    /// The crawls whose readiness changed since the last call, and since when a group of each is ready.
    pub fn take_crawls_ready(&mut self, mut publish: impl FnMut(&CrawlName, Option<Time>)) {
        let mut touched = std::mem::take(&mut self.schedule.touched);
        touched.sort_unstable();
        touched.dedup();
        for no in touched.drain(..) {
            if let Some(crawl) = self.crawl_of(no) {
                publish(&crawl.name, self.schedule.oldest_ready_of(no));
            }
        }
        // Reuse its allocation.
        self.schedule.touched = touched;
    }

    /// The crawls that have a ready group in scheduling order, at most `most`.
    #[must_use]
    pub fn crawls_in_order(&self, most: usize) -> Vec<CrawlNo> {
        self.schedule.crawl_order.in_order().take(most).collect()
    }

    /// Sets a crawl's virtual time to that of all shards together.
    pub fn set_pass(&mut self, crawl: CrawlNo, pass: u64) {
        self.schedule.crawl_order.set_pass(crawl, pass);
    }

    /// The virtual time consumed since the last call, by visits that named no crawl.
    pub fn take_charged(&mut self) -> Vec<(CrawlNo, u64)> {
        self.schedule.crawl_order.take_charged()
    }

    /// The name of a crawl known to this shard.
    #[must_use]
    pub fn crawl_name(&self, crawl: CrawlNo) -> Option<&CrawlName> {
        self.crawl_of(crawl).map(|row| &row.name)
    }

    /// The crawls with groups that became ready since the last call: how many of these are still ready, and how many
    /// groups are ready in all. The crawl is `None` for hosts that are queued without URLs.
    pub fn take_newly_ready(&mut self, mut publish: impl FnMut(Option<&CrawlName>, NewlyReady)) {
        let mut newly_ready = std::mem::take(&mut self.schedule.newly_ready);
        newly_ready.sort_unstable_by_key(|(no, _)| *no);
        for same in newly_ready.chunk_by(|(a, _), (b, _)| a == b) {
            let Some((no, _)) = same.first() else { continue };
            let all = self.schedule.open_entries(*no);
            // What was taken in the same turn concerns no waiter.
            let fresh = same.iter().map(|(_, count)| *count).sum::<usize>().min(all);
            if fresh > 0 {
                publish(self.crawl_of(*no).map(|crawl| &crawl.name), NewlyReady { fresh, all });
            }
        }
        newly_ready.clear();
        // Reuse its allocation.
        self.schedule.newly_ready = newly_ready;
    }
}

/// How many groups of a crawl are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewlyReady {
    /// Those that became ready since they were last counted.
    pub fresh: usize,
    /// All.
    pub all: usize,
}
