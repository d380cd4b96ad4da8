//! Readiness per crawl and shard. A caller who asks for one crawl is sent to the shards that have work of it: the shard
//! whose group of any crawl has been ready longest may have none of this one.
//!
//! A beat costs what has changed, not crawls times shards: whatever changes what a node publishes of a crawl *marks* the
//! crawl, once it is stored, and a beat reads the marks first. Of a crawl that a shard has not told yet the shard may have what it
//! has of any crawl. A shard tells all of those in its next turn, before it publishes that something else is ready; if one comes
//! in between, that marks it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use hashbrown::HashMap;
use tokio::time::Instant;
use wayleave_core::ids::ShardId;
use wayleave_core::limits::TRACKED_CRAWLS_MAX;
use wayleave_core::names::CrawlName;
use wayleave_core::time::Time;

use crate::shared::changes::{Changes, Position};
use crate::shared::node_readiness::CrawlBeat;
use crate::shared::readiness::lock;

/// No group is ready.
pub(crate) const NEVER: u64 = u64::MAX;
/// The shard has not published it since tracking began.
const UNTOLD: u64 = u64::MAX - 1;
/// The shortest time between two moments at which all crawls are dropped. With more crawls than are tracked each look of a
/// waiter would drop them, and other nodes would have their waiters look after each.
const DROP_EVERY: Duration = Duration::from_secs(60);

/// The published readiness of the tracked crawls.
pub(crate) struct CrawlReadiness {
    tracked: RwLock<Tracked>,
    /// How many of the tracked crawls each shard has told, of the first ones in their order.
    told: Vec<AtomicUsize>,
    /// When all crawls were dropped last.
    dropped_at: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct Tracked {
    crawls: HashMap<CrawlName, ReadyByShard>,
    /// In the order in which they came.
    order: Vec<CrawlName>,
    /// In the order of their last mark.
    marks: Mutex<Changes<CrawlName, ()>>,
    /// How often all crawls were dropped.
    generation: u64,
}

/// How far a reader of the marks has come.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    generation: u64,
    position: Position,
}

/// What has changed for a reader of the marks.
pub(crate) struct Marked {
    pub seen: Seen,
    /// These are all tracked crawls; the reader should forget all others.
    pub is_complete: bool,
    pub crawls: Vec<(CrawlName, CrawlBeat)>,
}

/// The readiness of one crawl, by shard.
#[derive(Clone)]
pub(crate) struct ReadyByShard {
    shards: Arc<[AtomicU64]>,
    /// How many groups have become ready since the crawl is tracked.
    woken: Arc<AtomicU64>,
}

impl CrawlReadiness {
    pub fn new(shards: u16) -> Self {
        let told = (0..shards).map(|_| AtomicUsize::new(0)).collect();
        Self { tracked: RwLock::default(), told, dropped_at: Mutex::default() }
    }

    fn tracked(&self) -> RwLockReadGuard<'_, Tracked> {
        self.tracked.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The readiness of a crawl; `None` if it is not tracked.
    pub fn of(&self, crawl: &CrawlName) -> Option<ReadyByShard> {
        self.tracked().crawls.get(crawl).cloned()
    }

    /// Starts tracking a crawl, because a worker was given URLs of it and will ask for more, or waits for some. Returns
    /// whether it is tracked from now on. Where there is no room it is not: it may be ready anywhere.
    pub fn listen(&self, crawl: &CrawlName) -> bool {
        if self.of(crawl).is_some() {
            return false;
        }
        let mut tracked = self.tracked.write().unwrap_or_else(PoisonError::into_inner);
        if tracked.crawls.contains_key(crawl) {
            return false;
        }
        if tracked.crawls.len() >= TRACKED_CRAWLS_MAX {
            let mut dropped_at = lock(&self.dropped_at);
            if dropped_at.is_some_and(|at| at.elapsed() < DROP_EVERY) {
                return false;
            }
            *dropped_at = Some(Instant::now());
            *tracked = Tracked { generation: tracked.generation + 1, ..Tracked::default() };
            self.told.iter().for_each(|told| told.store(0, Ordering::Release));
        }
        let shards = self.told.iter().map(|_| AtomicU64::new(UNTOLD)).collect();
        tracked.crawls.insert(crawl.clone(), ReadyByShard { shards, woken: Arc::default() });
        tracked.order.push(crawl.clone());
        tracked.mark([crawl]);
        true
    }

    /// A shard publishes since when a group of the crawl is ready. Returns whether it began or ceased to be.
    pub fn tell(&self, crawl: &CrawlName, shard: ShardId, ready: Option<Time>) -> bool {
        let tracked = self.tracked();
        let Some(readiness) = tracked.crawls.get(crawl) else { return false };
        let ready_at = ready.map_or(NEVER, |since| since.0);
        let before = readiness.set(shard, ready_at);
        if before != Some(ready_at) {
            tracked.mark([crawl]);
        }
        before.is_some_and(|before| before == UNTOLD || (before == NEVER) != ready.is_none())
    }

    /// Groups of a crawl became ready.
    pub fn count(&self, crawl: &CrawlName, groups: usize) {
        let tracked = self.tracked();
        if let Some(of) = tracked.crawls.get(crawl) {
            of.woken.fetch_add(groups as u64, Ordering::AcqRel);
            tracked.mark([crawl]);
        }
    }

    /// The crawls that a shard has not told yet, which it does now.
    pub fn untold(&self, shard: ShardId) -> Vec<CrawlName> {
        let tracked = self.tracked();
        let told = self.told.get(usize::from(shard.0)).map(|told| told.swap(tracked.order.len(), Ordering::AcqRel));
        told.and_then(|told| tracked.order.get(told..)).map(<[CrawlName]>::to_vec).unwrap_or_default()
    }

    /// What a shard has of any crawl has changed.
    pub fn any_changed(&self, shard: ShardId) {
        let tracked = self.tracked();
        let told = self.told.get(usize::from(shard.0)).map(|told| told.load(Ordering::Acquire));
        tracked.mark(told.and_then(|told| tracked.order.get(told..)).unwrap_or_default());
    }

    /// The crawls that were marked since a reader looked last; all if it has not looked since they were dropped.
    /// `any` reads since when a shard has work of any crawl.
    pub fn marked(&self, seen: Option<Seen>, any: impl Fn(usize) -> u64) -> Marked {
        let tracked = self.tracked();
        let seen = seen.filter(|seen| seen.generation == tracked.generation);
        let (news, position) = lock(&tracked.marks).since(seen.map(|seen| seen.position), usize::MAX);
        let beat = |crawl: &CrawlName| {
            let of = tracked.crawls.get(crawl)?;
            // The number first: what is counted by then has been published.
            let woken = of.woken.load(Ordering::Acquire);
            let since = (0..of.shards.len()).map(|shard| of.ready(shard, any(shard))).min();
            Some(CrawlBeat { since: since.filter(|since| *since != NEVER).map(Time), woken })
        };
        let crawls = news.changes.into_iter().filter_map(|(crawl, _)| beat(&crawl).map(|beat| (crawl, beat)));
        let crawls = crawls.collect();
        Marked { seen: Seen { generation: tracked.generation, position }, is_complete: seen.is_none(), crawls }
    }

    /// Invalidates what a shard has published.
    pub fn forget(&self, shard: ShardId) {
        let tracked = self.tracked();
        self.told.get(usize::from(shard.0)).into_iter().for_each(|told| told.store(0, Ordering::Release));
        tracked.crawls.values().for_each(|readiness| _ = readiness.set(shard, UNTOLD));
        tracked.mark(&tracked.order);
    }
}

impl Tracked {
    /// What is published of some crawls may have changed.
    fn mark<'a>(&self, crawls: impl IntoIterator<Item = &'a CrawlName>) {
        let mut crawls = crawls.into_iter().peekable();
        if crawls.peek().is_some() {
            let mut marks = lock(&self.marks);
            crawls.for_each(|crawl| marks.touch(crawl));
        }
    }
}

impl ReadyByShard {
    /// Returns what it was before.
    fn set(&self, shard: ShardId, ready: u64) -> Option<u64> {
        self.shards.get(usize::from(shard.0)).map(|readiness| readiness.swap(ready, Ordering::AcqRel))
    }

    /// Since when a shard has work of the crawl; `any` is since when it has work of any crawl.
    pub fn ready(&self, shard: usize, any: u64) -> u64 {
        match self.shards.get(shard).map_or(UNTOLD, |readiness| readiness.load(Ordering::Acquire)) {
            UNTOLD => any,
            ready => ready,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A regression: with more crawls than there is room for, each look of a waiter dropped all of them.
    #[tokio::test(start_paused = true)]
    async fn crawls_beyond_the_room_drop_the_others_at_intervals_only() {
        let readiness = CrawlReadiness::new(1);
        let dropped = || readiness.marked(None, |_| NEVER).seen.generation;
        let listen = |from: usize| {
            (from..from + TRACKED_CRAWLS_MAX).filter(|n| readiness.listen(&format!("c{n}").as_str().into())).count()
        };
        assert_eq!(listen(0), TRACKED_CRAWLS_MAX);
        assert_eq!(listen(TRACKED_CRAWLS_MAX), TRACKED_CRAWLS_MAX, "the first ones were dropped");
        assert_eq!((listen(0), dropped()), (0, 1));
        tokio::time::advance(DROP_EVERY).await;
        assert_eq!((listen(0), dropped()), (TRACKED_CRAWLS_MAX, 2));
    }
}
