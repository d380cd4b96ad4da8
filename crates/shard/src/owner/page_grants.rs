//! Page limits where several nodes share a store: this shard uses only pages that the crawl's ledger grants it, and
//! keeps no more of them than it needs. The ledger's rules, and what could break them, are in
//! `wayleave_core::frontier::page_ledger`.
//!
//! The owner waits for the ledger in the middle of its turn, so between reading and writing it nothing is decided here.
//! What could change meanwhile is the ledger itself: then the write is refused and decided again. A write whose outcome
//! is unknown ends the term; the next one registers under a new epoch and reads what is granted.
//!
//! What could leave pages unused: a shard that holds pages and does not need them. It returns what exceeds its queued
//! URLs at once, everything that its last visit did not need once the ledger is exhausted, and the rest after
//! [`IDLE`]. A shard that finds nothing left reads the ledger again when another one reports a change, and from time to
//! time.

use hashbrown::HashMap;
use wayleave_core::frontier::page_ledger::{PageLedger, PageNeed, PageShare};
use wayleave_core::frontier::page_limits::PageLimit;
use wayleave_core::ids::ShardId;
use wayleave_core::limits::SLICE_ROWS;
use wayleave_core::names::CrawlName;
use wayleave_core::time::{Millis, Time};
use wayleave_engine::rows::{Kind, key, page_ledger};
use wayleave_engine::{Batch, Engine, Error, Scan, Write};

use crate::owner::open::damaged;
use crate::owner::owner_loop::Owner;

/// Unused pages are returned after this time.
const IDLE: Millis = Millis(5_000);
/// Pause before a ledger that had nothing left is read again; it doubles.
const LOOK_AGAIN: Millis = Millis(1_000);
const LOOK_AGAIN_MAX: Millis = Millis(30_000);
/// Attempts to change a ledger that other shards change at the same time. One of them succeeds each time.
const TRIES: usize = 100;

/// The pages granted to a shard, by crawl. Crawls that are not in it are not registered yet.
#[derive(Default)]
pub(crate) struct PageGrants {
    crawls: HashMap<CrawlName, Granted>,
    /// Whether the ledgers that an earlier owner has left behind were looked for.
    cleaned: bool,
}

struct Granted {
    share: PageShare,
    /// When pages were last claimed for a visit, and how many were taken.
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
    pub fn took(&mut self, crawl: &CrawlName, pages: u64) {
        if let Some(granted) = self.crawls.get_mut(crawl) {
            granted.taken = pages;
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
        if known.is_none_or(|known| known.free(limit) < wanted && known.has_left(limit)) {
            self.settle_grant(limit, wanted, u64::MAX).await?;
        }
        let now = self.engine.now();
        let granted = self.page_grants.as_mut().and_then(|grants| grants.crawls.get_mut(&limit.name));
        Ok(granted.map_or(0, |granted| {
            granted.claimed_at = now;
            granted.free(limit).min(wanted)
        }))
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
        let limits: Vec<PageLimit> = self.state.page_limits().collect();
        if limits.is_empty() && grants.crawls.is_empty() {
            return Ok(());
        }
        let gone = grants.crawls.keys().filter(|crawl| !limits.iter().any(|limit| limit.name == **crawl));
        for crawl in gone.cloned().collect::<Vec<_>>() {
            self.leave_ledger(&crawl).await?;
        }
        for limit in &limits {
            let keep = match self.page_grants.as_ref().and_then(|grants| grants.crawls.get(&limit.name)) {
                None => Some(u64::MAX),
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
        if before.is_none() || keep < u64::MAX {
            // Pages that it no longer uses must be durably unused before they are returned, or registered without.
            self.flush().await?;
        }
        let need = PageNeed { used: limit.used, free, keep, limit: limit.limit };
        let (shard, epoch, shards) = (self.shard, self.epoch, self.config.shards);
        let settled =
            update_ledger(&*self.engine, &limit.name, |ledger| ledger.settle(shard, epoch, need, shards)).await?;
        // A newer owner has registered: this one may use nothing more, and will be fenced. The same while the ledger
        // changes all the time.
        let none = PageShare { granted: limit.used, others: limit.limit, complete: true };
        let share = settled.flatten().unwrap_or(none);
        let now = self.engine.now();
        let Some(grants) = &mut self.page_grants else { return Ok(()) };
        let fresh = Granted { share, claimed_at: now, taken: 0, look_at: now, pause: LOOK_AGAIN };
        let granted = grants.crawls.entry(limit.name.clone()).or_insert(fresh);
        let changed = before != Some(share);
        granted.share = share;
        granted.pause = if changed { LOOK_AGAIN } else { Millis((granted.pause.0 * 2).min(LOOK_AGAIN_MAX.0)) };
        granted.look_at = now.after(granted.pause);
        self.state.set_used_elsewhere(limit.crawl, grants.used_elsewhere(limit));
        if before.is_none_or(|before| share.granted < before.granted || before.complete != share.complete) {
            self.readiness.pages.nudge_all();
        }
        Ok(())
    }

    async fn leave_ledger(&mut self, crawl: &CrawlName) -> Result<(), Error> {
        // The deletion of its pages, or the change of its limit.
        self.flush().await?;
        let (shard, epoch) = (self.shard, self.epoch);
        if update_ledger(&*self.engine, crawl, |ledger| ledger.leave(shard, epoch)).await?.is_some()
            && let Some(grants) = &mut self.page_grants
        {
            grants.crawls.remove(crawl);
        }
        Ok(())
    }

    /// Pages have moved with a host: what is granted must be read again.
    pub fn forget_grants<'a>(&mut self, crawls: impl Iterator<Item = &'a CrawlName>) {
        if let Some(grants) = &mut self.page_grants {
            crawls.for_each(|crawl| _ = grants.crawls.remove(crawl));
        }
    }

    /// Leaves the ledgers of crawls that lost their limit before an earlier owner could leave them.
    async fn leave_old_ledgers(&mut self) -> Result<(), Error> {
        let (mut from, to) = key::range(key::OUTSIDE, Kind::PageLedger, Kind::PageLedger);
        loop {
            let scan = Scan { from, to: to.clone(), limit: SLICE_ROWS };
            let rows = self.engine.scan_many(std::slice::from_ref(&scan)).await?.pop().unwrap_or_default();
            for row in &rows {
                let crawl = page_ledger::parse_key(&row.key).map_err(damaged)?;
                let ledger = page_ledger::decode(&row.value).map_err(damaged)?;
                let is_limited = self.state.page_limits().any(|limit| limit.name == crawl);
                if ledger.0.contains_key(&self.shard) && !is_limited {
                    self.leave_ledger(&crawl).await?;
                }
            }
            let Some(last) = rows.into_iter().next_back() else { return Ok(()) };
            from = last.key;
            from.push(0);
        }
    }
}

/// Changes a ledger by compare-and-swap. `None` if others changed it each time.
async fn update_ledger<T>(
    engine: &dyn Engine,
    crawl: &CrawlName,
    mut decide: impl FnMut(&mut PageLedger) -> T,
) -> Result<Option<T>, Error> {
    let key = page_ledger::key(crawl);
    for _ in 0..TRIES {
        let before = engine.get_many(std::slice::from_ref(&key)).await?.pop().flatten();
        let mut ledger = before.as_deref().map(page_ledger::decode).transpose().map_err(damaged)?.unwrap_or_default();
        let decided = decide(&mut ledger);
        let after = (!ledger.0.is_empty()).then(|| page_ledger::encode(&ledger));
        if after == before {
            return Ok(Some(decided));
        }
        let write = Write { key: key.clone(), value: after };
        let batch = Batch { fences: Vec::new(), expects: vec![(key.clone(), before)], writes: vec![write] };
        match engine.commit(batch).await {
            Ok(()) => return Ok(Some(decided)),
            Err(Error::Conflict) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
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
    let mut moved: Vec<(Vec<u8>, u64)> = pages.iter().map(|(crawl, n)| (page_ledger::key(crawl), *n)).collect();
    moved.sort_unstable();
    moved.dedup_by(|more, sum| {
        let same = more.0 == sum.0;
        sum.1 += if same { more.1 } else { 0 };
        same
    });
    let keys: Vec<Vec<u8>> = moved.iter().map(|(key, _)| key.clone()).collect();
    for ((key, pages), row) in moved.into_iter().zip(engine.get_many(&keys).await?) {
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
