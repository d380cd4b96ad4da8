//! Stride scheduling of crawls over all shards of a process. Each shard orders its ready crawls by their passes, i.e.
//! the virtual time their visits have consumed; here the passes of all shards are kept as one. So weights also hold
//! between crawls that live in different shards: a caller who names no crawl is sent to the shard whose first crawl has
//! the lowest pass, and among these to the one that has been ready longest.
//!
//! Each node keeps its own passes: between nodes the one that has been ready longest is asked first.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError, RwLock};

use hashbrown::HashMap;
use wayleave_core::limits::PASSES_KEPT;
use wayleave_core::names::CrawlName;

/// The process-wide pass of a crawl.
pub(crate) type Pass = Arc<AtomicU64>;

#[derive(Default)]
pub(crate) struct CrawlPasses {
    passes: RwLock<HashMap<CrawlName, Pass>>,
    /// The pass of the crawl served last: a returning crawl never starts before it.
    pub now: AtomicU64,
}

impl CrawlPasses {
    pub fn of(&self, crawl: &CrawlName) -> Pass {
        if let Some(pass) = self.passes.read().unwrap_or_else(PoisonError::into_inner).get(crawl) {
            return pass.clone();
        }
        let mut passes = self.passes.write().unwrap_or_else(PoisonError::into_inner);
        if passes.len() >= PASSES_KEPT {
            passes.retain(|_, pass| Arc::strong_count(pass) > 1);
        }
        passes.entry(crawl.clone()).or_default().clone()
    }
}
