//! The readiness of all shards: which has been ready longest, when each becomes ready next, and who waits for that.
//! Kept outside the owners so that the router asks the right shard first and a long poll waits in one place.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, Semaphore};
use wayleave_core::frontier::readiness::NewlyReady;
use wayleave_core::ids::{NodeId, ShardId};
use wayleave_core::names::CrawlName;
use wayleave_core::pipeline::request::Stage;
use wayleave_core::pipeline::state::Published;
use wayleave_core::time::Time;

use crate::fleet::news::MapNews;
use crate::handle::finished::Finishing;
use crate::matches::news::MatchNews;
use crate::matches::readiness::PoolReadiness;
use crate::owner::limited_log::StoreLog;
use crate::pipeline::readiness::ChunkReadiness;
use crate::routing::repeated_requests::Requests;
use crate::shared::broadcast::{Broadcast, Subscriber};
use crate::shared::crawl_count::CrawlCount;
use crate::shared::crawl_passes::{CrawlPasses, Pass};
use crate::shared::crawl_readiness::{CrawlReadiness, Marked, NEVER, Seen};
use crate::shared::crawl_totals::Totals;
use crate::shared::damage_report::{DamageBoard, DamageReport};
use crate::shared::deadline::Deadline;
use crate::shared::host_quota::HostQuota;
use crate::shared::node_readiness::{Heard, Messages, NodeReadiness, Peer};
use crate::shared::page_budget::PageBudget;
use crate::shared::troubles::Troubles;
use crate::shared::waiters::Waiters;

/// Damaged hosts that a report names.
const DAMAGED_NAMED: usize = 3;

/// What each shard publishes.
#[derive(Default)]
pub(crate) struct ShardReadiness {
    oldest_ready: AtomicU64,
    next_due: AtomicU64,
    /// Callers waiting for visits from it.
    callers: AtomicUsize,
    /// The passes of its next crawls.
    next: Mutex<Vec<Pass>>,
    pub open: AtomicBool,
    /// It has no filter of known URLs.
    pub unfiltered: AtomicBool,
}

/// Resolution of readiness times for the paced form. Times within one step count as equal, so that callers follow each
/// other to one shard, which serves them in one turn and one commit, instead of waking many shards. Each caller takes
/// several queues of it anyway.
const STEP_MS: u64 = 250;
/// Callers sent to one shard before the next one is equally good.
const CALLERS_TOGETHER: usize = 4;

/// What a caller asks for.
#[derive(Clone, Copy)]
pub(crate) struct VisitFilter<'a> {
    /// Groups of one crawl, or of any.
    pub crawl: Option<&'a CrawlName>,
    /// In the paced form.
    pub paced: bool,
    pub now: Time,
}

/// The readiness of all shards, and the other state that owners share.
pub(crate) struct Readiness {
    pub shards: Vec<ShardReadiness>,
    /// Readiness per crawl, for crawls that are asked for by name.
    pub crawls: CrawlReadiness,
    /// Stride scheduling of crawls.
    pub passes: CrawlPasses,
    /// Callers waiting for a group to become ready.
    pub waiters: Waiters,
    /// How often callers have looked for groups to visit.
    pub looks: AtomicU64,
    /// What chunks the shards of this process offer.
    pub chunks: ChunkReadiness,
    /// The version of the map, where shard 0 is owned by this process.
    pub map: MapNews,
    /// Orders that wait for Makers, and sites that have one.
    pub pools: PoolReadiness,
    /// News of clients that calls on other nodes wait for.
    pub matches: Arc<MatchNews>,
    /// Callers waiting for a crawl to be finished.
    pub finishing: Finishing,
    /// Counts of crawls with a limit over all shards.
    pub totals: Totals,
    /// The crawls of the store.
    pub crawl_count: CrawlCount,
    /// Page limits.
    pub pages: PageBudget,
    /// Hosts held by the shards of this process.
    pub hosts: HostQuota,
    /// Requests with an id that have reservations here, by digest.
    pub requests: Requests,
    /// Whose turn it is to remove rows of deleted queues.
    pub purging: Arc<Semaphore>,
    /// Whether the paced form is switched on, as far as the owners here know.
    pub active: AtomicBool,
    /// Log lines that would otherwise be written once per call.
    pub log: StoreLog,
    /// Why shards of this process cannot be opened, or refuse changes.
    pub troubles: Troubles,
    /// What is known to be damaged in open shards.
    pub damage: DamageBoard,
    /// The readiness of other nodes. A node that cannot be reached has no entry and is not asked.
    peers: Mutex<BTreeMap<NodeId, Peer>>,
    /// Total number of groups that have become ready here.
    woken: AtomicU64,
    pub messages: Messages,
    /// Notified when the owner of a shard was not where it was expected.
    pub misrouted: Arc<Notify>,
    /// Notified when there is news for other nodes.
    news: Broadcast,
    /// Until then no other node can own this node's shards.
    sure_until: Mutex<Option<Deadline>>,
}

/// A source of visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// A shard of this process.
    Shard(ShardId),
    /// Another node, for any of its shards.
    Node(NodeId),
}

impl Readiness {
    pub fn new(shards: u16) -> Self {
        let all: Vec<ShardReadiness> = (0..shards).map(|_| ShardReadiness::default()).collect();
        for published in &all {
            published.oldest_ready.store(NEVER, Ordering::Relaxed);
            published.next_due.store(NEVER, Ordering::Relaxed);
        }
        let news = Broadcast::default();
        Self {
            shards: all,
            crawls: CrawlReadiness::new(shards),
            passes: CrawlPasses::default(),
            waiters: Waiters::default(),
            looks: AtomicU64::new(0),
            chunks: ChunkReadiness::new(shards),
            map: MapNews::default(),
            pools: PoolReadiness::new(shards, news.clone()),
            matches: Arc::new(MatchNews::new(shards, news.clone())),
            finishing: Finishing::default(),
            totals: Totals::default(),
            crawl_count: CrawlCount::default(),
            pages: PageBudget::new(shards),
            hosts: HostQuota::default(),
            requests: Requests::new(shards),
            purging: Arc::new(Semaphore::new(1)),
            active: AtomicBool::new(true),
            log: StoreLog::default(),
            troubles: Troubles::default(),
            damage: DamageBoard::default(),
            peers: Mutex::default(),
            woken: AtomicU64::new(0),
            messages: Messages::default(),
            misrouted: Arc::default(),
            news,
            sure_until: Mutex::default(),
        }
    }

    /// What is known to be damaged.
    pub fn damage_report(&self) -> DamageReport {
        let closed = self.troubles.damaged();
        let unfiltered = self.shards.iter().filter(|shard| shard.unfiltered.load(Ordering::Relaxed)).count() as u64;
        let report = self.damage.report(DAMAGED_NAMED);
        DamageReport { shards_closed: closed, shards_unfiltered: unfiltered, ..report }
    }

    /// No other node can own this node's shards until then.
    pub fn set_sure_until(&self, until: Deadline) {
        *lock(&self.sure_until) = Some(until);
    }

    /// Whether another node may own this node's shards by now.
    pub fn is_unsure(&self) -> bool {
        lock(&self.sure_until).is_some_and(Deadline::has_passed)
    }

    /// A shard publishes since when a group of it is ready and when the next one becomes ready.
    pub fn tell(&self, shard: usize, (ready, due): (Option<Time>, Option<Time>)) {
        if let Some(published) = self.shards.get(shard) {
            let (ready, due) = (ready.map_or(NEVER, |t| t.0), due.map_or(NEVER, |t| t.0));
            let before =
                (published.oldest_ready.swap(ready, Ordering::AcqRel), published.next_due.swap(due, Ordering::AcqRel));
            if before.0 != ready {
                self.crawls.any_changed(ShardId(shard as u16));
            }
            if before != (ready, due) && self.news.has_subscribers() {
                self.news.notify();
            }
        }
    }

    /// A shard publishes which crawls are next.
    pub fn set_next(&self, shard: ShardId, next: Vec<Pass>) {
        if let Some(published) = self.shards.get(usize::from(shard.0)) {
            *lock(&published.next) = next;
        }
    }

    /// A shard has no local owner any more.
    pub fn forget(&self, shard: ShardId) {
        self.tell(shard.0.into(), (None, None));
        self.crawls.forget(shard);
        self.chunks.forget(shard);
        self.pools.tell(shard, Vec::new());
        if let Some(published) = self.shards.get(usize::from(shard.0)) {
            published.open.store(false, Ordering::Release);
            published.unfiltered.store(false, Ordering::Relaxed);
            lock(&published.next).clear();
        }
        self.totals.close(shard);
        self.damage.set(shard, None);
        self.news.notify();
    }

    pub fn is_open(&self, shard: ShardId) -> bool {
        self.shards.get(usize::from(shard.0)).is_some_and(|published| published.open.load(Ordering::Acquire))
    }

    /// The sources that have something to visit, best first.
    pub fn ready(&self, filter: VisitFilter<'_>) -> Vec<Source> {
        let mut ready: Vec<(SourceRank, Source)> = self.ready_shards(filter).collect();
        // Of another node only the time is known: rank it as if its crawl were next.
        let pass = ready.iter().map(|((pass, ..), _)| *pass).min().unwrap_or_default();
        for (node, peer) in lock(&self.peers).iter() {
            let first = peer.ready_since(filter);
            ready.extend(first.map(|first| (filter.rank(pass, first.0, 0), Source::Node(*node))));
        }
        sorted(ready)
    }

    /// Whether any source has something to visit.
    pub fn has_ready(&self, filter: VisitFilter<'_>) -> bool {
        self.ready_shards(filter).next().is_some()
            || lock(&self.peers).values().any(|peer| peer.ready_since(filter).is_some())
    }

    /// Whether a source that can be asked has published that something is ready. What is due by now is not published yet.
    pub fn is_ready_for(&self, crawl: Option<&CrawlName>) -> bool {
        let filter = VisitFilter { crawl, paced: false, now: Time::ZERO };
        let open = |(_, source)| matches!(source, Source::Shard(shard) if self.is_open(shard));
        self.ready_shards(filter).any(open) || lock(&self.peers).values().any(|peer| peer.ready_since(filter).is_some())
    }

    /// Whether groups of more than one crawl are ready in the shards of this process.
    pub fn crawls_compete(&self) -> bool {
        let mut first: Option<Pass> = None;
        self.shards.iter().any(|published| {
            let next = lock(&published.next);
            next.iter().any(|pass| match &first {
                Some(first) => !Arc::ptr_eq(first, pass),
                None => {
                    first = Some(pass.clone());
                    false
                }
            })
        })
    }

    /// Registers a caller that asks a shard for visits.
    pub fn call(&self, shard: ShardId) -> Caller<'_> {
        let published = self.shards.get(usize::from(shard.0));
        published.inspect(|published| _ = published.callers.fetch_add(1, Ordering::Relaxed));
        Caller(published)
    }

    /// The shards of this process that have something to visit, best first.
    pub fn ready_here(&self, filter: VisitFilter<'_>) -> Vec<Source> {
        sorted(self.ready_shards(filter).collect())
    }

    fn ready_shards<'a>(&'a self, filter: VisitFilter<'a>) -> impl Iterator<Item = (SourceRank, Source)> + 'a {
        let crawl = filter.crawl.and_then(|crawl| self.crawls.of(crawl));
        self.shards.iter().enumerate().filter_map(move |(shard, published)| {
            // Load the due time first: a shard publishes per-crawl readiness before it clears its due time.
            let due = published.next_due.load(Ordering::Acquire);
            let any = published.oldest_ready.load(Ordering::Acquire);
            let ready = crawl.as_ref().map_or(any, |crawl| crawl.ready(shard, any));
            let first = ready.min(due);
            let pass = if filter.crawl.is_none() { published.pass() } else { 0 };
            let rank = filter.rank(pass, first, published.callers.load(Ordering::Relaxed));
            (ready != NEVER || due <= filter.now.0).then_some((rank, Source::Shard(ShardId(shard as u16))))
        })
    }

    /// This node's readiness.
    pub fn node_readiness(&self) -> NodeReadiness {
        let least = |of: fn(&ShardReadiness) -> &AtomicU64| {
            let all = self.shards.iter().map(|published| of(published).load(Ordering::Acquire));
            all.min().filter(|time| *time != NEVER).map(Time)
        };
        // The number first: what is counted by then has been published.
        let woken = self.woken.load(Ordering::Acquire);
        NodeReadiness {
            oldest_ready: least(|published| &published.oldest_ready),
            next_due: least(|published| &published.next_due),
            woken,
            chunks: self.chunks.beat(),
            map: self.map.version(),
            pools: self.pools.beat(),
            ..NodeReadiness::default()
        }
    }

    /// The readiness of the tracked crawls for which it may have changed since a reader looked last.
    pub fn marked_crawls(&self, seen: Option<Seen>) -> Marked {
        let any =
            |shard: usize| self.shards.get(shard).map_or(NEVER, |shard| shard.oldest_ready.load(Ordering::Acquire));
        self.crawls.marked(seen, any)
    }

    /// The other nodes that may have something for a claim.
    pub fn nodes_offering(&self, stage: Stage, filter: VisitFilter<'_>) -> Vec<NodeId> {
        let peers = lock(&self.peers);
        let offering = peers.iter().filter(|(_, peer)| peer.may_offer(stage, filter));
        offering.map(|(node, _)| *node).collect()
    }

    /// A caller, here or on another node, asks for a crawl by name: tracks its readiness.
    pub fn listen(&self, crawl: &CrawlName) {
        if self.crawls.listen(crawl) {
            self.news.notify();
        }
    }

    /// A shard publishes since when a group of a crawl is ready.
    pub fn tell_crawl(&self, crawl: &CrawlName, shard: ShardId, ready: Option<Time>) {
        if self.crawls.tell(crawl, shard, ready) {
            self.news.notify();
        }
    }

    /// A shard publishes what chunks it offers, and wakes claims for those that became claimable.
    pub fn tell_chunks(&self, shard: ShardId, published: &Published) {
        if self.chunks.tell(shard, published) {
            self.news.notify();
        }
    }

    /// Subscribes to changes of this node's readiness.
    pub fn news(&self) -> Subscriber {
        self.news.subscribe()
    }

    /// Whether another node can be reached.
    pub fn hears(&self, node: NodeId) -> bool {
        lock(&self.peers).contains_key(&node)
    }

    /// Records another node's readiness; `None` if it can no longer be reached.
    pub fn hear(&self, node: NodeId, news: Option<NodeReadiness>) {
        let mut peers = lock(&self.peers);
        let Some(mut news) = news else {
            if peers.remove(&node).is_some() {
                self.pages.tell_all(&self.totals.lost(node));
                self.crawl_count.lost(node);
            }
            drop(peers);
            self.pools.hear(node, None);
            return self.matches.wake_all();
        };
        let (totals, count) = (std::mem::take(&mut news.totals), std::mem::take(&mut news.crawl_count));
        let is_first = !peers.contains_key(&node);
        let map_changed = peers.get(&node).map_or(0, |before| before.news.map) != news.map;
        let (matches, pools) = (std::mem::take(&mut news.matches), std::mem::take(&mut news.pools));
        let heard = peers.entry(node).or_default().hear(news, is_first);
        drop(peers);
        self.pages.tell_all(&self.totals.hear(node, totals));
        if map_changed {
            self.map.hear();
        }
        self.pools.hear(node, Some(pools));
        self.matches.hear(&matches);
        self.crawl_count.hear(node, count);
        self.wake_for(node, &heard);
    }

    /// There is news for other nodes.
    pub fn tell_others(&self) {
        if self.news.has_subscribers() {
            self.news.notify();
        }
    }

    /// Wakes waiters for what became ready at another node.
    fn wake_for(&self, node: NodeId, heard: &Heard) {
        for (crawl, groups) in &heard.crawls {
            self.waiters.wake(Some(crawl), *groups);
            self.chunks.waiters(Stage::Crawl).wake(Some(crawl), *groups);
        }
        let tracks = |crawl: &CrawlName| lock(&self.peers).get(&node).is_some_and(|peer| peer.tracks(crawl));
        self.waiters.wake_unknown(heard.others, tracks);
        self.chunks.waiters(Stage::Crawl).wake_unknown(heard.others, tracks);
        self.chunks.waiters(Stage::Crawl).wake_unknown(heard.offered, |_| false);
        self.chunks.waiters(Stage::Build).wake_unknown(heard.crawled, |_| false);
    }

    /// Groups of a crawl became ready in a shard, or hosts without URLs: wakes as many waiters, first come, first served.
    pub fn wake(&self, shard: ShardId, crawl: Option<&CrawlName>, ready: NewlyReady) {
        self.woken.fetch_add(ready.fresh as u64, Ordering::AcqRel);
        crawl.into_iter().for_each(|crawl| self.crawls.count(crawl, ready.fresh));
        self.news.notify();
        self.waiters.wake(crawl, ready.fresh);
        if let Some(crawl) = crawl {
            self.chunks.wake_crawlers(shard, crawl, ready);
        }
    }
}

/// Rank of a source, lowest first: the pass of its next crawl, since when it is ready, and how many callers it has.
type SourceRank = (u64, u64, usize);

impl VisitFilter<'_> {
    const fn rank(&self, pass: u64, ready: u64, callers: usize) -> SourceRank {
        if self.paced { (pass, ready / STEP_MS, callers / CALLERS_TOGETHER) } else { (pass, ready, 0) }
    }
}

impl ShardReadiness {
    /// The pass of the next crawl; the lowest if nothing is ready yet.
    fn pass(&self) -> u64 {
        lock(&self.next).iter().map(|pass| pass.load(Ordering::Acquire)).min().unwrap_or_default()
    }
}

/// A caller waiting for visits from a shard; deregistered when dropped.
pub(crate) struct Caller<'a>(Option<&'a ShardReadiness>);

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        if let Some(published) = self.0 {
            published.callers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn sorted(mut ready: Vec<(SourceRank, Source)>) -> Vec<Source> {
    ready.sort_unstable();
    ready.into_iter().map(|(_, source)| source).collect()
}

/// Locks, ignoring poison: a panic under one of these locks leaves nothing half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
#[path = "readiness_tests.rs"]
mod tests;
