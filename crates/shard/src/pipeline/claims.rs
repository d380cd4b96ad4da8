//! Finding chunks to claim: in the crawl stage the shards that offer one again, then those whose groups have been ready
//! longest; in the build stage those that have crawled ones. Other nodes are asked for all their shards at once.
//!
//! A claim that waits is woken as a long poll of the frontier is, see [`crate::shared::waiters`]: one per group or chunk that
//! becomes claimable, so that a thousand claims do not all look at one link. What could lose a wake-up:
//!
//! 1. The claim that is woken leaves before it has looked, because its caller has left or its time is over: it owes the
//!    wake-up, which goes to the next one.
//! 2. It looks, and leaves with something else than what it was woken for, or with a part of what there is: it wakes the
//!    next one if a shard still has something.
//! 3. It looks, and is refused, perhaps for a reason of its own, such as a request id that was used before: it leaves owing.
//!    If the reason is the store's, the next one is refused and leaves, too.
//! 4. It looks and may not take what it finds, which another one may: it wants one crawl, one host, or still lingers for a full
//!    chunk. Such claims are woken by everything and use no wake-up up. When it lingers no more, a claim joins the others
//!    before it looks.
//! 5. It looks before the owner has made the group ready, and sleeps after: it was in line before it looked, so it is woken.
//! 6. Two become claimable, and both wake-ups come while the only claim in line is looking: one is kept for the next that
//!    lines up, and this one, if it leaves with something, wakes another (2).
//! 7. Shards move to another node, where its groups wake nobody here: a claim looks again at intervals wherever the store may
//!    have several nodes, also if this one has all shards when it goes to sleep.
//! 8. A host gets a URL while its group is ready because of another host: no group becomes ready by that, so a claim for one
//!    host looks again at intervals.
//! 9. A claim that lingers for a full chunk of any crawl is not woken when another crawl is next in order: it looks at the end
//!    of its linger.
//! 10. A visit to the group and a claim are woken for the same group: one takes it, and the other finds nothing and waits on.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::ids::{NodeId, ShardId};
use wayleave_core::names::CrawlName;
use wayleave_core::pipeline::request::{Claim, Claimed, Stage};
use wayleave_core::time::Millis;

use super::call::{ChunkCall, ChunkResponse, PipelineCall};
use super::handle::Pipeline;
use crate::patience::{Patience, nap};
use crate::routing::repeated_requests::RequestLock;
use crate::routing::router::{CallResult, OwnerLocation, worse};
use crate::shared::readiness::{Source, VisitFilter};
use crate::shared::waiters::Waiter;

/// How often a claim that waits looks where nobody wakes it: other nodes do not tell what chunks they have.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Time limit for asking shards what they have granted for a request.
const ASK_BEFORE: Duration = Duration::from_millis(500);

impl Pipeline {
    /// Claims chunks. Long poll: waits up to `wait` if there is none, and up to `linger` for a new chunk to be full.
    ///
    /// # Errors
    /// If the store cannot be reached, or the host is not known.
    pub async fn claim(&self, claim: Claim, wait: Millis, linger: Millis) -> CallResult<Vec<Claimed>> {
        self.claim_while(claim, wait, linger, &mut ()).await
    }

    /// The same for a caller that may end the wait.
    ///
    /// # Errors
    /// The same, and if the call may not wait.
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
            let Some(request_lock) = self.frontier.lock_while(&claim.worker, request, patience).await? else {
                return Ok(Vec::new());
            };
            lock = Some(request_lock);
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
        let waits = deadline > Instant::now();
        let looks_again = self.frontier.router.links.is_some() || claim.host.is_some();
        let mut waiter: Option<Waiter<'_>> = None;
        let mut ask_nodes = Instant::now();
        loop {
            let full = Instant::now() < lingers;
            let choosy = full || claim.crawl.is_some() || claim.host.is_some();
            if waits && waiter.as_ref().is_none_or(|waiter| waiter.takes_any() == choosy) {
                waiter = Some(waiters.join(choosy));
            }
            // Before looking, so that nothing that becomes ready meanwhile is missed.
            waiter.iter_mut().for_each(Waiter::enqueue);
            let claim = Claim { links_min: if full { claim.links } else { 1 }, ..claim.clone() };
            // Other nodes are asked at intervals only: every group that becomes ready here would send a call to each.
            let mut nodes = Vec::new();
            if Instant::now() >= ask_nodes {
                nodes = self.other_nodes();
                ask_nodes = Instant::now() + LOOK_AGAIN;
            }
            let claimed = match &lock {
                None => self.claim_once(&claim, &nodes).await?,
                Some(lock) => self.claim_repeatable(claim, nodes, lock.clone()).await?,
            };
            waiter.iter_mut().for_each(Waiter::checked);
            let now = Instant::now();
            if !claimed.is_empty() && waiter.as_ref().is_some_and(Waiter::takes_any) && self.has_more(stage) {
                waiters.wake_any(1);
            }
            if !claimed.is_empty() || (now >= deadline && !full) {
                return Ok(claimed);
            }
            let mut until = if full { lingers } else { deadline };
            if looks_again {
                until = until.min(ask_nodes.max(now));
            }
            let woke = match &mut waiter {
                Some(waiter) => nap(patience, until, waiter.woken()).await?,
                None => nap(patience, until, pending()).await?,
            };
            if woke.is_hurried() {
                (deadline, lingers) = (Instant::now(), Instant::now());
            }
        }
    }

    /// Whether a shard of this process may have something for any claim of a stage.
    fn has_more(&self, stage: Stage) -> bool {
        !self.sources(stage, None).is_empty()
    }

    /// How often claims have looked for chunks here.
    #[must_use]
    pub fn looks(&self) -> u64 {
        self.frontier.readiness.chunks.looks()
    }

    /// Claims what there is for a request with an id. Runs to its end even if its caller disconnects, so that a
    /// repetition, which waits for the lock, finds what was granted.
    async fn claim_repeatable(
        &self,
        claim: Claim,
        nodes: Vec<NodeId>,
        lock: Arc<RequestLock>,
    ) -> CallResult<Vec<Claimed>> {
        let pipeline = self.clone();
        let decided = tokio::spawn(async move {
            let claimed = pipeline.claim_once(&claim, &nodes).await;
            drop(lock);
            claimed
        });
        decided.await.unwrap_or_else(|_| Err(crate::routing::router::never_answered()))
    }

    /// Claims what there is, without waiting.
    async fn claim_once(&self, claim: &Claim, nodes: &[NodeId]) -> CallResult<Vec<Claimed>> {
        self.frontier.readiness.chunks.look();
        if let Some(host) = &claim.host {
            return self.at_host(host, &ChunkCall::Claim(claim.clone())).await;
        }
        let (mut claimed, mut trouble) = self.claim_from(claim, self.sources(claim.stage, claim.crawl.as_ref())).await;
        for node in nodes {
            if claimed.len() >= claim.chunks || is_doubtful(claim, trouble.as_ref()) {
                break;
            }
            let more = Claim { chunks: claim.chunks - claimed.len(), ..claim.clone() };
            match self.say(*node, &PipelineCall::Claim(more), false).await.and_then(Vec::<Claimed>::try_from) {
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

    /// The other nodes that own shards.
    pub(super) fn other_nodes(&self) -> Vec<NodeId> {
        if self.frontier.router.links.is_none() {
            return Vec::new();
        }
        let location = |shard| match self.frontier.router.location(shard) {
            OwnerLocation::Remote(node) => Some(node),
            OwnerLocation::Local(_) | OwnerLocation::Unowned => None,
        };
        let mut nodes: Vec<NodeId> = self.frontier.all().into_iter().filter_map(location).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// The live chunks already granted for a request. The shards of this process must answer. Of other nodes only those
    /// that answer promptly count: one that is cut off must not keep the others from working, and what it granted expires
    /// at its deadline.
    async fn claimed_before(&self, claim: &Claim) -> CallResult<Vec<Claimed>> {
        let Some(request) = claim.request.clone() else { return Ok(Vec::new()) };
        let call = ChunkCall::Requested { worker: claim.worker.clone(), request };
        let asks = self.frontier.all().into_iter().map(|shard| {
            let here = matches!(self.frontier.router.location(shard), OwnerLocation::Local(_));
            let asked = self.ask::<Vec<Claimed>>(shard, call.clone());
            async move {
                if here && !self.frontier.readiness.is_damaged(shard) {
                    return asked.await;
                }
                match tokio::time::timeout(ASK_BEFORE, asked).await {
                    Ok(Err(refusal)) if refusal.is_unavailable() => Ok(Vec::new()),
                    Ok(answer) => answer,
                    Err(_) => Ok(Vec::new()),
                }
            }
        });
        let claimed = futures::future::try_join_all(asks).await?;
        Ok(claimed.into_iter().flatten().collect())
    }
}

/// Whether nothing more may be claimed: a claim with an id that may have been granted somewhere is repeated, and then
/// gets what was granted.
fn is_doubtful(claim: &Claim, trouble: Option<&Refusal>) -> bool {
    claim.request.is_some() && matches!(trouble, Some(Refusal::OutcomeUnknown(_)))
}
