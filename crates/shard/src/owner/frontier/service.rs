//! What the frontier of a shard keeps in memory, how it commits, and what it does in every turn.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hashbrown::HashMap;
use wayleave_core::frontier::State;
use wayleave_core::frontier::page_limits::PageLimit;
use wayleave_core::frontier::row::Write;
use wayleave_core::ids::CrawlNo;
use wayleave_core::names::CrawlName;
use wayleave_core::time::Time;
use wayleave_engine::{Batch, Error};

use super::caches::Caches;
use super::holds::Holds;
use super::jobs::Jobs;
use super::page_grants::PageGrants;
use super::purge::Purge;
use crate::ask::{Response, StateQuery};
use crate::owner::open::OpenedFrontier;
use crate::owner::port::Port;
use crate::routing::router::CallResult;
use crate::shared::crawl_passes::Pass;

/// Interval between slices of the filter rebuild while the shard is idle.
const LEARN_EVERY: Duration = Duration::from_millis(1);

/// The frontier of a shard.
pub(crate) struct Frontier {
    /// The pipeline decides on it too: the links of its chunks are leases.
    pub(in crate::owner) state: State,
    pub(super) caches: Caches,
    /// Deleted queues whose rows remain to be removed.
    pub(super) purge: Purge,
    /// How far the sweep over holds got.
    pub(super) holds: Holds,
    pub(super) jobs: Jobs,
    /// Whether health reports mention damage of this shard.
    pub(super) damage_published: bool,
    /// Hosts that the process-wide quota counts for this shard.
    pub(super) hosts_counted: u64,
    /// Crawls with a limit over all shards whose counts are published.
    pub(super) limited: HashMap<CrawlNo, CrawlName>,
    /// Pages that the process-wide budget counts for this shard.
    pub(super) pages_taken: HashMap<CrawlNo, PageLimit>,
    /// Pages granted to this shard, where several nodes share the store.
    pub(super) page_grants: Option<PageGrants>,
    /// The process-wide passes of crawls that have been ready here.
    pub(super) passes: HashMap<CrawlNo, Pass>,
}

impl Frontier {
    pub fn new(opened: OpenedFrontier, port: &Port) -> Self {
        let OpenedFrontier { state, deleted_queues, bulk_jobs } = opened;
        Self {
            caches: Caches::new(&port.config, state.host_count()),
            state,
            purge: Purge::new(deleted_queues, Arc::clone(&port.readiness.purging)),
            holds: Holds::new(port.shard),
            jobs: Jobs::new(bulk_jobs),
            damage_published: true,
            hosts_counted: 0,
            limited: HashMap::new(),
            pages_taken: HashMap::new(),
            page_grants: port.is_clustered().then(PageGrants::default),
            passes: HashMap::new(),
        }
    }

    /// Publishes what was read, and resumes what the last owner had begun.
    pub fn begin(&mut self, port: &mut Port) {
        self.state.remember_deletions(port.now());
        self.note_switches(port);
        self.count_hosts(port);
        self.count_crawls(port);
        self.jobs.spread_all(port);
        self.open_limits(port);
    }

    /// Publishes whether the paced form is on.
    pub fn note_switches(&self, port: &Port) {
        port.readiness.active.store(self.state.shard_row().active, Ordering::Release);
    }

    /// When it has work of its own next.
    pub fn wake_at(&self) -> Option<Time> {
        self.state.next_wake().into_iter().chain(self.pages_due()).min()
    }

    /// How long until the next slice of its background work; `None` if there is none.
    pub fn idle_for(&self) -> Option<Duration> {
        let job = self.jobs.is_running().then_some(Duration::ZERO);
        let learning = self.caches.filter.is_learning().then_some(LEARN_EVERY);
        job.into_iter().chain(learning).chain(self.purge.idle_for()).min()
    }

    /// Adapts the caches to the number of hosts.
    pub fn set_room(&mut self, port: &Port) {
        let hosts = self.state.host_count();
        self.caches.lanes.set_room(port.config.lane_cache_bytes(hosts), hosts);
    }

    /// Background work, one slice of each kind: rows of deleted queues, jobs, pages, the filter. `busy` if calls came in this
    /// turn.
    pub async fn tick(&mut self, busy: bool, port: &mut Port) -> Result<(), Error> {
        self.remove_deleted_rows(busy, port).await?;
        self.run_bulk_job(port).await?;
        self.tidy_pages(port).await?;
        self.rebuild_filter(port).await
    }

    /// The store refuses changes: there is no background work.
    pub fn pause(&mut self) {
        self.purge.pause();
    }

    /// Publishes what it has, and which requests it has granted. Before any answer of this turn is sent: a retry must find what
    /// was granted.
    pub fn publish_counts(&mut self, port: &Port) {
        self.count_hosts(port);
        self.count_crawls(port);
        port.readiness.requests.tell(port.shard, self.state.take_request_changes());
    }

    /// Publishes what has become ready.
    pub fn publish(&mut self, port: &Port) {
        // Per-crawl readiness first: a concurrent reader then sees either what became ready or the due time before it.
        for crawl in port.readiness.crawls.untold(port.shard) {
            self.publish_crawl(Some(&crawl), port);
        }
        self.state.take_crawls_ready(|crawl, ready| port.readiness.tell_crawl(crawl, port.shard, ready));
        self.publish_next(port);
        port.readiness.tell(port.shard.0.into(), self.state.readiness());
        self.state.take_newly_ready(|crawl, ready| port.readiness.wake(port.shard, crawl, ready));
        port.readiness.finishing.notify(&self.state.take_settled());
        self.publish_damage(port);
    }

    /// Publishes the readiness of a crawl that a caller asked for by name and found nothing of.
    pub fn publish_crawl(&self, crawl: Option<&CrawlName>, port: &Port) {
        if let Some(crawl) = crawl {
            port.readiness.tell_crawl(crawl, port.shard, self.state.crawl_ready(crawl));
        }
    }

    /// Answers a query from memory.
    pub fn look(&mut self, query: &StateQuery, now: Time, port: &mut Port) -> CallResult<Response> {
        self.learn_for(query, port);
        let mut told = self.answer_query(query, now, port)?;
        self.jobs.tell_of_requeues(&mut told);
        Ok(told)
    }

    /// Stamps the time of the decisions that follow.
    pub fn now(&mut self, port: &Port) -> Time {
        let now = port.now();
        self.state.wake(now);
        now
    }

    /// Commits what was decided; the answers of the call wait for it.
    pub fn commit(&mut self, writes: Vec<Write>, port: &mut Port) {
        self.commit_with(writes, Vec::new(), port);
    }

    /// Commits what was decided, with rows of the pipeline that were decided with it.
    pub fn commit_with(&mut self, writes: Vec<Write>, rows: Vec<wayleave_engine::Write>, port: &mut Port) {
        if let Some(batch) = self.seal_with(writes, rows, port) {
            port.commit(batch);
        }
    }

    /// Encodes what was decided as a fenced batch; `None` if nothing changed. All caches are updated here.
    pub(super) fn seal(&mut self, writes: Vec<Write>, port: &mut Port) -> Option<Batch> {
        self.seal_with(writes, Vec::new(), port)
    }

    fn seal_with(&mut self, writes: Vec<Write>, others: Vec<wayleave_engine::Write>, port: &mut Port) -> Option<Batch> {
        let changes = self.state.take_changes();
        if writes.is_empty() && changes.is_empty() && others.is_empty() {
            return None;
        }
        let mut rows = self.caches.follow(port.shard, &writes, &changes.begun);
        rows.extend(others);
        Some(port.seal(rows, &changes, &self.state))
    }
}
