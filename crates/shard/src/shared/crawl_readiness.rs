//! Readiness per crawl and shard. A caller who asks for one crawl is sent to the shards that have work of it: the shard
//! whose group of any crawl has been ready longest may have none of this one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use hashbrown::HashMap;
use tokio::time::Instant;
use wayleave_core::ids::ShardId;
use wayleave_core::limits::TRACKED_CRAWLS_MAX;
use wayleave_core::names::CrawlName;
use wayleave_core::time::Time;

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
    shards: usize,
    crawls: RwLock<HashMap<CrawlName, ReadyByShard>>,
    /// When all crawls were dropped last.
    dropped_at: Mutex<Option<Instant>>,
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
        Self {
            shards: shards.into(),
            crawls: RwLock::default(),
            dropped_at: Mutex::default(),
            generation: AtomicU64::new(0),
        }
    }

    /// The readiness of a crawl; `None` if it is not tracked.
    pub fn of(&self, crawl: &CrawlName) -> Option<ReadyByShard> {
        self.crawls.read().unwrap_or_else(PoisonError::into_inner).get(crawl).cloned()
    }

    /// Starts tracking a crawl, because a worker was given URLs of it and will ask for more, or waits for some. Returns
    /// whether it is tracked from now on. Where there is no room it is not: it may be ready anywhere.
    pub fn listen(&self, crawl: &CrawlName) -> bool {
        if self.of(crawl).is_some() {
            return false;
        }
        let mut crawls = self.crawls.write().unwrap_or_else(PoisonError::into_inner);
        if crawls.len() >= TRACKED_CRAWLS_MAX {
            let mut dropped_at = lock(&self.dropped_at);
            if dropped_at.is_some_and(|at| at.elapsed() < DROP_EVERY) {
                return false;
            }
            *dropped_at = Some(Instant::now());
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A regression: with more crawls than there is room for, each look of a waiter dropped all of them.
    #[tokio::test(start_paused = true)]
    async fn crawls_beyond_the_room_drop_the_others_at_intervals_only() {
        let readiness = CrawlReadiness::new(1);
        let listen = |from: usize| {
            (from..from + TRACKED_CRAWLS_MAX).filter(|n| readiness.listen(&format!("c{n}").as_str().into())).count()
        };
        assert_eq!(listen(0), TRACKED_CRAWLS_MAX);
        assert_eq!(listen(TRACKED_CRAWLS_MAX), TRACKED_CRAWLS_MAX, "the first ones were dropped");
        assert_eq!((listen(0), readiness.beats(&[NEVER]).0), (0, 1));
        tokio::time::advance(DROP_EVERY).await;
        assert_eq!((listen(0), readiness.beats(&[NEVER]).0), (TRACKED_CRAWLS_MAX, 2));
    }
}
