//! Planning a visit: which group is next, which crawl and host of it, and which rows must be read. Reservations and the
//! paced form share this; they differ in what they do with the URLs.
//!
//! The order: the crawl by stride scheduling, its group that has been ready longest, within the group the crawl by stride
//! and the host with the most overdue URL, within the queue the lane. Which shard is asked first is not decided here.

use super::crawl_order::STRIDE;
use super::row::{Details, DueRow, QueuePosition};
use super::schedule::{Looks, bucket};
use super::slab::Ix;
use super::state::State;
use super::url_key::UrlKey;
use super::view::UrlState;
use crate::ids::{CrawlNo, QueueId};
use crate::time::Time;

/// Maximum number of groups that one call skips because their queues have too many URLs on hold.
const LOOKS_MAX: usize = 256;

/// What a caller asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Only of this crawl.
    pub crawl: Option<CrawlNo>,
    /// URLs per group.
    pub urls: usize,
    /// Only queues with fewer than this on hold.
    pub held_below: Option<u32>,
    /// Whether hosts queued without URLs count.
    pub bare_hosts: bool,
}

/// A group about to be visited. Its entries are parked until the visit is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visit {
    pub(super) group: Ix,
    pub(super) host: Ix,
    pub(super) crawl: CrawlNo,
    /// The queue to read; `None` if the host is visited without URLs.
    pub queue: Option<QueueId>,
    /// The scans needed, best first.
    pub scans: Vec<LaneScan>,
}

impl Visit {
    /// The crawl that it is for.
    #[must_use]
    pub const fn crawl(&self) -> CrawlNo {
        self.crawl
    }
}

/// A visit with the fronts of its lanes, by scan.
pub type PlannedVisit = (Visit, Vec<Vec<ScannedUrl>>);

/// A scan of a lane's front: `limit` rows from here to the end of the lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneScan {
    /// The queue.
    pub queue: QueueId,
    /// The lane.
    pub lane: u8,
    /// The first due time and key.
    pub from: (Time, Box<[u8]>),
    /// One row more than wanted, to learn what comes next.
    pub limit: usize,
    /// What cannot be read of the lane: before `from`, if that is known, or as the scan has met it.
    pub gap: Option<LaneGap>,
}

/// Rows of a lane that a scan has passed over, because they cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneGap {
    /// A position before the first of them, behind all rows before it.
    pub from: (Time, Box<[u8]>),
    /// Where the scan ended, if it met too many gaps to reach its limit or the end of the lane.
    pub ended: Option<(Time, Box<[u8]>)>,
    /// Why they cannot be read.
    pub cause: Box<str>,
}

/// A queued URL found by a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScannedUrl {
    /// Its queue position.
    pub position: QueuePosition,
    /// The URL within the queue.
    pub key: UrlKey,
    /// Its due row.
    pub row: DueRow,
}

/// A URL taken from its queue.
pub(super) struct Taken {
    pub position: QueuePosition,
    pub key: UrlKey,
    pub created: Time,
    pub whole: Option<Box<str>>,
    pub details: Details,
}

impl State {
    /// Moves entries whose time has come to the ready order. Call it before planning.
    pub fn wake(&mut self, now: Time) {
        while let Some(at) = self.schedule.next_due().filter(|at| *at <= now) {
            debug_assert!(at <= now);
            for entry in self.schedule.due(now, crate::limits::SLICE_ROWS) {
                // All entries of a group are rescheduled together, so most are no longer waiting.
                if self.schedule.is_due(entry, now) {
                    self.reschedule(self.schedule.entries[entry].group, now);
                }
            }
        }
    }

    /// Picks up to `most` groups to visit and parks them: the longest ready group of the crawl to be served next.
    pub fn plan_visits(&mut self, want: &Want, most: usize, now: Time) -> Vec<Visit> {
        let mut visits = Vec::new();
        let mut unfit = Vec::new();
        // Only callers that skip queues continue behind what was skipped: all others begin with the group that is ready longest.
        let may_skip = want.held_below.is_some();
        let mut looks = self.schedule.looks(LOOKS_MAX, may_skip);
        while visits.len() < most && looks.left > 0 {
            let Some(entry) = self.next_entry(want, &mut looks) else { break };
            let group = self.schedule.entries[entry].group;
            let visit = self.plan_visit(group, want, now);
            self.park_for(group, want);
            match visit {
                Some(visit) => visits.push(visit),
                None => {
                    // No host of it fits this caller. It stays parked until the end, or it would be found again.
                    unfit.push(group);
                    looks.left = looks.left.saturating_sub(1);
                }
            }
        }
        if may_skip {
            self.schedule.looked(looks, want.crawl);
        }
        for group in unfit {
            self.reschedule(group, now);
        }
        visits
    }

    /// Plans a visit to one host, for its queue of one crawl.
    pub fn plan_host(&mut self, host: &str, want: &Want, now: Time) -> Option<Visit> {
        let host = self.host_ix(host)?;
        let crawl = want.crawl?;
        let group = self.hosts[host].group;
        let opportunity = self.opportunity(group, crawl).filter(|_| !self.is_spent(crawl))?;
        let (due, held) = self.host_opportunity(&self.hosts[host], crawl)?;
        let open = opportunity.at.max(due).max(self.hosts[host].blocked_until()) <= now;
        if !open || self.hosts[host].is_paused() || want.held_below.is_some_and(|most| held >= most) {
            return None;
        }
        let visit = self.visit(group, host, crawl, want, now);
        self.park_for(group, want);
        Some(visit)
    }

    /// Parks every entry that this call could find again.
    fn park_for(&mut self, group: Ix, want: &Want) {
        for entry in &self.groups[group].entries {
            if want.crawl.is_none_or(|crawl| self.schedule.entries[*entry].crawl == crawl) {
                self.schedule.park(*entry);
            }
        }
    }

    fn next_entry(&self, want: &Want, looks: &mut Looks) -> Option<Ix> {
        let bucket_max = want.held_below.map_or(u8::MAX, |most| bucket(most.saturating_sub(1)));
        self.schedule.first((want.crawl, want.bare_hosts), bucket_max, looks, |ix| {
            let entry = &self.schedule.entries[ix];
            let held = || self.opportunity(entry.group, entry.crawl).map_or(u32::MAX, |c| c.held);
            want.held_below.is_some_and(|most| self.schedule.held_most(ix) >= most && held() >= most)
        })
    }

    /// Chooses within a group: the crawl by stride, then the host by its most overdue URL.
    fn plan_visit(&mut self, group: Ix, want: &Want, now: Time) -> Option<Visit> {
        let fits = |entry: &Ix| {
            let crawl = self.schedule.entries[*entry].crawl;
            let wanted = if crawl == CrawlNo::NONE {
                want.bare_hosts && want.crawl.is_none()
            } else {
                want.crawl.is_none_or(|w| w == crawl)
            };
            let may = wanted && self.schedule.is_ready(*entry) && !self.schedule.crawl_order.is_closed(crawl);
            let host = may.then(|| self.choose_host(group, crawl, want, now)).flatten()?;
            Some((self.schedule.entries[*entry].pass, crawl, *entry, host))
        };
        let (_, crawl, entry, host) = self.groups[group].entries.iter().filter_map(fits).min()?;
        self.charge(group, entry, want);
        Some(self.visit(group, host, crawl, want, now))
    }

    /// Advances the virtual time of the crawl served, at this group and in the whole shard. A crawl that was absent
    /// catches up by at most one round.
    fn charge(&mut self, group: Ix, entry: Ix, want: &Want) {
        let crawl = self.schedule.entries[entry].crawl;
        let stride = self.stride(crawl);
        let floor = self.groups[group].pass.saturating_sub(STRIDE);
        let entry = &mut self.schedule.entries[entry];
        entry.pass = entry.pass.max(floor);
        self.groups[group].pass = entry.pass;
        entry.pass += stride;
        if want.crawl.is_none() {
            // A caller who names a crawl does not consume the turn of the others.
            self.schedule.charge(crawl, stride);
        }
    }

    /// How many groups are ready for a crawl, or for the crawl that is next.
    #[must_use]
    pub fn ready_groups(&self, crawl: Option<CrawlNo>) -> usize {
        self.schedule.ready_groups(crawl)
    }

    /// Advances the virtual time of a crawl in the whole shard, for visits planned by its name on behalf of a caller who
    /// named none.
    pub fn charge_visits(&mut self, crawl: CrawlNo, visits: usize) {
        let stride = self.stride(crawl).saturating_mul(visits as u64);
        self.schedule.charge(crawl, stride);
    }

    /// The stride of a crawl.
    fn stride(&self, crawl: CrawlNo) -> u64 {
        STRIDE / u64::from(self.crawl_of(crawl).map_or(1, |c| c.settings.weight).max(1))
    }

    /// Gives precedence to the crawls after the one served last. After a restart only that one is known, and without
    /// this the same crawl would be first every time.
    pub(super) fn resume_order(&mut self, group: Ix) {
        let pace = &self.groups[group].pace;
        if pace.last_end == Time::ZERO {
            return;
        }
        let last = pace.last_crawl;
        for entry in self.groups[group].entries.clone() {
            let crawl = self.schedule.entries[entry].crawl;
            if crawl <= last {
                self.schedule.entries[entry].pass = self.stride(crawl);
            }
        }
    }

    fn choose_host(&self, group: Ix, crawl: CrawlNo, want: &Want, now: Time) -> Option<Ix> {
        let due = |host: &Ix| {
            let place = &self.hosts[*host];
            let (due, held) = self.host_opportunity(place, crawl)?;
            let open = due <= now && place.blocked_until() <= now && !place.is_paused();
            (open && want.held_below.is_none_or(|most| held < most)).then_some((due, *host))
        };
        self.groups[group].hosts().iter().filter_map(due).min().map(|(_, host)| host)
    }

    pub(super) fn visit(&mut self, group: Ix, host: Ix, crawl: CrawlNo, want: &Want, now: Time) -> Visit {
        let place = self.hosts[host].queues.iter().position(|q| q.crawl == crawl);
        let Some(at) = place else { return Visit { group, host, crawl, queue: None, scans: Vec::new() } };
        let queue = self.queue(host, at);
        let id = QueueId { host: self.hosts[host].id, no: queue.no };
        let room = self.room(&self.hosts[host], queue).map_or(want.urls, |room| want.urls.min(room as usize));
        let scan = |lane| {
            let start = queue.scan_from(lane);
            let (from, gap) =
                self.damage.behind_gap(id, lane, &start, now).map_or((start, None), |(at, gap)| (at, Some(gap)));
            LaneScan { queue: id, lane, from, limit: room + 1, gap }
        };
        let scans = if want.urls == 0 { Vec::new() } else { queue.lanes_in_order(now).into_iter().map(scan).collect() };
        let queue = self.queue_mut(host, at);
        queue.visits_mod_ten = (queue.visits_mod_ten + 1) % 10;
        Visit { group, host, crawl, queue: Some(id), scans }
    }

    /// Takes due URLs out of their lanes, as found by the scans of a visit. `found` has one list per scan made.
    pub(super) fn take(&mut self, visit: &Visit, found: Vec<Vec<ScannedUrl>>, most: usize, now: Time) -> Vec<Taken> {
        let mut taken = Vec::new();
        let Some((host, at)) = visit.queue.and_then(|id| self.find_queue(id)) else { return taken };
        let room = self.room(&self.hosts[host], self.queue(host, at));
        let most = room.map_or(most, |room| most.min(room as usize));
        for (scan, rows) in visit.scans.iter().zip(found) {
            // Never all rows of a scan that reached its limit: the next row is where the lane continues.
            let room = (most - taken.len()).min(scan.limit.saturating_sub(1));
            let due = rows.iter().take(room).take_while(|row| row.position.due <= now).count();
            let next = rows.get(due).map(|row| (row.position.due, row.key.0.clone()));
            let next = next.or_else(|| scan.gap.as_ref()?.ended.clone());
            let last = due.checked_sub(1).and_then(|i| rows.get(i)).map(|row| (row.position.due, row.key.0.clone()));
            let was_active = self.queue(host, at).counts().scheduled() > 0;
            let resume = next.clone();
            let borrow = |place: &Option<(Time, Box<[u8]>)>| place.as_ref().map(|(t, k)| (*t, k.to_vec()));
            let (last, next) = (borrow(&last), borrow(&next));
            self.queue_mut(host, at).take_front(
                scan.lane,
                due,
                last.as_ref().map(|(t, k)| (*t, k.as_slice())),
                next.as_ref().map(|(t, k)| (*t, k.as_slice())),
            );
            self.keep_gap((host, at), scan, resume, now);
            // Even if nothing is taken: the scan cursor has advanced.
            self.touch_queue(host, at);
            for row in rows.into_iter().take(due) {
                self.shift(host, at, Some(UrlState::Queued), Some(UrlState::Reserved));
                let ScannedUrl { position, key, row: DueRow { created, whole, details } } = row;
                taken.push(Taken { position, key, created, whole, details });
            }
            self.recount_active(host, at, was_active);
        }
        taken
    }
}
