//! Stride scheduling of crawls over all shards of a process. Each shard orders its ready crawls by their passes, i.e.
//! the virtual time their visits have consumed; here the passes of all shards are kept as one. So weights also hold
//! between crawls that live in different shards: a caller who names no crawl is sent to the shard whose first crawl has
//! the lowest pass, and among these to the one that has been ready longest.
//!
//! Each node keeps its own passes: between nodes the one that has been ready longest is asked first.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use hashbrown::HashMap;
use wayleave_core::ids::CrawlNo;
use wayleave_core::limits::{PASSES_KEPT, PUBLISHED_CRAWLS_MAX, REORDERED_CRAWLS_MAX};
use wayleave_core::names::CrawlName;

use crate::owner::owner_loop::Owner;

/// The process-wide pass of a crawl.
pub(crate) type Pass = Arc<AtomicU64>;

#[derive(Default)]
pub(crate) struct CrawlPasses {
    passes: RwLock<HashMap<CrawlName, Pass>>,
    /// The pass of the crawl served last: a returning crawl never starts before it.
    now: AtomicU64,
}

impl CrawlPasses {
    fn of(&self, crawl: &CrawlName) -> Pass {
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

impl Owner {
    /// Loads the process-wide passes of the crawls ready here, before a visit of any crawl is planned.
    pub fn load_passes(&mut self) {
        let ready = self.state.crawls_in_order(REORDERED_CRAWLS_MAX);
        if ready.len() < 2 || ready.len() == REORDERED_CRAWLS_MAX {
            return;
        }
        let now = self.readiness.passes.now.load(Ordering::Acquire);
        for crawl in ready {
            let pass = self.pass_of(crawl);
            let before = pass.fetch_max(now, Ordering::AcqRel);
            self.state.set_pass(crawl, before.max(now));
        }
    }

    /// Publishes the strides of the visits planned here.
    pub fn publish_passes(&mut self) {
        for (crawl, stride) in self.state.take_charged() {
            let pass = self.pass_of(crawl);
            let before = pass.fetch_add(stride, Ordering::AcqRel);
            self.readiness.passes.now.fetch_max(before, Ordering::AcqRel);
        }
    }

    /// Publishes which crawls are next here. Other shards may advance their passes, so naming only the first is not
    /// enough.
    pub fn publish_next(&mut self) {
        self.load_passes();
        let next = self.state.crawls_in_order(PUBLISHED_CRAWLS_MAX);
        let next = next.into_iter().map(|crawl| self.pass_of(crawl)).collect();
        self.readiness.set_next(self.shard, next);
    }

    fn pass_of(&mut self, crawl: CrawlNo) -> Pass {
        if let Some(pass) = self.passes.get(&crawl) {
            return pass.clone();
        }
        // Deleted crawls no longer have a name.
        self.passes.retain(|no, _| self.state.crawl_name(*no).is_some());
        // Hosts queued by themselves are scheduled like a crawl without a name.
        let name = self.state.crawl_name(crawl).cloned().unwrap_or_default();
        let pass = self.readiness.passes.of(&name);
        self.passes.insert(crawl, pass.clone());
        pass
    }
}
