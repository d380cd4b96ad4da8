//! Calls about chunks: each reads the rows it needs, lets the core decide about frontier and pipeline together, and
//! commits both in one batch.

use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::Parent;
use wayleave_core::frontier::row::{UrlRow, Write};
use wayleave_core::ids::{ChunkId, Token};
use wayleave_core::limits::SLICE_ROWS;
use wayleave_core::names::CrawlName;
use wayleave_core::pipeline::claim::Writes;
use wayleave_core::pipeline::end::Facts;
use wayleave_core::pipeline::refusal::ChunkRefusal;
use wayleave_core::pipeline::request::{Claim, Claimed, EndChunk, LeaseEnded, OperatorAction};
use wayleave_core::pipeline::row::{ChunkRow, ChunkState};
use wayleave_core::pipeline::state::CrawledAt;
use wayleave_core::time::{Millis, Time};
use wayleave_engine::rows::chunk;
use wayleave_engine::{Entropy, Error};

use crate::message::ChunkReply;
use crate::owner::chunk_rows;
use crate::owner::cycle::{self, CommitMark};
use crate::owner::owner_loop::Owner;
use crate::pipeline::call::{ChunkCall, ChunkResponse, Departed, LookedFor};
use crate::routing::service_call::ServiceCall;

/// Chunks of a deleted crawl that end in one turn, if they have few links.
const END_CHUNKS: usize = 256;

/// A decision, or why there is none; or the failure of a read, which ends the owner's term.
pub(super) type Decided<T> = Result<Result<T, Refusal>, Error>;

impl Owner {
    pub async fn handle_chunk(&mut self, call: ChunkCall, reply: ChunkReply) -> Result<(), Error> {
        if call.needs_caller() && reply.is_closed() {
            return Ok(());
        }
        if let Some(why) = self.refusal().filter(|_| !call.only_looks()) {
            _ = reply.send(Err(why));
            return Ok(());
        }
        let mark = self.cycle.mark();
        match call {
            ChunkCall::Claim(claim) => self.handle_claim(&claim, mark, reply).await,
            ChunkCall::Requested { worker, request } => {
                let found = self.claimed_before(&worker, &request).await;
                self.answer_chunk(mark, reply, found)
            }
            ChunkCall::Renew { chunk, token, lease } => {
                let renewed = self.renew_chunk(chunk, token, lease).await;
                let renewed = self.name_unknown(chunk, renewed).await;
                self.answer_chunk(mark, reply, renewed)
            }
            ChunkCall::Keep { chunk, token, lease, pages } => {
                let parents = self.keep_chunk((chunk, token), lease, &pages).await;
                let parents = self.name_unknown(chunk, parents).await;
                self.answer_chunk(mark, reply, parents)
            }
            ChunkCall::Report(report) => {
                let (reported, trouble) = self.report_links(&report).await;
                let reported = self.name_unknown(report.chunk, reported).await;
                self.answer_chunk(mark, reply, reported).and(trouble.map_or(Ok(()), Err))
            }
            ChunkCall::End { chunk, token, end, queued } => {
                let ended = self.end_chunk(chunk, token, &end, &queued).await;
                self.answer_chunk(mark, reply, ended)
            }
            ChunkCall::Decide { chunk, decision, queued } => {
                let decided = self.decide_chunk(chunk, decision, &queued).await;
                self.answer_chunk(mark, reply, decided)
            }
            ChunkCall::EndActive { crawl, deleted_at } => {
                let more = self.end_active(&crawl, deleted_at);
                self.answer_chunk(mark, reply, Ok(Ok(more)))
            }
            ChunkCall::EndCrawled { crawl, deleted_at, after } => {
                let next = self.end_crawled(&crawl, deleted_at, after).await;
                self.answer_chunk(mark, reply, next.map(Ok))
            }
            ChunkCall::Departed { chunk, token, lease } => {
                let departed = self.departed_links(chunk, token, lease).await;
                self.answer_chunk(mark, reply, departed)
            }
            ChunkCall::Get(id) => {
                let view = self.view_chunk(id).await;
                self.answer_chunk(mark, reply, view)
            }
            ChunkCall::List { filter, after, most } => {
                let page = self.list_chunks(&filter, after, most).await;
                self.answer_chunk(mark, reply, unless_damaged(page))
            }
            ChunkCall::Counts => self.answer_chunk(mark, reply, Ok(Ok(self.pipeline.counts()))),
            call @ (ChunkCall::Unplaced
            | ChunkCall::Placed(_)
            | ChunkCall::PlacedIndex(_)
            | ChunkCall::IndexLost(_)) => self.handle_placing(call, mark, reply).await,
        }
    }

    /// Calls between pipeline and placement.
    async fn handle_placing(&mut self, call: ChunkCall, mark: CommitMark, reply: ChunkReply) -> Result<(), Error> {
        match call {
            ChunkCall::Unplaced => {
                let built = self.unplaced_chunks().await;
                self.answer_chunk(mark, reply, built)
            }
            ChunkCall::Placed(chunks) => {
                let noted = self.note_placed(&chunks).await;
                self.answer_chunk(mark, reply, noted.map(Ok))
            }
            ChunkCall::PlacedIndex(id) => {
                let row = self.chunk_row(id).await;
                self.answer_chunk(mark, reply, row.map(|row| row.map(|row| row.and_then(|row| row.placed_index()))))
            }
            ChunkCall::IndexLost(chunks) => {
                let noted = self.note_index_lost(&chunks).await;
                self.answer_chunk(mark, reply, noted)
            }
            _ => self.answer_chunk(mark, reply, Ok(Err::<(), _>(Refusal::Internal("no such call".to_owned())))),
        }
    }

    async fn handle_claim(&mut self, claim: &Claim, mark: CommitMark, reply: ChunkReply) -> Result<(), Error> {
        if let Some(refusal) = self.refuse_host(claim) {
            return self.answer_chunk(mark, reply, Ok(Err::<Vec<Claimed>, _>(refusal)));
        }
        if let Some(request) = &claim.request {
            // A repetition of a claim that this shard has granted: never grant twice.
            let before = self.claimed_before(&claim.worker, request).await;
            if !matches!(&before, Ok(Ok(found)) if found.is_empty()) {
                return self.answer_chunk(mark, reply, before);
            }
        }
        let (claimed, trouble) = self.claim_chunks(claim).await;
        self.publish_crawl(claim.crawl.as_ref());
        match trouble {
            None => self.answer_chunk(mark, reply, Ok(Ok(claimed))),
            Some(error) if claimed.is_empty() => {
                self.answer_chunk(mark, reply, Err::<Result<Vec<Claimed>, _>, _>(error))
            }
            // Earlier chunks are committed, and must reach their worker.
            Some(error) => self.answer_chunk(mark, reply, Ok(Ok(claimed))).and(Err(error)),
        }
    }

    /// A refused token of a chunk that does not exist is refused for that reason: memory has only chunks in progress.
    async fn name_unknown<T>(&mut self, id: ChunkId, answer: Decided<T>) -> Decided<T> {
        let refused = matches!(&answer, Ok(Err(Refusal::Chunk(ChunkRefusal::NotCurrent { .. }))));
        if refused && matches!(self.chunk_row(id).await?, Ok(None)) {
            return Ok(Err(ChunkRefusal::Unknown(id).into()));
        }
        answer
    }

    /// Queues an answer. A failed read is reported to the caller, for whom nothing was changed, and ends the owner's
    /// term.
    pub(super) fn answer_chunk<T: Into<ChunkResponse>>(
        &mut self,
        mark: CommitMark,
        reply: ChunkReply,
        answer: Decided<T>,
    ) -> Result<(), Error> {
        match answer {
            Ok(answer) => {
                let answer = answer.map(T::into);
                self.cycle.answer(mark, Box::new(move |durable| _ = reply.send(durable.and(answer))));
                Ok(())
            }
            Err(error) => {
                _ = reply.send(Err(cycle::refusal(&error)));
                Err(error)
            }
        }
    }

    /// Commits what was decided about frontier and pipeline together.
    pub(super) fn commit_chunks(&mut self, writes: Writes) {
        let rows = writes.pipeline.iter().flat_map(|write| chunk::encode_write(self.shard, write)).collect();
        self.follow_deletions(&writes.frontier);
        self.commit_all(writes.frontier, rows);
    }

    /// The rows of a chunk's links, by position. One that cannot be read appears as missing: it must not keep the others from
    /// being returned, claimed or completed. Its URL stays reserved until it can be read.
    pub(super) async fn link_rows(&mut self, chunk: &ChunkRow) -> Result<Vec<Option<UrlRow>>, Error> {
        self.readable_rows(&chunk.urls()).await
    }

    /// A chunk, from memory or from its row.
    pub(super) async fn chunk_row(&mut self, id: ChunkId) -> Decided<Option<ChunkRow>> {
        if let Some(chunk) = self.pipeline.active(id) {
            return Ok(Ok(Some(chunk.clone())));
        }
        let keys = [chunk::key(self.shard, id, false), chunk::key(self.shard, id, true)];
        let mut found = None;
        for row in chunk_rows::read_each(&*self.engine, self.shard, &keys).await? {
            match row {
                Ok(row) => found = found.or(row),
                Err(cause) => {
                    let what = format!("chunk {id} cannot be read");
                    self.log_damage(&cause, &what);
                    return Ok(Err(Refusal::Corrupt(format!("{what}: {cause}"))));
                }
            }
        }
        // The key has only the counter: a client may ask for an id that no shard of this store has made.
        Ok(Ok(found.filter(|row| row.id == id)))
    }

    async fn departed_links(&mut self, id: ChunkId, token: Option<Token>, lease: Millis) -> Decided<Departed> {
        let row = match self.chunk_row(id).await? {
            Ok(row) => row,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let now = self.now();
        let Some(row) = row else { return Ok(Ok(None)) };
        let departed = row.departed(token, &self.state, now);
        if let Some(token) = token.filter(|_| !departed.is_empty()) {
            // Only the holder's links are named, so the token is current.
            _ = self.extend_lease((id, token), now.after(lease), now);
        }
        Ok(Ok(Some((row.crawl, departed))))
    }

    /// Lets a lease last at least until then.
    fn extend_lease(&mut self, (id, token): (ChunkId, Token), until: Time, now: Time) -> Result<(), ChunkRefusal> {
        let lease = self.pipeline.active(id).and_then(|chunk| chunk.lease.as_ref());
        if lease.is_none_or(|lease| lease.expires_at >= until) {
            return Ok(());
        }
        let mut writes = Writes::default();
        // Whom it tells of links that have left does not matter here.
        let kept = self.pipeline.renew((id, token), (until, now), &[], &mut self.state, &mut writes.pipeline);
        self.commit_chunks(writes);
        kept.map(drop)
    }

    async fn renew_chunk(&mut self, id: ChunkId, token: Token, lease: Millis) -> Decided<(Time, Vec<Box<str>>)> {
        let rows = self.unclear_rows(id).await?;
        // After the read: the deadline is judged when the decision is made.
        let now = self.now();
        let mut writes = Writes::default();
        let until = now.after(lease);
        let renewed = self.pipeline.renew((id, token), (until, now), &rows, &mut self.state, &mut writes.pipeline);
        self.commit_chunks(writes);
        let renewed = match renewed {
            Ok(renewed) => renewed,
            Err(refusal) => return Ok(Err(refusal.into())),
        };
        Ok(Ok((renewed.expires_at, renewed.ended)))
    }

    /// Extends a lease so that the links found on these pages can be stored.
    async fn keep_chunk(
        &mut self,
        (id, token): (ChunkId, Token),
        lease: Millis,
        pages: &[Box<str>],
    ) -> Decided<Vec<Option<Parent>>> {
        let now = self.now();
        let chunk = match self.pipeline.reported(id, token, now) {
            Ok(chunk) => chunk.clone(),
            Err(refusal) => return Ok(Err(refusal.into())),
        };
        let named = self.pipeline.named(id, pages.iter().map(|page| &**page), &self.state);
        let rows = match self.all_rows_at(&chunk, &named).await? {
            Ok(rows) => rows,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let parents = match self.pipeline.parents((id, token), pages, &rows, now, &self.state) {
            Ok(parents) => parents,
            Err(refusal) => return Ok(Err(refusal.into())),
        };
        if let Err(refusal) = self.extend_lease((id, token), now.after(lease), now) {
            return Ok(Err(refusal.into()));
        }
        Ok(Ok(parents))
    }

    async fn end_chunk(
        &mut self,
        id: ChunkId,
        token: Token,
        end: &EndChunk,
        queued: &[LookedFor],
    ) -> Decided<LeaseEnded> {
        let now = self.now();
        // A repetition is recognised by the row, wherever the chunk is by now.
        let known = match self.chunk_row(id).await? {
            Ok(known) => known,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let chunk = match self.pipeline.to_end((id, token), end, known.as_ref(), now) {
            Ok(Some(chunk)) => chunk.clone(),
            Ok(None) => {
                let Some(row) = known else { return Ok(Err(ChunkRefusal::Unknown(id).into())) };
                let rows = self.link_rows(&row).await?;
                return Ok(Ok(row.lease_ended(token, end, &rows)));
            }
            Err(refusal) => return Ok(Err(refusal.into())),
        };
        let rows = self.link_rows(&chunk).await?;
        let lost = matches!(end, EndChunk::Fail { input_lost: true, .. });
        if lost && self.has_unqueued(&chunk, Some(token), queued) {
            return Ok(Err(Refusal::Moved));
        }
        let (mut writes, entropy) = (Writes::default(), self.config.entropy.clone());
        let facts = facts(&rows, now, &entropy);
        let ended = self.pipeline.end((id, token), end, &facts, &mut self.state, &mut writes);
        self.commit_chunks(writes);
        Ok(ended.map_err(Into::into))
    }

    /// Whether a link of a chunk that is about to be crawled again has departed and was not queued where it is now.
    fn has_unqueued(&self, chunk: &ChunkRow, token: Option<Token>, queued: &[LookedFor]) -> bool {
        let departed = chunk.departed(token, &self.state, self.engine.now());
        departed.iter().any(|link| queued.iter().all(|queued| queued.url != link.url))
    }

    async fn decide_chunk(
        &mut self,
        id: ChunkId,
        decision: OperatorAction,
        queued: &[LookedFor],
    ) -> Decided<ChunkState> {
        let now = self.now();
        let before = match self.chunk_row(id).await? {
            Ok(Some(before)) => before,
            Ok(None) => return Ok(Err(ChunkRefusal::Unknown(id).into())),
            Err(refusal) => return Ok(Err(refusal)),
        };
        let rows = self.link_rows(&before).await?;
        if decision == OperatorAction::Retry && self.has_unqueued(&before, None, queued) {
            return Ok(Err(Refusal::Moved));
        }
        let (mut writes, entropy) = (Writes::default(), self.config.entropy.clone());
        let found_elsewhere = queued.iter().any(|link| link.known);
        let facts = Facts { found_elsewhere, ..facts(&rows, now, &entropy) };
        let decided = self.pipeline.decide(&before, decision, &facts, &mut self.state, &mut writes);
        self.commit_chunks(writes);
        Ok(decided.map_err(Into::into))
    }

    /// Ends the first chunks in progress of a crawl that was just deleted; returns what must be committed with that. If there
    /// are more, the caller who deletes the crawl ends them slice by slice (`end_active`). Until then they do without their
    /// links, as after the deletion of a queue; if the caller fails, it is told to delete the crawl again.
    pub fn end_chunks_of(
        &mut self,
        crawl: &CrawlName,
        now: Time,
        frontier: &mut Vec<Write>,
    ) -> Vec<wayleave_engine::Write> {
        let mut writes = Writes { frontier: std::mem::take(frontier), pipeline: Vec::new() };
        let entropy = self.config.entropy.clone();
        self.end_some(crawl, (now, now), &entropy, &mut writes);
        *frontier = writes.frontier;
        writes.pipeline.iter().flat_map(|write| chunk::encode_write(self.shard, write)).collect()
    }

    /// Ends a slice of the chunks of a crawl that were made before it was deleted. Returns whether there are more.
    fn end_some(
        &mut self,
        crawl: &CrawlName,
        (now, deleted_at): (Time, Time),
        entropy: &Entropy,
        writes: &mut Writes,
    ) -> bool {
        let (ids, more) = self.pipeline.of_deleted_crawl(crawl, deleted_at, (END_CHUNKS, SLICE_ROWS));
        for id in ids {
            let Some(before) = self.pipeline.active(id).cloned() else { continue };
            // Its queues are gone, and with them the rows of its links.
            self.pipeline.crawl_deleted(&before, &facts(&[], now, entropy), &mut self.state, writes);
        }
        more
    }

    /// Ends a slice of the chunks in progress of a deleted crawl. Returns whether there are more.
    fn end_active(&mut self, crawl: &CrawlName, deleted_at: Time) -> bool {
        let (mut writes, entropy, now) = (Writes::default(), self.config.entropy.clone(), self.now());
        let more = self.end_some(crawl, (now, deleted_at), &entropy, &mut writes);
        self.commit_chunks(writes);
        more
    }

    /// Ends a slice of the chunks of a deleted crawl that wait for an index builder. Returns where the next one starts.
    async fn end_crawled(
        &mut self,
        crawl: &CrawlName,
        deleted_at: Time,
        after: Option<CrawledAt>,
    ) -> Result<Option<CrawledAt>, Error> {
        let slice = self.pipeline.crawled_after(crawl, after, END_CHUNKS);
        let (mut writes, now) = (Writes::default(), self.now());
        let (full, mut links, mut last) = (slice.len() == END_CHUNKS, 0, None);
        let mut cut = false;
        for at in slice {
            // One that was made since belongs to a new crawl of this name.
            let row = self.chunk_row(at.1).await?.ok().flatten().filter(|row| row.is_deleted(deleted_at));
            links += row.as_ref().map_or(0, |row| row.links.len());
            cut = links > SLICE_ROWS && last.is_some();
            if cut {
                break;
            }
            last = Some(at);
            let Some(row) = row else { continue };
            let entropy = self.config.entropy.clone();
            self.pipeline.crawl_deleted(&row, &facts(&[], now, &entropy), &mut self.state, &mut writes);
        }
        self.commit_chunks(writes);
        Ok(last.filter(|_| full || cut))
    }

    /// Ends leases of chunks whose deadlines have passed, one slice of them.
    pub async fn sweep_chunks(&mut self, now: Time) -> Result<(), Error> {
        let expired = self.pipeline.expired(now, SLICE_ROWS);
        if expired.is_empty() {
            return Ok(());
        }
        let (mut writes, entropy) = (Writes::default(), self.config.entropy.clone());
        for id in expired {
            let Some(chunk) = self.pipeline.active(id).cloned() else { continue };
            let rows = self.link_rows(&chunk).await?;
            let facts = facts(&rows, now, &entropy);
            self.pipeline.expire(id, &facts, &mut self.state, &mut writes);
        }
        self.commit_chunks(writes);
        Ok(())
    }

    /// Publishes what chunks this shard offers.
    pub fn publish_chunks(&mut self) {
        let published = self.pipeline.publish(self.engine.now());
        self.readiness.tell_chunks(self.shard, &published);
    }
}

/// The answer to a call that only reads: that rows cannot be read concerns the call alone.
fn unless_damaged<T>(answer: Result<T, Error>) -> Decided<T> {
    match answer {
        Err(Error::Corrupt(cause)) => Ok(Err(Refusal::Corrupt(cause))),
        answer => answer.map(Ok),
    }
}

/// The facts of a decision.
pub(super) fn facts<'a>(rows: &'a [Option<UrlRow>], now: Time, entropy: &'a Entropy) -> Facts<'a> {
    Facts { rows, now, jitter: entropy() as u64, entropy: &**entropy, found_elsewhere: false }
}
