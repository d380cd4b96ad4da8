//! Page limits where several nodes share a store: this shard uses only pages that the crawl's ledger grants it, and
//! keeps no more of them than it needs. The ledger's rules, and what could break them, are in
//! `wayleave_core::frontier::page_ledger`.
//!
//! The owner waits for the ledger in the middle of its turn, so between reading and writing it nothing is decided here.
//! What could go wrong meanwhile:
//!
//! 1. *Another node changes the ledger*: the write is refused as a conflict and decided again.
//! 2. *Another shard of this process does*: they take turns ([`LedgerLocks`]). An engine may show a row that is still in
//!    flight and then refused; a decision on such a row would take for granted what the store never had. So the ledger
//!    is read from the store itself (`Engine::look`), and within the process one change is durable before the next is
//!    decided.
//! 3. *A commit of this shard fails that the decision builds on*, such as one that gave pages up: the write carries the
//!    shard's fence with the next sequence number, so it can only follow all commits before it. The same fence stops an
//!    owner that was paused and has been replaced.
//! 4. *The outcome of the write is unknown*: the term ends, and the next one registers under a new epoch and reads what
//!    is granted.
//!
//! What could leave pages unused: a shard that holds pages and does not need them. It returns what exceeds its queued
//! URLs at once, everything that its last visit did not need once the ledger is exhausted, and the rest after
//! [`IDLE`]. A shard that finds nothing left reads the ledger again when another one reports a change, and from time to
//! time.

use hashbrown::{HashMap, HashSet};
use wayleave_core::frontier::page_ledger::{PageLedger, PageNeed, PageShare};
use wayleave_core::frontier::page_limits::PageLimit;
use wayleave_core::ids::ShardId;
use wayleave_core::limits::SLICE_ROWS;
use wayleave_core::names::CrawlName;
use wayleave_core::time::{Millis, Time};
use wayleave_engine::rows::{Kind, key, page_ledger};
use wayleave_engine::{Engine, Error, Key, Scan, Value, Write};

use crate::owner::open::damaged;
use crate::owner::owner_loop::Owner;

/// Unused pages are returned after this time.
const IDLE: Millis = Millis(5_000);
/// Pause before a ledger that had nothing left is read again; it doubles.
const LOOK_AGAIN: Millis = Millis(1_000);
const LOOK_AGAIN_MAX: Millis = Millis(30_000);
/// Attempts to change a ledger that other nodes change at the same time. One of them succeeds each time.
const TRIES: usize = 100;
/// Locks for the ledgers of all crawls; crawls that share one wait for each other.
const LOCKS: usize = 64;

/// The pages granted to a shard, by crawl. Crawls that are not in it are not registered yet.
#[derive(Default)]
pub(crate) struct PageGrants {
    crawls: HashMap<CrawlName, Granted>,
    /// Whether the ledgers that an earlier owner has left behind were looked for.
    cleaned: bool,
}

struct Granted {
    share: PageShare,
    /// The limit that the share was settled for.
    limit: u64,
    /// When pages were last drawn or taken, and how many the last visit took.
    claimed_at: Time,
    taken: u64,
    /// When the ledger is read again if nothing is left, and the pause before that.
    look_at: Time,
    pause: Millis,
}

impl Granted {
    /// Pages that the shard may use.
    const fn free(&self, limit: &PageLimit) -> u64 {
        self.share.granted.saturating_sub(limit.used)
    }

    /// Whether there may be pages left in the ledger.
    const fn has_left(&self, limit: &PageLimit) -> bool {
        self.share.complete && self.share.others.saturating_add(self.share.granted) < limit.limit
    }

    /// The number of unused pages that the shard should keep; `None` if it need not return any.
    fn keep(&self, limit: &PageLimit, now: Time) -> Option<u64> {
        let needed = if self.has_left(limit) { limit.queued } else { limit.queued.min(self.taken) };
        let needed = if now >= self.claimed_at.after(IDLE) { 0 } else { needed };
        (self.free(limit) > needed).then_some(needed)
    }

    /// Whether the share no longer fits: the limit has changed, or pages were counted that were not granted, such as a
    /// late report about an expired hold.
    const fn is_stale(&self, limit: &PageLimit) -> bool {
        self.limit != limit.limit || limit.used > self.share.granted
    }

    /// Whether the shard waits for pages that others return.
    const fn waits(&self, limit: &PageLimit) -> bool {
        limit.queued > 0 && self.free(limit) == 0 && !self.has_left(limit)
    }
}

impl PageGrants {
    /// What other shards may use, as far as this one knows: so much that exactly what it may use or draw is left.
    pub fn used_elsewhere(&self, limit: &PageLimit) -> u64 {
        // If it is not registered yet it may have pages, which a visit will find out.
        self.crawls.get(&limit.name).map_or(0, |granted| {
            let PageShare { granted, others, complete } = granted.share;
            if complete { others } else { limit.limit.saturating_sub(granted) }
        })
    }

    /// Pages granted to the shard.
    pub fn granted(&self, crawl: &CrawlName) -> u64 {
        self.crawls.get(crawl).map_or(0, |granted| granted.share.granted)
    }

    /// A visit took so many pages.
    pub fn took(&mut self, crawl: &CrawlName, pages: u64, now: Time) {
        if let Some(granted) = self.crawls.get_mut(crawl) {
            granted.taken = pages;
            if pages > 0 {
                granted.claimed_at = now;
            }
        }
    }
}

/// Changes to ledgers that are part of a move of hosts: what was read, and what is to be written.
#[derive(Default)]
pub(crate) struct LedgerMove {
    pub expects: Vec<wayleave_engine::Expect>,
    pub writes: Vec<Write>,
}

impl Owner {
    /// Draws pages for a visit that wants so many. Returns the number that it may use.
    pub async fn draw_pages(&mut self, limit: &PageLimit, wanted: u64) -> Result<u64, Error> {
        let wanted = wanted.min(limit.queued.max(1));
        let known = self.page_grants.as_ref().and_then(|grants| grants.crawls.get(&limit.name));
        let must_ask = |known: &Granted| known.is_stale(limit) || known.free(limit) < wanted && known.has_left(limit);
        if known.is_none_or(must_ask) {
            self.settle_grant(limit, wanted, u64::MAX).await?;
        }
        let granted = self.page_grants.as_ref().and_then(|grants| grants.crawls.get(&limit.name));
        Ok(granted.map_or(0, |granted| granted.free(limit).min(wanted)))
    }

    /// Registers at ledgers, returns pages that are not needed, reads exhausted ledgers again, and leaves those of
    /// crawls that have no limit any more.
    pub async fn tidy_pages(&mut self) -> Result<(), Error> {
        if self.page_grants.as_ref().is_some_and(|grants| !grants.cleaned) {
            self.leave_old_ledgers().await?;
        }
        let Some(grants) = &mut self.page_grants else { return Ok(()) };
        grants.cleaned = true;
        let now = self.engine.now();
        let limits: HashMap<CrawlName, PageLimit> =
            self.state.page_limits().map(|limit| (limit.name.clone(), limit)).collect();
        let gone: Vec<CrawlName> = grants.crawls.keys().filter(|crawl| !limits.contains_key(*crawl)).cloned().collect();
        for crawl in gone {
            self.leave_ledger(&crawl).await?;
        }
        for limit in limits.values() {
            let keep = match self.page_grants.as_ref().and_then(|grants| grants.crawls.get(&limit.name)) {
                None => Some(u64::MAX),
                Some(granted) if granted.is_stale(limit) => Some(u64::MAX),
                Some(granted) if granted.waits(limit) && granted.look_at <= now => Some(u64::MAX),
                Some(granted) => granted.keep(limit, now),
            };
            if let Some(keep) = keep {
                self.settle_grant(limit, 0, keep).await?;
            }
        }
        Ok(())
    }

    /// When [`Owner::tidy_pages`] has work again.
    pub fn pages_due(&self) -> Option<Time> {
        let grants = self.page_grants.as_ref()?;
        if self.state.page_limits().count() < grants.crawls.len() || !grants.cleaned {
            return Some(Time::ZERO);
        }
        let due = |limit: PageLimit| match grants.crawls.get(&limit.name) {
            None => Some(Time::ZERO),
            Some(granted) if granted.is_stale(&limit) => Some(Time::ZERO),
            Some(granted) if granted.waits(&limit) => Some(granted.look_at),
            Some(granted) => (granted.free(&limit) > 0).then(|| granted.claimed_at.after(IDLE)),
        };
        self.state.page_limits().filter_map(due).min()
    }

    /// Another shard has drawn or returned pages.
    pub fn hear_of_pages(&mut self) {
        let now = self.engine.now();
        for granted in self.page_grants.iter_mut().flat_map(|grants| grants.crawls.values_mut()) {
            granted.look_at = granted.look_at.min(now);
        }
    }

    async fn settle_grant(&mut self, limit: &PageLimit, free: u64, keep: u64) -> Result<(), Error> {
        let before =
            self.page_grants.as_ref().and_then(|grants| grants.crawls.get(&limit.name)).map(|known| known.share);
        let need = PageNeed { used: limit.used, free, keep, limit: limit.limit };
        let (shard, epoch, shards) = (self.shard, self.epoch, self.config.shards);
        let settled = self.update_ledger(&limit.name, |ledger| ledger.grant(shard, epoch, need, shards)).await?;
        // A newer owner has registered: this one may use nothing more, and will be fenced.
        let share = settled.unwrap_or(PageShare { granted: limit.used, others: limit.limit, complete: true });
        let now = self.engine.now();
        let Some(grants) = &mut self.page_grants else { return Ok(()) };
        let fresh = Granted { share, limit: limit.limit, claimed_at: now, taken: 0, look_at: now, pause: LOOK_AGAIN };
        let granted = grants.crawls.entry(limit.name.clone()).or_insert(fresh);
        let changed = before != Some(share);
        (granted.share, granted.limit) = (share, limit.limit);
        if before.is_some_and(|before| share.granted > before.granted) {
            granted.claimed_at = now;
        }
        granted.pause = if changed { LOOK_AGAIN } else { Millis((granted.pause.0 * 2).min(LOOK_AGAIN_MAX.0)) };
        granted.look_at = now.after(granted.pause);
        self.state.set_used_elsewhere(limit.crawl, grants.used_elsewhere(limit));
        if before.is_none_or(|before| share.granted < before.granted || before.complete != share.complete) {
            self.readiness.pages.wake_waiters();
        }
        Ok(())
    }

    async fn leave_ledger(&mut self, crawl: &CrawlName) -> Result<(), Error> {
        let (shard, epoch) = (self.shard, self.epoch);
        self.update_ledger(crawl, |ledger| ledger.leave(shard, epoch)).await?;
        if let Some(grants) = &mut self.page_grants {
            grants.crawls.remove(crawl);
        }
        Ok(())
    }

    /// Changes a ledger by compare-and-swap, fenced by this shard.
    async fn update_ledger<T>(
        &mut self,
        crawl: &CrawlName,
        mut decide: impl FnMut(&mut PageLedger) -> T,
    ) -> Result<T, Error> {
        let readiness = self.readiness.clone();
        let _one_at_a_time = readiness.pages.ledgers.lock(std::iter::once(crawl)).await;
        let key = page_ledger::key(crawl);
        for _ in 0..TRIES {
            let before = read_ledgers(&*self.engine, std::slice::from_ref(&key)).await?.pop().flatten();
            let mut ledger =
                before.as_deref().map(page_ledger::decode).transpose().map_err(damaged)?.unwrap_or_default();
            let decided = decide(&mut ledger);
            let after = (!ledger.0.is_empty()).then(|| page_ledger::encode(&ledger));
            if after == before {
                return Ok(decided);
            }
            match self.commit_now(vec![(key.clone(), before)], vec![Write { key: key.clone(), value: after }]).await {
                Ok(()) => return Ok(decided),
                Err(Error::Conflict) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Unavailable(format!("too many concurrent updates to the page limit of crawl '{crawl}'")))
    }

    /// Pages have moved with a host: what is granted must be read again.
    pub fn forget_grants<'a>(&mut self, crawls: impl Iterator<Item = &'a CrawlName>) {
        if let Some(grants) = &mut self.page_grants {
            crawls.for_each(|crawl| _ = grants.crawls.remove(crawl));
        }
    }

    /// Leaves the ledgers of crawls that lost their limit before an earlier owner could leave them.
    async fn leave_old_ledgers(&mut self) -> Result<(), Error> {
        let limited: HashSet<CrawlName> = self.state.page_limits().map(|limit| limit.name).collect();
        let (mut from, to) = key::range(key::OUTSIDE, Kind::PageLedger, Kind::PageLedger);
        loop {
            let scan = Scan { from, to: to.clone(), limit: SLICE_ROWS };
            let rows = self.engine.scan_many(std::slice::from_ref(&scan)).await?.pop().unwrap_or_default();
            for row in &rows {
                let crawl = page_ledger::parse_key(&row.key).map_err(damaged)?;
                let ledger = page_ledger::decode(&row.value).map_err(damaged)?;
                if ledger.0.contains_key(&self.shard) && !limited.contains(&crawl) {
                    self.leave_ledger(&crawl).await?;
                }
            }
            let Some(last) = rows.into_iter().next_back() else { return Ok(()) };
            from = last.key;
            from.push(0);
        }
    }
}

/// Locks by which the owners of one process take turns at the ledgers.
pub(crate) struct LedgerLocks(Vec<tokio::sync::Mutex<()>>);

impl Default for LedgerLocks {
    fn default() -> Self {
        Self((0..LOCKS).map(|_| tokio::sync::Mutex::default()).collect())
    }
}

impl LedgerLocks {
    /// Locks the ledgers of some crawls, in one order for all callers.
    pub async fn lock<'a>(&self, crawls: impl Iterator<Item = &'a CrawlName>) -> Vec<tokio::sync::MutexGuard<'_, ()>> {
        let mut at: Vec<usize> =
            crawls.map(|crawl| crawl.bytes().fold(0, |sum, byte| (sum * 31 + usize::from(byte)) % LOCKS)).collect();
        at.sort_unstable();
        at.dedup();
        let mut guards = Vec::with_capacity(at.len());
        for lock in at.into_iter().filter_map(|at| self.0.get(at)) {
            guards.push(lock.lock().await);
        }
        guards
    }
}

/// Reads rows from the store itself: rows in flight are not in it.
async fn read_ledgers(engine: &dyn Engine, keys: &[Key]) -> Result<Vec<Option<Value>>, Error> {
    let scan = |key: &Key| Scan { from: key.clone(), to: [key, &[0][..]].concat(), limit: 1 };
    let look = engine.look(&keys.iter().map(scan).collect::<Vec<_>>()).await?;
    Ok(look.rows.into_iter().map(|rows| rows.into_iter().next().map(|row| row.value)).collect())
}

/// What a move of used pages from one shard to another changes in the ledgers. A ledger that does not exist
/// stays so: neither shard is registered, and both are busy with the move.
pub(crate) async fn move_grants(
    engine: &dyn Engine,
    (from, to): (ShardId, ShardId),
    pages: &[(CrawlName, u64)],
) -> Result<LedgerMove, Error> {
    let mut change = LedgerMove::default();
    if pages.is_empty() {
        return Ok(change);
    }
    let mut moved: Vec<(Key, u64)> = pages.iter().map(|(crawl, n)| (page_ledger::key(crawl), *n)).collect();
    moved.sort_unstable();
    moved.dedup_by(|more, sum| {
        let same = more.0 == sum.0;
        sum.1 += if same { more.1 } else { 0 };
        same
    });
    let keys: Vec<Key> = moved.iter().map(|(key, _)| key.clone()).collect();
    for ((key, pages), row) in moved.into_iter().zip(read_ledgers(engine, &keys).await?) {
        let Some(row) = row else { continue };
        let mut ledger = page_ledger::decode(&row).map_err(damaged)?;
        ledger.transfer(from, to, pages);
        let after = page_ledger::encode(&ledger);
        if after != row {
            change.expects.push((key.clone(), Some(row)));
            change.writes.push(Write { key, value: Some(after) });
        }
    }
    Ok(change)
}
