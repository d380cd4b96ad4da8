//! Page limits over all shards, where one process owns them all; `owner::page_grants` is for several nodes. An owner claims pages before it plans a visit and settles the claim
//! when the visit is decided, both under one lock: so all shards together never exceed a limit, however many callers
//! ask at once.
//!
//! Interleavings that could break that:
//!
//! 1. *Two owners read what is left at once*: a claim counts from the moment it is made.
//! 2. *An owner needs fewer pages than before* (a page comes back, is purged, leaves with its host), another takes
//!    them, and the first one's commit fails: its page is still out. So pages given back count only once that is
//!    durable.
//! 3. *A shard hands out while another one, which has used up the limit, is still being opened*: nothing is granted
//!    before every shard of the process has been opened once.
//! 4. *An owner ends in the middle of a claim*: its part stays until the next owner has read the true value.
//!
//! An owner that found nothing left is notified as soon as something is, so that its callers are woken.

use hashbrown::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use wayleave_core::frontier::page_limits::PageLimit;
use wayleave_core::ids::{CrawlNo, ShardId};
use wayleave_core::names::CrawlName;
use wayleave_engine::Error;

use crate::owner::owner_loop::Owner;
use crate::owner::page_grants::LedgerLocks;
use crate::shared::readiness::lock;

/// The page limits of all crawls.
pub(crate) struct PageBudget {
    state: Mutex<Shares>,
    waiters: Vec<Arc<Notify>>,
    /// Where several nodes share the store.
    pub ledgers: LedgerLocks,
}

struct Shares {
    crawls: HashMap<CrawlName, Taken>,
    /// Shards not opened yet.
    unopened: Vec<bool>,
}

/// The use of one limit by each shard, and which shards wait for more.
struct Taken {
    shards: Vec<u64>,
    waits: Vec<bool>,
}

impl Taken {
    fn new(shards: usize) -> Self {
        Self { shards: vec![0; shards], waits: vec![false; shards] }
    }

    fn total(&self) -> u64 {
        self.shards.iter().fold(0, |sum, part| sum.saturating_add(*part))
    }

    fn part(&mut self, shard: ShardId) -> Option<&mut u64> {
        self.shards.get_mut(usize::from(shard.0))
    }

    fn wait(&mut self, shard: ShardId, waits: bool) {
        if let Some(place) = self.waits.get_mut(usize::from(shard.0)) {
            *place = waits;
        }
    }
}

/// A shard, a crawl, and its limit.
#[derive(Clone, Copy)]
pub(crate) struct Taker<'a> {
    pub crawl: &'a CrawlName,
    pub shard: ShardId,
    pub limit: u64,
}

impl PageBudget {
    pub fn new(shards: u16) -> Self {
        let shards = usize::from(shards);
        let state = Shares { crawls: HashMap::new(), unopened: vec![true; shards] };
        Self {
            state: Mutex::new(state),
            waiters: (0..shards).map(|_| Arc::default()).collect(),
            ledgers: LedgerLocks::default(),
        }
    }

    /// Notified when there may be pages again for a shard that found none left.
    pub fn waiter_of(&self, shard: ShardId) -> Arc<Notify> {
        self.waiters.get(usize::from(shard.0)).cloned().unwrap_or_default()
    }

    /// A shard was opened and uses these pages.
    pub fn open(&self, shard: ShardId, used: &[PageLimit]) {
        let mut shares = lock(&self.state);
        shares.crawls.values_mut().filter_map(|taken| taken.part(shard)).for_each(|part| *part = 0);
        for limit in used {
            let count = self.waiters.len();
            let taken = shares.crawls.entry(limit.name.clone()).or_insert_with(|| Taken::new(count));
            taken.part(shard).into_iter().for_each(|part| *part = limit.used);
        }
        if let Some(unopened) = shares.unopened.get_mut(usize::from(shard.0)) {
            *unopened = false;
        }
        for taken in shares.crawls.values_mut() {
            let none = vec![false; taken.waits.len()];
            self.waiter(std::mem::replace(&mut taken.waits, none));
        }
    }

    /// Claims up to `wanted` pages; returns the number granted.
    pub fn claim(&self, taker: Taker<'_>, wanted: u64) -> u64 {
        let mut shares = lock(&self.state);
        let opening = shares.unopened.contains(&true);
        let count = self.waiters.len();
        let taken = shares.crawls.entry(taker.crawl.clone()).or_insert_with(|| Taken::new(count));
        let left = if opening { 0 } else { taker.limit.saturating_sub(taken.total()) };
        let granted = wanted.min(left);
        taken.part(taker.shard).into_iter().for_each(|part| *part += granted);
        granted
    }

    /// Converts a claim: the shard takes `more` pages and returns `back` of those claimed. Returns what the others
    /// take, and records whether the shard waits for more.
    pub fn settle(&self, taker: Taker<'_>, more: u64, back: u64) -> u64 {
        let mut shares = lock(&self.state);
        let opening = shares.unopened.contains(&true);
        let count = self.waiters.len();
        let taken = shares.crawls.entry(taker.crawl.clone()).or_insert_with(|| Taken::new(count));
        let mut own = 0;
        if let Some(part) = taken.part(taker.shard) {
            *part = (*part + more).saturating_sub(back);
            own = *part;
        }
        let total = taken.total();
        let spent = opening || total >= taker.limit;
        taken.wait(taker.shard, spent);
        if back > 0 && total < taker.limit {
            self.waiter(std::mem::replace(&mut taken.waits, vec![false; count]));
        }
        if opening { u64::MAX } else { total - own }
    }

    /// Pages of this shard have been given back durably.
    pub fn give_back(&self, taker: Taker<'_>, pages: u64) {
        let mut shares = lock(&self.state);
        let Some(taken) = shares.crawls.get_mut(taker.crawl) else { return };
        taken.part(taker.shard).into_iter().for_each(|part| *part = part.saturating_sub(pages));
        if taken.total() < taker.limit {
            let none = vec![false; taken.waits.len()];
            self.waiter(std::mem::replace(&mut taken.waits, none));
        }
    }

    /// The crawl has no limit here any more.
    pub fn forget(&self, crawl: &CrawlName, shard: ShardId) {
        let mut shares = lock(&self.state);
        if let Some(taken) = shares.crawls.get_mut(crawl) {
            taken.part(shard).into_iter().for_each(|part| *part = 0);
            if taken.total() == 0 {
                shares.crawls.remove(crawl);
            }
        }
    }

    fn waiter(&self, waits: Vec<bool>) {
        self.waiters.iter().zip(waits).filter(|(_, waits)| *waits).for_each(|(waiter, _)| waiter.notify_one());
    }

    /// Notifies all shards: what others may use has changed.
    pub fn wake_waiters(&self) {
        self.waiters.iter().for_each(|waiter| waiter.notify_one());
    }
}

/// Pages claimed for a visit that is being planned.
pub(crate) struct Claim {
    limit: PageLimit,
    pages: u64,
}

impl Owner {
    /// Publishes the use of this shard, as read from the store.
    pub fn open_pages(&mut self) {
        if self.page_grants.is_some() {
            return;
        }
        let limits: Vec<PageLimit> = self.state.page_limits().collect();
        self.pages_taken = limits.iter().map(|limit| (limit.crawl, (limit.name.clone(), limit.used))).collect();
        self.readiness.pages.open(self.shard, &limits);
    }

    /// Claims pages of every crawl that a visit may be of.
    ///
    /// # Errors
    /// If pages had to be drawn from a ledger and the store failed.
    pub async fn claim_pages(
        &mut self,
        crawl: Option<CrawlNo>,
        keyed: bool,
        wanted: usize,
    ) -> Result<Vec<Claim>, Error> {
        let may = |limit: &PageLimit| crawl.is_none_or(|no| no == limit.crawl) && (limit.ready || keyed);
        let limits: Vec<PageLimit> = self.state.page_limits().filter(may).collect();
        let mut claims = Vec::with_capacity(limits.len());
        for limit in limits {
            let wanted = wanted.max(1) as u64;
            let pages = match self.page_grants {
                Some(_) => self.draw_pages(&limit, wanted).await?,
                None => self.readiness.pages.claim(self.taker(&limit), wanted),
            };
            claims.push(Claim { limit, pages });
        }
        claims.iter().for_each(|claim| self.state.allow_pages(claim.limit.crawl, claim.pages));
        Ok(claims)
    }

    /// The visits are decided: returns what was claimed and not taken.
    pub fn return_pages(&mut self, claims: Vec<Claim>) {
        let now = self.engine.now();
        for Claim { mut limit, pages } in claims {
            let before = std::mem::replace(&mut limit.used, self.state.pages_used(limit.crawl));
            if let Some(grants) = &mut self.page_grants {
                grants.took(&limit.name, limit.used.saturating_sub(before), now);
            }
            self.publish_pages(&limit, pages);
        }
    }

    /// Publishes this shard's use of all limits, and learns that of the others.
    pub fn share_pages(&mut self) {
        let limits: Vec<PageLimit> = self.state.page_limits().collect();
        for limit in &limits {
            self.publish_pages(limit, 0);
        }
        if limits.len() < self.pages_taken.len() {
            let gone = self.pages_taken.extract_if(|no, _| !limits.iter().any(|limit| limit.crawl == *no));
            let gone: Vec<CrawlName> = gone.map(|(_, (name, _))| name).collect();
            gone.iter().for_each(|name| self.readiness.pages.forget(name, self.shard));
        }
    }

    fn taker<'a>(&self, limit: &'a PageLimit) -> Taker<'a> {
        Taker { crawl: &limit.name, shard: self.shard, limit: limit.limit }
    }

    fn publish_pages(&mut self, limit: &PageLimit, claimed: u64) {
        if let Some(grants) = &self.page_grants {
            return self.state.set_used_elsewhere(limit.crawl, grants.used_elsewhere(limit));
        }
        let (_, before) = self.pages_taken.entry(limit.crawl).or_insert_with(|| (limit.name.clone(), 0));
        let before = std::mem::replace(before, limit.used);
        let more = limit.used.saturating_sub(before);
        let others = self.readiness.pages.settle(self.taker(limit), more, claimed);
        self.state.set_used_elsewhere(limit.crawl, others);
        let back = before.saturating_sub(limit.used);
        if back > 0 {
            let (readiness, shard, limit) = (self.readiness.clone(), self.shard, limit.clone());
            let give_back = move |durable: Result<(), _>| {
                if durable.is_ok() {
                    let taker = Taker { crawl: &limit.name, shard, limit: limit.limit };
                    readiness.pages.give_back(taker, back);
                }
            };
            self.cycle.answer(self.cycle.mark(), Box::new(give_back));
        }
    }
}
