//! Settings of a crawl, and its deletion. The shard that its name hashes to is the crawl's *home*: it decides on changes, and
//! the others follow with the whole settings that result. Every decision has a number, the *version*, and on every shard the
//! highest one wins, whatever order they arrive in: settings, or a tombstone (`core::frontier::deleted`). A change of settings
//! takes three steps:
//!
//! 1. The home decides. Where several nodes share a store, it also removes the ledger that an earlier page limit may have left
//!    behind: without a ledger nobody draws pages.
//! 2. Every other shard takes the settings over and answers how many pages it has used. From then on it uses none without a
//!    grant, so its answer holds. All shards of a node are asked in one message and commit together.
//! 3. The home confirms that the version is still in force, and opens the ledger of a page limit with these answers. If it
//!    has decided otherwise meanwhile, the caller goes round again, and spreads what is set by then. Otherwise it tells all shards
//!    what the ledger has of them; one that does not hear of it asks when it needs pages.
//!
//! A deletion takes the first two, twice (`Frontier::delete_crawl`).
//!
//! What could go wrong:
//!
//! 1. *The caller's node dies in between*: the limit holds, and hands out nothing more. The home looks some time later whether
//!    the ledger is open, as does every new owner of it, and repeats the steps if not.
//! 2. *The limit is removed and set again meanwhile*, so that shards have used pages since they answered: the version has
//!    grown with both, and the home refuses answers to an earlier one.
//! 3. *A shard is handed over after its answer*: the answer was durable, and the new owner has read the limit.
//! 4. *A shard answers that has been replaced*: it follows by a fenced commit, and answers without one wait for an empty one
//!    if the node is not sure to own its shards (`Port::confirm`).
//! 5. *A host moves between two answers*: its pages might be counted nowhere. While either shard knows of the limit and the
//!    ledger is not open, the move is refused.
//! 6. *The ledger cannot be read*: the home removes it and has the caller go round again, so that it is opened with
//!    answers that were given while there was none. It finds such a ledger when it looks whether ledgers are open.
//! 7. *A change that is slow to spread is repeated after a later one was answered*: A's change is decided as version 1, and a
//!    shard is slow to follow. B's is decided as version 2, followed by all and answered. Then A goes round again. Its change
//!    is in version 1, which version 2 was decided on, so A spreads version 2 and changes nothing.
//! 8. *A crawl is set while it is deleted*: the home has decided on the settings just before the deletion, and they reach some
//!    other shard after it. There the tombstone has the higher number, and they are ignored. The home no longer knows the
//!    version, so the caller goes round again. Only then, where the home does not know the crawl, the changes are decided
//!    on a second time: the crawl is made anew everywhere. A deletion that arrives after settings with a higher
//!    number removes the URLs and leaves the settings.
//! 9. *The same, and that shard was reopened in between*: it has lost the tombstone and takes the settings over. The
//!    caller makes the crawl anew, with a higher version. If the caller dies before it does, that shard has settings which the
//!    home does not have, until the crawl is next set or deleted.

use std::time::Duration;

use wayleave_core::frontier::page_ledger::PageLedger;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::ids::{CrawlNo, ShardId};
use wayleave_core::limits::{FORWARD_TIME, HAND_OVER_WAIT};
use wayleave_core::names::CrawlName;
use wayleave_core::settings::{CrawlChanges, CrawlSettings};
use wayleave_core::time::{Millis, Time};
use wayleave_engine::Error;
use wayleave_engine::rows::page_ledger;

use crate::ask::{AdminChange, CrawlChange, CrawlSet, CrawlSettled, Response};
use crate::owner::frontier::Frontier;
use crate::owner::frontier::ledger_rows::{NoLedger, log_ledger, read_ledgers, remove_ledger, update_ledger};
use crate::owner::port::{Pending, Port};
use crate::routing::router::{CallResult, Router, home};

/// A ledger should be open this long after its limit was set; the caller has been answered by then.
const OPEN_WITHIN: Millis = Millis(HAND_OVER_WAIT.0 + FORWARD_TIME.0 + 2_000);
/// A new owner of a home looks for ledgers after this time, as do all while one is missing.
const CHECK_AFTER: Millis = Millis(2_000);
/// Ledgers that are looked for at once, and missing ones that are opened at once.
const LEDGERS_A_LOOK: usize = 64;
/// The version of a crawl that is not known, or was never set.
const NEVER_SET: u64 = 0;
/// The caller waits for this time at most until all shards have been told what the ledger has of them.
const SHARE_WITHIN: Duration = Duration::from_secs(1);
/// Attempts to set a crawl that others set at the same time.
const TRIES: usize = 8;

/// The ledgers of the crawls that a shard is the home of.
#[derive(Default)]
pub(crate) struct OpenLedgers {
    /// Crawls with a page limit whose ledger may not be open.
    unsure: Vec<CrawlNo>,
    /// When these are looked for.
    pub check_at: Option<Time>,
}

impl OpenLedgers {
    /// Takes those that are looked for next.
    fn next_ones(&mut self) -> Vec<CrawlNo> {
        self.unsure.split_off(self.unsure.len().saturating_sub(LEDGERS_A_LOOK))
    }

    /// These are missing, and may stay so: all others come before them.
    fn put_back(&mut self, missing: &[CrawlNo]) {
        drop(self.unsure.splice(..0, missing.iter().copied()));
    }
}

impl Frontier {
    /// Looks soon whether the ledgers of all crawls at home here are open.
    pub fn expect_ledgers(&mut self, port: &Port) {
        let limits = self.state.page_limits().filter(|limit| is_home_of(&limit.name, port));
        let unsure: Vec<CrawlNo> = limits.map(|limit| limit.crawl).collect();
        let check_at = (!unsure.is_empty()).then(|| port.engine.now().after(CHECK_AFTER));
        if let Some(grants) = &mut self.page_grants {
            (grants.ledgers.unsure, grants.ledgers.check_at) = (unsure, check_at);
        }
    }

    /// Looks for ledgers that should be open, and sees to it that those that are not are opened.
    pub async fn check_ledgers(&mut self, port: &mut Port) -> Result<(), Error> {
        let now = port.engine.now();
        let Some(grants) = &mut self.page_grants else { return Ok(()) };
        if grants.ledgers.check_at.is_none_or(|at| at > now) {
            return Ok(());
        }
        let some = grants.ledgers.next_ones();
        let limits = some.into_iter().filter_map(|no| self.state.page_limit_of(no));
        let limits: Vec<(CrawlNo, CrawlName)> = limits.map(|limit| (limit.crawl, limit.name)).collect();
        let keys: Vec<_> = limits.iter().map(|(_, name)| page_ledger::key(name)).collect();
        let found = read_ledgers(&*port.engine, &keys).await?;
        let missing = limits.into_iter().zip(found).filter(|((_, name), ledger)| match ledger {
            Ok(ledger) => ledger.is_none(),
            Err(cause) => {
                log_ledger(name, cause, port);
                true
            }
        });
        let (missing, names): (Vec<CrawlNo>, Vec<CrawlName>) = missing.map(|(missing, _)| missing).unzip();
        if let Some(grants) = &mut self.page_grants {
            grants.ledgers.put_back(&missing);
            let more = !grants.ledgers.unsure.is_empty();
            grants.ledgers.check_at = more.then(|| now.after(if missing.is_empty() { Millis(0) } else { OPEN_WITHIN }));
        }
        if let Some(router) = port.router.upgrade().filter(|_| !names.is_empty()) {
            tokio::spawn(async move {
                for crawl in names {
                    if let Err(error) = router.set_crawl(&crawl, None).await {
                        tracing::warn!(crawl = %crawl, %error, "the page limit of a crawl is not in force everywhere yet");
                    }
                }
            });
        }
        Ok(())
    }

    /// Changes a crawl, or follows its home.
    pub async fn change_crawl(
        &mut self,
        change: &CrawlChange,
        call: Pending<Response>,
        port: &mut Port,
    ) -> Result<(), Error> {
        let done = match change {
            CrawlChange::Decide { crawl, changes, again } => {
                let is_in_force = *again && self.state.crawl_version(crawl) != NEVER_SET;
                self.decide_crawl(crawl, changes.as_ref().filter(|_| !is_in_force), port).await
            }
            CrawlChange::Follow { crawl, settings, version, round } => {
                Ok(Ok(Response::from(self.follow_crawl(crawl, *settings, (*version, *round), port))))
            }
            CrawlChange::Settle { crawl, version, used } => {
                self.settle(crawl, *version, used.as_deref(), port).await.map(|settled| settled.map(Response::from))
            }
            CrawlChange::Share { crawl, round, ledger } => {
                self.hear_share(crawl, *round, ledger, port);
                Ok(Ok(Response::from(())))
            }
        };
        port.answer(call, done)
    }

    async fn decide_crawl(
        &mut self,
        crawl: &CrawlName,
        changes: Option<&(CrawlChanges, bool)>,
        port: &mut Port,
    ) -> Result<CallResult<Response>, Error> {
        let full = self.state.crawls_full(crawl).map(Refusal::CrawlsFull);
        if let Some(refusal) = full.or_else(|| self.refuse_crawl(crawl, port)) {
            return Ok(Err(refusal));
        }
        let before = self.state.crawl_settings(crawl);
        let settings = match (changes, before) {
            (None, None) => return Ok(Err(Refusal::UnknownCrawl(crawl.to_string()))),
            (None, Some(before)) => before,
            (Some((changes, replace)), before) => {
                let mut settings = before.filter(|_| !replace).unwrap_or_default();
                if let Some(why) = changes.contradiction(&settings) {
                    return Ok(Err(Refusal::Contradiction(why)));
                }
                changes.apply(&mut settings);
                settings
            }
        };
        let had_limit = before.is_some_and(|before| before.limits.pages.is_some());
        let has_limit = settings.limits.pages.is_some();
        if self.page_grants.is_some() && has_limit && !had_limit {
            // What an earlier limit left behind. No shard can use it, unless it has not heard that the limit was removed.
            let removed = match update_ledger(crawl, |ledger| *ledger = None, port).await? {
                Err(NoLedger::Unreadable(_)) => remove_ledger(crawl, port).await?,
                removed => removed,
            };
            if let Err(why) = removed {
                return Ok(Err(no_ledger(crawl, why)));
            }
        }
        let version = match changes {
            None => self.state.crawl_version(crawl),
            Some(_) => self.state.next_version(crawl, port.engine.now()),
        };
        let round = (port.config.entropy)() as u64;
        let used = self.follow_crawl(crawl, settings, (version, round), port);
        let check_at = port.engine.now().after(OPEN_WITHIN);
        let no = self.state.crawl_no(crawl).filter(|_| has_limit);
        if let (Some(no), Some(grants)) = (no, &mut self.page_grants) {
            let ledgers = &mut grants.ledgers;
            if !ledgers.unsure.contains(&no) {
                ledgers.unsure.push(no);
                ledgers.check_at.get_or_insert(check_at);
            }
        }
        let ledger = self.page_grants.is_some() && (has_limit || had_limit);
        Ok(Ok(CrawlSet { settings, version, used, ledger, round }.into()))
    }

    /// Takes settings over. Returns the pages used: with a page limit that is new here, no more can be used without a grant.
    fn follow_crawl(
        &mut self,
        crawl: &CrawlName,
        settings: CrawlSettings,
        (version, round): (u64, u64),
        port: &mut Port,
    ) -> u64 {
        let before = self.state.crawl_settings(crawl).and_then(|before| before.limits.pages);
        let now = self.now(port);
        self.state.put_crawl(crawl, settings, version, now);
        self.commit(Vec::new(), port);
        let Some(no) = self.state.crawl_no(crawl) else { return 0 };
        let used = self.state.pages_used(no);
        if before.or(settings.limits.pages).is_some() {
            // The ledger may have been made anew since pages were granted.
            self.page_grants.iter_mut().for_each(|grants| grants.answered(no, used, before.is_none(), round));
        }
        used
    }

    /// Whether a version is still in force. If so, opens the ledger of its page limit and gives all shards a part, or removes that
    /// of a limit that is gone.
    async fn settle(
        &mut self,
        crawl: &CrawlName,
        version: u64,
        used: Option<&[(ShardId, u64)]>,
        port: &mut Port,
    ) -> Result<CallResult<CrawlSettled>, Error> {
        let plain = |in_force| CrawlSettled { in_force, ledger: None };
        if self.state.crawl_version(crawl) != version {
            return Ok(Ok(plain(false)));
        }
        let Some(used) = used else { return Ok(Ok(plain(true))) };
        let limit = self.state.crawl_no(crawl).and_then(|no| self.state.page_limit_of(no));
        let mut was_open = false;
        let open = |ledger: &mut Option<PageLedger>| {
            was_open = ledger.is_some() && limit.is_some();
            if limit.is_none() {
                *ledger = None;
            }
            let limit = limit.as_ref()?.limit;
            let ledger = ledger.get_or_insert_with(|| PageLedger::open(used.iter().copied()));
            ledger.spread(used, limit).then(|| ledger.clone())
        };
        let settled = match update_ledger(crawl, open, port).await? {
            Ok(ledger) => Ok(CrawlSettled { in_force: true, ledger }),
            // It is only not spread: shards ask for what they need.
            Err(NoLedger::Refused(_) | NoLedger::Busy) if was_open => Ok(plain(true)),
            Err(NoLedger::Unreadable(_)) => remove_ledger(crawl, port).await?.map(|()| plain(false)),
            Err(why) => Err(why),
        };
        Ok(settled.map_err(|why| no_ledger(crawl, why)))
    }
}

fn is_home_of(crawl: &CrawlName, port: &Port) -> bool {
    home(crawl, port.config.shards) == port.shard
}

fn no_ledger(crawl: &CrawlName, why: NoLedger) -> Refusal {
    Refusal::Unavailable(match why {
        NoLedger::Busy => format!("too many concurrent updates to the page limit of crawl '{crawl}'"),
        NoLedger::Unreadable(cause) => {
            format!("the store can neither read nor remove the ledger of the page limit of crawl '{crawl}': {cause}")
        }
        NoLedger::Refused(why) => format!("the page limit of crawl '{crawl}' cannot be changed: {why}"),
    })
}

impl Router {
    /// Changes a crawl on every shard, creating it if necessary; with `None`, spreads what is set. Fails if its home
    /// refuses it, which then changes nothing, or a shard cannot be asked.
    pub async fn set_crawl(&self, crawl: &CrawlName, changes: Option<(CrawlChanges, bool)>) -> CallResult<()> {
        let (first, others) = self.home_and_others(crawl);
        let part = |refusal: Refusal| refusal.after_partial_change("the crawl was changed on some shards");
        let all: Vec<ShardId> = others.iter().copied().chain([first]).collect();
        let mut has_ledger = false;
        for attempt in 0..TRIES {
            let crawl = crawl.clone();
            let decide = CrawlChange::Decide { crawl: crawl.clone(), changes, again: attempt > 0 };
            let decided = self.ask(first, decide).await;
            let set: CrawlSet = if attempt == 0 { decided? } else { decided.map_err(part)? };
            let CrawlSet { settings, version, round, .. } = set;
            let follow = CrawlChange::Follow { crawl: crawl.clone(), settings, version, round };
            let used: Vec<u64> = self.ask_all(&others, follow).await.map_err(part)?;
            has_ledger |= set.ledger;
            let used = others.iter().copied().zip(used).chain([(first, set.used)]);
            let used = has_ledger.then(|| used.collect());
            let settle = CrawlChange::Settle { crawl: crawl.clone(), version, used };
            let settled: CrawlSettled = self.ask(first, settle).await.map_err(part)?;
            if let Some(ledger) = settled.ledger {
                // A shard that misses this asks the ledger.
                let told = self.ask_all::<()>(&all, CrawlChange::Share { crawl, round, ledger });
                drop(tokio::time::timeout(SHARE_WITHIN, told).await);
            }
            if settled.in_force {
                return Ok(());
            }
        }
        let why = format!("others change crawl '{crawl}' at the same time; send it again");
        Err(Refusal::OutcomeUnknown(why))
    }

    /// Deletes a crawl on every shard. Returns the number of its URLs, and that of the deletion.
    pub async fn delete_crawl(&self, crawl: &CrawlName) -> CallResult<(u64, Time)> {
        let (first, others) = self.home_and_others(crawl);
        let delete = |number| AdminChange::DeleteCrawl { crawl: crawl.clone(), number };
        let (count, number): (u64, Time) = self.ask(first, delete(None)).await?;
        let part = |refusal: Refusal| refusal.after_partial_change("the crawl was deleted on some shards");
        let counts: Vec<(u64, Time)> = self.ask_all(&others, delete(Some(number))).await.map_err(part)?;
        Ok((counts.iter().map(|(count, _)| count).sum::<u64>() + count, number))
    }

    fn home_and_others(&self, crawl: &CrawlName) -> (ShardId, Vec<ShardId>) {
        let first = home(crawl, self.shards());
        (first, (0..self.shards()).map(ShardId).filter(|shard| *shard != first).collect())
    }

    /// Removes the ledger of a crawl that was deleted on every shard. Fails if its home cannot be asked.
    pub async fn drop_ledger(&self, crawl: &CrawlName) -> CallResult<()> {
        if self.links.is_none() {
            return Ok(());
        }
        let settle = CrawlChange::Settle { crawl: crawl.clone(), version: NEVER_SET, used: Some(Vec::new()) };
        self.ask::<CrawlSettled>(home(crawl, self.shards()), settle).await.map(drop)
    }
}

#[cfg(test)]
#[path = "set_crawl_tests.rs"]
mod tests;
