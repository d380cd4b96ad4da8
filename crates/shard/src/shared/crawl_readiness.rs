//! Readiness per crawl and shard. A caller who asks for one crawl is sent to the shards that have work of it: the shard
//! whose group of any crawl has been ready longest may have none of this one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use hashbrown::HashMap;
use wayleave_core::ids::ShardId;
use wayleave_core::limits::TRACKED_CRAWLS_MAX;
use wayleave_core::names::CrawlName;
use wayleave_core::time::Time;

use crate::shared::node_readiness::CrawlBeat;

/// No group is ready.
pub(crate) const NEVER: u64 = u64::MAX;
/// The shard has not published it since tracking began.
const UNTOLD: u64 = u64::MAX - 1;

/// The published readiness of the tracked crawls.
pub(crate) struct CrawlReadiness {
    shards: usize,
    crawls: RwLock<HashMap<CrawlName, ReadyByShard>>,
    /// How often all crawls were dropped.
    generation: AtomicU64,
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
        Self { shards: shards.into(), crawls: RwLock::default(), generation: AtomicU64::new(0) }
    }

    /// The readiness of a crawl; `None` if it is not tracked.
    pub fn of(&self, crawl: &CrawlName) -> Option<ReadyByShard> {
        self.crawls.read().unwrap_or_else(PoisonError::into_inner).get(crawl).cloned()
    }

    /// Starts tracking a crawl, because a worker was given URLs of it and will ask for more, or waits for some. Returns
    /// whether it was not tracked before.
    pub fn listen(&self, crawl: &CrawlName) -> bool {
        if self.of(crawl).is_some() {
            return false;
        }
        let mut crawls = self.crawls.write().unwrap_or_else(PoisonError::into_inner);
        if crawls.len() >= TRACKED_CRAWLS_MAX {
            crawls.clear();
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
        let untold = || ReadyByShard {
            shards: (0..self.shards).map(|_| AtomicU64::new(UNTOLD)).collect(),
            woken: Arc::default(),
        };
        crawls.entry(crawl.clone()).or_insert_with(untold);
        true
    }

    /// A shard publishes since when a group of the crawl is ready. Returns whether it began or ceased to be.
    pub fn tell(&self, crawl: &CrawlName, shard: ShardId, ready: Option<Time>) -> bool {
        let crawls = self.crawls.read().unwrap_or_else(PoisonError::into_inner);
        let Some(readiness) = crawls.get(crawl) else { return false };
        let before = readiness.set(shard, ready.map_or(NEVER, |since| since.0));
        before.is_some_and(|before| before == UNTOLD || (before == NEVER) != ready.is_none())
    }

    /// Groups of a crawl became ready.
    pub fn count(&self, crawl: &CrawlName, groups: usize) {
        let crawls = self.crawls.read().unwrap_or_else(PoisonError::into_inner);
        crawls.get(crawl).into_iter().for_each(|of| _ = of.woken.fetch_add(groups as u64, Ordering::AcqRel));
    }

    /// The readiness of all tracked crawls, and their generation. `any` is since when each shard has work of any crawl.
    pub fn beats(&self, any: &[u64]) -> (u64, BTreeMap<CrawlName, CrawlBeat>) {
        let crawls = self.crawls.read().unwrap_or_else(PoisonError::into_inner);
        let beat = |(crawl, of): (&CrawlName, &ReadyByShard)| {
            // The number first: what is counted by then has been published.
            let woken = of.woken.load(Ordering::Acquire);
            let since = any.iter().enumerate().map(|(shard, any)| of.ready(shard, *any)).min();
            (crawl.clone(), CrawlBeat { since: since.filter(|since| *since != NEVER).map(Time), woken })
        };
        (self.generation.load(Ordering::Acquire), crawls.iter().map(beat).collect())
    }

    /// Invalidates what a shard has published.
    pub fn forget(&self, shard: ShardId) {
        let crawls = self.crawls.read().unwrap_or_else(PoisonError::into_inner);
        crawls.values().for_each(|readiness| _ = readiness.set(shard, UNTOLD));
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
