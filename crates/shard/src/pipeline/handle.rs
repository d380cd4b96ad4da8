//! The handle: routes each call to the shard that its chunk belongs to.

use std::time::Duration;

use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{Parent, Put, PutOutcome};
use wayleave_core::ids::{ChunkId, NodeId, ShardId, Token};
use wayleave_core::limits::{FOUND_STORE_TIME, HAND_OVER_WAIT, PAGE_SLICES_MAX};
use wayleave_core::names::CrawlName;
use wayleave_core::pipeline::refusal::ChunkRefusal;
use wayleave_core::pipeline::request::{EndChunk, LeaseEnded, LinksReported, OperatorAction, ReportLinks};
use wayleave_core::pipeline::row::ChunkState;
use wayleave_core::pipeline::state::{ChunkCounts, CrawledAt};
use wayleave_core::pipeline::view::{ChunkFilter, ChunkView};
use wayleave_core::placement::{self, GiveUpReason};
use wayleave_core::time::{Millis, Time};

use super::call::{ChunkCall, ChunkPage, ChunkResponse, PipelineCall};
use crate::fleet::call::ControlCall;
use crate::fleet::{CONTROL_SHARD, Fleet};
use crate::handle::frontier::Frontier;
use crate::handle::frontier::refuse_links;
use crate::routing::links::{decode, encode};
use crate::routing::protocol::Service;
use crate::routing::router::CallResult;

const BUILT_ANEW_SOON: &str = "its index was given up, and the chunk will be built anew";
const SKIPPED_SOON: &str = "its index was given up, and the chunk will be skipped";

/// The pipeline as seen by one process. Cheap to clone, safe to share.
#[derive(Clone)]
pub struct Pipeline {
    pub(crate) frontier: Frontier,
}

impl Pipeline {
    /// The pipeline over the shards of a frontier.
    #[must_use]
    pub const fn new(frontier: Frontier) -> Self {
        Self { frontier }
    }

    /// Renews the lease of a chunk. Returns the new deadline, and the links that are no longer part of the chunk: for
    /// them an earlier deadline holds. Fails if the token is not that of its live lease.
    pub async fn renew(&self, chunk: ChunkId, token: Token, lease: Millis) -> CallResult<(Time, Vec<Box<str>>)> {
        self.of_chunk(chunk, ChunkCall::Renew { chunk, token, lease }).await
    }

    /// First step of a report with found links: extends the lease until they can be stored, and returns what the links
    /// on each of these pages inherit; `None` for a page that is no longer part of the chunk. Fails if the token is not
    /// that of the chunk's live lease, or a page was never a link of it.
    pub async fn begin_report(
        &self,
        chunk: ChunkId,
        token: Token,
        pages: Vec<Box<str>>,
    ) -> CallResult<Vec<Option<Parent>>> {
        self.of_chunk(chunk, ChunkCall::Keep { chunk, token, lease: FOUND_STORE_TIME, pages }).await
    }

    /// Reports links of a chunk. Found links are stored first; [`Pipeline::begin_report`] must have succeeded before.
    /// Fails if the token is not that of the chunk's live lease, or a result does not fit.
    pub async fn report(&self, report: ReportLinks, found: Vec<Put>) -> CallResult<(LinksReported, Vec<PutOutcome>)> {
        let stored = !found.is_empty();
        let outcomes = if stored { self.frontier.put(found).await } else { Vec::new() };
        if let Some(refusal) = refuse_links(&outcomes, "the chunk was kept, send the report again") {
            return Err(refusal);
        }
        let reported: CallResult<LinksReported> = self.of_chunk(report.chunk, ChunkCall::Report(report)).await;
        let kept = "the found links were stored and the chunk was kept; send the report again";
        let reported = reported.map_err(|refusal| if stored { refusal.after_partial_change(kept) } else { refusal });
        Ok((reported?, outcomes))
    }

    /// Completes a stage of a chunk, or fails the attempt at it. Returns the state that the chunk is in then. Fails if
    /// the token is not that of its live lease, or the call does not fit its stage.
    pub async fn end(&self, chunk: ChunkId, token: Token, end: EndChunk) -> CallResult<ChunkState> {
        Ok(self.end_lease(chunk, token, end).await?.state)
    }

    /// The same, and also returns which links had left the chunk before.
    pub async fn end_lease(&self, chunk: ChunkId, token: Token, end: EndChunk) -> CallResult<LeaseEnded> {
        if !matches!(end, EndChunk::Fail { input_lost: true, .. }) {
            return self.of_chunk(chunk, ChunkCall::End { chunk, token, end, queued: Vec::new() }).await;
        }
        let call = |queued| ChunkCall::End { chunk, token, end: end.clone(), queued };
        self.crawl_again(chunk, Some(token), call).await
    }

    /// Carries out an operator's decision about a chunk. Returns the state that the chunk is in then. Fails if there is
    /// no such chunk, or the decision does not fit its state.
    pub async fn decide(&self, chunk: ChunkId, decision: OperatorAction) -> CallResult<ChunkState> {
        if decision == OperatorAction::Retry {
            let placed: Option<u32> = self.of_chunk(chunk, ChunkCall::PlacedIndex(chunk)).await?;
            if let Some(index) = placed {
                return self.build_again(chunk, index).await;
            }
            return self.crawl_again(chunk, None, |queued| ChunkCall::Decide { chunk, decision, queued }).await;
        }
        self.skip(chunk).await
    }

    /// Gives a chunk up. One that is placed leaves the index servers first. Interleavings:
    ///
    /// 1. The caller goes away, or its node ends, after placement has noted the wish: the note says that the chunk is to be
    ///    skipped, and its owner tells the pipeline.
    /// 2. The index is lost, or given up for another one, at the same time: whichever the pipeline hears of first counts, and
    ///    the last step skips a chunk that waits for a builder, or that a builder has. If it is built again by then, that is
    ///    refused: this call has changed nothing.
    /// 3. The wish is repeated: the index is not the present one any more, and the last step finds the chunk skipped.
    /// 4. Another operator retries the chunk as soon as it is skipped: there is no last step if this call has skipped it.
    async fn skip(&self, chunk: ChunkId) -> CallResult<ChunkState> {
        let call = ChunkCall::Decide { chunk, decision: OperatorAction::Skip, queued: Vec::new() };
        let placed: Option<u32> = self.of_chunk(chunk, ChunkCall::PlacedIndex(chunk)).await?;
        let Some(index) = placed else { return self.of_chunk(chunk, call).await };
        if self.give_up(chunk, index, GiveUpReason::Skip).await? {
            return Ok(ChunkState::Skipped);
        }
        self.of_chunk(chunk, call).await.map_err(|refusal| after_a_wish(refusal, SKIPPED_SOON))
    }

    /// Ends the chunks of a crawl, deleted at this time, in slices: those in progress that have not ended with the crawl, and
    /// those that wait for an index builder.
    pub(crate) async fn end_chunks(&self, crawl: &CrawlName, deleted_at: Time) -> CallResult<()> {
        for shard in self.frontier.all() {
            while self.ask(shard, ChunkCall::EndActive { crawl: crawl.clone(), deleted_at }).await? {}
            let mut after: Option<CrawledAt> = None;
            loop {
                let call = ChunkCall::EndCrawled { crawl: crawl.clone(), deleted_at, after };
                after = self.ask(shard, call).await?;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Has the index of a chunk given up that is placed. Once placement has noted that, its owner tells the pipeline as
    /// well, if this call does not come to its end. Returns whether the pipeline heard of it from this call first.
    async fn give_up(&self, chunk: ChunkId, index: u32, why: GiveUpReason) -> CallResult<bool> {
        let part = if why == GiveUpReason::Skip { SKIPPED_SOON } else { BUILT_ANEW_SOON };
        let call = ControlCall::GiveUp { chunk, index, why: why.clone() };
        self.frontier.router.call::<_, ()>(CONTROL_SHARD, call).await?;
        let told = self.of_chunk(chunk, ChunkCall::IndexLost(vec![(chunk, index, why)])).await;
        told.map_err(|refusal| after_a_wish(refusal, part))
    }

    async fn build_again(&self, chunk: ChunkId, index: u32) -> CallResult<ChunkState> {
        self.give_up(chunk, index, GiveUpReason::BuildAgain).await?;
        let part = |refusal| after_a_wish(refusal, BUILT_ANEW_SOON);
        let view: Option<Box<ChunkView>> = self.of_chunk(chunk, ChunkCall::Get(chunk)).await.map_err(part)?;
        Ok(view.ok_or(ChunkRefusal::Unknown(chunk))?.state)
    }

    /// A chunk, with its copies on index servers. Fails if there is no such chunk, or it is built and the owner of the
    /// placements cannot be asked.
    pub async fn chunk(&self, chunk: ChunkId) -> CallResult<ChunkView> {
        let view: Option<Box<ChunkView>> = self.of_chunk(chunk, ChunkCall::Get(chunk)).await?;
        let mut view = *view.ok_or(ChunkRefusal::Unknown(chunk))?;
        view.placements = Some(match view.state {
            ChunkState::Built => match Fleet::new(self.frontier.clone()).copies_of(chunk).await {
                // It is about to be placed, or was forgotten.
                Err(Refusal::Placement(placement::Refusal::UnknownChunk(_))) => Vec::new(),
                copies => copies?,
            },
            _ => Vec::new(),
        });
        Ok(view)
    }

    /// A page of chunks, by id, the id after which the next page starts, and the ids of chunks that cannot be read. A page that
    /// takes many slices is returned short.
    pub async fn chunks(&self, filter: ChunkFilter, after: Option<ChunkId>, most: usize) -> CallResult<ChunkPage> {
        let (mut page, mut damaged): (Vec<ChunkView>, Vec<ChunkId>) = Default::default();
        let (first, mut after, mut slices) = (self.first_shard(after), after, 0);
        for shard in self.frontier.all().into_iter().filter(|shard| *shard >= first) {
            loop {
                let most = most - page.len();
                if most == 0 {
                    let last = page.last().map(|view| view.id);
                    return Ok((page, last, damaged));
                }
                let call = ChunkCall::List { filter: filter.clone(), after: after.take(), most };
                let (views, next, unreadable): ChunkPage = self.ask(shard, call).await?;
                page.extend(views);
                damaged.extend(unreadable);
                let Some(next) = next else { break };
                slices += 1;
                if slices >= PAGE_SLICES_MAX {
                    return Ok((page, Some(next), damaged));
                }
                after = Some(next);
            }
        }
        Ok((page, None, damaged))
    }

    /// Numbers of chunks in progress.
    pub async fn counts(&self) -> CallResult<ChunkCounts> {
        let all: Vec<ChunkCounts> = self.ask_all(&ChunkCall::Counts).await?;
        Ok(all.into_iter().fold(ChunkCounts::default(), |sum, one| ChunkCounts {
            crawling: sum.crawling + one.crawling,
            offered: sum.offered + one.offered,
            crawled: sum.crawled + one.crawled,
            building: sum.building + one.building,
        }))
    }

    /// The shard that has what comes after a chunk in a listing.
    pub(super) fn first_shard(&self, after: Option<ChunkId>) -> ShardId {
        after.map_or(ShardId(0), |id| id.home(self.frontier.shards()))
    }

    pub(super) async fn of_chunk<T: TryFrom<ChunkResponse, Error = Refusal>>(
        &self,
        chunk: ChunkId,
        call: ChunkCall,
    ) -> CallResult<T> {
        self.ask(chunk.home(self.frontier.shards()), call).await
    }

    /// Asks the shard that a host lives in. If the host is not there, the routing hints are stale and are reloaded.
    pub(super) async fn at_host<T: TryFrom<ChunkResponse, Error = Refusal>>(
        &self,
        host: &str,
        call: &ChunkCall,
    ) -> CallResult<T> {
        const TRIES: usize = 3;
        let (router, mut patience) = (&self.frontier.router, Duration::ZERO);
        for _ in 1..TRIES {
            self.frontier.refresh_hints(patience).await;
            match self.ask(router.shard_of(host), call.clone()).await {
                Err(Refusal::Moved) => router.mark_hints_stale(),
                answer => return answer,
            }
            patience = Duration::from_millis(HAND_OVER_WAIT.0);
        }
        self.frontier.refresh_hints(patience).await;
        self.ask(router.shard_of(host), call.clone()).await
    }

    /// Asks all shards; answers in their order.
    pub(super) async fn ask_all<T: TryFrom<ChunkResponse, Error = Refusal>>(
        &self,
        call: &ChunkCall,
    ) -> CallResult<Vec<T>> {
        let asks = self.frontier.all().into_iter().map(|shard| self.ask(shard, call.clone()));
        futures::future::try_join_all(asks).await
    }

    pub(super) async fn ask<T: TryFrom<ChunkResponse, Error = Refusal>>(
        &self,
        shard: ShardId,
        call: ChunkCall,
    ) -> CallResult<T> {
        self.frontier.router.call(shard, call).await
    }

    /// Asks a shard of this process; `None` if it has no owner here.
    pub(super) async fn ask_here(&self, shard: ShardId, call: ChunkCall) -> Option<CallResult<ChunkResponse>> {
        self.frontier.router.call_here(shard, call).await
    }

    /// Makes a call to another node; `looks` if it is read-only.
    pub(super) async fn say(&self, node: NodeId, call: &PipelineCall, looks: bool) -> CallResult<ChunkResponse> {
        let sent = encode(call).map_err(Refusal::Internal)?;
        self.frontier.router.call_node(node, Service::Pipeline, sent, looks).await
    }
}

/// The refusal after placement has noted that an index is given up: that is carried out soon, also if rows of the chunk cannot be
/// read at the moment.
fn after_a_wish(refusal: Refusal, done: &str) -> Refusal {
    match refusal {
        Refusal::Damaged { .. } | Refusal::DamagedChunk { .. } => {
            Refusal::OutcomeUnknown(format!("{done}, once its rows can be read: {refusal}"))
        }
        refusal => refusal.after_partial_change(done),
    }
}

impl Frontier {
    /// Serves another node's call about chunks, with this node's own shards only.
    pub(crate) async fn answer_pipeline(&self, call: &[u8]) -> Result<Vec<u8>, String> {
        let pipeline = Pipeline::new(self.clone());
        let answer: CallResult<ChunkResponse> = match decode(call)? {
            PipelineCall::Ask { shard, call } => {
                pipeline.ask_here(shard, call).await.unwrap_or(Err(Refusal::Elsewhere))
            }
            PipelineCall::Claim(claim) => pipeline.claim_here(&claim).await,
            PipelineCall::Requested { worker, request, shards } => {
                pipeline.claimed_here(worker, request, &shards).await.map(ChunkResponse::from)
            }
        };
        encode(&answer)
    }
}
