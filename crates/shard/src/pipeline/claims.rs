//! Finding chunks to claim: in the crawl stage the shards that offer one again, then those whose groups have been ready
//! longest; in the build stage those that have crawled ones. Other nodes are asked for all their shards at once.

use std::time::Duration;

use tokio::time::Instant;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::ids::{NodeId, ShardId};
use wayleave_core::pipeline::request::{Claim, Claimed, Stage};
use wayleave_core::time::Millis;

use super::call::{ChunkCall, ChunkResponse, PipelineCall};
use super::handle::Pipeline;
use crate::routing::router::{CallResult, OwnerLocation, worse};
use crate::shared::readiness::{Source, VisitFilter};

/// How often a claim that waits looks at other nodes, which do not tell what chunks they have.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Time limit for asking shards what they have granted for a request.
const ASK_BEFORE: Duration = Duration::from_millis(500);

impl Pipeline {
    /// Claims chunks. Long poll: waits up to `wait` if there is none, and up to `linger` for a new chunk to be full.
    ///
    /// # Errors
    /// If the store cannot be reached, or the host is not known.
    pub async fn claim(&self, claim: Claim, wait: Millis, linger: Millis) -> CallResult<Vec<Claimed>> {
        let begin = Instant::now();
        let (deadline, lingers) = (begin + Duration::from_millis(wait.0), begin + Duration::from_millis(linger.0));
        let lingers = lingers.min(deadline);
        if let Some(request) = &claim.request {
            let lock = self.frontier.lock_request(&claim.worker, request).await;
            let granted = self.claimed_before(&claim).await?;
            if !granted.is_empty() {
                return Ok(granted);
            }
            // Runs to its end even if the caller disconnects, so that a repetition finds what was granted.
            let (pipeline, claim) = (self.clone(), claim.clone());
            let decided = tokio::spawn(async move {
                let claimed = pipeline.claim_waiting(&claim, deadline, lingers).await;
                drop(lock);
                claimed
            });
            return decided.await.unwrap_or_else(|_| Err(crate::routing::router::never_answered()));
        }
        self.claim_waiting(&claim, deadline, lingers).await
    }

    async fn claim_waiting(&self, claim: &Claim, deadline: Instant, lingers: Instant) -> CallResult<Vec<Claimed>> {
        let readiness = &self.frontier.readiness;
        let (mut groups, mut chunks) = (readiness.news(), readiness.chunks.news.subscribe());
        let crawls = claim.stage == Stage::Crawl;
        let mut ask_nodes = Instant::now();
        loop {
            // Before looking, so that nothing that becomes ready meanwhile is missed.
            groups.mark_unchanged();
            chunks.mark_unchanged();
            let full = Instant::now() < lingers;
            let claim = Claim { links_min: if full { claim.links } else { 1 }, ..claim.clone() };
            // Other nodes are asked at intervals only: every group that becomes ready here would send a call to each.
            let nodes = if Instant::now() >= ask_nodes { self.other_nodes() } else { Vec::new() };
            if !nodes.is_empty() {
                ask_nodes = Instant::now() + LOOK_AGAIN;
            }
            let claimed = self.claim_once(&claim, &nodes).await?;
            let now = Instant::now();
            if !claimed.is_empty() || (now >= deadline && !full) {
                return Ok(claimed);
            }
            let mut until = if full { lingers } else { deadline };
            if !self.other_nodes().is_empty() {
                until = until.min(ask_nodes.max(now));
            }
            tokio::select! {
                () = groups.changed(), if crawls => {}
                () = chunks.changed() => {}
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }

    /// Claims what there is, without waiting.
    async fn claim_once(&self, claim: &Claim, nodes: &[NodeId]) -> CallResult<Vec<Claimed>> {
        if let Some(host) = &claim.host {
            return self.at_host(host, &ChunkCall::Claim(claim.clone())).await;
        }
        let (mut claimed, mut trouble) = self.claim_from(claim, self.sources(claim)).await;
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
        let (claimed, trouble) = self.claim_from(claim, self.sources(claim)).await;
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
    fn sources(&self, claim: &Claim) -> Vec<ShardId> {
        let (readiness, now) = (&self.frontier.readiness, self.frontier.now());
        if claim.stage == Stage::Build {
            return readiness.chunks.crawled();
        }
        let mut shards = readiness.chunks.offering(now);
        let filter = VisitFilter { crawl: claim.crawl.as_ref(), paced: false, now };
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

    /// The live chunks already granted for a request. Only shards that answer promptly count: a node that is cut off must
    /// not keep the others from working, and what it granted expires at its deadline.
    async fn claimed_before(&self, claim: &Claim) -> CallResult<Vec<Claimed>> {
        let Some(request) = claim.request.clone() else { return Ok(Vec::new()) };
        let call = ChunkCall::Requested { worker: claim.worker.clone(), request };
        let asks = self.frontier.all().into_iter().map(|shard| {
            let asked = self.ask::<Vec<Claimed>>(shard, call.clone());
            async move { tokio::time::timeout(ASK_BEFORE, asked).await.unwrap_or_else(|_| Ok(Vec::new())) }
        });
        let mut claimed = Vec::new();
        for answer in futures::future::join_all(asks).await {
            match answer {
                Ok(more) => claimed.extend(more),
                Err(refusal) if refusal.is_unavailable() => {}
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(claimed)
    }
}

/// Whether nothing more may be claimed: a claim with an id that may have been granted somewhere is repeated, and then
/// gets what was granted.
fn is_doubtful(claim: &Claim, trouble: Option<&Refusal>) -> bool {
    claim.request.is_some() && matches!(trouble, Some(Refusal::OutcomeUnknown(_)))
}
