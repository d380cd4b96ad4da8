//! Calls about chunks: each reads the rows it needs, lets the core decide about frontier and pipeline together, and
//! commits both in one batch.

use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::Parent;
use wayleave_core::frontier::row::UrlRow;
use wayleave_core::frontier::view::{Standing, State as Is};
use wayleave_core::ids::{ChunkId, Token};
use wayleave_core::limits::SLICE_ROWS;
use wayleave_core::names::{CrawlName, HostName};
use wayleave_core::pipeline::claim::Writes;
use wayleave_core::pipeline::end::Facts;
use wayleave_core::pipeline::refusal::ChunkRefusal;
use wayleave_core::pipeline::request::{Claim, Claimed, EndChunk, LeaseEnded, OperatorAction};
use wayleave_core::pipeline::row::{ChunkRow, ChunkState, LinkRow, LinkState};
use wayleave_core::pipeline::state::CrawledAt;
use wayleave_core::time::{Millis, Time};
use wayleave_engine::{Entropy, Error};

use crate::ask::Response;
use crate::message::ChunkReply;
use crate::owner::frontier::{Frontier, decide};
use crate::owner::pipeline::{Links, Pipeline, chunk_rows};
use crate::owner::port::{Decided, Pending};
use crate::pipeline::call::{ChunkCall, ChunkResponse, DepartedLinks, DepartedLookup};
use crate::routing::service_call::ServiceCall;

/// Chunks of a deleted crawl that end in one turn, if they have few links.
const END_CHUNKS: usize = 256;

impl Pipeline {
    pub async fn handle(&mut self, call: ChunkCall, reply: ChunkReply, with: &mut Links<'_>) -> Result<(), Error> {
        let Some(pending) = with.port.admit(reply, call.needs_caller(), call.is_read_only()) else { return Ok(()) };
        match call {
            ChunkCall::Claim(claim) => self.handle_claim(&claim, pending, with).await,
            ChunkCall::Requested { worker, request } => {
                let found = self.claimed_before(&worker, &request, with).await;
                with.port.answer(pending, found)
            }
            ChunkCall::Renew { chunk, token, lease } => {
                let renewed = self.renew_chunk(chunk, token, lease, with).await;
                let renewed = self.name_unknown(chunk, renewed, with).await;
                with.port.answer(pending, renewed)
            }
            ChunkCall::Keep { chunk, token, lease, pages } => {
                let parents = self.keep_chunk((chunk, token), lease, &pages, with).await;
                let parents = self.name_unknown(chunk, parents, with).await;
                with.port.answer(pending, parents)
            }
            ChunkCall::Report(report) => {
                let (reported, trouble) = self.report_links(&report, with).await;
                let reported = self.name_unknown(report.chunk, reported, with).await;
                with.port.answer(pending, reported).and(trouble.map_or(Ok(()), Err))
            }
            ChunkCall::End { chunk, token, end, queued } => {
                let ended = self.end_chunk(chunk, token, &end, &queued, with).await;
                with.port.answer(pending, ended)
            }
            ChunkCall::Decide { chunk, decision, queued } => {
                let decided = self.decide_chunk(chunk, decision, &queued, with).await;
                with.port.answer(pending, decided)
            }
            ChunkCall::EndActive { crawl, deleted_at } => {
                let more = self.end_active(&crawl, deleted_at, with);
                with.port.answer(pending, Ok(Ok(more)))
            }
            ChunkCall::EndCrawled { crawl, deleted_at, after } => {
                let next = self.end_crawled(&crawl, deleted_at, after, with).await;
                with.port.answer(pending, next.map(Ok))
            }
            ChunkCall::DepartedLinks { chunk, token, lease } => {
                let departed = self.departed_links(chunk, token, lease, with).await;
                with.port.answer(pending, departed)
            }
            ChunkCall::Get(id) => {
                let view = self.view_chunk(id, with).await;
                with.port.answer(pending, view)
            }
            ChunkCall::List { filter, after, most } => {
                let page = self.list_chunks(&filter, after, most, with).await;
                with.port.answer(pending, page.map(Ok))
            }
            ChunkCall::Counts => with.port.answer(pending, Ok(Ok(self.state.counts()))),
            call @ (ChunkCall::Unplaced
            | ChunkCall::Placed(_)
            | ChunkCall::PlacedIndex(_)
            | ChunkCall::IndexLost(_)) => self.handle_placing(call, pending, with).await,
        }
    }

    /// Calls between pipeline and placement.
    async fn handle_placing(
        &mut self,
        call: ChunkCall,
        pending: Pending<ChunkResponse>,
        with: &mut Links<'_>,
    ) -> Result<(), Error> {
        match call {
            ChunkCall::Unplaced => {
                let built = self.unplaced_chunks(with).await;
                with.port.answer(pending, built)
            }
            ChunkCall::Placed(chunks) => {
                let noted = self.note_placed(&chunks, with).await;
                with.port.answer(pending, noted.map(Ok))
            }
            ChunkCall::PlacedIndex(id) => {
                let row = self.chunk_row(id, with).await;
                with.port.answer(pending, row.map(|row| row.map(|row| row.and_then(|row| row.placed_index()))))
            }
            ChunkCall::IndexLost(chunks) => {
                let noted = self.note_index_lost(&chunks, with).await;
                with.port.answer(pending, noted)
            }
            _ => with.port.answer(pending, Ok(Err::<(), _>(Refusal::Internal("no such call".to_owned())))),
        }
    }

    async fn handle_claim(
        &mut self,
        claim: &Claim,
        pending: Pending<ChunkResponse>,
        with: &mut Links<'_>,
    ) -> Result<(), Error> {
        if let Some(refusal) = with.refuse_host(claim) {
            return with.port.answer(pending, Ok(Err::<Vec<Claimed>, _>(refusal)));
        }
        if let Some(request) = &claim.request {
            // A repetition of a claim that this shard has granted: never grant twice.
            let before = self.claimed_before(&claim.worker, request, with).await;
            if !matches!(&before, Ok(Ok(found)) if found.is_empty()) {
                return with.port.answer(pending, before);
            }
        }
        let (claimed, trouble) = self.claim_chunks(claim, with).await;
        with.frontier.publish_crawl(claim.crawl.as_ref(), with.port);
        with.port.answer_part(pending, claimed, trouble)
    }

    /// A refused token of a chunk that does not exist is refused for that reason: memory has only chunks in progress.
    async fn name_unknown<T>(&mut self, id: ChunkId, answer: Decided<T>, with: &mut Links<'_>) -> Decided<T> {
        let refused = matches!(&answer, Ok(Err(Refusal::Chunk(ChunkRefusal::NotCurrent { .. }))));
        if refused && matches!(self.chunk_row(id, with).await?, Ok(None)) {
            return Ok(Err(ChunkRefusal::Unknown(id).into()));
        }
        answer
    }

    /// A chunk, from memory or from its row.
    pub(super) async fn chunk_row(&mut self, id: ChunkId, with: &mut Links<'_>) -> Decided<Option<ChunkRow>> {
        if let Some(chunk) = self.state.active(id) {
            return Ok(Ok(Some(chunk.clone())));
        }
        let mut found = None;
        for at_rest in [false, true] {
            for row in chunk_rows::read_each(&*with.port.engine, with.port.shard, &[id], at_rest).await? {
                match row {
                    Ok(row) => found = found.or(row),
                    Err(refusal) => {
                        with.port.log_chunk(&refusal);
                        return Ok(Err(refusal));
                    }
                }
            }
        }
        // The key has only the counter: a client may ask for an id that no shard of this store has made.
        Ok(Ok(found.filter(|row| row.id == id)))
    }

    async fn departed_links(
        &mut self,
        id: ChunkId,
        token: Option<Token>,
        lease: Millis,
        with: &mut Links<'_>,
    ) -> Decided<DepartedLinks> {
        let row = match self.chunk_row(id, with).await? {
            Ok(row) => row,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let now = with.now();
        let Some(row) = row else { return Ok(Ok(None)) };
        let departed = row.departed(token, &with.frontier.state, now);
        if let Some(token) = token.filter(|_| !departed.is_empty()) {
            // Only the holder's links are named, so the token is current.
            _ = self.extend_lease((id, token), now.after(lease), now, with);
        }
        Ok(Ok(Some((row.crawl, departed))))
    }

    /// Lets a lease last at least until then.
    fn extend_lease(
        &mut self,
        (id, token): (ChunkId, Token),
        until: Time,
        now: Time,
        with: &mut Links<'_>,
    ) -> Result<(), ChunkRefusal> {
        let lease = self.state.active(id).and_then(|chunk| chunk.lease.as_ref());
        if lease.is_none_or(|lease| lease.expires_at >= until) {
            return Ok(());
        }
        let mut writes = Writes::default();
        // Whom it tells of links that have left does not matter here.
        let kept = self.state.renew((id, token), (until, now), &[], &mut with.frontier.state, &mut writes.pipeline);
        with.commit(writes);
        kept.map(drop)
    }

    async fn renew_chunk(
        &mut self,
        id: ChunkId,
        token: Token,
        lease: Millis,
        with: &mut Links<'_>,
    ) -> Decided<(Time, Vec<Box<str>>)> {
        let rows = self.unclear_rows(id, with).await?;
        // After the read: the deadline is judged when the decision is made.
        let now = with.now();
        let mut writes = Writes::default();
        let until = now.after(lease);
        let renewed =
            self.state.renew((id, token), (until, now), &rows, &mut with.frontier.state, &mut writes.pipeline);
        with.commit(writes);
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
        with: &mut Links<'_>,
    ) -> Decided<Vec<Option<Parent>>> {
        let now = with.now();
        let chunk = match self.state.reported(id, token, now) {
            Ok(chunk) => chunk.clone(),
            Err(refusal) => return Ok(Err(refusal.into())),
        };
        let named = self.state.named(id, pages.iter().map(|page| &**page), &with.frontier.state);
        let rows = match with.all_rows_at(&chunk, &named).await? {
            Ok(rows) => rows,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let parents = match self.state.parents((id, token), pages, &rows, now, &with.frontier.state) {
            Ok(parents) => parents,
            Err(refusal) => return Ok(Err(refusal.into())),
        };
        if let Err(refusal) = self.extend_lease((id, token), now.after(lease), now, with) {
            return Ok(Err(refusal.into()));
        }
        Ok(Ok(parents))
    }

    async fn end_chunk(
        &mut self,
        id: ChunkId,
        token: Token,
        end: &EndChunk,
        queued: &[DepartedLookup],
        with: &mut Links<'_>,
    ) -> Decided<LeaseEnded> {
        let now = with.now();
        // A repetition is recognised by the row, wherever the chunk is by now.
        let known = match self.chunk_row(id, with).await? {
            Ok(known) => known,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let chunk = match self.state.to_end((id, token), end, known.as_ref(), now) {
            Ok(Some(chunk)) => chunk.clone(),
            Ok(None) => {
                let Some(row) = known else { return Ok(Err(ChunkRefusal::Unknown(id).into())) };
                let rows = with.link_rows(&row).await?;
                return Ok(Ok(row.lease_ended(token, end, &rows)));
            }
            Err(refusal) => return Ok(Err(refusal.into())),
        };
        let lost = matches!(end, EndChunk::Fail { input_lost: true, .. });
        let rows = match with.link_rows_for(&chunk, lost).await? {
            Ok(rows) => rows,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if lost && with.has_unqueued(&chunk, Some(token), queued) {
            return Ok(Err(Refusal::Moved));
        }
        let (mut writes, entropy) = (Writes::default(), with.port.config.entropy.clone());
        let facts = facts(&rows, now, &entropy);
        let ended = self.state.end((id, token), end, &facts, &mut with.frontier.state, &mut writes);
        with.commit(writes);
        Ok(ended.map_err(Into::into))
    }

    async fn decide_chunk(
        &mut self,
        id: ChunkId,
        decision: OperatorAction,
        queued: &[DepartedLookup],
        with: &mut Links<'_>,
    ) -> Decided<ChunkState> {
        let now = with.now();
        let before = match self.chunk_row(id, with).await? {
            Ok(Some(before)) => before,
            Ok(None) => return Ok(Err(ChunkRefusal::Unknown(id).into())),
            Err(refusal) => return Ok(Err(refusal)),
        };
        let again = decision == OperatorAction::Retry && before.crawled.is_none();
        let rows = match with.link_rows_for(&before, again).await? {
            Ok(rows) => rows,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if decision == OperatorAction::Retry && with.has_unqueued(&before, None, queued) {
            return Ok(Err(Refusal::Moved));
        }
        let (mut writes, entropy) = (Writes::default(), with.port.config.entropy.clone());
        let found_elsewhere = queued.iter().any(|link| link.known);
        let facts = Facts { found_elsewhere, ..facts(&rows, now, &entropy) };
        let decided = self.state.decide(&before, decision, &facts, &mut with.frontier.state, &mut writes);
        with.commit(writes);
        Ok(decided.map_err(Into::into))
    }

    /// Deletes a crawl, and ends the first of its chunks in progress with it. If there are more, the caller ends them slice by
    /// slice (`end_active`). Until then they do without their links, as after the deletion of a queue; if the caller fails,
    /// it is told to delete the crawl again.
    pub fn delete_crawl(
        &mut self,
        crawl: &CrawlName,
        number: Option<Time>,
        pending: Pending<Response>,
        with: &mut Links<'_>,
    ) -> Result<(), Error> {
        let (mut writes, entropy, now) = (Writes::default(), with.port.config.entropy.clone(), with.now());
        let deleted = decide::delete_crawl(&mut with.frontier.state, crawl, number, now, &mut writes.frontier);
        self.end_some(crawl, (now, now), &entropy, &mut writes, with);
        with.commit(writes);
        with.port.answer(pending, Ok(Ok(deleted)))
    }

    /// Ends a slice of the chunks of a crawl that were made before it was deleted. Returns whether there are more.
    fn end_some(
        &mut self,
        crawl: &CrawlName,
        (now, deleted_at): (Time, Time),
        entropy: &Entropy,
        writes: &mut Writes,
        with: &mut Links<'_>,
    ) -> bool {
        let (ids, more) = self.state.of_deleted_crawl(crawl, deleted_at, (END_CHUNKS, SLICE_ROWS));
        for id in ids {
            let Some(before) = self.state.active(id).cloned() else { continue };
            // Its queues are gone, and with them the rows of its links.
            self.state.crawl_deleted(&before, &facts(&[], now, entropy), &mut with.frontier.state, writes);
        }
        more
    }

    /// Ends a slice of the chunks in progress of a deleted crawl. Returns whether there are more.
    fn end_active(&mut self, crawl: &CrawlName, deleted_at: Time, with: &mut Links<'_>) -> bool {
        let (mut writes, entropy, now) = (Writes::default(), with.port.config.entropy.clone(), with.now());
        let more = self.end_some(crawl, (now, deleted_at), &entropy, &mut writes, with);
        with.commit(writes);
        more
    }

    /// Ends a slice of the chunks of a deleted crawl that wait for an index builder. Returns where the next one starts.
    async fn end_crawled(
        &mut self,
        crawl: &CrawlName,
        deleted_at: Time,
        after: Option<CrawledAt>,
        with: &mut Links<'_>,
    ) -> Result<Option<CrawledAt>, Error> {
        let slice = self.state.crawled_after(crawl, after, END_CHUNKS);
        let (mut writes, now) = (Writes::default(), with.now());
        let (full, mut links, mut last) = (slice.len() == END_CHUNKS, 0, None);
        let mut cut = false;
        for at in slice {
            // One that was made since belongs to a new crawl of this name.
            let row = self.chunk_row(at.1, with).await?.ok().flatten().filter(|row| row.is_deleted(deleted_at));
            links += row.as_ref().map_or(0, |row| row.links.len());
            cut = links > SLICE_ROWS && last.is_some();
            if cut {
                break;
            }
            last = Some(at);
            let Some(row) = row else { continue };
            let entropy = with.port.config.entropy.clone();
            self.state.crawl_deleted(&row, &facts(&[], now, &entropy), &mut with.frontier.state, &mut writes);
        }
        with.commit(writes);
        Ok(last.filter(|_| full || cut))
    }

    /// Ends leases of chunks whose deadlines have passed, one slice of them.
    pub async fn sweep(&mut self, now: Time, with: &mut Links<'_>) -> Result<(), Error> {
        let expired = self.state.expired(now, SLICE_ROWS);
        if expired.is_empty() {
            return Ok(());
        }
        let (mut writes, entropy) = (Writes::default(), with.port.config.entropy.clone());
        for id in expired {
            let Some(chunk) = self.state.active(id).cloned() else { continue };
            let rows = with.link_rows(&chunk).await?;
            let facts = facts(&rows, now, &entropy);
            self.state.expire(id, &facts, &mut with.frontier.state, &mut writes);
        }
        with.commit(writes);
        Ok(())
    }

    /// Mentions chunks that wait for a crawler in what is told of hosts and groups.
    pub fn tell_of_offers(&self, told: &mut Response, now: Time, frontier: &Frontier) {
        match told {
            Response::Host(view) => {
                self.tell_of_offer(&mut view.standing, std::slice::from_ref(&view.host), now, frontier)
            }
            Response::Group(Some(view)) => self.tell_of_offer(&mut view.standing, &view.hosts, now, frontier),
            _ => {}
        }
    }

    /// Mentions a chunk that reserves URLs of these hosts and waits for a crawler: they are handed out to nobody else.
    fn tell_of_offer(&self, standing: &mut Standing, hosts: &[HostName], now: Time, frontier: &Frontier) {
        let chunks = hosts.iter().flat_map(|host| frontier.state.idle_chunks(host));
        let mut offered = chunks.filter_map(|id| self.state.active(id)).filter(|chunk| chunk.is_offered());
        let Some(chunk) = offered.next() else { return };
        standing.reason.push_str(&format!("; a URL of it is in chunk {}, which waits for a crawler", chunk.id));
        if standing.state == Is::Idle {
            standing.ready_at = chunk.view(&frontier.state, now).until;
        }
    }
}

impl Links<'_> {
    /// The rows of a chunk's links, by position. One that cannot be read appears as missing: it must not keep the others from
    /// being returned, claimed or completed. Its URL stays reserved until it can be read.
    pub(super) async fn link_rows(&mut self, chunk: &ChunkRow) -> Result<Vec<Option<UrlRow>>, Error> {
        self.frontier.readable_rows(&chunk.urls(), self.port).await
    }

    /// The same for a decision that may have the chunk crawled again, which needs the rows of all links that it may take back: it
    /// would forget the others.
    async fn link_rows_for(&mut self, chunk: &ChunkRow, again: bool) -> Decided<Vec<Option<UrlRow>>> {
        let may_take = |link: &LinkRow| {
            let is_its_own = matches!(link.state, LinkState::Crawling | LinkState::Crawled(_));
            is_its_own && self.frontier.state.has_queue(link.url.0)
        };
        let links = chunk.links.iter().enumerate();
        let needed: Vec<usize> = links.filter(|(_, link)| again && may_take(link)).map(|(at, _)| at).collect();
        if let Err(refusal) = self.all_rows_at(chunk, &needed).await? {
            return Ok(Err(refusal));
        }
        self.link_rows(chunk).await.map(Ok)
    }

    /// Whether a link of a chunk that is about to be crawled again has departed and was not queued where it is now.
    fn has_unqueued(&self, chunk: &ChunkRow, token: Option<Token>, queued: &[DepartedLookup]) -> bool {
        let departed = chunk.departed(token, &self.frontier.state, self.port.engine.now());
        departed.iter().any(|link| queued.iter().all(|queued| queued.url != link.url))
    }
}

/// The facts of a decision.
pub(super) fn facts<'a>(rows: &'a [Option<UrlRow>], now: Time, entropy: &'a Entropy) -> Facts<'a> {
    Facts { rows, now, jitter: entropy() as u64, entropy: &**entropy, found_elsewhere: false }
}
