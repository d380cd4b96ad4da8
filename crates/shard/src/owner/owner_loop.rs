//! The owner loop of a shard: receive → stamp now → read facts → decide → commit → reply.
//!
//! The owner is the shard's single writer. Each turn drains the inbox, decides the calls in order and commits them; the
//! answers wait for their commits while the next turn is decided. After a commit that failed or whose outcome is
//! unknown the term ends and the state is reloaded: the owner never guesses.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use tokio::sync::oneshot;
use wayleave_core::frontier::State;
use wayleave_core::frontier::bulk_job::JobRow;
use wayleave_core::frontier::row::Write;
use wayleave_core::ids::{ChunkId, CrawlNo, Epoch, ShardId, Token};
use wayleave_core::limits;
use wayleave_core::names::CrawlName;
use wayleave_core::time::Time;
use wayleave_engine::{Batch, Commit, Engine, Error, Expect, Fence, rows};

use crate::cache::filter::Filter;
use crate::cache::fingerprint::Fingerprinter;
use crate::cache::held_cache::HeldCache;
use crate::cache::known_cache::KnownCache;
use crate::cache::lane_cache::LaneCache;
use crate::config::Config;
use crate::message::Message;
use crate::owner::announce::Announcer;
use crate::owner::control::Control;
use crate::owner::cycle::{self, Cycle};
use crate::owner::give_back::GiveBackTask;
use crate::owner::hot_log::HotLog;
use crate::owner::inbox::InboxReceiver;
use crate::owner::open::Opened;
use crate::owner::page_grants::PageGrants;
use crate::owner::pools::Pools;
use crate::owner::purge::Purge;
use crate::owner::read_only::ReadOnly;
use crate::owner::retention::Retention;
use crate::owner::run::OwnerContext;
use crate::owner::term::Term;
use crate::routing::router::Router;
use crate::shared::crawl_passes::Pass;
use crate::shared::crawl_totals::CrawlTotals;
use crate::shared::readiness::Readiness;

/// Interval between slices of the filter rebuild while the shard is idle.
const LEARN_EVERY: Duration = Duration::from_millis(1);

/// A shard and everything its owner keeps for it.
pub(crate) struct Owner {
    pub shard: ShardId,
    pub engine: Arc<dyn Engine>,
    pub config: Config,
    pub readiness: Arc<Readiness>,
    pub router: Weak<Router>,
    pub state: State,
    /// Chunks in progress.
    pub pipeline: wayleave_core::pipeline::State,
    /// Fleet and placement, in the one shard that keeps them.
    pub control: Option<Box<Control>>,
    /// Pools whose names hash to this shard.
    pub pools: Pools,
    /// Announces built chunks to placement; started with the first one.
    pub announcer: Option<Announcer>,
    /// Tells pipelines of indexes that are given up.
    pub give_back_task: Option<GiveBackTask>,
    pub lane_cache: LaneCache,
    pub held_cache: HeldCache,
    pub filter: Filter,
    pub known_cache: KnownCache,
    /// Computes the fingerprints for the filter and the known cache.
    pub fingerprinter: Fingerprinter,
    /// Deleted queues whose rows remain to be removed.
    pub purge: Purge,
    /// Chunks at the build stage whose rows could not be read.
    pub damaged_chunks: HashSet<ChunkId>,
    /// The removal of old chunks.
    pub retention: Retention,
    /// Holds that cannot be read were passed over: where the sweep goes on, and when it looks into the gap again.
    pub holds_behind: Option<(Time, Time)>,
    /// Whether health reports mention damage of this shard.
    pub damage_published: bool,
    /// Bulk jobs, including those that have ended.
    pub bulk_jobs: BTreeMap<Token, JobRow>,
    pub cycle: Cycle,
    pub term: Arc<Term>,
    /// Set while the store refuses changes.
    pub refusing: Option<ReadOnly>,
    /// The shard was closed because of damage and counts as closed until a turn succeeds.
    pub is_settling: bool,
    /// Hosts that the process-wide quota counts for this shard.
    pub hosts_counted: u64,
    /// Pages that the process-wide budget counts for this shard.
    pub pages_taken: HashMap<CrawlNo, (CrawlName, u64)>,
    /// Pages granted to this shard, where several nodes share the store.
    pub page_grants: Option<PageGrants>,
    /// The process-wide passes of crawls that have been ready here.
    pub passes: HashMap<CrawlNo, Pass>,
    pub epoch: Epoch,
    seq: u64,
    log: HotLog,
}

impl Owner {
    pub fn new(context: &OwnerContext, opened: Opened) -> Self {
        let Opened { state, pipeline, control, pools, epoch, seq, log, deleted_queues, bulk_jobs } = opened;
        // Whatever was published before describes state that has been dropped.
        context.readiness.crawls.forget(context.shard);
        context.readiness.requests.forget(context.shard);
        let mut owner = Self {
            shard: context.shard,
            engine: context.engine.clone(),
            config: context.config.clone(),
            readiness: context.readiness.clone(),
            router: context.router.clone(),
            lane_cache: context.config.lane_cache(state.host_count()),
            held_cache: HeldCache::new(context.config.held_cache_rows_max),
            filter: Filter::new(context.config.share(context.config.filter_bytes_max)),
            known_cache: KnownCache::new(context.config.share(context.config.known_cache_bytes_max)),
            fingerprinter: Fingerprinter::new((context.config.entropy)() as u64),
            state,
            pipeline,
            control,
            pools,
            announcer: None,
            give_back_task: None,
            purge: Purge::new(deleted_queues, Arc::clone(&context.readiness.purging)),
            damaged_chunks: HashSet::new(),
            holds_behind: None,
            damage_published: true,
            retention: Retention::new(context.shard, context.engine.now()),
            bulk_jobs,
            cycle: Cycle::default(),
            term: Arc::new(Term::new(epoch, seq)),
            refusing: None,
            is_settling: false,
            hosts_counted: 0,
            pages_taken: HashMap::new(),
            page_grants: context
                .router
                .upgrade()
                .is_some_and(|router| router.links.is_some())
                .then(PageGrants::default),
            passes: HashMap::new(),
            epoch,
            seq,
            log,
        };
        let now = owner.engine.now();
        owner.state.remember_deletions(now);
        owner.note_switches();
        owner.count_hosts();
        owner.spread_jobs();
        owner.open_pages();
        owner
    }

    /// Publishes whether the paced form is on, and whether any crawl has a limit over all shards, which enables the
    /// exchange of counts.
    pub fn note_switches(&self) {
        self.readiness.active.store(self.state.shard_row().active, Ordering::Release);
        if self.state.limited_crawls().next().is_some() {
            self.readiness.has_limits.store(true, Ordering::Release);
        }
    }

    /// How long until the shard has work of its own; `None` if only a message can bring some.
    pub fn idle_for(&self) -> Option<Duration> {
        if let Some(left) = self.probe_in() {
            return Some(left);
        }
        if self.is_settling {
            return Some(Duration::ZERO);
        }
        if self.purge.idle_for() == Some(Duration::ZERO) || self.log.is_writing() || self.has_running_job() {
            return Some(Duration::ZERO);
        }
        let timer = self.state.next_wake().map(|at| Duration::from_millis(at.since(self.engine.now()).0));
        let learning = self.filter.is_learning().then_some(LEARN_EVERY);
        let pages = self.pages_due().map(|at| Duration::from_millis(at.since(self.engine.now()).0));
        let chunks = self.pipeline.next_wake().map(|at| Duration::from_millis(at.since(self.engine.now()).0));
        let control = self.control_due().map(|at| Duration::from_millis(at.since(self.engine.now()).0));
        let pools = self.pools_due().map(|at| Duration::from_millis(at.since(self.engine.now()).0));
        let log = self.log.due().into_iter().chain([self.retention.due()]);
        let log = log.map(|at| Duration::from_millis(at.since(self.engine.now()).0)).min();
        let all = timer.into_iter().chain(log).chain(learning).chain(pages).chain(chunks).chain(control).chain(pools);
        all.chain(self.purge.idle_for()).min()
    }

    /// Publishes whether the shard is open.
    pub fn set_open(&self, open: bool) {
        if let Some(published) = self.readiness.shards.get(usize::from(self.shard.0)) {
            published.open.store(open, Ordering::Release);
        }
    }

    /// One turn: expirations first, then the inbox up to a bound. Even if the turn fails, every message received is
    /// answered: refused, or according to the commits made for it before.
    pub async fn turn(
        &mut self,
        mut first: Option<Message>,
        inbox: &mut InboxReceiver,
        stop: &mut Option<oneshot::Sender<()>>,
    ) -> Result<(), Error> {
        if let Err(error) = self.begin_turn().await {
            match first.take() {
                // A stop must still wait for the commits in flight.
                Some(Message::Stop { done }) => *stop = Some(done),
                Some(message) => message.refuse(&cycle::refusal(&error)),
                None => {}
            }
            return Err(error);
        }
        let busy = first.is_some();
        let mut puts = crate::owner::put_replies::Puts::default();
        if let Err(error) = self.receive(first, inbox, stop, &mut puts).await {
            puts.refuse(&cycle::refusal(&error));
            self.refuse_pools(&cycle::refusal(&error));
            return Err(error);
        }
        if self.refusing.is_some() {
            self.purge.pause();
            return Ok(());
        }
        self.tidy(busy).await
    }

    async fn begin_turn(&mut self) -> Result<(), Error> {
        self.probe().await?;
        if self.refusing.is_none() {
            self.sweep().await?;
        }
        let hosts = self.state.host_count();
        self.lane_cache.set_room(self.config.lane_cache_bytes(hosts), hosts);
        self.share_totals();
        Ok(())
    }

    async fn receive(
        &mut self,
        first: Option<Message>,
        inbox: &mut InboxReceiver,
        stop: &mut Option<oneshot::Sender<()>>,
        puts: &mut crate::owner::put_replies::Puts,
    ) -> Result<(), Error> {
        let mut next = first;
        let mut left = limits::SHARD_BATCH_MAX;
        let mut sliced = false;
        while let Some(message) = next {
            sliced |= message.is_slice();
            left = left.saturating_sub(message.weight());
            match message {
                Message::Put { items, sink } => puts.add(items, sink),
                Message::Stop { done } => {
                    // Messages in the other queues were sent before the stop and are still served.
                    *stop = Some(done);
                    left = usize::from(u16::MAX);
                }
                Message::Ask { ask, reply } => {
                    if let Err(error) = self.put_all(std::mem::take(puts)).await {
                        _ = reply.send(Err(cycle::refusal(&error)));
                        return Err(error);
                    }
                    self.handle(ask, reply).await?;
                }
                Message::Chunk { call, reply } => {
                    if let Err(error) = self.put_all(std::mem::take(puts)).await {
                        _ = reply.send(Err(cycle::refusal(&error)));
                        return Err(error);
                    }
                    self.handle_chunk(call, reply).await?;
                }
                // It concerns no URL, so puts need not come before it.
                Message::Control { call, reply } => self.handle_control(call, reply),
                Message::Match { call, reply } => self.handle_match(call, reply),
            }
            next = if left > 0 { inbox.try_recv() } else { None };
            if next.is_none() && !sliced {
                // One slice per turn, after everything else: readers can wait, and still make progress.
                next = inbox.try_slice();
            }
        }
        // Reports that are left for the next turn must not be missed by the judge.
        self.note_drained(left > 0);
        self.finish_pools();
        self.put_all(std::mem::take(puts)).await
    }

    /// Background work: checkpointing the log, removing rows of deleted queues, running jobs, rebuilding the filter. `busy` if
    /// calls came in this turn.
    async fn tidy(&mut self, busy: bool) -> Result<(), Error> {
        let slice = self.log.next_slice(&self.state, self.engine.now());
        if !slice.is_empty() {
            self.commit_rows(slice);
        }
        self.tick_control();
        self.remove_deleted_rows(busy).await?;
        self.remove_old_chunks().await?;
        self.run_bulk_job().await?;
        self.tidy_pages().await?;
        self.rebuild_filter().await
    }

    pub fn publish_readiness(&mut self) {
        self.count_hosts();
        // Before any answer of this turn is sent: a retry must find what was granted.
        self.readiness.requests.tell(self.shard, self.state.take_request_changes());
        self.readiness.requests.tell(self.shard, self.pipeline.take_request_changes());
        // Per-crawl readiness first: a concurrent reader then sees either what became ready or the due time before it.
        self.state.take_crawls_ready(|crawl, ready| self.readiness.tell_crawl(crawl, self.shard, ready));
        self.publish_next();
        self.readiness.tell(self.shard.0.into(), self.state.readiness());
        self.state.take_newly_ready(|crawl, ready| self.readiness.wake(self.shard, crawl, ready));
        self.readiness.finishing.notify(&self.state.take_settled());
        self.publish_chunks();
        self.publish_damage();
        self.announce_chunks();
        self.give_chunks_back();
        self.publish_map();
    }

    /// Publishes the readiness of a crawl that a caller asked for by name and found nothing of.
    pub fn publish_crawl(&self, crawl: Option<&CrawlName>) {
        if let Some(crawl) = crawl {
            self.readiness.tell_crawl(crawl, self.shard, self.state.crawl_ready(crawl));
        }
    }

    /// Exchanges the counts of crawls with a limit over all shards: before a turn to learn the others' counts, and
    /// after it, before its answers, so that a caller who is answered finds its changes counted everywhere.
    pub fn share_totals(&mut self) {
        if !self.readiness.has_limits.load(Ordering::Relaxed) {
            return;
        }
        let bounded: Vec<_> =
            self.state.limited_crawls().map(|(name, urls, hosts)| (name.clone(), urls, hosts)).collect();
        for (crawl, urls, hosts) in bounded {
            // Other nodes read the ledger again when this changes.
            let pages = self.page_grants.as_ref().map_or(0, |grants| grants.granted(&crawl));
            let others = self.readiness.share(&crawl, self.shard, CrawlTotals { urls, hosts, pages });
            self.state.set_elsewhere(&crawl, others.urls, others.hosts);
        }
        self.share_pages();
    }

    /// Stamps the time of the decisions that follow.
    pub fn now(&mut self) -> Time {
        let now = self.engine.now();
        self.state.wake(now);
        now
    }

    /// Commits what was decided; the answers of the call wait for it.
    pub fn commit(&mut self, writes: Vec<Write>) {
        self.commit_all(writes, Vec::new());
    }

    /// Commits what was decided, with rows of other services that were decided with it.
    pub fn commit_all(&mut self, writes: Vec<Write>, rows: Vec<wayleave_engine::Write>) {
        if let Some(batch) = self.seal_all(writes, rows) {
            let commit = self.engine.commit(batch);
            self.cycle.commit(self.seq, commit);
        }
    }

    /// Encodes what was decided as a fenced batch; `None` if nothing changed. All caches are updated here.
    pub fn seal(&mut self, writes: Vec<Write>) -> Option<Batch> {
        self.seal_all(writes, Vec::new())
    }

    fn seal_all(&mut self, writes: Vec<Write>, others: Vec<wayleave_engine::Write>) -> Option<Batch> {
        let changes = self.state.take_changes();
        if writes.is_empty() && changes.is_empty() && others.is_empty() {
            return None;
        }
        self.held_cache.follow(&writes);
        self.known_cache.follow(&self.fingerprinter, &writes);
        let mut rows: Vec<_> = writes.iter().map(|write| rows::encode(self.shard, write)).collect();
        self.lane_cache.begin(&changes.begun);
        self.lane_cache.follow(&writes, &rows);
        rows.extend(others);
        self.seq += 1;
        rows.extend(self.log.add(self.seq, &changes, &self.state));
        Some(self.batch(rows))
    }

    /// Commits rows without any change of in-memory state.
    pub fn commit_rows(&mut self, rows: Vec<wayleave_engine::Write>) {
        self.seq += 1;
        let commit = self.engine.commit(self.batch(rows));
        self.cycle.commit(self.seq, commit);
    }

    /// Waits until everything committed so far is durable.
    pub async fn flush(&mut self) -> Result<(), Error> {
        self.seq += 1;
        let outcome = self.engine.commit(self.batch(Vec::new())).await;
        if outcome.is_ok() {
            self.term.on_commit(self.seq, &outcome);
        }
        outcome
    }

    /// Commits rows outside the shard and waits until that is durable. It follows all commits made before. After a
    /// conflict nothing has changed.
    pub async fn commit_now(&mut self, expects: Vec<Expect>, writes: Vec<wayleave_engine::Write>) -> Result<(), Error> {
        self.seq += 1;
        let outcome = self.engine.commit(Batch { expects, ..self.batch(writes) }).await;
        match &outcome {
            Ok(()) => self.term.on_commit(self.seq, &outcome),
            Err(Error::Conflict) => self.take_back_seq(),
            Err(_) => {}
        }
        outcome
    }

    /// Takes back the last sequence number, which was not used.
    pub fn take_back_seq(&mut self) {
        self.seq -= 1;
    }

    /// Waits for a commit made together with another shard.
    pub async fn commit_both(&mut self, commit: Commit) -> Result<(), Error> {
        let outcome = commit.await;
        if outcome.is_ok() {
            self.term.on_commit(self.seq, &outcome);
        }
        outcome
    }

    /// Records that another owner has made the commit that this owner sealed for it.
    pub fn committed_for(&self) {
        self.term.on_commit(self.seq, &Ok(()));
    }

    /// If this node may have lost the shard, makes read-only answers wait for an empty, fenced commit: the state may be
    /// stale, and a stale owner must not even refuse.
    pub fn confirm(&mut self) {
        if !self.cycle.has_answers() || !self.readiness.is_unsure() {
            return;
        }
        self.cycle.set_unsure();
        if self.cycle.has_commits() {
            return;
        }
        match self.refusal() {
            Some(why) => self.cycle.refuse(&why),
            None => self.commit_rows(Vec::new()),
        }
    }

    fn batch(&self, writes: Vec<wayleave_engine::Write>) -> Batch {
        let fence = Fence { shard: self.shard, epoch: self.epoch, seq: self.seq };
        Batch { fences: vec![fence], expects: Vec::new(), writes }
    }
}
