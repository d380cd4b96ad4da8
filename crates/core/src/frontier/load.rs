//! Builds the hot state from its rows when a shard is opened.

use super::row::{AliasRow, CrawlRow, HostPart, HostRow, HotRow, LeaseRow, ShardRow};
use super::state::{State, boxed};
use crate::ids::{CrawlNo, GroupId, HostId, ShardId};
use crate::names::{Alias, HostName};
use crate::time::{Millis, Time};

/// Collects hot rows; a later row replaces an earlier one with the same key.
#[derive(Default)]
pub struct Loader {
    shard: ShardRow,
    crawls: hashbrown::HashMap<CrawlNo, CrawlRow>,
    aliases: hashbrown::HashMap<GroupId, AliasRow>,
    /// In order of arrival, which is mostly the order of ids; `None` in place of a removed host.
    hosts: Vec<Option<HostRow>>,
    host_at: hashbrown::HashMap<HostId, usize>,
    host_aliases: hashbrown::HashMap<HostName, Alias>,
    clock_step: Millis,
}

impl Loader {
    /// For a state whose clock has this resolution; zero for an exact clock.
    #[must_use]
    pub fn new(clock_step: Millis) -> Self {
        Self { clock_step, ..Self::default() }
    }

    /// Adds a row.
    pub fn take(&mut self, row: HotRow) {
        match row {
            HotRow::Shard(row) => self.shard = row,
            HotRow::Crawl(row) => _ = self.crawls.insert(row.no, row),
            HotRow::CrawlGone(no) => _ = self.crawls.remove(&no),
            HotRow::Alias(row) => _ = self.aliases.insert(row.id, row),
            HotRow::AliasGone(id) => _ = self.aliases.remove(&id),
            HotRow::Host(row) => self.take_host(row),
            HotRow::HostGone(id) => self.host_at.remove(&id).into_iter().for_each(|at| self.set_host(at, None)),
            HotRow::HostAlias { host, alias: Some(alias) } => _ = self.host_aliases.insert(host, alias),
            HotRow::HostAlias { host, alias: None } => _ = self.host_aliases.remove(&host),
        }
    }

    fn take_host(&mut self, row: HostRow) {
        let next = self.hosts.len();
        match *self.host_at.entry(row.id).or_insert(next) {
            at if at == next => self.hosts.push(Some(row)),
            at => self.set_host(at, Some(row)),
        }
    }

    fn set_host(&mut self, at: usize, row: Option<HostRow>) {
        if let Some(place) = self.hosts.get_mut(at) {
            *place = row;
        }
    }

    /// Applies a partial update of a host's row. False if there is no such host.
    pub fn take_part(&mut self, part: HostPart) -> bool {
        let at = self.host_at.get(&part.id);
        let Some(Some(row)) = at.and_then(|at| self.hosts.get_mut(*at)) else { return false };
        row.take_part(part);
        true
    }

    /// The state of the shard at `now`. Holds of the paced form stay in the engine; the first sweep finds the earliest
    /// one.
    #[must_use]
    pub fn finish(self, shard: ShardId, leases: Vec<LeaseRow>, now: Time) -> State {
        let (shard_row, clock_step) = (self.shard, self.clock_step);
        let mut state = State { shard_row, clock_step, next_hold: Time::ZERO, ..State::new(shard) };
        let mut crawls: Vec<CrawlRow> = self.crawls.into_values().collect();
        crawls.sort_unstable_by_key(|row| row.no);
        crawls.into_iter().for_each(|row| state.insert_crawl(row));
        let mut aliases: Vec<AliasRow> = self.aliases.into_values().collect();
        aliases.sort_unstable_by_key(|row| row.id);
        let mut groups = hashbrown::HashMap::new();
        for row in aliases {
            let ix = state.insert_group(row.id, row.name, row.pace);
            state.groups[ix].settings = boxed(row.settings);
            groups.insert(row.id, ix);
        }
        drop(self.host_at);
        let mut hosts = self.hosts;
        hosts.sort_by_key(|row| row.as_ref().map(|row| row.id));
        state.reserve_hosts(hosts.len());
        for row in hosts.into_iter().flatten() {
            let group = row.group.and_then(|id| groups.get(&id).copied());
            state.insert_host(row, group);
        }
        state.moved = self.host_aliases.into_iter().collect();
        leases.into_iter().for_each(|lease| state.insert_lease(lease));
        // A queue that was deleted while reserved is not counted.
        let known = |lease: &&LeaseRow| lease.queue().is_some_and(|queue| state.find_queue(queue).is_some());
        let leased: u64 = state.leases.values().filter(known).map(LeaseRow::reserved).sum();
        state.holds = state.totals.reserved.saturating_sub(leased);
        for group in state.groups.numbers() {
            state.resume_order(group);
        }
        state.reschedule_all(now);
        state
    }
}
