//! Politeness: the delay in force for a group, the earliest time of its next visit, and the placement of its entries in
//! the schedule.
//!
//! The delay is the largest one set on the group or its hosts, else the crawl's, else the server's, else 1 s. robots.txt
//! and the duration factor can only raise it. A group may be visited once its delay, its back-off and its block have
//! passed, whichever ends last. Settings are in [`crate::settings`], defaults in [`crate::limits`]; for operators:
//! docs/politeness.md.

use super::row::Pace;
use super::slab::Ix;
use super::state::{Crawl, Group, Grouping, Host, State};
use crate::ids::CrawlNo;
use crate::limits;
use crate::settings::PaceSettings;
use crate::time::{Millis, Time};

/// The next opportunity of a crawl at a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opportunity {
    /// From this time on a URL is due and its host may be visited.
    pub at: Time,
    /// Number of URLs on hold at the least loaded host.
    pub held: u32,
}

impl State {
    /// The delay between two visits to a group.
    pub(super) fn delay(&self, group: Ix) -> Millis {
        self.delay_after(group, self.groups[group].pace.last_crawl)
    }

    /// The delay between two visits to a group whose last visit was for the given crawl.
    pub(super) fn delay_after(&self, group: Ix, last: CrawlNo) -> Millis {
        let group = &self.groups[group];
        let mut own: Option<Millis> = None;
        let mut robots = Millis(0);
        let mut factor = Factor::default();
        let mut read = |settings: &PaceSettings| {
            own = own.max(settings.delay);
            factor.widen(settings);
        };
        if let Some(settings) = &group.settings {
            read(settings);
        }
        for host in group.hosts() {
            let host = &self.hosts[*host];
            robots = robots.max(host.robots_delay);
            if let Some(settings) = &host.settings {
                read(settings);
            }
        }
        let crawl = || self.crawl_of(last).and_then(|c| c.settings.delay);
        let base = own.or_else(crawl).or(self.shard_row.default_delay).unwrap_or(limits::DELAY_DEFAULT);
        base.max(robots).max(factor.delay(group.pace.last_duration))
    }

    /// From this time on the group as a whole may be visited.
    pub(super) fn gate(&self, ix: Ix) -> Time {
        let group = &self.groups[ix];
        let blocked = group.settings.as_ref().and_then(|s| s.blocked_until).unwrap_or_default();
        self.rested(ix).max(group.pace.backoff_until).max(blocked)
    }

    /// When the delay since the last visit has passed, including delays carried over from groups that hosts came from.
    pub(super) fn rested(&self, ix: Ix) -> Time {
        let pace = &self.groups[ix].pace;
        let rested = if pace.last_end == Time::ZERO { Time::ZERO } else { self.surely(pace.last_end, self.delay(ix)) };
        rested.max(pace.not_before)
    }

    /// When a span has certainly passed since a time, allowing for the clock's resolution in both.
    fn surely(&self, since: Time, span: Millis) -> Time {
        if span == Millis(0) { since } else { since.after(span).after(self.clock_step) }
    }

    pub(super) fn is_busy(&self, group: Ix) -> bool {
        let group = &self.groups[group];
        group.leases.len() >= group.parallel()
    }

    /// The next opportunity of a crawl at a group; `None` while the group is busy or paused or has no URL that will be
    /// due.
    pub(super) fn opportunity(&self, group: Ix, crawl: CrawlNo) -> Option<Opportunity> {
        self.opportunity_from(self.open_from(group)?, group, crawl)
    }

    /// From this time on the group as a whole may be visited; `None` while it is busy or paused.
    fn open_from(&self, group: Ix) -> Option<Time> {
        let open = !self.is_busy(group) && !self.groups[group].is_paused();
        open.then(|| self.gate(group))
    }

    /// The next opportunity of a crawl at a group that is open from `gate` on.
    fn opportunity_from(&self, gate: Time, group: Ix, crawl: CrawlNo) -> Option<Opportunity> {
        if self.crawl_of(crawl).is_some_and(|c| c.settings.paused) {
            return None;
        }
        if self.group_room(group, crawl) == Some(0) {
            return None;
        }
        let mut best: Option<Opportunity> = None;
        for host in self.groups[group].hosts() {
            let host = &self.hosts[*host];
            if host.is_paused() {
                continue;
            }
            if let Some((due, held)) = self.host_opportunity(host, crawl) {
                let at = due.max(host.blocked_until());
                best =
                    Some(best.map_or(Opportunity { at, held }, |b| Opportunity {
                        at: b.at.min(at),
                        held: b.held.min(held),
                    }));
            }
        }
        best.map(|opportunity| Opportunity { at: opportunity.at.max(gate), ..opportunity })
    }

    /// When the host's next URL of a crawl (or the host itself) is due, and how many URLs it has on hold.
    pub(super) fn host_opportunity(&self, host: &Host, crawl: CrawlNo) -> Option<(Time, u32)> {
        if crawl == CrawlNo::NONE {
            return (host.queued_at != Time::NEVER).then_some((host.queued_at, 0));
        }
        let queue = host.queues.iter().find(|q| q.crawl == crawl)?;
        let head = queue.head();
        if head == Time::NEVER || self.own_room(host, queue) == Some(0) {
            return None;
        }
        Some((head, queue.reserved))
    }

    /// The page limit of a queue: the smallest of the limits of queue, host and crawl.
    pub(super) fn page_limit(&self, host: &Host, queue: &super::row::QueueRow) -> Option<u64> {
        let host = host.settings.as_ref().and_then(|s| s.limit);
        let crawl = self.crawl_of(queue.crawl).and_then(|c| c.settings.limits.pages_per_host);
        [queue.limit, host, crawl].into_iter().flatten().min()
    }

    /// How many more pages a queue may hand out, counting those handed out; `None` if unlimited.
    pub(super) fn room(&self, host: &Host, queue: &super::row::QueueRow) -> Option<u64> {
        let bounds = [
            self.own_room(host, queue),
            self.group_room(host.group, queue.crawl),
            self.crawl_of(queue.crawl).and_then(Crawl::page_room),
        ];
        bounds.into_iter().flatten().min()
    }

    fn own_room(&self, host: &Host, queue: &super::row::QueueRow) -> Option<u64> {
        self.page_limit(host, queue).map(|limit| limit.saturating_sub(queue.used()))
    }

    /// What a group's limit leaves for a crawl. It visits every host of the group, so call it once per group.
    pub(super) fn group_room(&self, group: Ix, crawl: CrawlNo) -> Option<u64> {
        let group = &self.groups[group];
        let limit = group.settings.as_ref().and_then(|settings| settings.limit)?;
        let queues = group.hosts().iter().flat_map(|host| &self.hosts[*host].queues);
        Some(limit.saturating_sub(queues.filter(|q| q.crawl == crawl).map(super::row::QueueRow::used).sum()))
    }

    /// Whether all pages that a crawl may have are fetched or handed out, as far as this shard knows.
    pub(super) fn is_spent(&self, crawl: CrawlNo) -> bool {
        self.crawl_of(crawl).and_then(Crawl::page_room) == Some(0)
    }

    /// Closes a crawl whose page limit is used up, and reopens it otherwise. Must be called after every change of its
    /// page count.
    pub(super) fn follow_limit(&mut self, crawl: CrawlNo) {
        self.schedule.set_closed(crawl, self.is_spent(crawl));
    }

    /// Reschedules every entry of a group.
    pub(super) fn reschedule(&mut self, group: Ix, now: Time) {
        let gate = self.open_from(group);
        let mut at = 0;
        while let Some(entry) = self.groups[group].entries.get(at).copied() {
            self.place_entry(gate, group, entry, now);
            at += 1;
        }
    }

    /// Reschedules every entry of a group after a visit that ends at once. For entries not parked by it only the group's
    /// gate has moved, to a later time, so their queues need not be examined.
    pub(super) fn defer(&mut self, group: Ix, now: Time) {
        let gate = self.open_from(group);
        let mut at = 0;
        while let Some(entry) = self.groups[group].entries.get(at).copied() {
            if !gate.is_some_and(|gate| self.schedule.defer(entry, gate, now)) {
                self.place_entry(gate, group, entry, now);
            }
            at += 1;
        }
    }

    pub(super) fn reschedule_entry(&mut self, group: Ix, entry: Ix, now: Time) {
        self.place_entry(self.open_from(group), group, entry, now);
    }

    fn place_entry(&mut self, gate: Option<Time>, group: Ix, entry: Ix, now: Time) {
        let opportunity = gate.and_then(|gate| self.opportunity_from(gate, group, self.schedule.entries[entry].crawl));
        match opportunity {
            Some(opportunity) if opportunity.at != Time::NEVER => {
                self.schedule.place(entry, opportunity.at, opportunity.held, now)
            }
            _ => self.schedule.park(entry),
        }
    }

    /// Reschedules the groups that a crawl's settings concern: those that have URLs of it, and those whose delay they
    /// set because it was visited last.
    pub(super) fn reschedule_crawl(&mut self, crawl: CrawlNo, now: Time) {
        for ix in self.groups.numbers() {
            let group = &self.groups[ix];
            let has_urls = || group.entries.iter().any(|entry| self.schedule.entries[*entry].crawl == crawl);
            if group.pace.last_crawl == crawl || has_urls() {
                self.reschedule(ix, now);
            }
        }
    }

    /// Reschedules every entry of the shard, after a change of a setting that all of them share.
    pub fn reschedule_all(&mut self, now: Time) {
        for group in self.groups.numbers() {
            self.reschedule(group, now);
        }
    }

    /// Records the end of a visit.
    pub(super) fn end_visit(&mut self, group: Ix, crawl: CrawlNo, end: Time, duration: Millis) {
        let pace = &mut self.groups[group].pace;
        pace.last_end = pace.last_end.max(end);
        pace.last_duration = duration;
        if crawl != CrawlNo::NONE {
            pace.last_crawl = crawl;
        }
        self.touch_group(group);
        if let Grouping::One(host) = self.groups[group].grouping
            && !self.vacant.is_empty()
            && self.vacant.remove(&(Time::NEVER, self.hosts[host].id))
        {
            self.vacant.insert((end, self.hosts[host].id));
        }
    }

    /// Applies a back-off requested by the site. `jitter` is random: up to 10 % is added.
    pub(super) fn back_off(&mut self, group: Ix, cause: &Cause<'_>, now: Time, jitter: u64) {
        let most = self.backoff_max.unwrap_or(limits::BACKOFF_MAX_DEFAULT);
        let place = &mut self.groups[group];
        place.pace.back_off(cause, most, now.after(self.clock_step), jitter);
        self.touch_group(group);
    }

    /// Halves the back-off count for every good page.
    pub(super) fn forgive(&mut self, group: Ix, pages: usize) {
        let pace = &mut self.groups[group].pace;
        if pace.backoff_count > 0 && pages > 0 {
            pace.backoff_count = pace.backoff_count.checked_shr(pages as u32).unwrap_or(0);
            self.touch_group(group);
        }
    }

    /// Clears the back-off of a group, on an operator's request.
    pub(super) fn lift(&mut self, group: Ix) {
        let pace = &mut self.groups[group].pace;
        (pace.backoff_until, pace.backoff_count, pace.backoff_status) = (Time::ZERO, 0, 0);
        pace.asked_by = None;
        self.touch_group(group);
    }
}

/// Why a group is backed off.
pub(super) struct Cause<'a> {
    /// The page fetched.
    pub url: &'a str,
    /// Its status, if reported.
    pub status: Option<u16>,
    /// The Retry-After of the site.
    pub retry_after: Option<Millis>,
}

impl Pace {
    fn back_off(&mut self, cause: &Cause<'_>, most: Millis, now: Time, jitter: u64) {
        if now > self.backoff_until.after(limits::BACKOFF_QUIET) {
            self.backoff_count = 0;
        }
        self.backoff_count = self.backoff_count.saturating_add(1);
        self.backoff_status = cause.status.unwrap_or(0);
        // Long enough to identify the page.
        self.asked_by = Some(crate::redact::url(cause.url).chars().take(200).collect::<String>().into());
        // A Retry-After of zero is treated like a missing one.
        let span = cause.retry_after.filter(|asked| asked.0 > 0).map_or_else(
            || {
                let doubled = limits::BACKOFF_BASE.0 << (self.backoff_count - 1).min(20);
                let span = doubled.min(most.0);
                Millis(span + jitter % (span / 10 + 1))
            },
            |asked| asked.min(limits::RETRY_AFTER_MAX),
        );
        // A block is never shortened by a later, smaller one.
        self.backoff_until = self.backoff_until.max(now.after(span));
    }
}

impl Crawl {
    /// Pages that count against a limit here: completed ones, and those handed out, which may become so.
    pub(super) const fn used(&self) -> u64 {
        self.pages + self.counts.reserved
    }

    /// How many more pages may be handed out here; `None` if unlimited.
    pub(super) fn page_room(&self) -> Option<u64> {
        self.settings.limits.pages.map(|limit| limit.saturating_sub(self.used().saturating_add(self.used_elsewhere)))
    }
}

impl Group {
    pub(super) fn parallel(&self) -> usize {
        self.settings.as_ref().and_then(|s| s.parallel).unwrap_or(1).max(1) as usize
    }

    pub(super) fn is_paused(&self) -> bool {
        is_paused(self.settings.as_deref())
    }
}

impl Host {
    pub(super) fn blocked_until(&self) -> Time {
        self.settings.as_ref().and_then(|s| s.blocked_until).unwrap_or_default()
    }

    pub(super) fn is_paused(&self) -> bool {
        is_paused(self.settings.as_deref())
    }
}

fn is_paused(settings: Option<&PaceSettings>) -> bool {
    settings.is_some_and(|settings| settings.paused == Some(true))
}

/// `factor × duration` within its bounds; where several settings apply, the more careful one wins.
#[derive(Default)]
struct Factor {
    milli: u32,
    min: Millis,
    max: Option<Millis>,
}

impl Factor {
    fn widen(&mut self, settings: &PaceSettings) {
        self.milli = self.milli.max(settings.factor_milli.unwrap_or(0));
        self.min = self.min.max(settings.delay_min.unwrap_or_default());
        self.max = self.max.max(settings.delay_max);
    }

    fn delay(&self, duration: Millis) -> Millis {
        let max = self.max.unwrap_or(limits::DELAY_FACTOR_MAX_DEFAULT);
        let scaled = Millis(duration.0.saturating_mul(self.milli.into()) / 1000);
        scaled.min(max).max(self.min)
    }
}
