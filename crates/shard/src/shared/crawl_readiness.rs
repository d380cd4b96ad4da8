//! Since when groups of one crawl are ready, shard by shard. Who asks for one crawl alone is sent where it has something:
//! the shard whose group of any crawl has been ready longest may have had nothing of this one for long.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use hashbrown::HashMap;
use wayleave_core::ids::ShardId;
use wayleave_core::names::CrawlName;
use wayleave_core::time::Time;

/// Crawls that are kept in mind. When another one comes, all are forgotten; those that are asked for are soon known again.
const CRAWLS_MAX: usize = 1_024;

/// No group is ready.
pub(crate) const NEVER: u64 = u64::MAX;
/// The shard has not said it since somebody asks.
const UNTOLD: u64 = u64::MAX - 1;

/// What the shards have said of the crawls that are asked for.
pub(crate) struct CrawlReadiness {
    shards: usize,
    crawls: RwLock<HashMap<CrawlName, ReadyByShard>>,
}

/// What each shard has said of one crawl.
#[derive(Clone)]
pub(crate) struct ReadyByShard(Arc<[AtomicU64]>);

impl CrawlReadiness {
    pub fn new(shards: u16) -> Self {
        Self { shards: shards.into(), crawls: RwLock::default() }
    }

    /// What is known of a crawl; nothing if nobody has been given anything of it.
    pub fn of(&self, crawl: &CrawlName) -> Option<ReadyByShard> {
        self.crawls.read().unwrap_or_else(PoisonError::into_inner).get(crawl).cloned()
    }

    /// Somebody has been given something of a crawl: from now on shards say since when more of it is ready.
    pub fn listen(&self, crawl: &CrawlName) {
        if self.of(crawl).is_some() {
            return;
        }
        let mut crawls = self.crawls.write().unwrap_or_else(PoisonError::into_inner);
        if crawls.len() >= CRAWLS_MAX {
            crawls.clear();
        }
        let untold = || ReadyByShard((0..self.shards).map(|_| AtomicU64::new(UNTOLD)).collect());
        crawls.entry(crawl.clone()).or_insert_with(untold);
    }

    /// A shard says since when a group of a crawl is ready.
    pub fn tell(&self, crawl: &CrawlName, shard: ShardId, ready: Option<Time>) {
        if let Some(beat) = self.crawls.read().unwrap_or_else(PoisonError::into_inner).get(crawl) {
            beat.set(shard, ready.map_or(NEVER, |since| since.0));
        }
    }

    /// What a shard has said is no longer known to be true.
    pub fn forget(&self, shard: ShardId) {
        let crawls = self.crawls.read().unwrap_or_else(PoisonError::into_inner);
        crawls.values().for_each(|beat| beat.set(shard, UNTOLD));
    }
}

impl ReadyByShard {
    fn set(&self, shard: ShardId, ready: u64) {
        if let Some(beat) = self.0.get(usize::from(shard.0)) {
            beat.store(ready, Ordering::Release);
        }
    }

    /// Since when a shard has something of the crawl; `any` is since when it has something of any.
    pub fn ready(&self, shard: usize, any: u64) -> u64 {
        match self.0.get(shard).map_or(UNTOLD, |beat| beat.load(Ordering::Acquire)) {
            UNTOLD => any,
            ready => ready,
        }
    }
}
