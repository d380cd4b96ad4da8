//! Deletes and purges. A queue's number is never reused, so dropping a queue from its host makes all its rows
//! unreachable at once; a durable job removes the rows later, in slices.

use super::row::{HotRow, UrlRow, UrlStatus, Write};
use super::slab::Ix;
use super::state::{Grouping, State};
use super::url_key::UrlKey;
use crate::ids::{CrawlNo, QueueId};
use crate::names::{CrawlName, HostName};
use crate::time::Time;

impl State {
    /// Deletes the queue of a crawl at a host; returns its number of URLs.
    pub fn delete_queue(&mut self, host: &HostName, crawl: &CrawlName, now: Time, writes: &mut Vec<Write>) -> u64 {
        let Some((ix, at)) = self.queue_id(host, crawl).and_then(|id| self.find_queue(id)) else { return 0 };
        let no = self.queue(ix, at).crawl;
        let count = self.drop_queue(ix, at, now, writes);
        self.drop_idle_crawl(no);
        count
    }

    /// The hosts that have a queue of a crawl.
    #[must_use]
    pub fn hosts_of_crawl(&self, crawl: &CrawlName) -> Vec<HostName> {
        let Some(no) = self.crawl_by_name.get(crawl) else { return Vec::new() };
        let with_queue = self.hosts.iter().filter(|(_, h)| h.queues.iter().any(|q| q.crawl == *no));
        with_queue.map(|(_, h)| h.name.clone()).collect()
    }

    /// Deletions of crawls are remembered from this time on.
    pub fn remember_deletions(&mut self, now: Time) {
        self.deleted.begin(now);
    }

    /// Deletes a crawl with all its queues, and with its settings unless they have a higher number than the deletion; returns
    /// its number of URLs.
    pub fn delete_crawl(&mut self, crawl: &CrawlName, number: Time, now: Time, writes: &mut Vec<Write>) -> u64 {
        // Even if the crawl never had a URL here: links and settings may be on their way.
        self.deleted.note(crawl, number);
        let Some(no) = self.crawl_by_name.get(crawl).copied() else { return 0 };
        let mut count = 0;
        for ix in self.hosts.numbers() {
            if let Some(at) = self.hosts[ix].queues.iter().position(|q| q.crawl == no) {
                count += self.drop_queue(ix, at, now, writes);
            }
        }
        if self.crawl_version(crawl) <= number.0 {
            self.forget_crawl(no);
        }
        count
    }

    fn forget_crawl(&mut self, no: CrawlNo) {
        if let Some(crawl) = self.crawls.remove(&no) {
            self.crawl_by_name.remove(&crawl.name);
            self.crawl_names.remove(&crawl.name);
            self.settled.push(crawl.name.clone());
            self.changed.others.push(HotRow::CrawlGone(no));
            self.crawls_changed.push((crawl.name, false));
            if self.limited.remove(&no) {
                self.limits_changed.insert(no);
            }
            self.schedule.forget(no);
        }
    }

    /// Removes a crawl without settings and without queues.
    fn drop_idle_crawl(&mut self, no: CrawlNo) {
        if self.crawls.get(&no).is_some_and(|c| c.queues == 0 && !c.kept) {
            self.forget_crawl(no);
        }
    }

    fn drop_queue(&mut self, ix: Ix, at: usize, now: Time, writes: &mut Vec<Write>) -> u64 {
        let group = self.hosts[ix].group;
        let queue = self.hosts[ix].queues.remove(at);
        let counts = queue.counts();
        let id = QueueId { host: self.hosts[ix].id, no: queue.no };
        self.damage.forget(id);
        self.holds = self.holds.saturating_sub(counts.reserved.saturating_sub(self.reserved_of(id)));
        writes.push(Write::DeletedQueue(id, true));
        self.discount(&queue);
        if let Some(crawl) = self.crawls.get(&queue.crawl).filter(|crawl| self.settled.last() != Some(&crawl.name)) {
            self.settled.push(crawl.name.clone());
        }
        self.touch_host(ix);
        self.drop_idle_entries(group);
        let empty = self.hosts[ix].queues.is_empty() && self.hosts[ix].queued_at == Time::NEVER;
        let forgotten = empty && matches!(self.groups[group].grouping, Grouping::One(_));
        if forgotten && self.groups[group].leases.is_empty() {
            self.drop_host(ix);
        } else {
            if forgotten {
                // Its visits continue: it is forgotten when they have ended and the delay after them has passed.
                self.vacant.insert((Time::NEVER, self.hosts[ix].id));
            }
            self.reschedule(group, now);
        }
        counts.total()
    }

    /// Forgets hosts whose last queue was deleted during a visit, once nothing depends on that visit any more. Returns whether
    /// there was one.
    pub fn forget_vacant(&mut self, now: Time) -> bool {
        let hosts = self.hosts.len();
        while let Some((_, id)) = self.vacant.first().copied().filter(|(at, _)| *at <= now) {
            self.vacant.pop_first();
            let Some(ix) = self.hosts.by_id(id) else { continue };
            let (host, group) = (&self.hosts[ix], self.hosts[ix].group);
            let alone = matches!(self.groups[group].grouping, Grouping::One(_));
            if !host.queues.is_empty() || host.queued_at != Time::NEVER || !alone {
                continue;
            }
            let busy = !self.groups[group].leases.is_empty();
            match if busy { Time::NEVER } else { self.gate(group) } {
                until if until > now => _ = self.vacant.insert((until, id)),
                _ => self.drop_host(ix),
            }
        }
        self.hosts.len() < hosts
    }

    /// Gives memory back that hosts took which are gone.
    pub fn shrink(&mut self) {
        self.hosts.shrink();
        self.groups.shrink();
        self.schedule.entries.shrink();
    }

    /// Removes entries of crawls that have no queue at any host of the group.
    pub(super) fn drop_idle_entries(&mut self, group: Ix) {
        let (keep, drop): (Vec<Ix>, Vec<Ix>) = self.groups[group].entries.iter().partition(|entry| {
            let crawl = self.schedule.entries[**entry].crawl;
            crawl == CrawlNo::NONE
                || self.groups[group].hosts().iter().any(|h| self.hosts[*h].queues.iter().any(|q| q.crawl == crawl))
        });
        for entry in drop {
            self.schedule.remove(entry);
        }
        self.groups[group].entries = keep;
    }

    /// Forgets a host that is a group of its own, including its last visit.
    fn drop_host(&mut self, ix: Ix) {
        let group = self.hosts[ix].group;
        if let Some(group) = self.groups.remove(group) {
            for entry in group.entries {
                self.schedule.remove(entry);
            }
        }
        if let Some(host) = self.hosts.remove(ix) {
            self.changed.others.push(HotRow::HostGone(host.id));
        }
    }

    /// The queues of a crawl, of one host or of all hosts here.
    #[must_use]
    pub fn queues_of(&self, crawl: &CrawlName, host: Option<&HostName>) -> Vec<QueueId> {
        match host {
            Some(host) => self.queue_id(host, crawl).into_iter().collect(),
            None => self.hosts_of_crawl(crawl).iter().filter_map(|host| self.queue_id(host, crawl)).collect(),
        }
    }

    /// Removes those of the given URLs that were stored before a time; returns their number.
    pub fn purge(
        &mut self,
        queue: QueueId,
        rows: Vec<(UrlKey, UrlRow)>,
        before: Time,
        now: Time,
        writes: &mut Vec<Write>,
    ) -> u64 {
        let Some((host, at)) = self.find_queue(queue) else { return 0 };
        let mut count = 0;
        for (key, row) in rows.into_iter().filter(|(_, row)| row.created < before) {
            // A reserved URL leaves its lease: its row no longer names the token, so the release skips it.
            self.forget_url((host, at), key, &row, writes);
            count += 1;
        }
        if count > 0 {
            self.reschedule(self.hosts[host].group, now);
        }
        count
    }
}

impl super::view::Counts {
    /// Subtracts counts that were added before.
    pub const fn subtract(&mut self, other: &Self) {
        self.queued = self.queued.saturating_sub(other.queued);
        self.reserved = self.reserved.saturating_sub(other.reserved);
        self.fetched = self.fetched.saturating_sub(other.fetched);
        self.gone = self.gone.saturating_sub(other.gone);
        self.failed = self.failed.saturating_sub(other.failed);
    }
}

impl UrlStatus {
    /// Whether the URL is not handed out.
    #[must_use]
    pub const fn is_at_rest(&self) -> bool {
        matches!(self, Self::Queued(_) | Self::Done { .. })
    }
}
