//! Page limits over all shards, where one process owns them all; `owner::frontier::page_grants` is for several nodes. An owner claims
//! pages of the crawls that it has planned visits of, before it takes their URLs, and settles the claim when the visits are
//! decided, both under one lock: so all shards together never exceed a limit, however many callers ask at once.
//!
//! A plan may rest on what others had used some time ago. If they have used more since, the claim grants less than was
//! planned, and the crawl is closed to this owner before it plans again. If they have given pages back, the owner was
//! told: whoever finds nothing left is told as soon as something is, crawl by crawl, so that its callers are woken.
//!
//! Interleavings that could break the limit:
//!
//! 1. *Two owners read what is left at once*: a claim counts from the moment it is made.
//! 2. *An owner needs fewer pages than before* (a page comes back, is purged, leaves with its host), another takes
//!    them, and the first one's commit fails: its page is still out. So pages given back count only once that is
//!    durable, also those of a crawl that is deleted or has no limit any more.
//! 3. *A shard hands out while another one, which has used up the limit, is still being opened*: nothing is granted
//!    before every shard of the process has been opened once.
//! 4. *An owner ends in the middle of a claim*: its part stays until the next owner has read the true value.
//! 5. *A crawl is deleted and made anew in one turn, and pages of the new one are published before the old one's are given back*: what
//!    is given back is a number of pages, not all that the crawl of this name has in the shard.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use wayleave_core::frontier::page_limits::PageLimit;
use wayleave_core::ids::ShardId;
use wayleave_core::names::CrawlName;

use crate::owner::frontier::ledger_rows::LedgerLocks;
use crate::shared::readiness::lock;

/// The page limits of all crawls.
pub(crate) struct PageBudget {
    state: Mutex<Shares>,
    /// Which crawls each shard should look at, because pages of them may be left, or are wanted elsewhere.
    news: Vec<ShardNews>,
    /// Where several nodes share the store.
    pub ledgers: LedgerLocks,
}

#[derive(Default)]
struct ShardNews {
    crawls: Mutex<BTreeSet<CrawlName>>,
    told: Arc<Notify>,
}

struct Shares {
    crawls: BTreeMap<CrawlName, Taken>,
    /// Shards not opened yet.
    unopened: usize,
    opened: Vec<bool>,
}

/// The use of one limit by each shard, its sum, and which shards wait for more.
#[derive(Default)]
struct Taken {
    shards: BTreeMap<ShardId, u64>,
    total: u64,
    waits: BTreeSet<ShardId>,
}

impl Taken {
    /// Sets the use of a shard.
    fn set(&mut self, shard: ShardId, pages: u64) {
        let before = if pages == 0 { self.shards.remove(&shard) } else { self.shards.insert(shard, pages) };
        self.total = self.total.saturating_sub(before.unwrap_or_default()).saturating_add(pages);
    }

    fn part(&self, shard: ShardId) -> u64 {
        self.shards.get(&shard).copied().unwrap_or_default()
    }
}

/// A shard, a crawl, and its limit.
#[derive(Clone, Copy)]
pub(crate) struct Taker<'a> {
    pub crawl: &'a CrawlName,
    pub shard: ShardId,
    pub limit: u64,
}

impl Shares {
    fn taken(&mut self, crawl: &CrawlName) -> &mut Taken {
        if !self.crawls.contains_key(crawl) {
            self.crawls.insert(crawl.clone(), Taken::default());
        }
        self.crawls.entry(crawl.clone()).or_default()
    }
}

impl PageBudget {
    pub fn new(shards: u16) -> Self {
        let opened = vec![false; shards.into()];
        Self {
            state: Mutex::new(Shares { crawls: BTreeMap::new(), unopened: opened.len(), opened }),
            news: (0..shards).map(|_| ShardNews::default()).collect(),
            ledgers: LedgerLocks::default(),
        }
    }

    /// Notified when a shard should look at crawls, which [`PageBudget::take_news`] names.
    pub fn news_of(&self, shard: ShardId) -> Arc<Notify> {
        self.news.get(usize::from(shard.0)).map(|news| news.told.clone()).unwrap_or_default()
    }

    /// The crawls that a shard should look at.
    pub fn take_news(&self, shard: ShardId) -> BTreeSet<CrawlName> {
        self.news.get(usize::from(shard.0)).map(|news| std::mem::take(&mut *lock(&news.crawls))).unwrap_or_default()
    }

    /// Tells shards to look at a crawl.
    pub fn tell<'a>(&self, crawl: &CrawlName, shards: impl IntoIterator<Item = &'a ShardId>) {
        for news in shards.into_iter().filter_map(|shard| self.news.get(usize::from(shard.0))) {
            lock(&news.crawls).insert(crawl.clone());
            news.told.notify_one();
        }
    }

    /// Tells shards to look at crawls.
    pub fn tell_all(&self, looking: &[(CrawlName, Vec<ShardId>)]) {
        looking.iter().for_each(|(crawl, shards)| self.tell(crawl, shards));
    }

    /// A shard was opened and uses these pages.
    pub fn open(&self, shard: ShardId, used: &[PageLimit]) {
        let shares = &mut *lock(&self.state);
        shares.crawls.values_mut().for_each(|taken| taken.set(shard, 0));
        for limit in used {
            shares.taken(&limit.name).set(shard, limit.used);
        }
        if let Some(opened) = shares.opened.get_mut(usize::from(shard.0)) {
            shares.unopened -= usize::from(!std::mem::replace(opened, true));
        }
        for (crawl, taken) in &mut shares.crawls {
            self.tell(crawl, &std::mem::take(&mut taken.waits));
        }
    }

    /// Claims up to `wanted` pages; returns the number granted.
    pub fn claim(&self, taker: Taker<'_>, wanted: u64) -> u64 {
        let mut shares = lock(&self.state);
        let opening = shares.unopened > 0;
        let taken = shares.taken(taker.crawl);
        let left = if opening { 0 } else { taker.limit.saturating_sub(taken.total) };
        let granted = wanted.min(left);
        taken.set(taker.shard, taken.part(taker.shard) + granted);
        granted
    }

    /// Converts a claim: the shard takes `more` pages and returns `back` of those claimed. Returns what the others
    /// take, and records whether the shard waits for more.
    pub fn settle(&self, taker: Taker<'_>, more: u64, back: u64) -> u64 {
        let mut shares = lock(&self.state);
        let opening = shares.unopened > 0;
        let taken = shares.taken(taker.crawl);
        let own = (taken.part(taker.shard) + more).saturating_sub(back);
        taken.set(taker.shard, own);
        let total = taken.total;
        if back > 0 && total < taker.limit {
            self.tell(taker.crawl, &std::mem::take(&mut taken.waits));
        }
        if opening || total >= taker.limit {
            taken.waits.insert(taker.shard);
        } else {
            taken.waits.remove(&taker.shard);
        }
        if opening { u64::MAX } else { total - own }
    }

    /// Pages of this shard have been given back durably.
    pub fn give_back(&self, taker: Taker<'_>, pages: u64) {
        let mut shares = lock(&self.state);
        let Some(taken) = shares.crawls.get_mut(taker.crawl) else { return };
        taken.set(taker.shard, taken.part(taker.shard).saturating_sub(pages));
        if taken.total < taker.limit {
            self.tell(taker.crawl, &std::mem::take(&mut taken.waits));
        }
        if taken.total == 0 && taken.waits.is_empty() {
            shares.crawls.remove(taker.crawl);
        }
    }
}
