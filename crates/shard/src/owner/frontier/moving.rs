//! Moving hosts between groups: the giver's and the taker's side of one commit that is fenced by both shards.
//!
//! The giver G waits for the taker T only for a limited time, because T may be waiting for G. When G times out it owns
//! its shard again (new epoch) and reloads it, while T may still find the old request in its inbox. The store then
//! refuses T's batch, which carries G's old epoch; but an engine that exposes in-flight batches to reads could show it
//! to G's opening reads first. So T commits on G's behalf only while G's term lasts. This is checked under a lock that
//! the opening of a shard passes through as well (`held`):
//!
//! 1. T commits, G hears of it: the host has moved.
//! 2. G times out, then T reads the request: nobody waits, or G's shard is being opened or has a newer epoch. T drops
//!    the request before it has changed anything.
//! 3. T has adopted the host in memory, G times out and opens its shard, T is about to commit: the check under the lock
//!    fails. T commits nothing and reloads, because its memory has a host that the store does not assign to it.
//! 4. T hands the batch to the engine, then G times out and owns its shard: the batch is in the engine before `own` is
//!    called. Either it is durable before the new epoch counts, and G reads the host as gone; or it is refused, and the
//!    engine hides it from reads after `own`.
//! 5. G is on another node and dies; this node takes over G's shard and opens it, then T reads the request: as in 2 and
//!    3, because the shard is held here under no epoch yet, or under a newer one.
//! 6. G is on another node, alive, and timed out: its own node's reads never see what this node has in flight, and the
//!    store refuses the old epoch.
//! 7. The answer to G is lost: G times out, owns its shard, and finds the host gone or not, as in 4.
//! 8. T refuses and G hears that: nothing was committed, so G resumes under its present epoch. The sequence number that
//!    it sealed is reused, and no request is left that carries it.
//!
//! The node that makes group changes may be stale as well: a mover M pauses in the middle of a change, another node
//! becomes the mover and continues, M wakes up and sends the rest of its requests. So each side checks its own state in
//! the same turn in which it changes it:
//!
//! 9. M wants host H to join alias `a`, but the other mover has put H into `b`: H's home shard knows that and refuses.
//! 10. M wants H to leave `a`, but the other mover has moved it out of `a` and into `b`: `a` no longer has H. If H came
//!     home regardless, its home shard would serve it alongside `b`. `a`'s shard refuses to give what it does not have,
//!     and H's home refuses to take from `a` what lives with `b`.
//!
//! Pages of H that count against a crawl's limit move in the ledger of that limit, in the same commit:
//!
//! 11. A third shard draws pages between T's reading of the ledger and its commit: the commit conflicts, nothing has
//!     moved, and T tries again with the ledger as it is now. Afterwards both sides read what is granted to them.
//! 12. The limit was just set: G has told its home how many pages it has used, T has not, or the other way round, and the
//!     ledger is not open yet. T moves nothing before it is.
//!
//! What counts in shared tables (hosts, pages, limits of crawls, requests with an id) counts twice for a moment, never nowhere:
//!
//! 13. T commits and answers G, and its turn goes on with other calls. G publishes that it uses H's pages no more, and a third
//!     shard hands out as many, before T has published that it uses them: T publishes before it answers.

use hashbrown::HashSet;
use wayleave_core::frontier::damage::Hold;
use wayleave_core::frontier::move_host::{Luggage, Moving, Way};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::row::{CrawlRow, Write};
use wayleave_core::ids::{HostId, ShardId};
use wayleave_core::limits::{MOVE_TIME, SLICE_ROWS};
use wayleave_core::names::{CrawlName, HostName};
use wayleave_core::settings::CrawlSettings;
use wayleave_core::time::Time;
use wayleave_engine::{Batch, Error, Fence};

use crate::ask::{HostMove, Response};
use crate::message::Reply;
use crate::owner::frontier::Frontier;
use crate::owner::frontier::holds;
use crate::owner::frontier::ledger_rows::move_grants;
use crate::owner::port::{Decided, Pending, Port, cycle};
use crate::owner::read_facts::{self, Found};
use crate::routing::router::{Router, stopping};

/// The refusal of a take request that its giver no longer waits for.
fn not_awaited() -> Refusal {
    Refusal::Unavailable("the giving shard no longer waits for this move".to_owned())
}

/// Attempts to commit a move whose ledgers other nodes change at the same time.
const LEDGER_TRIES: usize = 20;

/// Pages of some hosts that count against the limits of their crawls.
fn pages_of(moving: &[Moving]) -> Vec<(CrawlName, u64)> {
    moving.iter().filter_map(|host| host.luggage.as_ref()).flat_map(Luggage::pages).collect()
}

impl Frontier {
    /// Gives hosts away. The owner waits for the taker's commit: until then nothing may be decided about them.
    pub async fn give(
        &mut self,
        hosts: Vec<HostName>,
        way: Way,
        to: ShardId,
        call: Pending<Response>,
        port: &mut Port,
    ) -> Result<(), Error> {
        let Pending { reply, mark } = call;
        let may = hosts.iter().try_for_each(|host| self.state.may_give(host, &way));
        let new = hosts.iter().map(|host| &**host).filter(|_| way.into_alias().is_some());
        if let Some(refusal) = may.err().or_else(|| self.refuse_hosts(new, port)) {
            _ = reply.send(Err(refusal));
            return Ok(());
        }
        let holds = match self.begin_give(&hosts, port).await {
            Ok(Ok(holds)) => holds,
            Ok(Err(refusal)) => {
                // Nothing has changed, here or in the store.
                _ = reply.send(Err(refusal));
                return Ok(());
            }
            Err(error) => {
                // Nothing was moved, even if the outcome of the empty commit is unknown.
                _ = reply.send(Err(Refusal::Unavailable(format!("the host was not moved: {error}"))));
                return Err(error);
            }
        };
        let now = self.now(port);
        let mut writes = Vec::new();
        let mut moving = Vec::with_capacity(hosts.len());
        for host in &hosts {
            let id = self.state.host_id(host);
            let mine = holds.iter().filter(|(_, queue, _)| Some(queue.host) == id).cloned().collect();
            let jobs = if to == port.shard { Vec::new() } else { self.jobs.owed_to(id, port) };
            moving.push(Moving { jobs, ..self.state.export(host, mine, now, &mut writes) });
            if let Way::Into(alias) = &way {
                self.state.set_moved(host, Some(alias));
            }
        }
        if to == port.shard {
            self.adopt(moving, &way, now, &mut writes, port);
            self.commit(writes, port);
            port.cycle.answer(mark, Box::new(move |durable| _ = reply.send(durable.map(Response::from))));
            return Ok(());
        }
        let crawls: Vec<CrawlName> = pages_of(&moving).into_iter().map(|(crawl, _)| crawl).collect();
        let part = self.seal(writes, port).unwrap_or_default();
        let answer = hand_over(to, HostMove::Take { moving, way, part }, port).await;
        // The exported hosts are gone from memory; if they were not taken, the store still has them.
        let failed = match &answer {
            Ok(()) => None,
            Err(Refusal::Unavailable(why)) => Some(Error::Unavailable(why.clone())),
            Err(refusal) => Some(Error::OutcomeUnknown(format!("a host could not be moved: {refusal}"))),
        };
        _ = reply.send(answer.map(Response::from));
        failed.map_or_else(
            || {
                port.committed_for();
                self.forget_grants(crawls.iter());
                Ok(())
            },
            Err,
        )
    }

    /// Prepares hosts to leave: no commit may be in flight that could follow the taker's. Returns their holds.
    async fn begin_give(&mut self, hosts: &[HostName], port: &mut Port) -> Decided<Vec<Hold>> {
        if port.is_clustered() {
            // The taker may commit for us from another node: our own commits must not arrive after that one.
            port.flush().await?;
        }
        self.holds_of(hosts, port).await
    }

    /// Adopts hosts; the giver's side is part of the same commit.
    pub async fn take(
        &mut self,
        moving: Vec<Moving>,
        way: Way,
        part: Batch,
        reply: Reply,
        port: &mut Port,
    ) -> Result<(), Error> {
        if let Err(refusal) = moving.iter().try_for_each(|host| self.state.may_take(&host.name, &way)) {
            _ = reply.send(Err(refusal));
            return Ok(());
        }
        let Some(router) =
            port.router.upgrade().filter(|router| !reply.is_closed() && router.epochs.allow(&part.fences))
        else {
            _ = reply.send(Err(not_awaited()));
            return Ok(());
        };
        let pages = pages_of(&moving);
        let now = self.now(port);
        let mut writes = Vec::new();
        let has_limit = |crawl: &&CrawlRow| crawl.settings.limits.pages.is_some();
        let crawls = moving.iter().filter_map(|host| host.luggage.as_ref()).flat_map(|luggage| &luggage.crawls);
        let limits: HashSet<CrawlName> = crawls.filter(has_limit).map(|crawl| crawl.name.clone()).collect();
        self.adopt(moving, &way, now, &mut writes, port);
        let mut batch = self.seal(writes, port).unwrap_or_default();
        let theirs = part.fences.clone();
        batch.fences.extend(part.fences);
        batch.writes.extend(part.writes);
        let outcome = self.commit_taken(&router, batch, (&theirs, &pages, &limits), &reply, port).await;
        self.forget_grants(pages.iter().map(|(crawl, _)| crawl));
        // Before the reply, as the giver then publishes that it has these hosts, their pages and their requests no more.
        self.publish_counts(port);
        if outcome.is_ok() {
            self.share_limits(port);
        }
        _ = reply.send(outcome.as_ref().copied().map(Response::from).map_err(cycle::refusal));
        outcome
    }

    /// Commits a move together with its changes to the ledgers of page limits. If another node changes a ledger
    /// meanwhile, nothing is applied, and the same move is tried with what the ledger says now. `limits`: crawls that had one
    /// where the hosts come from.
    async fn commit_taken(
        &mut self,
        router: &Router,
        batch: Batch,
        (theirs, pages, limits): (&[Fence], &[(CrawlName, u64)], &HashSet<CrawlName>),
        reply: &Reply,
        port: &mut Port,
    ) -> Result<(), Error> {
        let pages = if self.page_grants.is_some() { pages } else { &[] };
        let giver = theirs.first().map_or(port.shard, |fence| fence.shard);
        let readiness = port.readiness.clone();
        let _one_at_a_time = readiness.pages.ledgers.lock(pages.iter().map(|(crawl, _)| crawl)).await;
        let mut outcome = Err(Error::Conflict);
        for _ in 0..LEDGER_TRIES {
            let is_set = |settings: CrawlSettings| settings.limits.pages.is_some();
            let has_limit = |crawl: &_| limits.contains(crawl) || self.state.crawl_settings(crawl).is_some_and(is_set);
            let ledgers = move_grants(&*port.engine, (giver, port.shard), pages, has_limit).await?;
            let mut batch = batch.clone();
            batch.writes.extend(ledgers.writes);
            batch.expects.extend(ledgers.expects);
            let (engine, awaited) = (port.engine.clone(), || !reply.is_closed());
            let Some(commit) = router.epochs.while_allowed(theirs, awaited, move || engine.commit(batch)) else {
                return Err(Error::Unavailable(not_awaited().to_string()));
            };
            outcome = port.commit_both(commit).await;
            if !matches!(outcome, Err(Error::Conflict)) {
                break;
            }
        }
        outcome
    }

    fn adopt(&mut self, moving: Vec<Moving>, way: &Way, now: Time, writes: &mut Vec<Write>, port: &Port) {
        for host in moving {
            if let Way::OutOf(_) = way {
                self.state.set_moved(&host.name, None);
            }
            let (id, jobs) = (host.id(), host.jobs.clone());
            if let Some(luggage) = &host.luggage {
                // The sweep here may already have passed the deadline of a hold that had not expired at the source.
                self.holds.came(port.shard, &luggage.holds);
            }
            self.state.adopt(host, way.into_alias(), now, writes);
            if let Some(id) = id {
                self.jobs.take(id, &jobs, writes);
            }
        }
        self.caches.forget(&port.config, self.state.host_count());
    }

    /// The holds of some hosts. Holds are keyed by deadline, so all holds of the shard are scanned; moves are rare.
    async fn holds_of(&mut self, hosts: &[HostName], port: &mut Port) -> Decided<Vec<Hold>> {
        let ids: HashSet<HostId> = hosts.iter().filter_map(|host| self.state.has_holds(host)).collect();
        let (mut found, mut after, mut cause) = (Vec::new(), None, self.holds.cause().map(str::to_owned));
        while !ids.is_empty() {
            let scan = self.holds.scan(after.take(), SLICE_ROWS);
            let Found { rows, gaps, next } = read_facts::scan_past_damage(&*port.engine, &scan).await?;
            found.extend(holds::parsed(&rows)?.into_iter().filter(|(_, queue, _)| ids.contains(&queue.host)));
            cause = cause.or(gaps.map(|gaps| gaps.cause));
            after = next;
            if after.is_none() {
                break;
            }
        }
        let Some(cause) = cause else { return Ok(Ok(found)) };
        let is_missing = |host: &&HostName| {
            let Some(id) = self.state.has_holds(host) else { return false };
            let here = |(_, queue, _): &&Hold| queue.host == id && self.state.has_queue(*queue);
            (found.iter().filter(here).count() as u64) < self.state.holds_of(id)
        };
        match hosts.iter().find(is_missing) {
            Some(host) => Ok(Err(Refusal::Damaged { host: host.to_string(), cause })),
            None => Ok(Ok(found)),
        }
    }
}

/// Sends the hosts to the taker, possibly on another node. Bounded in time, because the taker may be waiting for
/// this shard.
fn hand_over(to: ShardId, take: HostMove, port: &Port) -> impl Future<Output = Result<(), Refusal>> + use<> {
    let router = port.router.upgrade();
    let within = std::time::Duration::from_millis(MOVE_TIME.0);
    let gave_up = move || Refusal::OutcomeUnknown(format!("shard {} did not take the host in time", to.0));
    async move {
        let router = router.ok_or_else(stopping)?;
        tokio::time::timeout(within, router.ask(to, take)).await.unwrap_or_else(|_| Err(gave_up()))
    }
}

#[cfg(test)]
#[path = "moving_tests.rs"]
mod tests;
