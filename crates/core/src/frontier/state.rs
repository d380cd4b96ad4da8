//! The hot state of one shard: hosts, groups, crawls, reservations and their schedule. All of it is rebuilt from rows
//! when the shard is opened; URLs are not part of it.

use std::collections::BTreeSet;

use hashbrown::HashMap;

use super::changes::{Changed, Touched};
use super::damage::Damage;
use super::deleted::Deleted;
use super::hosts::Hosts;
use super::listing::LeaseCursor;
use super::requested::Requests;
use super::row::{CrawlRow, HostRef, HostRow, HotRow, LeaseRow, Pace, QueueRow, ShardRow};
use super::schedule::Schedule;
use super::slab::{Ix, Slab};
use super::view::{Counts, UrlState};
use crate::ids::{CrawlNo, GroupId, HostId, QueueId, ShardId, Token};
use crate::names::{Alias, CrawlName, HostName};
use crate::settings::{CrawlSettings, PaceSettings};
use crate::time::{Millis, Time};

pub(super) struct Host {
    pub id: HostId,
    pub name: HostName,
    pub group: Ix,
    pub settings: Option<Box<PaceSettings>>,
    pub robots_delay: Millis,
    /// [`Time::NEVER`] if the host itself is not queued.
    pub queued_at: Time,
    pub next_queue: u32,
    pub queues: Vec<QueueRow>,
    pub touched: Touched,
}

pub(super) enum Grouping {
    One(Ix),
    /// Boxed, because most groups have a single host.
    Many(Box<Together>),
}

/// Hosts that share an alias.
pub(super) struct Together {
    pub id: GroupId,
    pub alias: Alias,
    pub hosts: Vec<Ix>,
    pub dirty: bool,
}

pub(super) struct Group {
    pub grouping: Grouping,
    /// Settings of the alias; a single host carries its own.
    pub settings: Option<Box<PaceSettings>>,
    pub pace: Pace,
    pub leases: Vec<Token>,
    pub entries: Vec<Ix>,
    /// Virtual time of the crawl served last.
    pub pass: u64,
}

pub(super) struct Crawl {
    pub name: CrawlName,
    pub settings: CrawlSettings,
    pub kept: bool,
    pub version: u64,
    /// The counts of other shards, as last reported, and how many hosts of it they have.
    pub elsewhere: Counts,
    pub hosts_elsewhere: u64,
    /// Pages of its limit that other shards have used or may currently use.
    pub used_elsewhere: u64,
    pub counts: Counts,
    /// Pages of all its queues; a revisited page counts again.
    pub pages: u64,
    pub queues: u64,
    pub active_queues: u64,
}

/// The pace in the row of a host that belongs to an alias.
static NO_PACE: Pace = Pace {
    last_end: Time::ZERO,
    last_duration: Millis(0),
    last_crawl: CrawlNo(0),
    backoff_until: Time::ZERO,
    backoff_count: 0,
    backoff_status: 0,
    asked_by: None,
    not_before: Time::ZERO,
};

/// Room left for new hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRoom {
    /// How many more may be created.
    pub left: u64,
    /// The limit it is part of.
    pub limit: u64,
}

/// The hot state of one shard.
#[derive(Default)]
pub struct State {
    pub(super) shard: ShardId,
    pub(super) shard_row: ShardRow,
    pub(super) hosts: Hosts,
    pub(super) groups: Slab<Group>,
    pub(super) group_by_alias: std::collections::BTreeMap<Alias, Ix>,
    pub(super) crawls: std::collections::BTreeMap<CrawlNo, Crawl>,
    pub(super) crawl_by_name: HashMap<CrawlName, CrawlNo>,
    /// Crawls with a limit over all shards.
    pub(super) limited: BTreeSet<CrawlNo>,
    /// Those whose counts or limits changed, or that are gone, since the last call.
    pub(super) limits_changed: BTreeSet<CrawlNo>,
    /// Crawls that came (`true`) or went since the last call.
    pub(super) crawls_changed: Vec<(CrawlName, bool)>,
    /// The same names in order, for listings; puts look up names too often for a tree.
    pub(super) crawl_names: BTreeSet<CrawlName>,
    pub(super) leases: HashMap<Token, LeaseRow>,
    pub(super) lease_ends: BTreeSet<(Time, Token)>,
    /// Links of chunks whose visits have ended, by host. Their URLs are reserved, their groups are not.
    pub(super) idle_links: HashMap<HostId, Vec<Token>>,
    /// In listing order, which renewals do not change.
    pub(super) lease_order: BTreeSet<(LeaseCursor, Token)>,
    /// Reservations by idempotent request.
    pub(super) requests: Requests,
    /// Hosts homed here that live with an alias elsewhere.
    pub(super) moved: std::collections::BTreeMap<HostName, Alias>,
    pub(super) schedule: Schedule,
    pub(super) deleted: Deleted,
    pub(super) damage: Damage,
    /// Hosts whose last queue was deleted during a visit, by when they are looked at; [`Time::NEVER`] while visits
    /// are in progress.
    pub(super) vacant: BTreeSet<(Time, HostId)>,
    /// Crawls that may have been finished: nothing of them is handed out any more, or they changed otherwise.
    pub(super) settled: Vec<CrawlName>,
    /// Clock resolution: two times are up to this much closer than they appear.
    pub(super) clock_step: Millis,
    /// Maximum computed back-off, if set.
    pub(super) backoff_max: Option<Millis>,
    /// Lower bound of the deadlines of all holds.
    pub(super) next_hold: Time,
    pub(super) holds: u64,
    /// How many more hosts puts may create here, if limited.
    pub(super) host_room: Option<HostRoom>,
    pub(super) totals: Counts,
    /// Queues of all crawls.
    pub(super) queues: u64,
    pub(super) changed: Changed,
}

impl Group {
    pub fn hosts(&self) -> &[Ix] {
        match &self.grouping {
            Grouping::One(host) => std::slice::from_ref(host),
            Grouping::Many(together) => &together.hosts,
        }
    }

    pub fn alias(&self) -> Option<&Alias> {
        match &self.grouping {
            Grouping::One(_) => None,
            Grouping::Many(together) => Some(&together.alias),
        }
    }

    pub fn new(grouping: Grouping, pace: Pace) -> Self {
        Self { grouping, settings: None, pace, leases: Vec::new(), entries: Vec::new(), pass: 0 }
    }
}

pub(super) fn boxed(settings: PaceSettings) -> Option<Box<PaceSettings>> {
    (!settings.is_empty()).then(|| Box::new(settings))
}

impl State {
    /// The empty state of a shard.
    #[must_use]
    pub fn new(shard: ShardId) -> Self {
        Self { shard, hosts: Hosts::of(shard), next_hold: Time::NEVER, ..Self::default() }
    }

    /// The shard.
    #[must_use]
    pub const fn shard(&self) -> ShardId {
        self.shard
    }

    /// The shard's own row.
    #[must_use]
    pub const fn shard_row(&self) -> &ShardRow {
        &self.shard_row
    }

    /// The alias that a host homed here lives with.
    #[must_use]
    pub fn moved_to(&self, host: &str) -> Option<&Alias> {
        self.moved.get(host)
    }

    /// All hosts homed here that live with an alias.
    pub fn moved(&self) -> impl Iterator<Item = (&HostName, &Alias)> {
        self.moved.iter()
    }

    pub(super) fn host_ix(&self, name: &str) -> Option<Ix> {
        self.hosts.by_name(name)
    }

    /// The id of a host.
    #[must_use]
    pub fn host_id(&self, name: &str) -> Option<HostId> {
        self.host_ix(name).map(|ix| self.hosts[ix].id)
    }

    /// The queue of a crawl at a host.
    #[must_use]
    pub fn queue_id(&self, host: &str, crawl: &str) -> Option<QueueId> {
        let no = *self.crawl_by_name.get(crawl)?;
        let host = &self.hosts[self.host_ix(host)?];
        host.queues.iter().find(|q| q.crawl == no).map(|q| QueueId { host: host.id, no: q.no })
    }

    /// Host index and queue index of a queue.
    pub(super) fn find_queue(&self, id: QueueId) -> Option<(Ix, usize)> {
        let host = self.hosts.by_id(id.host)?;
        let at = self.hosts[host].queues.iter().position(|q| q.no == id.no)?;
        Some((host, at))
    }

    pub(super) fn queue(&self, host: Ix, at: usize) -> &QueueRow {
        #[expect(clippy::indexing_slicing, reason = "a queue's place comes from find_queue or ensure_queue")]
        &self.hosts[host].queues[at]
    }

    pub(super) fn queue_mut(&mut self, host: Ix, at: usize) -> &mut QueueRow {
        #[expect(clippy::indexing_slicing, reason = "a queue's place comes from find_queue or ensure_queue")]
        &mut self.hosts[host].queues[at]
    }

    pub(super) fn crawl_of(&self, no: CrawlNo) -> Option<&Crawl> {
        self.crawls.get(&no)
    }

    /// Reserves capacity for this many hosts, each a group of its own.
    pub(super) fn reserve_hosts(&mut self, more: usize) {
        self.hosts.reserve(more);
        self.groups.reserve(more);
    }

    pub(super) fn ensure_host(&mut self, name: &HostName) -> Ix {
        if let Some(ix) = self.host_ix(name) {
            return ix;
        }
        if let Some(room) = &mut self.host_room {
            room.left = room.left.saturating_sub(1);
        }
        let id = HostId::new(self.shard, self.shard_row.next_host);
        self.shard_row.next_host += 1;
        self.changed.shard = true;
        let ix = self.insert_host(HostRow::new(id, name.clone()), None);
        self.touch_host(ix);
        ix
    }

    /// Adds a host, as a group of its own or to `group`.
    pub(super) fn insert_host(&mut self, row: HostRow, group: Option<Ix>) -> Ix {
        let host = Host {
            id: row.id,
            name: row.name,
            group: 0,
            settings: boxed(row.settings),
            robots_delay: row.robots_delay,
            queued_at: row.queued_at.unwrap_or(Time::NEVER),
            next_queue: row.next_queue,
            queues: Vec::new(),
            touched: Touched::Nothing,
        };
        let ix = self.hosts.insert(host);
        let group = group.unwrap_or_else(|| self.groups.insert(Group::new(Grouping::One(ix), row.pace)));
        self.hosts[ix].group = group;
        if let Grouping::Many(together) = &mut self.groups[group].grouping {
            together.hosts.push(ix);
        }
        for queue in row.queues {
            self.insert_queue(ix, queue);
        }
        if self.hosts[ix].queued_at != Time::NEVER {
            self.ensure_entry(group, CrawlNo::NONE);
        }
        ix
    }

    /// Adds a queue and its counts.
    pub(super) fn insert_queue(&mut self, host: Ix, queue: QueueRow) {
        let counts = queue.counts();
        let crawl = queue.crawl;
        self.totals.add(&counts);
        self.note_limited(crawl);
        if let Some(crawl) = self.crawls.get_mut(&crawl) {
            self.queues += 1;
            crawl.counts.add(&counts);
            crawl.pages += u64::from(queue.pages);
            crawl.queues += 1;
            crawl.active_queues += u64::from(counts.scheduled() > 0);
        }
        self.follow_limit(crawl);
        let group = self.hosts[host].group;
        self.hosts[host].queues.reserve_exact(1);
        self.hosts[host].queues.push(queue);
        self.ensure_entry(group, crawl);
    }

    /// Subtracts a queue from every count: it is deleted, or leaves with its host.
    pub(super) fn discount(&mut self, queue: &QueueRow) {
        let counts = queue.counts();
        self.totals.subtract(&counts);
        self.note_limited(queue.crawl);
        if let Some(crawl) = self.crawls.get_mut(&queue.crawl) {
            self.queues = self.queues.saturating_sub(1);
            crawl.counts.subtract(&counts);
            crawl.pages = crawl.pages.saturating_sub(u64::from(queue.pages));
            crawl.queues = crawl.queues.saturating_sub(1);
            crawl.active_queues = crawl.active_queues.saturating_sub(u64::from(counts.scheduled() > 0));
        }
        self.follow_limit(queue.crawl);
    }

    pub(super) fn ensure_entry(&mut self, group: Ix, crawl: CrawlNo) -> Ix {
        let found = self.groups[group].entries.iter().copied().find(|s| self.schedule.entries[*s].crawl == crawl);
        found.unwrap_or_else(|| {
            let pass = self.groups[group].pass;
            let entry = self.schedule.add(group, crawl, pass);
            let entries = &mut self.groups[group].entries;
            entries.reserve_exact(1);
            entries.push(entry);
            entry
        })
    }

    /// The number of a crawl, assigned if the crawl is new.
    pub(super) fn ensure_crawl(&mut self, name: &CrawlName) -> CrawlNo {
        if let Some(no) = self.crawl_by_name.get(name) {
            return *no;
        }
        let no = CrawlNo(self.shard_row.next_crawl);
        self.shard_row.next_crawl += 1;
        self.changed.shard = true;
        let row = CrawlRow { no, name: name.clone(), settings: CrawlSettings::default(), kept: false, version: 0 };
        self.changed.others.push(HotRow::Crawl(row.clone()));
        self.insert_crawl(row);
        no
    }

    pub(super) fn insert_crawl(&mut self, row: CrawlRow) {
        self.crawl_by_name.insert(row.name.clone(), row.no);
        self.crawl_names.insert(row.name.clone());
        self.crawls_changed.push((row.name.clone(), true));
        let crawl = Crawl {
            name: row.name,
            settings: row.settings,
            kept: row.kept,
            version: row.version,
            elsewhere: Counts::default(),
            hosts_elsewhere: 0,
            used_elsewhere: 0,
            counts: Counts::default(),
            pages: 0,
            queues: 0,
            active_queues: 0,
        };
        self.crawls.insert(row.no, crawl);
        self.note_limits(row.no);
    }

    /// The index of the queue of a crawl at a host, created if necessary.
    pub(super) fn ensure_queue(&mut self, host: Ix, crawl: CrawlNo) -> usize {
        if let Some(at) = self.hosts[host].queues.iter().position(|q| q.crawl == crawl) {
            return at;
        }
        let no = self.hosts[host].next_queue;
        self.hosts[host].next_queue = no.wrapping_add(1);
        self.insert_queue(host, QueueRow::new(no, crawl));
        self.touch_host(host);
        self.hosts[host].queues.len() - 1
    }

    /// Moves one URL of a queue from one state to another in every count except those of the lanes.
    pub(super) fn shift(&mut self, host: Ix, at: usize, from: Option<UrlState>, to: Option<UrlState>) {
        let queue = self.queue_mut(host, at);
        let crawl = queue.crawl;
        if let Some(counter) = from.and_then(|s| queue.counter(s)) {
            *counter = counter.saturating_sub(1);
        }
        if let Some(counter) = to.and_then(|s| queue.counter(s)) {
            *counter += 1;
        }
        // Lanes are updated before or after this call. A queue is active if it has URLs that will be served again.
        shift_counts(&mut self.totals, from, to);
        self.note_limited(crawl);
        if let Some(row) = self.crawls.get_mut(&crawl) {
            shift_counts(&mut row.counts, from, to);
            let left = matches!(from, Some(UrlState::Queued | UrlState::Reserved));
            if left && row.counts.reserved == 0 && self.settled.last() != Some(&row.name) {
                self.settled.push(row.name.clone());
            }
            if row.settings.limits.pages.is_some() {
                self.follow_limit(crawl);
            }
        }
        self.touch_queue(host, at);
    }

    /// The crawls that came (`true`) or went since the last call, in order.
    pub fn take_crawls_changed(&mut self) -> Vec<(CrawlName, bool)> {
        std::mem::take(&mut self.crawls_changed)
    }

    /// The crawls that may have been finished since the last call. False positives are harmless.
    pub fn take_settled(&mut self) -> Vec<CrawlName> {
        std::mem::take(&mut self.settled)
    }

    /// Maintains the count of active queues around a change to one queue.
    pub(super) fn recount_active(&mut self, host: Ix, at: usize, was_active: bool) {
        let queue = self.queue(host, at);
        let (crawl, active) = (queue.crawl, queue.counts().scheduled() > 0);
        if let Some(crawl) = self.crawls.get_mut(&crawl) {
            match (was_active, active) {
                (false, true) => crawl.active_queues += 1,
                (true, false) => crawl.active_queues = crawl.active_queues.saturating_sub(1),
                _ => {}
            }
        }
    }

    /// The row of a host.
    #[must_use]
    pub fn host_by_id(&self, id: HostId) -> Option<HostRef<'_>> {
        self.hosts.by_id(id).map(|ix| self.host_ref(ix))
    }

    /// A host as an owned row.
    pub(super) fn row_of_host(&self, ix: Ix) -> HostRow {
        self.host_ref(ix).to_row()
    }

    pub(super) fn host_ref(&self, ix: Ix) -> HostRef<'_> {
        let host = &self.hosts[ix];
        let group = &self.groups[host.group];
        let (id, pace) = match &group.grouping {
            Grouping::One(_) => (None, &group.pace),
            Grouping::Many(together) => (Some(together.id), &NO_PACE),
        };
        HostRef {
            id: host.id,
            name: &host.name,
            group: id,
            settings: host.settings.as_deref().copied().unwrap_or_default(),
            robots_delay: host.robots_delay,
            queued_at: (host.queued_at != Time::NEVER).then_some(host.queued_at),
            next_queue: host.next_queue,
            pace,
            queues: &host.queues,
        }
    }
}

fn shift_counts(counts: &mut Counts, from: Option<UrlState>, to: Option<UrlState>) {
    let place = |counts: &mut Counts, state: UrlState, up: bool| {
        let n = match state {
            UrlState::Queued => &mut counts.queued,
            UrlState::Reserved => &mut counts.reserved,
            UrlState::Fetched => &mut counts.fetched,
            UrlState::Gone => &mut counts.gone,
            UrlState::Failed => &mut counts.failed,
        };
        *n = if up { *n + 1 } else { n.saturating_sub(1) };
    };
    if let Some(state) = from {
        place(counts, state, false);
    }
    if let Some(state) = to {
        place(counts, state, true);
    }
}
