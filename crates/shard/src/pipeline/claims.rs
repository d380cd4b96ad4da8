//! Finding chunks to claim: in the crawl stage the shards that offer one again, then those whose groups have been ready
//! longest; in the build stage those that have crawled ones. Then other nodes that have something, each once for all its shards.
//!
//! A claim that waits is woken as a long poll of the frontier is, see [`crate::shared::waiters`]: one per group or chunk that
//! becomes claimable, here or on another node, so that a thousand claims do not all look at one link. What could lose a wake-up:
//!
//! 1. The claim that is woken leaves before it has looked, because its caller has left or its time is over: it owes the
//!    wake-up, which goes to the next one.
//! 2. It looks, and leaves with something else than what it was woken for, or with a part of what there is: it wakes the
//!    next one if a shard still has something.
//! 3. It looks, and is refused because its request id was used before: it leaves owing. If the reason is another one, which the next
//!    claim would meet too, it owes nothing, and the first in line looks again within a second.
//! 4. It looks and may not take what it finds, which another one may: it wants one host, or still lingers for a full
//!    chunk. Such claims watch, and use no wake-up up. When it lingers no more, a claim joins the others before it looks.
//! 5. It looks before the owner has made the group ready, and sleeps after: it was in line before it looked, so it is woken.
//! 6. Two become claimable, and both wake-ups come while the only claim in line is looking: it owes one and will look again;
//!    the other is dropped. A claim that lines up later looks, too.
//! 7. Shards move to another node, where its groups wake nobody here: the next owner counts everything that is ready as newly
//!    so, and its node publishes that. A node that is heard for the first time counts as one group and one chunk.
//! 8. A host gets a URL while its group is ready because of another host: no group becomes ready by that, so a claim for one
//!    host looks again at intervals.
//! 9. A claim that lingers for a full chunk of any crawl is not woken when another crawl is next in order: it looks at the end
//!    of its linger.
//! 10. A visit to the group and a claim are woken for the same group: one takes it, and the other finds nothing and waits on.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join_all, try_join_all};
use tokio::time::Instant;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::RequestId;
use wayleave_core::ids::{NodeId, ShardId};
use wayleave_core::names::CrawlName;
use wayleave_core::pipeline::request::{Claim, Claimed, Stage};
use wayleave_core::time::Millis;

use super::call::{ChunkCall, ChunkResponse, PipelineCall};
use super::handle::Pipeline;
use crate::handle::visits::{LOOK_IN_LINE, sleep_in_line};
use crate::patience::{Patience, Woke, nap};
use crate::routing::repeated_requests::{MayHaveGranted, RequestLock};
use crate::routing::router::{CallResult, OwnerLocation, changed_before, worse};
use crate::shared::readiness::{Source, VisitFilter};
use crate::shared::waiters::{Waiter, Wants, Watch};

/// How often a claim for one host looks, which some of what it waits for does not wake.
const LOOK_AT_HOST: Duration = Duration::from_secs(1);
/// How often the first of the claims that linger for a full chunk of one size looks where nodes share the store: others do not
/// publish how many groups are ready in a shard.
const LOOK_ELSEWHERE: Duration = Duration::from_millis(250);

/// Time limit for asking shards what they have granted for a request.
const ASK_BEFORE: Duration = Duration::from_millis(500);

impl Pipeline {
    /// Claims chunks. Long poll: waits up to `wait` if there is none, and up to `linger` for a new chunk to be full.
    /// Fails if the store cannot be reached, or the host is not known.
    pub async fn claim(&self, claim: Claim, wait: Millis, linger: Millis) -> CallResult<Vec<Claimed>> {
        self.claim_while(claim, wait, linger, &mut ()).await
    }

    /// The same for a caller that may end the wait. Fails in the same cases, and if the call may not wait.
    pub async fn claim_while(
        &self,
        claim: Claim,
        wait: Millis,
        linger: Millis,
        patience: &mut dyn Patience,
    ) -> CallResult<Vec<Claimed>> {
        let begin = Instant::now();
        let (deadline, lingers) = (begin + Duration::from_millis(wait.0), begin + Duration::from_millis(linger.0));
        let lingers = lingers.min(deadline);
        let mut lock = None;
        if let Some(request) = &claim.request {
            lock = Some(self.frontier.lock_while(&claim.worker, request, patience).await?);
            let granted = self.claimed_before(&claim).await?;
            if !granted.is_empty() {
                return Ok(granted);
            }
        }
        self.claim_waiting(&claim, (deadline, lingers), lock, patience).await
    }

    /// Looks until there is something. It waits only as long as its caller does: what a caller that has left is granted
    /// would cost an attempt.
    async fn claim_waiting(
        &self,
        claim: &Claim,
        (mut deadline, mut lingers): (Instant, Instant),
        lock: Option<Arc<RequestLock>>,
        patience: &mut dyn Patience,
    ) -> CallResult<Vec<Claimed>> {
        let stage = claim.stage;
        let waiters = self.frontier.readiness.chunks.waiters(claim.stage);
        let mut waiter: Option<Waiter<'_>> = None;
        let mut refused = None;
        loop {
            let full = stage == Stage::Crawl && Instant::now() < lingers;
            if let Some(waiter) = &mut waiter {
                waiter.change(self.wants(claim, full));
            } else if deadline > Instant::now() {
                waiter = Some(waiters.join(self.wants(claim, full)));
            }
            // Before looking, so that nothing that becomes ready meanwhile is missed.
            waiter.iter_mut().for_each(Waiter::enqueue);
            let one = Claim { links_min: if full { claim.links } else { 1 }, ..claim.clone() };
            let claimed = match &lock {
                None => self.claim_once(&one).await,
                Some(lock) => self.claim_repeatable(one, lock.clone()).await,
            };
            if claimed.as_ref().is_err_and(|refusal| !matches!(refusal, Refusal::RequestReused(_))) {
                // The next one would only fail as well. What is there is found by the first in line.
                waiter.iter_mut().for_each(Waiter::found_nothing);
            }
            let claimed = claimed?;
            let now = Instant::now();
            if !claimed.is_empty() {
                waiter.into_iter().for_each(|waiter| waiter.leave(|crawl| self.has_more(stage, crawl)));
                return Ok(claimed);
            }
            waiter.iter_mut().for_each(Waiter::found_nothing);
            if now >= deadline && !full {
                return refused.map_or(Ok(claimed), Err);
            }
            if waiter.is_some() {
                claim.crawl.iter().for_each(|crawl| self.frontier.readiness.listen(crawl));
            }
            let mut until = if full { lingers } else { deadline };
            if claim.host.is_some() {
                until = until.min(now + LOOK_AT_HOST);
            }
            let every = match (full, &self.frontier.router.links) {
                (false, _) => LOOK_IN_LINE,
                (true, Some(_)) => LOOK_ELSEWHERE,
                // Here all that it may take wakes it.
                (true, None) => until.saturating_duration_since(now),
            };
            let ready = |crawl: Option<&CrawlName>| self.is_ready_for(stage, crawl);
            let woke = match &mut waiter {
                Some(waiter) => sleep_in_line(waiter, patience, (until, every), ready).await,
                None => nap(patience, until, pending()).await,
            };
            // A claim that may not wait may take less than a full chunk: it has not looked for that yet.
            if woke.as_ref().map_or(true, Woke::is_hurried) {
                (deadline, lingers, refused) = (Instant::now(), Instant::now(), woke.err());
            }
        }
    }

    /// What a claim waits for. One for a host, or for a full chunk, may not take what it finds, which another one may.
    fn wants(&self, claim: &Claim, full: bool) -> Wants {
        let watch = match &claim.host {
            Some(host) => Watch::Shard(self.frontier.router.shard_of(host)),
            None if full => Watch::Groups(claim.links),
            None => return Wants::one_of(claim.crawl.as_ref()),
        };
        Wants::Watch(claim.crawl.clone(), watch)
    }

    /// Whether a shard may have something of a crawl, or of any, for claims of a stage.
    fn has_more(&self, stage: Stage, crawl: Option<&CrawlName>) -> bool {
        !self.sources(stage, crawl).is_empty() || !self.nodes_offering(stage, crawl).is_empty()
    }

    /// The other nodes that may have something.
    fn nodes_offering(&self, stage: Stage, crawl: Option<&CrawlName>) -> Vec<NodeId> {
        let filter = VisitFilter { crawl, paced: false, now: self.frontier.now() };
        self.frontier.readiness.nodes_offering(stage, filter)
    }

    /// Whether a source that can be asked has published that it has something.
    fn is_ready_for(&self, stage: Stage, crawl: Option<&CrawlName>) -> bool {
        let (readiness, now) = (&self.frontier.readiness, self.frontier.now());
        let shards = match stage {
            Stage::Build => readiness.chunks.crawled(),
            Stage::Crawl => readiness.chunks.offering(now),
        };
        shards.into_iter().any(|shard| readiness.is_open(shard))
            || (stage == Stage::Crawl && readiness.is_ready_for(crawl))
            || !self.nodes_offering(stage, crawl).is_empty()
    }

    /// How often claims have looked for chunks here.
    #[must_use]
    pub fn looks(&self) -> u64 {
        self.frontier.readiness.chunks.looks()
    }

    /// Claims what there is for a request with an id. Runs to its end even if its caller disconnects, so that a
    /// repetition, which waits for the lock, finds what was granted.
    async fn claim_repeatable(&self, claim: Claim, lock: Arc<RequestLock>) -> CallResult<Vec<Claimed>> {
        let pipeline = self.clone();
        let decided = tokio::spawn(async move {
            let claimed = pipeline.claim_once(&claim).await;
            drop(lock);
            claimed
        });
        decided.await.unwrap_or_else(|_| Err(crate::routing::router::never_answered()))
    }

    /// Claims what there is, without waiting.
    async fn claim_once(&self, claim: &Claim) -> CallResult<Vec<Claimed>> {
        self.frontier.readiness.chunks.look();
        if let Some(host) = &claim.host {
            return self.at_host(host, &ChunkCall::Claim(claim.clone())).await;
        }
        let (mut claimed, mut trouble) = self.claim_from(claim, self.sources(claim.stage, claim.crawl.as_ref())).await;
        for node in self.nodes_offering(claim.stage, claim.crawl.as_ref()) {
            if claimed.len() >= claim.chunks || is_doubtful(claim, trouble.as_ref()) {
                break;
            }
            let more = Claim { chunks: claim.chunks - claimed.len(), ..claim.clone() };
            match self.say(node, &PipelineCall::Claim(more), false).await.and_then(Vec::<Claimed>::try_from) {
                Ok(more) => claimed.extend(more),
                Err(refusal) => trouble = Some(worse(trouble, refusal)),
            }
        }
        // What was granted is durable and must reach its worker. A shard that is being handed over has nothing to offer
        // right now.
        let trouble = trouble.filter(|refusal| *refusal != Refusal::Elsewhere);
        if let Some(refusal) = trouble.as_ref().filter(|_| is_doubtful(claim, trouble.as_ref())) {
            return Err(refusal.clone());
        }
        if claimed.is_empty() { trouble.map_or(Ok(claimed), Err) } else { Ok(claimed) }
    }

    /// Serves another node's claim with the shards of this node.
    pub(crate) async fn claim_here(&self, claim: &Claim) -> CallResult<ChunkResponse> {
        // First: a shard that has nothing of the crawl then publishes that, and the other node does not ask again.
        claim.crawl.iter().for_each(|crawl| self.frontier.readiness.listen(crawl));
        let (claimed, trouble) = self.claim_from(claim, self.sources(claim.stage, claim.crawl.as_ref())).await;
        let trouble = trouble.filter(|refusal| *refusal != Refusal::Elsewhere && claimed.is_empty());
        trouble.map_or(Ok(claimed.into()), Err)
    }

    async fn claim_from(&self, claim: &Claim, shards: Vec<ShardId>) -> (Vec<Claimed>, Option<Refusal>) {
        let (mut claimed, mut trouble) = (Vec::<Claimed>::new(), None);
        for shard in shards {
            if claimed.len() >= claim.chunks || is_doubtful(claim, trouble.as_ref()) {
                break;
            }
            let more = Claim { chunks: claim.chunks - claimed.len(), ..claim.clone() };
            let answer = self.ask_here(shard, ChunkCall::Claim(more)).await.unwrap_or(Err(Refusal::Elsewhere));
            match answer.and_then(Vec::<Claimed>::try_from) {
                Ok(more) => claimed.extend(more),
                Err(refusal) => trouble = Some(worse(trouble, refusal)),
            }
        }
        (claimed, trouble)
    }

    /// The shards of this process to ask, in order.
    fn sources(&self, stage: Stage, crawl: Option<&CrawlName>) -> Vec<ShardId> {
        let (readiness, now) = (&self.frontier.readiness, self.frontier.now());
        if stage == Stage::Build {
            return readiness.chunks.crawled();
        }
        let mut shards = readiness.chunks.offering(now);
        let filter = VisitFilter { crawl, paced: false, now };
        for source in readiness.ready_here(filter) {
            if let Source::Shard(shard) = source
                && !shards.contains(&shard)
            {
                shards.push(shard);
            }
        }
        shards
    }

    /// The live chunks already granted for a request. The shards of this process must answer. Other nodes are asked once for
    /// all their shards; one that is silent does not count: it must not keep the others from working, and what it granted
    /// expires at its deadline. One that is alive and has no room for the call may have granted it.
    async fn claimed_before(&self, claim: &Claim) -> CallResult<Vec<Claimed>> {
        let Some(request) = &claim.request else { return Ok(Vec::new()) };
        let (frontier, deadline) = (&self.frontier, Instant::now() + ASK_BEFORE);
        let (mut left, mut found, mut changes) = (frontier.all(), Vec::new(), frontier.changes());
        loop {
            changes.mark_unchanged();
            let MayHaveGranted { here, nodes, unowned } = frontier.may_have_granted(&left, &claim.worker, request);
            left = unowned;
            let asked = nodes.into_iter().map(|(node, shards)| async move {
                let (worker, request) = (claim.worker.clone(), request.clone());
                let call = PipelineCall::Requested { worker, request, shards: shards.clone() };
                (shards, tokio::time::timeout_at(deadline, self.say(node, &call, true)).await)
            });
            let (here, asked) = tokio::join!(self.claimed_in(&here, &claim.worker, request), join_all(asked));
            found.extend(here?);
            for (shards, answer) in asked {
                match answer.map(|answer| answer.and_then(Vec::<Claimed>::try_from)) {
                    Ok(Ok(more)) => found.extend(more),
                    // It does not own all of them, or has no room for the call.
                    Ok(Err(Refusal::Elsewhere)) => left.extend(shards),
                    Ok(Err(refusal)) if !refusal.is_unavailable() => return Err(refusal),
                    Ok(Err(_)) | Err(_) => {}
                }
            }
            if left.is_empty() {
                return Ok(found);
            }
            if !changed_before(&mut changes, deadline).await {
                return if left.iter().any(|shard| self.is_heard(*shard)) { Err(unclear()) } else { Ok(found) };
            }
        }
    }

    /// Whether a shard belongs to another node that is alive.
    fn is_heard(&self, shard: ShardId) -> bool {
        matches!(self.frontier.router.location(shard), OwnerLocation::Remote(node) if self.frontier.readiness.hears(node))
    }

    async fn claimed_in(&self, shards: &[ShardId], worker: &Arc<str>, request: &RequestId) -> CallResult<Vec<Claimed>> {
        let asks = shards.iter().map(|shard| async {
            let call = ChunkCall::Requested { worker: worker.clone(), request: request.clone() };
            match self.ask::<Vec<Claimed>>(*shard, call).await {
                // It is closed, perhaps for good: what it granted ends at its deadline.
                Err(refusal) if refusal.is_unavailable() && self.frontier.readiness.troubles.is_damaged(*shard) => {
                    Ok(Vec::new())
                }
                answer => answer,
            }
        });
        Ok(try_join_all(asks).await?.into_iter().flatten().collect())
    }

    /// Serves another node that asks about these shards; all of them must be here.
    pub(crate) async fn claimed_here(
        &self,
        worker: Arc<str>,
        request: RequestId,
        shards: &[ShardId],
    ) -> CallResult<Vec<Claimed>> {
        if shards.iter().any(|shard| !self.frontier.owns(*shard)) {
            return Err(Refusal::Elsewhere);
        }
        let shards = self.frontier.may_have_granted(shards, &worker, &request).here;
        self.claimed_in(&shards, &worker, &request).await
    }
}

/// The refusal where a node that is alive may have granted something for a request.
fn unclear() -> Refusal {
    Refusal::Unavailable("another node could not be asked whether it granted this request before; try again".to_owned())
}

/// Whether nothing more may be claimed: a claim with an id that may have been granted somewhere is repeated, and then
/// gets what was granted.
fn is_doubtful(claim: &Claim, trouble: Option<&Refusal>) -> bool {
    claim.request.is_some() && matches!(trouble, Some(Refusal::OutcomeUnknown(_)))
}
