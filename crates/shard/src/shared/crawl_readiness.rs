//! Readiness per crawl and shard. A caller who asks for one crawl is sent to the shards that have work of it: the shard
//! whose group of any crawl has been ready longest may have none of this one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use hashbrown::HashMap;
use wayleave_core::ids::ShardId;
use wayleave_core::limits::TRACKED_CRAWLS_MAX;
use wayleave_core::names::CrawlName;
use wayleave_core::time::Time;

/// No group is ready.
pub(crate) const NEVER: u64 = u64::MAX;
/// The shard has not published it since tracking began.
const UNTOLD: u64 = u64::MAX - 1;

/// The published readiness of the tracked crawls.
pub(crate) struct CrawlReadiness {
    shards: usize,
    crawls: RwLock<HashMap<CrawlName, ReadyByShard>>,
}

/// The readiness of one crawl, by shard.
#[derive(Clone)]
pub(crate) struct ReadyByShard(Arc<[AtomicU64]>);

impl CrawlReadiness {
    pub fn new(shards: u16) -> Self {
        Self { shards: shards.into(), crawls: RwLock::default() }
    }

    /// The readiness of a crawl; `None` if it is not tracked.
    pub fn of(&self, crawl: &CrawlName) -> Option<ReadyByShard> {
        self.crawls.read().unwrap_or_else(PoisonError::into_inner).get(crawl).cloned()
    }

    /// Starts tracking a crawl, because a worker was given URLs of it and will ask for more.
    pub fn listen(&self, crawl: &CrawlName) {
        if self.of(crawl).is_some() {
            return;
        }
        let mut crawls = self.crawls.write().unwrap_or_else(PoisonError::into_inner);
        if crawls.len() >= TRACKED_CRAWLS_MAX {
            crawls.clear();
        }
        let untold = || ReadyByShard((0..self.shards).map(|_| AtomicU64::new(UNTOLD)).collect());
        crawls.entry(crawl.clone()).or_insert_with(untold);
    }

    /// A shard publishes since when a group of the crawl is ready.
    pub fn tell(&self, crawl: &CrawlName, shard: ShardId, ready: Option<Time>) {
        if let Some(readiness) = self.crawls.read().unwrap_or_else(PoisonError::into_inner).get(crawl) {
            readiness.set(shard, ready.map_or(NEVER, |since| since.0));
        }
    }

    /// Invalidates what a shard has published.
    pub fn forget(&self, shard: ShardId) {
        let crawls = self.crawls.read().unwrap_or_else(PoisonError::into_inner);
        crawls.values().for_each(|readiness| readiness.set(shard, UNTOLD));
    }
}

impl ReadyByShard {
    fn set(&self, shard: ShardId, ready: u64) {
        if let Some(readiness) = self.0.get(usize::from(shard.0)) {
            readiness.store(ready, Ordering::Release);
        }
    }

    /// Since when a shard has work of the crawl; `any` is since when it has work of any crawl.
    pub fn ready(&self, shard: usize, any: u64) -> u64 {
        match self.0.get(shard).map_or(UNTOLD, |readiness| readiness.load(Ordering::Acquire)) {
            UNTOLD => any,
            ready => ready,
        }
    }
}
