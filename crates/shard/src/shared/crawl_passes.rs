//! Whose turn it is among all crawls of this process. Each shard orders the crawls that are ready in it by their passes, the
//! virtual time that their visits took; here the passes of all shards are one. So weights also hold between crawls that live
//! in different shards: a caller who names no crawl is sent to the shard whose first crawl has the lowest pass, and among
//! these to the one that has been ready longest.
//!
//! Nodes keep their own passes: between nodes the one that has been ready longest is asked first.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use hashbrown::HashMap;
use wayleave_core::ids::CrawlNo;
use wayleave_core::names::CrawlName;

use crate::owner::owner_loop::Owner;

/// So many crawls of a shard are put in order before a visit. Where more are ready at once, their order within the shard
/// tells enough.
const CRAWLS_MAX: usize = 64;
/// So many crawls of a shard are told to the router.
const NEXT_MAX: usize = 8;
/// Above so many, crawls that no owner holds are forgotten.
const KEPT_MAX: usize = 4_096;

/// The pass of a crawl, of all shards together.
pub(crate) type Pass = Arc<AtomicU64>;

#[derive(Default)]
pub(crate) struct CrawlPasses {
    passes: RwLock<HashMap<CrawlName, Pass>>,
    /// The pass of the crawl that was served last: none that comes back begins before it.
    now: AtomicU64,
}

impl CrawlPasses {
    fn of(&self, crawl: &CrawlName) -> Pass {
        if let Some(pass) = self.passes.read().unwrap_or_else(PoisonError::into_inner).get(crawl) {
            return pass.clone();
        }
        let mut passes = self.passes.write().unwrap_or_else(PoisonError::into_inner);
        if passes.len() >= KEPT_MAX {
            passes.retain(|_, pass| Arc::strong_count(pass) > 1);
        }
        passes.entry(crawl.clone()).or_default().clone()
    }
}

impl Owner {
    /// Puts the crawls that are ready here where all shards have brought them: before visits of any crawl are planned.
    pub fn hear_turns(&mut self) {
        let ready = self.state.crawls_in_turn(CRAWLS_MAX);
        if ready.len() < 2 || ready.len() == CRAWLS_MAX {
            return;
        }
        let now = self.readiness.turns.now.load(Ordering::Acquire);
        for crawl in ready {
            let pass = self.pass_of(crawl);
            let before = pass.fetch_max(now, Ordering::AcqRel);
            self.state.set_pass(crawl, before.max(now));
        }
    }

    /// Tells the other shards what the visits took that were planned here.
    pub fn tell_turns(&mut self) {
        for (crawl, stride) in self.state.take_charged() {
            let pass = self.pass_of(crawl);
            let before = pass.fetch_add(stride, Ordering::AcqRel);
            self.readiness.turns.now.fetch_max(before, Ordering::AcqRel);
        }
    }

    /// Tells the router which crawls are next here. Other shards may move their passes on, so it is not enough to name the
    /// first.
    pub fn tell_next(&mut self) {
        self.hear_turns();
        let next = self.state.crawls_in_turn(NEXT_MAX);
        let next = next.into_iter().map(|crawl| self.pass_of(crawl)).collect();
        self.readiness.set_next(self.shard, next);
    }

    fn pass_of(&mut self, crawl: CrawlNo) -> Pass {
        if let Some(pass) = self.passes.get(&crawl) {
            return pass.clone();
        }
        // Crawls that were deleted have no name any more.
        self.passes.retain(|no, _| self.state.crawl_name(*no).is_some());
        // Hosts that are queued by themselves have turns like a crawl without a name.
        let name = self.state.crawl_name(crawl).cloned().unwrap_or_default();
        let pass = self.readiness.turns.of(&name);
        self.passes.insert(crawl, pass.clone());
        pass
    }
}
