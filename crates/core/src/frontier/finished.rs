//! Decides whether a crawl is finished: nothing of it is handed out, and no queue of it can hand anything out. Only
//! the sum over all shards can show that it has received no URL at all.
//!
//! Usually the counters or the schedule answer. Where they do not (URLs are queued and none is about to become ready,
//! because limits or pauses hold them back), all hosts are scanned, a slice at a time.

use super::listing::PARTS_A_LOOK;
use super::row::QueueRow;
use super::slab::Ix;
use super::state::{Crawl, Host, State};
use super::view::{Counts, CrawlPart, CrawlScan};
use crate::counted::counted_are;
use crate::ids::{CrawlNo, HostId};
use crate::names::CrawlName;
use crate::time::Time;

impl State {
    /// A crawl as this shard knows it from counters and schedule.
    #[must_use]
    pub fn crawl_part(&self, name: &str, now: Time) -> Option<CrawlPart> {
        let no = self.crawl_no(name)?;
        let crawl = self.crawl_of(no)?;
        let mut view = self.view_crawl(no)?;
        let Counts { queued, reserved, .. } = crawl.counts;
        view.waits_for = if reserved > 0 {
            Some(format!("{} handed out", counted_are(reserved, "URL")))
        } else if queued == 0 || self.is_spent(no) {
            None
        } else {
            let entry = self.schedule.some_of(no).map(|entry| self.schedule.entries[entry].group);
            let group = entry.filter(|group| self.group_room(*group, no) != Some(0));
            group.and_then(|group| {
                self.groups[group].hosts().iter().find_map(|ix| self.open(&self.hosts[*ix], no, crawl, now))
            })
        };
        let unsure = view.waits_for.is_none() && queued > 0 && !self.is_spent(no);
        let (used, spent) = (crawl.used(), queued > 0 && self.is_spent(no));
        Some(CrawlPart { view, unsure, used, spent })
    }

    /// Scans hosts after a key for a queue of the crawl that can still hand something out, and for the end of the last
    /// visit to a group that has URLs of it.
    #[must_use]
    pub fn scan_crawl(&self, name: &CrawlName, after: Option<HostId>, now: Time) -> (CrawlScan, Option<HostId>) {
        let mut scan = CrawlScan::default();
        let known = self.crawl_no(name).and_then(|no| Some((no, self.crawl_of(no)?)));
        let Some((no, crawl)) = known else { return (scan, None) };
        let spent = crawl.counts.queued == 0 || self.is_spent(no);
        // The remaining allowance of a group requires a scan of its hosts, which mostly follow each other: cache it.
        let mut last: Option<(Ix, bool)> = None;
        let next = self.walk(after, |_, host, looks| {
            *looks = looks.saturating_sub(host.queues.len() / PARTS_A_LOOK);
            if !host.queues.iter().any(|queue| queue.crawl == no) {
                return false;
            }
            scan.last_visit_at = scan.last_visit_at.max(self.last_visit(host.group));
            if !spent {
                let known = last.filter(|(group, _)| *group == host.group);
                let (_, full) =
                    *last.insert(known.unwrap_or_else(|| (host.group, self.group_room(host.group, no) == Some(0))));
                scan.waits_for = if full { None } else { self.open(host, no, crawl, now) };
            }
            if scan.held_back.is_none() && scan.waits_for.is_none() {
                let waiting = host.queues.iter().find(|queue| queue.crawl == no && queue.head() != Time::NEVER);
                scan.held_back = waiting.and_then(|queue| self.held_back(host, queue));
            }
            scan.waits_for.is_some()
        });
        (scan, next)
    }

    /// Why a crawl is not finished at a host whose group is not at its limit. A pause does not finish a crawl, because
    /// it will end; a limit does.
    fn open(&self, host: &Host, no: CrawlNo, crawl: &Crawl, now: Time) -> Option<String> {
        let (due_at, _) = self.host_opportunity(host, no)?;
        let paused = host.is_paused() || self.groups[host.group].is_paused() || crawl.settings.paused;
        let queued = host.queues.iter().filter(|queue| queue.crawl == no).map(QueueRow::queued).sum();
        let first = if queued == 1 { "" } else { "the first one " };
        let state = match paused {
            true => " and paused".to_owned(),
            false if due_at > now => format!(", {first}due in {}", due_at.since(now).in_words()),
            false => format!(", {first}due"),
        };
        Some(format!("{} queued at host '{}'{state}", counted_are(queued, "URL"), host.name))
    }
}
