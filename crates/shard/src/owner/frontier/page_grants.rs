//! Page limits where several nodes share a store: this shard uses only pages that the crawl's ledger grants it. The ledger's
//! rules, and what could break them, are in `wayleave_core::frontier::page_ledger`; who opens it is in `set_crawl`, how it is changed in `ledger_rows`.
//!
//! Nothing is done for a crawl that nobody visits: a shard asks the ledger when a visit needs pages, and keeps what it was
//! granted for as long as no other shard lacks them. A new owner draws nothing before it needs to, as the grants of its
//! shard stay in the ledger.
//!
//! When a limit is set, the ledger gives pages to all shards at once, and each is *told* its own with the setting: a thousand
//! limited crawls in hundreds of shards would otherwise ask for each crawl in each shard. A shard takes what it is told only
//! while nothing has happened to its grant since it followed: it has neither asked, nor moved pages, nor followed
//! again (`awaits`), nor has a new owner. For the grant of a shard gets smaller only by its own hand, or by a move. The round's
//! number keeps apart two ledgers that were opened under one version, the first of which was lost.
//!
//! Some pages are counted without a grant: URLs that are put as fetched, or as known, and late reports of expired holds. The
//! shard has them *registered* soon, by asking the ledger. Whether it must is told by the pages that the ledger certainly has of
//! this shard, which it has said itself: in answer to this owner, or by being opened with what the shard answered when
//! it heard of the limit. Otherwise, as after the shard was opened or a host has moved, the owner looks, for many
//! crawls at once. What could go wrong:
//!
//! 1. *Pages are counted after the shard has answered the home, and before the ledger is open*: the ledger has fewer, and the
//!    shard asks again until it is open.
//! 2. *They are counted just before the limit is set anew*: a ledger that stays has not heard of them. So the pages that it
//!    certainly has are not raised by an answer to the home.
//! 3. *The owner ends between their commit and the registration*: the next one has no answer of the ledger, and looks.
//!
//! A ledger that cannot be read costs the visits of its crawl, and closes no shard: it gives no answer, like one that is
//! not open. When the limit is set again, or the crawl's home has a new owner, it is removed and opened anew
//! (`set_crawl`). Nor does one whose row is locked by another session: but each question takes as long as the store waits for
//! the lock, with all calls of the shard, so it is asked ever more rarely.
//!
//! What could leave pages unused: a shard that holds pages and does not need them, or a new owner that does not know what
//! its shard was granted. When a shard finds nothing left it says so with its counts (`CrawlTotals::waits`); then all
//! others return what exceeds what they need, and everything after [`IDLE`]. It reads the ledger again when another shard
//! reports fewer pages than before, or pages that it did not know, and from time to time.

use std::collections::BTreeSet;

use hashbrown::HashMap;
use wayleave_core::frontier::page_ledger::{PageLedger, PageNeed, PageShare};
use wayleave_core::frontier::page_limits::PageLimit;
use wayleave_core::ids::CrawlNo;
use wayleave_core::names::CrawlName;
use wayleave_core::time::{Millis, Time};
use wayleave_engine::rows::page_ledger;
use wayleave_engine::{Error, Key};

use crate::owner::frontier::Frontier;
use crate::owner::frontier::ledger_rows::{NoLedger, log_ledger, read_ledgers, update_ledger};
use crate::owner::frontier::set_crawl::OpenLedgers;
use crate::owner::port::Port;
use crate::shared::crawl_totals::CrawlTotals;

/// Unused pages that others lack are returned after this time.
const IDLE: Millis = Millis(5_000);
/// Pause before a ledger that had nothing left is read again; it doubles.
const LOOK_AGAIN: Millis = Millis(1_000);
const LOOK_AGAIN_MAX: Millis = Millis(600_000);
/// The same of one that the store refuses to change.
const REFUSED_MAX: Millis = Millis(60_000);
/// Ledgers that one turn asks besides those of its visits.
const LEDGERS_A_TURN: usize = 8;
/// Ledgers that one turn looks at.
const LOOKS_A_TURN: usize = 64;

/// The pages granted to a shard, by crawl. Of crawls that are not in it the ledger was not asked yet.
#[derive(Default)]
pub(crate) struct PageGrants {
    crawls: HashMap<CrawlNo, Granted>,
    /// Pages that the ledger certainly has of this shard, once it is open. Of crawls that are not in it, it has not said.
    registered: HashMap<CrawlNo, u64>,
    /// The round in which the shard has followed, while nothing has happened to its grant since.
    awaits: HashMap<CrawlNo, u64>,
    /// When the pages of a crawl are looked at next.
    due: BTreeSet<(Time, CrawlNo)>,
    due_at: HashMap<CrawlNo, Time>,
    /// Crawls whose grant changed since their counts were published.
    changed: BTreeSet<CrawlNo>,
    /// The ledgers of the crawls that this shard is the home of.
    pub ledgers: OpenLedgers,
}

struct Granted {
    share: PageShare,
    /// The limit that the share was settled for.
    limit: u64,
    /// When pages were last drawn or taken, and how many the last visit took.
    claimed_at: Time,
    taken: u64,
    /// It was told and has not asked. Others need not hear of these pages before they lack some.
    was_told: bool,
    /// When the ledger is read again if nothing is left, and the pause before that.
    look_at: Time,
    pause: Millis,
    /// The store has refused to change the ledger: it is not written before this.
    write_at: Time,
}

impl Granted {
    const fn new(share: PageShare, limit: &PageLimit, now: Time) -> Self {
        let limit = limit.limit;
        Self {
            share,
            limit,
            claimed_at: now,
            taken: 0,
            was_told: false,
            look_at: now,
            pause: LOOK_AGAIN,
            write_at: Time::ZERO,
        }
    }

    /// Pages that the shard may use.
    const fn free(&self, limit: &PageLimit) -> u64 {
        self.share.free(limit.used, limit.limit)
    }

    /// Whether there may be pages left in the ledger.
    const fn has_left(&self, limit: &PageLimit) -> bool {
        self.share.open && self.share.others.saturating_add(self.share.granted) < limit.limit
    }

    /// The number of unused pages that the shard should keep while others lack some; `None` if it need not return any.
    fn keep(&self, limit: &PageLimit, now: Time) -> Option<u64> {
        let needed = if now >= self.claimed_at.after(IDLE) { 0 } else { limit.queued.min(self.taken) };
        (self.share.open && self.share.granted > limit.used.saturating_add(needed)).then_some(needed)
    }

    /// Whether pages were counted that were not granted, such as a late report about an expired hold.
    const fn is_exceeded(&self, limit: &PageLimit) -> bool {
        limit.used > self.share.granted
    }

    /// Whether the shard waits for pages that others return.
    const fn waits(&self, limit: &PageLimit) -> bool {
        limit.queued > 0 && self.free(limit) == 0 && !self.has_left(limit)
    }
}

impl PageGrants {
    /// What other shards may use, as far as this one knows.
    pub fn used_elsewhere(&self, limit: &PageLimit) -> u64 {
        // If the ledger was not asked yet there may be pages, which a visit will find out.
        self.crawls.get(&limit.crawl).map_or(0, |granted| granted.share.others)
    }

    /// What is published of a crawl: the pages granted to the shard, if it knows them, and whether it waits for more.
    pub fn publish(&self, limit: &PageLimit, totals: &mut CrawlTotals) {
        if let Some(granted) = self.crawls.get(&limit.crawl) {
            totals.pages = (!granted.was_told).then_some(granted.share.granted);
            totals.waits = granted.waits(limit).into();
        }
    }

    /// A visit took so many pages.
    pub fn took(&mut self, crawl: CrawlNo, pages: u64, now: Time) {
        if let Some(granted) = self.crawls.get_mut(&crawl) {
            granted.taken = pages;
            if pages > 0 {
                granted.claimed_at = now;
            }
        }
    }

    /// The limit of a crawl was set, and the home was told the number of pages used: whatever was granted must be asked anew. The
    /// ledger will be opened with this number, if it is not open already, and the shard told in this round what it has.
    pub fn answered(&mut self, crawl: CrawlNo, used: u64, is_new: bool, round: u64) {
        self.crawls.remove(&crawl);
        self.awaits.insert(crawl, round);
        if is_new {
            self.registered.insert(crawl, used);
        } else if let Some(registered) = self.registered.get_mut(&crawl) {
            *registered = used.min(*registered);
        }
        self.changed.insert(crawl);
        self.set_due(crawl, None);
    }

    /// Nothing is known of what the ledger has of a crawl: the shard was opened, or pages have moved with a host.
    pub fn forget(&mut self, crawl: CrawlNo) {
        self.remove(crawl);
        self.changed.insert(crawl);
    }

    /// The crawl has no limit any more.
    pub fn remove(&mut self, crawl: CrawlNo) {
        self.crawls.remove(&crawl);
        self.registered.remove(&crawl);
        self.awaits.remove(&crawl);
        self.changed.remove(&crawl);
        self.set_due(crawl, None);
    }

    /// The crawls whose grant changed since the last call.
    pub fn take_changed(&mut self) -> BTreeSet<CrawlNo> {
        std::mem::take(&mut self.changed)
    }

    /// Plans when the pages of a crawl are looked at next.
    pub fn plan(&mut self, limit: &PageLimit, lacking_elsewhere: bool, now: Time) {
        let due = match self.crawls.get(&limit.crawl) {
            None => {
                let is_late = limit.used > self.registered.get(&limit.crawl).copied().unwrap_or_default();
                (is_late || lacking_elsewhere).then_some(Time::ZERO)
            }
            // Not at once where the ledger gave no answer, or nothing can be drawn.
            Some(granted) if granted.is_exceeded(limit) && granted.share.others < limit.limit => Some(granted.write_at),
            Some(granted) if granted.is_exceeded(limit) || granted.waits(limit) => Some(granted.look_at),
            Some(_) if !lacking_elsewhere => None,
            // Without an answer it is not known what there is to return.
            Some(granted) if !granted.share.open => Some(granted.look_at),
            Some(granted) if granted.keep(limit, now).is_some() => Some(granted.write_at),
            Some(granted) => (granted.free(limit) > 0).then(|| granted.claimed_at.after(IDLE)),
        };
        self.set_due(limit.crawl, due);
    }

    fn set_due(&mut self, crawl: CrawlNo, due: Option<Time>) {
        let before = match due {
            Some(due) => self.due_at.insert(crawl, due),
            None => self.due_at.remove(&crawl),
        };
        before.map(|before| self.due.remove(&(before, crawl)));
        due.map(|due| self.due.insert((due, crawl)));
    }

    /// Whether the ledger must be looked at, before the shard can know whether it has all pages used.
    fn must_look(&self, limit: &PageLimit) -> bool {
        limit.used > 0 && !self.registered.contains_key(&limit.crawl) && !self.crawls.contains_key(&limit.crawl)
    }

    /// The pages of this shard that a look has found in the ledger; `None` if it is not open, or cannot be read.
    fn looked(&mut self, limit: &PageLimit, found: Option<u64>, now: Time) {
        match found {
            Some(pages) => _ = self.registered.insert(limit.crawl, pages),
            None => self.settled(limit, None, now),
        }
    }

    /// Takes the share that the home has read from the ledger.
    fn told(&mut self, limit: &PageLimit, round: u64, share: PageShare, now: Time) {
        if self.awaits.get(&limit.crawl) == Some(&round) {
            self.settled(limit, Some(share), now);
            self.crawls.get_mut(&limit.crawl).into_iter().for_each(|granted| granted.was_told = true);
        }
    }

    /// Takes note of what the ledger has said; `None` if it gave no answer: it is not open, cannot be read, or others changed it
    /// all the time.
    fn settled(&mut self, limit: &PageLimit, share: Option<PageShare>, now: Time) {
        let known = self.crawls.get(&limit.crawl);
        let before = known.map(|known| known.share);
        if let Some(share) = share {
            self.registered.insert(limit.crawl, share.granted);
            self.awaits.remove(&limit.crawl);
        }
        // Without an answer there is nothing to be had for now, and what is not registered stays so.
        let granted = self.registered.get(&limit.crawl).copied().unwrap_or_default();
        let share = share.unwrap_or(PageShare { granted, others: limit.limit, open: false });
        let changed = before != Some(share);
        let drew = before.is_none_or(|before| share.granted > before.granted);
        let granted = self.crawls.entry(limit.crawl).or_insert_with(|| Granted::new(share, limit, now));
        (granted.share, granted.limit, granted.was_told) = (share, limit.limit, false);
        granted.write_at = Time::ZERO;
        granted.claimed_at = if drew { now } else { granted.claimed_at };
        let is_first = changed || !share.open;
        granted.pause = if is_first { LOOK_AGAIN } else { Millis((granted.pause.0 * 2).min(LOOK_AGAIN_MAX.0)) };
        granted.look_at = now.after(granted.pause);
        self.changed.insert(limit.crawl);
    }

    /// The store has refused to change the ledger. What the shard has in it remains its own.
    fn refused(&mut self, limit: &PageLimit, now: Time) {
        let known = self.crawls.get(&limit.crawl);
        let pause = Millis((known.map_or(LOOK_AGAIN, |known| known.pause).0 * 2).min(REFUSED_MAX.0));
        let own = known.filter(|known| known.limit == limit.limit && known.free(limit) > 0);
        let own = own.map(|known| known.share.granted);
        self.settled(limit, None, now);
        if let Some(granted) = self.crawls.get_mut(&limit.crawl) {
            let later = now.after(pause);
            (granted.pause, granted.look_at, granted.write_at) = (pause, later, later);
            if let Some(own) = own {
                // As if others had the rest: there is nothing to ask for.
                granted.share = PageShare { granted: own, others: limit.limit.saturating_sub(own), open: true };
            }
        }
    }
}

impl Frontier {
    /// Draws pages for visits that want so many. Returns the number that they may use.
    pub async fn draw_pages(&mut self, limit: &PageLimit, wanted: u64, port: &mut Port) -> Result<u64, Error> {
        let wanted = wanted.min(limit.queued.max(1));
        let known = self.page_grants.as_ref().and_then(|grants| grants.crawls.get(&limit.crawl));
        let must_ask = |known: &Granted| {
            let stale = known.limit != limit.limit || known.is_exceeded(limit);
            stale || known.free(limit) < wanted && known.has_left(limit)
        };
        if known.is_none_or(must_ask) {
            self.settle_grant(limit, wanted, u64::MAX, port).await?;
        }
        let granted = self.page_grants.as_ref().and_then(|grants| grants.crawls.get(&limit.crawl));
        Ok(granted.map_or(0, |granted| granted.free(limit).min(wanted)))
    }

    /// Registers pages that were used without a grant, returns those that others lack, reads exhausted ledgers again, and sees
    /// that the ledgers of crawls at home here are open.
    pub async fn tidy_pages(&mut self, port: &mut Port) -> Result<(), Error> {
        self.check_ledgers(port).await?;
        self.look_at_ledgers(port).await?;
        for _ in 0..LEDGERS_A_TURN {
            let now = port.engine.now();
            let Some(grants) = &mut self.page_grants else { return Ok(()) };
            let Some((_, crawl)) = grants.due.first().copied().filter(|(at, _)| *at <= now) else { return Ok(()) };
            let Some(limit) = self.state.page_limit_of(crawl) else {
                grants.remove(crawl);
                continue;
            };
            if grants.must_look(&limit) {
                // There are more than one look reads.
                return Ok(());
            }
            let keep = grants.crawls.get(&crawl).and_then(|granted| granted.keep(&limit, now));
            let lacking = is_lacking_elsewhere(&limit, port);
            self.settle_grant(&limit, 0, keep.filter(|_| lacking).unwrap_or(u64::MAX), port).await?;
        }
        Ok(())
    }

    /// Reads what the ledgers have of this shard, of crawls of which it is not known.
    async fn look_at_ledgers(&mut self, port: &mut Port) -> Result<(), Error> {
        let now = port.engine.now();
        let Some(grants) = &self.page_grants else { return Ok(()) };
        let due = grants.due.iter().take_while(|(at, _)| *at <= now).map(|(_, crawl)| *crawl);
        let unknown = due.filter(|crawl| !grants.registered.contains_key(crawl));
        let limits =
            unknown.filter_map(|crawl| self.state.page_limit_of(crawl)).filter(|limit| grants.must_look(limit));
        let limits: Vec<PageLimit> = limits.take(LOOKS_A_TURN).collect();
        if limits.is_empty() {
            return Ok(());
        }
        let keys: Vec<Key> = limits.iter().map(|limit| page_ledger::key(&limit.name)).collect();
        let ledgers = read_ledgers(&*port.engine, &keys).await?;
        for (limit, ledger) in limits.iter().zip(ledgers) {
            let ledger = ledger.inspect_err(|cause| log_ledger(&limit.name, cause, port)).ok().flatten();
            let pages = ledger.map(|(_, ledger)| ledger.0.get(&port.shard).map_or(0, |grant| grant.pages));
            self.page_grants.iter_mut().for_each(|grants| grants.looked(limit, pages, now));
            self.plan_pages(limit, port);
        }
        Ok(())
    }

    /// When [`Frontier::tidy_pages`] has work again.
    pub fn pages_due(&self) -> Option<Time> {
        let grants = self.page_grants.as_ref()?;
        grants.due.first().map(|(at, _)| *at).into_iter().chain(grants.ledgers.check_at).min()
    }

    /// Plans when the pages of a crawl are looked at next.
    pub fn plan_pages(&mut self, limit: &PageLimit, port: &Port) {
        if self.page_grants.is_some() {
            let (lacking, now) = (is_lacking_elsewhere(limit, port), port.engine.now());
            self.page_grants.iter_mut().for_each(|grants| grants.plan(limit, lacking, now));
        }
    }

    /// Another shard has returned pages of some crawls, or waits for some.
    pub fn hear_of_pages(&mut self, port: &mut Port) {
        let now = port.engine.now();
        for crawl in port.readiness.pages.take_news(port.shard) {
            let limit = self.state.crawl_no(&crawl).and_then(|no| self.state.page_limit_of(no));
            let Some(limit) = limit else { continue };
            let known = self.page_grants.as_mut().and_then(|grants| grants.crawls.get_mut(&limit.crawl));
            known.into_iter().for_each(|granted| granted.look_at = granted.look_at.min(now));
            self.plan_pages(&limit, port);
            self.publish_pages(&limit, 0, port);
        }
    }

    /// The home tells what the ledger of a limit has of this shard.
    pub fn hear_share(&mut self, crawl: &CrawlName, round: u64, ledger: &PageLedger, port: &mut Port) {
        let limit = self.state.crawl_no(crawl).and_then(|no| self.state.page_limit_of(no));
        if let (Some(limit), Some(grants)) = (limit, &mut self.page_grants) {
            grants.told(&limit, round, ledger.share(port.shard), port.engine.now());
            self.plan_pages(&limit, port);
            self.publish_pages(&limit, 0, port);
        }
    }

    async fn settle_grant(&mut self, limit: &PageLimit, free: u64, keep: u64, port: &mut Port) -> Result<(), Error> {
        let need = PageNeed { used: limit.used, free, keep, limit: limit.limit };
        let (shard, epoch, shards) = (port.shard, port.epoch, port.config.shards);
        // If a newer owner has registered, this one may use nothing more, and will be fenced.
        let grant = |ledger: &mut PageLedger| ledger.grant(shard, epoch, need, shards);
        let settled = update_ledger(&limit.name, |ledger| ledger.as_mut().and_then(grant), port).await?;
        let now = port.engine.now();
        let Some(grants) = &mut self.page_grants else { return Ok(()) };
        match settled {
            Err(NoLedger::Refused(_)) => grants.refused(limit, now),
            settled => grants.settled(limit, settled.ok().flatten(), now),
        }
        self.plan_pages(limit, port);
        self.publish_pages(limit, 0, port);
        Ok(())
    }

    /// Pages have moved with a host: what is granted must be read again.
    pub fn forget_grants<'a>(&mut self, crawls: impl Iterator<Item = &'a CrawlName>) {
        for no in crawls.filter_map(|crawl| self.state.crawl_no(crawl)) {
            self.page_grants.iter_mut().for_each(|grants| grants.forget(no));
        }
    }
}

/// Whether another shard waits for pages of a crawl.
fn is_lacking_elsewhere(limit: &PageLimit, port: &Port) -> bool {
    port.readiness.totals.others(&limit.name, port.shard).waits > 0
}

#[cfg(test)]
#[path = "page_grants_tests.rs"]
mod tests;
