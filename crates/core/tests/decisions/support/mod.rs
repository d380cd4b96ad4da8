//! A shard for tests: the state, and a store of rows made of maps.

pub mod model;

use std::collections::{BTreeMap, BTreeSet};

use wayleave_core::frontier::State;
use wayleave_core::frontier::changes::ChangedHost;
use wayleave_core::frontier::load::Loader;
use wayleave_core::frontier::put::Target;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{Put, PutOutcome, Release, Released, Reservation, UrlToFetch};
use wayleave_core::frontier::requeue::{BulkAction, BulkOutcome, Known};
use wayleave_core::frontier::reserve::Grant;
use wayleave_core::frontier::row::{Details, DueRow, HotRow, LeaseRow, QueuePosition, UrlRow, UrlStatus, Write};
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::frontier::view::UrlView;
use wayleave_core::frontier::visit::{ScannedUrl, Visit, Want};
use wayleave_core::ids::{QueueId, ShardId, Token};
use wayleave_core::limits::DAMAGED_RETRY_MIN;
use wayleave_core::names::{Alias, CrawlName, HostName};
use wayleave_core::time::{Millis, Time};

/// Rows by their keys.
#[derive(Default)]
pub struct Store {
    pub urls: BTreeMap<(QueueId, UrlKey), UrlRow>,
    pub dues: BTreeMap<(QueueId, QueuePosition, UrlKey), DueRow>,
    pub holds: BTreeSet<(Time, QueueId, UrlKey)>,
    pub leases: BTreeMap<Token, LeaseRow>,
    pub jobs: BTreeSet<QueueId>,
    pub hot: BTreeMap<String, HotRow>,
}

impl Store {
    fn apply(&mut self, write: &Write) {
        match write.clone() {
            Write::Url(queue, key, Some(row)) => _ = self.urls.insert((queue, key), row),
            Write::Url(queue, key, None) => _ = self.urls.remove(&(queue, key)),
            Write::Due(queue, position, key, Some(row)) => _ = self.dues.insert((queue, position, key), row),
            Write::Due(queue, position, key, None) => _ = self.dues.remove(&(queue, position, key)),
            Write::Hold(until, queue, key, true) => _ = self.holds.insert((until, queue, key)),
            Write::Hold(until, queue, key, false) => _ = self.holds.remove(&(until, queue, key)),
            Write::Lease(token, Some(row)) => _ = self.leases.insert(token, row),
            Write::Lease(token, None) => _ = self.leases.remove(&token),
            Write::DeletedQueue(queue, true) => _ = self.jobs.insert(queue),
            Write::DeletedQueue(queue, false) => _ = self.jobs.remove(&queue),
            // Jobs belong to the owner; the core only builds their rows.
            Write::BulkJob(..) => {}
        }
    }

    /// The row of a changed host, rebuilt from partial updates only.
    fn host_row(&self, host: ChangedHost<'_>) -> HotRow {
        match host {
            ChangedHost::Whole(row) => HotRow::Host(row.to_row()),
            ChangedHost::Part(part) => {
                let Some(HotRow::Host(mut row)) = self.hot.get(&format!("3 {:?}", part.id)).cloned() else {
                    panic!("a part of an unknown host: {part:?}");
                };
                row.take_part(part.to_part());
                HotRow::Host(row)
            }
        }
    }

    fn apply_hot(&mut self, row: HotRow) {
        let key = match &row {
            HotRow::Shard(_) => "0".to_owned(),
            HotRow::Crawl(row) => format!("1 {:?}", row.no),
            HotRow::CrawlGone(no) => format!("1 {no:?}"),
            HotRow::Alias(row) => format!("2 {:?}", row.id),
            HotRow::AliasGone(id) => format!("2 {id:?}"),
            HotRow::Host(row) => format!("3 {:?}", row.id),
            HotRow::HostGone(id) => format!("3 {id:?}"),
            HotRow::HostAlias { host, .. } => format!("4 {host}"),
        };
        let gone = matches!(
            row,
            HotRow::CrawlGone(_) | HotRow::AliasGone(_) | HotRow::HostGone(_) | HotRow::HostAlias { alias: None, .. }
        );
        if gone {
            self.hot.remove(&key);
        } else {
            self.hot.insert(key, row);
        }
    }
}

/// A shard.
pub struct Shard {
    pub state: State,
    pub store: Store,
    pub now: Time,
    pub draws: u128,
    /// Clock resolution; takes effect with the next reload.
    pub clock_step: Millis,
    /// What the last commands wrote.
    pub written: Vec<Write>,
    pub changed: Vec<HotRow>,
}

impl Shard {
    pub fn new(now: u64) -> Self {
        let state = State::new(ShardId(0));
        Self {
            state,
            store: Store::default(),
            now: Time(now),
            draws: 0,
            clock_step: Millis(0),
            written: Vec::new(),
            changed: Vec::new(),
        }
    }

    pub fn commit(&mut self, writes: Vec<Write>) {
        writes.iter().for_each(|write| self.store.apply(write));
        self.written.extend(writes);
        let rows = self.state.take_changes();
        rows.rows.iter().for_each(|row| self.store.apply_hot(row.clone()));
        let hosts: Vec<HotRow> = self.state.changed_hosts(&rows).map(|host| self.store.host_row(host)).collect();
        hosts.iter().for_each(|row| self.store.apply_hot(row.clone()));
        self.changed.extend(rows.rows.into_iter().chain(hosts));
    }

    /// Drops the state and reloads the rows.
    pub fn reload(&mut self) {
        let mut loader = Loader::new(self.clock_step);
        self.store.hot.values().for_each(|row| loader.take(row.clone()));
        self.state = loader.finish(ShardId(0), self.store.leases.values().cloned().collect(), self.now);
        self.sweep();
    }

    fn row(&self, queue: QueueId, key: &UrlKey) -> Option<UrlRow> {
        self.store.urls.get(&(queue, key.clone())).cloned()
    }

    fn waiting(&self, queue: QueueId, key: &UrlKey, row: &UrlRow) -> Option<Details> {
        let UrlStatus::Queued(position) = &row.status else { return None };
        self.store.dues.get(&(queue, *position, key.clone())).map(|row| row.details.clone())
    }

    /// Requeues or deletes all URLs of a queue.
    pub fn rework(&mut self, host: &str, crawl: &str, what: BulkAction) -> BulkOutcome {
        let Some(queue) = self.state.queue_id(host, crawl) else { return BulkOutcome::default() };
        let rows = self.store.urls.iter().filter(|((id, _), _)| *id == queue);
        let known = |((_, key), row): (&(QueueId, UrlKey), &UrlRow)| Known {
            waiting: self.waiting(queue, key, row),
            key: key.clone(),
            row: row.clone(),
        };
        let urls: Vec<Known> = rows.map(known).collect();
        let mut writes = Vec::new();
        let outcome = self.state.rework(queue, urls, what, self.now, &mut writes);
        self.commit(writes);
        outcome
    }

    pub fn revoke(&mut self, token: Token) -> bool {
        let rows = self.state.release_targets(token, self.now).map(|targets| self.rows(&targets)).unwrap_or_default();
        let mut writes = Vec::new();
        let ended = self.state.revoke(token, rows, self.now, &mut writes);
        self.commit(writes);
        ended
    }

    pub fn rows(&self, urls: &[(QueueId, UrlKey)]) -> Vec<Option<UrlRow>> {
        urls.iter().map(|(queue, key)| self.row(*queue, key)).collect()
    }

    pub fn put(&mut self, put: Put) -> PutOutcome {
        self.put_all(vec![put]).remove(0)
    }

    /// Puts of distinct URLs decided in one batch: everything is looked up before the first is decided.
    pub fn put_all(&mut self, puts: Vec<Put>) -> Vec<PutOutcome> {
        let mut targets = self.state.put_targets(puts.iter());
        let row = |target: &Target| target.queue.and_then(|queue| self.row(queue, &target.key));
        let found: Vec<Option<UrlRow>> = targets.iter().map(row).collect();
        for (target, row) in targets.iter_mut().zip(&found) {
            target.waiting =
                target.queue.zip(row.as_ref()).and_then(|(queue, row)| self.waiting(queue, &target.key, row));
        }
        let mut writes = Vec::new();
        let decide = |((put, target), found)| self.state.put(put, target, found, self.now, &mut writes);
        let outcomes = puts.into_iter().zip(targets).zip(found).map(decide).collect();
        self.commit(writes);
        outcomes
    }

    /// The results of a visit's scans.
    pub fn fronts(&self, visit: &Visit, most: usize) -> Vec<Vec<ScannedUrl>> {
        let mut fronts: Vec<Vec<ScannedUrl>> = Vec::new();
        for (i, scan) in visit.scans.iter().enumerate() {
            if i > 0 && fronts.iter().map(Vec::len).sum::<usize>() >= most {
                break;
            }
            let from = (scan.queue, QueuePosition { lane: scan.lane, due: scan.from.0 }, UrlKey(scan.from.1.clone()));
            let rows = self.store.dues.range(from..);
            let rows = rows.take_while(|((queue, position, _), _)| *queue == scan.queue && position.lane == scan.lane);
            let found = |((_, position, key), row): (&(QueueId, QueuePosition, UrlKey), &DueRow)| ScannedUrl {
                position: *position,
                key: key.clone(),
                row: row.clone(),
            };
            fronts.push(rows.take(scan.limit).map(found).collect());
        }
        fronts
    }

    fn want(&self, crawl: Option<&str>, urls: usize, held_below: Option<u32>, bare_hosts: bool) -> Option<Want> {
        let crawl = match crawl {
            Some(name) => Some(self.state.crawl_no(name)?),
            None => None,
        };
        Some(Want { crawl, urls, held_below, bare_hosts: bare_hosts && crawl.is_none() })
    }

    pub fn reserve(&mut self, groups: usize, urls: usize, crawl: Option<&str>, lease: u64) -> Vec<Reservation> {
        self.state.wake(self.now);
        let Some(want) = self.want(crawl, urls, None, true) else { return Vec::new() };
        let mut granted = Vec::new();
        while granted.len() < groups {
            let visits = self.state.plan_visits(&want, groups - granted.len(), self.now);
            if visits.is_empty() {
                break;
            }
            let mut writes = Vec::new();
            for visit in &visits {
                self.draws += 1;
                let grant = Grant {
                    holder: "worker".into(),
                    urls,
                    lease: Millis(lease),
                    entropy: self.draws,
                    request: None,
                    chunk: None,
                };
                let found = self.fronts(visit, urls);
                granted.extend(self.state.reserve(visit, found, &grant, self.now, &mut writes));
            }
            self.commit(writes);
        }
        granted
    }

    pub fn hand_out(&mut self, queues: usize, urls: usize, crawl: Option<&str>, hold: u64) -> Vec<UrlToFetch> {
        let Some(want) = self.want(crawl, urls, Some(urls as u32), false) else { return Vec::new() };
        self.hand_out_as(&want, queues, urls, hold)
    }

    /// The same for any crawl, with any number on hold.
    pub fn hand_out_uncapped(&mut self, queues: usize, urls: usize) -> Vec<UrlToFetch> {
        let want = Want { crawl: None, urls, held_below: None, bare_hosts: false };
        self.hand_out_as(&want, queues, urls, 1_000_000)
    }

    fn hand_out_as(&mut self, want: &Want, queues: usize, urls: usize, hold: u64) -> Vec<UrlToFetch> {
        self.state.wake(self.now);
        let (mut out, mut left) = (Vec::new(), queues);
        while left > 0 {
            let visits = self.state.plan_visits(want, left, self.now);
            if visits.is_empty() {
                break;
            }
            let mut writes = Vec::new();
            for visit in &visits {
                let found = self.fronts(visit, urls);
                let more = self.state.hand_out(visit, found, (urls, Millis(hold)), self.now, &mut writes);
                left -= usize::from(!more.is_empty());
                out.extend(more);
            }
            self.commit(writes);
        }
        out
    }

    pub fn renew(&mut self, token: Token, lease: u64) -> Result<Time, Refusal> {
        let mut writes = Vec::new();
        let answer = self.state.renew(token, Millis(lease), self.now, &mut writes);
        self.commit(writes);
        answer
    }

    pub fn release(&mut self, release: &Release) -> Result<Released, Refusal> {
        let targets = self.state.release_targets(release.token, self.now)?;
        let rows = self.rows(&targets);
        let mut writes = Vec::new();
        let answer = self.state.release(release, rows, self.now, 0, &mut writes);
        self.commit(writes);
        answer
    }

    /// Returns what has expired.
    pub fn sweep(&mut self) {
        self.state.wake(self.now);
        let mut writes = Vec::new();
        for (token, urls) in self.state.expired_leases(self.now, 1_000) {
            let rows = self.rows(&urls);
            self.state.expire_lease(token, rows, self.now, &mut writes);
        }
        self.commit(writes);
        if self.state.next_hold() <= self.now {
            self.sweep_holds();
        }
    }

    fn sweep_holds(&mut self) {
        let lying = self.store.holds.iter().cloned();
        let (over, ahead): (Vec<_>, Vec<_>) = lying.partition(|(until, ..)| *until <= self.now);
        let mut writes = Vec::new();
        for hold in over {
            let row = self.row(hold.1, &hold.2);
            self.state.expire_hold(hold, row, (DAMAGED_RETRY_MIN, self.now), &mut writes);
        }
        self.state.set_next_hold(ahead.first().map_or(Time::NEVER, |(until, ..)| *until));
        self.commit(writes);
    }

    pub fn delete_queue(&mut self, host: &HostName, crawl: &CrawlName) -> u64 {
        let mut writes = Vec::new();
        let count = self.state.delete_queue(host, crawl, self.now, &mut writes);
        self.commit(writes);
        count
    }

    pub fn delete_crawl(&mut self, crawl: &CrawlName) -> u64 {
        let mut writes = Vec::new();
        let count =
            self.state.delete_crawl(crawl, Time(self.state.next_version(crawl, self.now)), self.now, &mut writes);
        self.commit(writes);
        count
    }

    /// Removes the rows of deleted queues.
    pub fn run_jobs(&mut self) {
        for queue in std::mem::take(&mut self.store.jobs) {
            self.store.urls.retain(|(id, _), _| *id != queue);
            self.store.dues.retain(|(id, ..), _| *id != queue);
        }
    }

    /// Moves hosts into an alias, or out of theirs.
    pub fn move_hosts(&mut self, hosts: &[HostName], alias: Option<&Alias>) {
        let mut writes = Vec::new();
        for host in hosts {
            let id = self.state.has_holds(host);
            let holds = self.store.holds.iter().filter(|(_, queue, _)| Some(queue.host) == id).cloned().collect();
            let moving = self.state.export(host, holds, self.now, &mut writes);
            self.state.set_moved(host, alias);
            self.state.adopt(moving, alias, self.now, &mut writes);
        }
        self.commit(writes);
    }

    pub fn lookup(&self, crawl: &str, host: &str, url: &str) -> Option<UrlView> {
        let queue = self.state.queue_id(host, crawl)?;
        let key = UrlKey::new(host, url);
        let row = self.row(queue, &key)?;
        let details = match &row.status {
            wayleave_core::frontier::row::UrlStatus::Queued(position) => {
                self.store.dues.get(&(queue, *position, key.clone())).map(|row| row.details.clone())
            }
            _ => None,
        };
        self.state.url_view(queue, &key, row, details.unwrap_or_default())
    }
}
