//! How a lease on a chunk ends: by completion, by failure, at its deadline, or because its crawl is deleted; and what an
//! operator may do with chunks that were set aside.
//!
//! A lease ends once. The chunk remembers a digest of the call that ended each stage, so a repeated call gets the same
//! answer and changes nothing; any other call with that token is refused.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use super::claim::Writes;
use super::refusal::ChunkRefusal;
use super::request::{EndChunk, LeaseEnded, OperatorAction};
use super::row::{Artifact, ChunkRow, ChunkState, Ended, LinkState};
use super::state::State;
use crate::frontier::State as Frontier;
use crate::frontier::link::LinkUrl;
use crate::frontier::request::UrlResult;
use crate::frontier::row::UrlRow;
use crate::frontier::url_key::UrlKey;
use crate::ids::{ChunkId, Token};
use crate::names::HostName;
use crate::time::Time;
use crate::words::words;

pub(super) const SKIPPED: &str = "skipped by an operator";
const CRAWL_DELETED: &str = "its crawl was deleted";
/// True however a chunk came to have no link to take back: what became of its URLs, the chunk does not know.
const NOTHING_LEFT: &str = "none of its URLs can be taken back: they have failed, were deleted, alone or with their crawl, \
                            or are queued, handed out or finished without it; add those again that are still wanted";
const UNCLAIMED: &str = "no crawler claimed it again in time";

/// The rows of a chunk's links, the time, and random bits.
pub struct Facts<'a> {
    /// The rows, by position of the links.
    pub rows: &'a [Option<UrlRow>],
    /// The time.
    pub now: Time,
    /// Random bits for back-offs.
    pub jitter: u64,
    /// Random bits for the tokens of links, as many as are drawn.
    pub entropy: &'a dyn Fn() -> u128,
    /// Whether a departed link of the chunk is known where its host lives now.
    pub found_elsewhere: bool,
}

impl State {
    /// The chunk whose lease a call ends, whose links' URL rows must be read; `None` if the same call has ended it
    /// before. Fails if the token is not that of its live lease. `rest` is the chunk's row, if it is not kept here.
    pub fn to_end(
        &self,
        (id, token): (ChunkId, Token),
        end: &EndChunk,
        rest: Option<&ChunkRow>,
        now: Time,
    ) -> Result<Option<&ChunkRow>, ChunkRefusal> {
        let made = match end {
            EndChunk::Complete(Some(artifact)) => Some(&*artifact.location),
            EndChunk::Complete(None) | EndChunk::Fail { .. } => None,
        };
        let known = self.active.get(&id).or(rest).ok_or(ChunkRefusal::Unknown(id))?;
        if known.ended.contains(&Some(Ended { token, call: digest(end) })) {
            return Ok(None);
        }
        // What the chunk itself refers to is no garbage, even if a caller says so.
        let kept = [&known.crawled, &known.built].into_iter().flatten().map(|artifact| &*artifact.location);
        let made = made.filter(|made| kept.clone().all(|kept| kept != *made));
        self.current(id, token, now, made).map(Some)
    }

    /// Ends a lease by completion or failure. Fails if the token is not that of the chunk's live lease, or the call
    /// does not fit its stage; then nothing has changed.
    pub fn end(
        &mut self,
        (id, token): (ChunkId, Token),
        end: &EndChunk,
        facts: &Facts<'_>,
        frontier: &mut Frontier,
        writes: &mut Writes,
    ) -> Result<LeaseEnded, ChunkRefusal> {
        let before = self.current(id, token, facts.now, None)?.clone();
        let crawling = before.state == ChunkState::Crawling;
        let mut after = before.clone();
        let [crawl, build] = &mut after.ended;
        *(if crawling { crawl } else { build }) = Some(Ended { token, call: digest(end) });
        match end {
            EndChunk::Complete(artifact) if crawling => {
                let content = after.has_content(frontier, facts.rows);
                match (content, artifact) {
                    (true, None) => return Err(ChunkRefusal::ArtifactMissing(id)),
                    (false, Some(made)) => return Err(after.no_content(&made.location)),
                    _ => {}
                }
                let failure = before.last_failure(facts.rows);
                after.finish_links(facts, frontier, writes);
                after.crawled.clone_from(artifact);
                after.move_on(if content { ChunkState::Crawled } else { ChunkState::Skipped }, facts.now);
                if !content {
                    let failed = after.links.iter().any(|link| matches!(link.state, LinkState::Error(_)));
                    let why =
                        if failed { "none of its links could be fetched" } else { "none of its links was reported" };
                    after.last_error =
                        Some(failure.map_or_else(|| why.into(), |failure| format!("{why}; {failure}").into()));
                }
            }
            EndChunk::Complete(None) => return Err(ChunkRefusal::ArtifactMissing(id)),
            EndChunk::Complete(artifact) => {
                after.built.clone_from(artifact);
                after.move_on(ChunkState::Built, facts.now);
            }
            EndChunk::Fail { input_lost: true, .. } if crawling => return Err(ChunkRefusal::NoInput(id)),
            EndChunk::Fail { reason, input_lost: true } => {
                after.last_error = Some(format!("its content was lost: {reason}").into());
                after.inputs_lost = after.inputs_lost.saturating_add(1);
                after.attempts = 0;
                if after.inputs_lost >= crate::limits::CHUNK_ATTEMPTS_MAX {
                    // The links stay as they are; a retry crawls them again.
                    after.crawled = None;
                    after.move_on(ChunkState::SetAside, facts.now);
                } else {
                    after.crawl_again(facts, frontier, writes);
                }
            }
            EndChunk::Fail { reason, .. } => after.attempt_failed(reason.clone(), facts, frontier, writes),
        }
        let ended = after.lease_ended(token, end, facts.rows);
        self.store(Some(&before), after, &mut writes.pipeline);
        Ok(ended)
    }

    /// Ends a lease whose deadline has passed. The visits of its links ended then.
    pub fn expire(&mut self, id: ChunkId, facts: &Facts<'_>, frontier: &mut Frontier, writes: &mut Writes) {
        let Some(before) = self.active.get(&id).cloned() else { return };
        let Some(lease) = before.lease.clone() else { return self.withdraw(&before, facts, frontier, writes) };
        if lease.expires_at > facts.now {
            return;
        }
        let mut after = before.clone();
        for token in after.leases() {
            let end = (lease.expires_at, facts.now);
            frontier.end_link_visit(token, &[], end, facts.jitter, &mut writes.frontier);
        }
        let reason = format!("the lease of '{}' ended without a result", lease.worker);
        after.attempt_failed(reason.into(), facts, frontier, writes);
        self.store(Some(&before), after, &mut writes.pipeline);
    }

    /// Withdraws an unclaimed offer: the links return to their queues, where any crawler may have them.
    fn withdraw(&mut self, before: &ChunkRow, facts: &Facts<'_>, frontier: &mut Frontier, writes: &mut Writes) {
        if before.offer_ends() > facts.now {
            return;
        }
        let mut after = before.clone();
        after.return_links(facts, frontier, writes);
        // An operator may ask for it again and again, so the reason before is not repeated in the next one.
        if !before.last_error.as_deref().is_some_and(|error| error.starts_with(UNCLAIMED)) {
            let why = before.last_error.as_deref().unwrap_or("an operator asked for it again");
            after.last_error = Some(format!("{UNCLAIMED} ({why}); its links went back to their queues").into());
        }
        after.move_on(ChunkState::Skipped, facts.now);
        self.store(Some(before), after, &mut writes.pipeline);
    }

    /// Ends a chunk whose crawl is deleted: its token is no longer current. A chunk that is built stays.
    pub fn crawl_deleted(
        &mut self,
        before: &ChunkRow,
        facts: &Facts<'_>,
        frontier: &mut Frontier,
        writes: &mut Writes,
    ) {
        let mut after = before.clone();
        for token in before.leases() {
            // The crawler does not know yet.
            let rows = before.rows_of(token, facts.rows, frontier);
            frontier.abandon_link(token, rows, &[], facts.now, &mut writes.frontier);
        }
        after.forget_leases();
        if after.crawled.is_none() {
            // A retry finds nothing to crawl, not even in a new crawl of this name.
            after.links.retain(super::row::LinkRow::has_left);
        }
        after.last_error = Some(CRAWL_DELETED.into());
        after.move_on(ChunkState::Skipped, facts.now);
        self.store(Some(before), after, &mut writes.pipeline);
    }

    /// Carries out an operator's decision. Fails if it does not fit the chunk's state; then nothing has changed.
    pub fn decide(
        &mut self,
        before: &ChunkRow,
        decision: OperatorAction,
        facts: &Facts<'_>,
        frontier: &mut Frontier,
        writes: &mut Writes,
    ) -> Result<ChunkState, ChunkRefusal> {
        let wrong = |what: &str, remedy: &str| ChunkRefusal::WrongState {
            chunk: before.id,
            state: before.state.name().into(),
            what: what.into(),
            remedy: remedy.into(),
        };
        let mut after = ChunkRow { attempts: 0, inputs_lost: 0, indexes_lost: 0, ended: [None; 2], ..before.clone() };
        match (decision, before.state) {
            (OperatorAction::Retry, ChunkState::SetAside | ChunkState::Skipped) if before.crawled.is_some() => {
                after.move_on(ChunkState::Crawled, facts.now);
            }
            (OperatorAction::Retry, ChunkState::SetAside | ChunkState::Skipped) => {
                after.crawl_again(facts, frontier, writes);
                // Then it has taken nothing, and changed nothing in the frontier.
                if after.state == ChunkState::Skipped && !facts.found_elsewhere {
                    return Err(wrong("retried", NOTHING_LEFT));
                }
            }
            (OperatorAction::Retry, ChunkState::Built) => {
                return Err(wrong("retried", "it is built and about to be placed; try again in a moment"));
            }
            (OperatorAction::Retry, _) => {
                let remedy = match before.lease {
                    Some(_) => "a worker has it; wait for its lease to end",
                    None => "it waits for a worker already; its reason says for which",
                };
                return Err(wrong("retried", remedy));
            }
            (OperatorAction::Skip, ChunkState::Built) => {
                return Err(wrong("skipped", "it is built and about to be placed; try again in a moment"));
            }
            (OperatorAction::Skip, ChunkState::Skipped) => return Ok(ChunkState::Skipped),
            (OperatorAction::Skip, _) => {
                after.fail_links(facts, frontier, writes);
                let reason = before.last_error.as_deref().filter(|error| !error.starts_with(SKIPPED));
                after.last_error =
                    Some(reason.map_or_else(|| SKIPPED.into(), |error| format!("{SKIPPED} after: {error}").into()));
                after.move_on(ChunkState::Skipped, facts.now);
            }
        }
        let state = after.state;
        self.store(Some(before), after, &mut writes.pipeline);
        Ok(state)
    }
}

/// A digest of a call, by which its repetition is recognised, from wherever it comes. It is stored, so it is the same in every program.
fn digest(end: &EndChunk) -> u64 {
    const SEED: u64 = 0xa54f_f53a_5f1d_36f1;
    let text = match end {
        EndChunk::Complete(None) => "complete".to_owned(),
        EndChunk::Complete(Some(Artifact { location, bytes, checksum, from: _ })) => {
            let checksum: String = checksum.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("complete {bytes} {checksum} {location}")
        }
        EndChunk::Fail { reason, input_lost } => format!("fail {} {reason}", u8::from(*input_lost)),
    };
    crate::frontier::url_key::hash(&text, SEED)
}

words!(ChunkState, name:
    Crawling "crawling", Crawled "crawled", Building "building", Built "built", SetAside "set_aside",
    Skipped "skipped"
);

impl ChunkRow {
    /// Whether its crawl was deleted: it ended because of that, or it had ended before and none of its queues is left. `is_home`
    /// says of a host whether this shard has it unless it lives with an alias.
    #[must_use]
    pub fn is_of_deleted_crawl(&self, frontier: &Frontier, is_home: impl Fn(&HostName) -> bool) -> bool {
        // A host is forgotten with its last queue, so one that is not here may be deleted or live elsewhere.
        let is_elsewhere =
            |host: &HostName| !frontier.has_host(host) && (!is_home(host) || frontier.moved_to(host).is_some());
        let is_deleted = |link: &super::row::LinkRow| !frontier.has_queue(link.url.0) && !is_elsewhere(&link.host);
        let ended_by_it = self.state == ChunkState::Skipped && self.last_error.as_deref() == Some(CRAWL_DELETED);
        ended_by_it || !self.links.is_empty() && self.links.iter().all(is_deleted)
    }

    /// The answer to the call that ended a lease: now, or before, if it is repeated. `rows` are those of its links, by
    /// position.
    #[must_use]
    pub fn lease_ended(&self, token: Token, end: &EndChunk, rows: &[Option<UrlRow>]) -> LeaseEnded {
        let [crawl, _] = self.ended;
        let completed = matches!(end, EndChunk::Complete(_)) && crawl == Some(Ended { token, call: digest(end) });
        let left = self.links.iter().enumerate().filter(|(_, link)| completed && link.state == LinkState::LeftFetched);
        LeaseEnded { state: self.state, ended: left.map(|(at, link)| link.whole_text(at, rows)).collect() }
    }

    /// Which of its links a completion can settle: those that are still part of the chunk and whose rows could be read. Without
    /// its row a URL stays reserved until it can be read, and is then crawled again, so it must not count here too.
    fn settles(&self, frontier: &Frontier, rows: &[Option<UrlRow>]) -> Vec<bool> {
        let is_read = |at: usize| rows.get(at).is_some_and(Option::is_some);
        self.present(frontier, rows).into_iter().enumerate().map(|(at, here)| here && is_read(at)).collect()
    }

    /// Whether a link was reported as fetched, and counts here.
    fn has_content(&self, frontier: &Frontier, rows: &[Option<UrlRow>]) -> bool {
        let here = self.settles(frontier, rows);
        self.links.iter().zip(here).any(|(link, here)| here && matches!(link.state, LinkState::Crawled(_)))
    }

    /// The refusal of an artifact of a chunk without content.
    fn no_content(&self, made: &str) -> ChunkRefusal {
        let fetched = self.links.iter().any(|link| matches!(link.state, LinkState::Crawled(_)));
        let (why, remedy) = if fetched {
            let remedy = format!("complete it without an artifact, and collect {made} as garbage");
            ("all links that were reported as fetched have left it", remedy)
        } else {
            let remedy = "report the links first, or complete it without an artifact".to_owned();
            ("no link was reported as fetched", remedy)
        };
        ChunkRefusal::NoContent { chunk: self.id, why: why.into(), remedy: remedy.into() }
    }

    pub(super) fn move_on(&mut self, state: ChunkState, now: Time) {
        (self.state, self.lease, self.attempts, self.since) = (state, None, 0, now);
    }

    /// Ends all links: those reported as fetched by their results, the others unchanged.
    fn finish_links(&mut self, facts: &Facts<'_>, frontier: &mut Frontier, writes: &mut Writes) {
        let here = self.settles(frontier, facts.rows);
        for token in self.leases() {
            let mut known: HashMap<&UrlKey, &UrlResult> = HashMap::new();
            for link in self.links.iter().filter(|link| link.lease == Some(token)) {
                if let LinkState::Crawled(result) = &link.state {
                    known.insert(&link.url.1, result);
                }
            }
            let urls = frontier.link_urls(token).unwrap_or_default();
            let results: Vec<Option<&UrlResult>> = urls.iter().map(|(_, key)| known.get(key).copied()).collect();
            let rows = self.rows_of(token, facts.rows, frontier);
            frontier.end_link(token, rows, &results, facts.now, facts.jitter, &mut writes.frontier);
        }
        for (link, here) in self.links.iter_mut().zip(here) {
            match link.state {
                // It does not count here, though it was reported as fetched. The answer says so, and so must its repetition.
                LinkState::Crawled(_) if !here => (link.lease, link.state) = (None, LinkState::LeftFetched),
                // That was at an earlier completion.
                LinkState::LeftFetched => link.state = LinkState::Left,
                LinkState::Crawling | LinkState::Crawled(_) | LinkState::Error(_) | LinkState::Left => {}
            }
        }
        // What was not reported has returned to its queue, and is not part of the chunk any more.
        self.links.retain(|link| link.state != LinkState::Crawling);
        self.forget_leases();
    }

    /// Returns the URLs of all links to their queues. The attempts of the chunk count as theirs: otherwise a page
    /// that kills its crawlers would be retried without end.
    fn return_links(&mut self, facts: &Facts<'_>, frontier: &mut Frontier, writes: &mut Writes) {
        for token in self.leases() {
            let rows = self.rows_of(token, facts.rows, frontier);
            frontier.return_link(token, rows, self.attempts, facts.now, &mut writes.frontier);
        }
        // For good: another chunk may fetch them next, and a retry must not take them back from it.
        self.links.iter_mut().filter(|link| link.lease.is_some()).for_each(super::row::LinkRow::leave);
        self.forget_leases();
    }

    /// Marks the URLs of all links as failed, also of those that were reported as fetched: their content is given up. A
    /// retry takes them back, but not those that had left the chunk before: others take care of them.
    fn fail_links(&mut self, facts: &Facts<'_>, frontier: &mut Frontier, writes: &mut Writes) {
        let here = self.present(frontier, facts.rows);
        for token in self.leases() {
            let rows = self.rows_of(token, facts.rows, frontier);
            frontier.fail_link(token, rows, facts.now, &mut writes.frontier);
        }
        for (link, here) in self.links.iter_mut().zip(here).filter(|(link, _)| link.lease.is_some()) {
            if here {
                link.state = LinkState::Crawling;
            } else {
                link.leave();
            }
        }
        self.forget_leases();
    }

    fn forget_leases(&mut self) {
        self.visit = None;
        self.links.iter_mut().for_each(|link| link.lease = None);
    }

    /// Counts an attempt without a result, and offers the chunk again, whole, or sets it aside.
    fn attempt_failed(&mut self, reason: Box<str>, facts: &Facts<'_>, frontier: &mut Frontier, writes: &mut Writes) {
        self.last_error = Some(reason);
        self.attempts = self.attempts.saturating_add(1);
        (self.lease, self.since) = (None, facts.now);
        if self.state == ChunkState::Building {
            self.state = if self.is_exhausted() { ChunkState::SetAside } else { ChunkState::Crawled };
            return;
        }
        // A crawler that reported failure has stopped; at a deadline the visits have ended already.
        for token in self.leases() {
            frontier.end_link_visit(token, &[], (facts.now, facts.now), facts.jitter, &mut writes.frontier);
        }
        if self.is_exhausted() {
            self.fail_links(facts, frontier, writes);
            self.state = ChunkState::SetAside;
            return;
        }
        for link in self.links.iter_mut().filter(|link| link.lease.is_some()) {
            link.state = LinkState::Crawling;
        }
    }

    /// Sends the chunk back to the crawl stage: the URLs that it had fetched, or that were marked as failed when it was
    /// set aside, become its links again, unless they have been queued or reserved since. The others are remembered
    /// as returned, unless they were deleted.
    ///
    /// A link that had left the chunk before is not taken back, even if its URL is finished: another chunk may have fetched
    /// it since. For the same reason one that this chunk had not fetched is taken back only if this chunk made it fail. Every URL
    /// is taken once: its row was read before the first one, so a second one would be counted anew.
    fn crawl_again(&mut self, facts: &Facts<'_>, frontier: &mut Frontier, writes: &mut Writes) {
        self.crawled = None;
        let own: Vec<bool> = self
            .links
            .iter()
            .zip(facts.rows)
            .map(|(link, row)| row.as_ref().is_some_and(|row| self.may_take(link, row)))
            .collect();
        (self.state, self.lease, self.since) = (ChunkState::Crawling, None, facts.now);
        let holder: Arc<str> = "".into();
        let mut again: Vec<super::row::LinkRow> = Vec::new();
        let mut once: HashSet<(HostName, LinkUrl)> = HashSet::new();
        let links = self.links.iter().zip(facts.rows).zip(own).filter(|((link, _), own)| *own && !link.has_left());
        let links = links.map(|(pair, _)| pair);
        let links: Vec<_> = links.filter(|(link, _)| once.insert((link.host.clone(), link.url.clone()))).collect();
        let mut parcels: Vec<(HostName, Vec<_>)> = Vec::new();
        for (link, row) in links {
            let parcel = (link.url.clone(), row.clone());
            // A chunk of one host is one visit; otherwise every link is its own.
            match parcels.last_mut().filter(|_| self.host.is_some()) {
                Some((_, urls)) => urls.push(parcel),
                None => parcels.push((link.host.clone(), vec![parcel])),
            }
        }
        for (host, urls) in parcels {
            let token = Token::new(frontier.shard(), (facts.entropy)());
            let pair = (&holder, facts.now);
            let taken = frontier.link_again((token, self.id), urls, pair, &mut writes.frontier);
            self.visit = Some(token).filter(|_| self.host.is_some() && !taken.is_empty());
            again.extend(taken.into_iter().map(|url| super::row::LinkRow {
                lease: Some(token),
                host: host.clone(),
                url,
                state: LinkState::Crawling,
                replaced_by: None,
            }));
        }
        if again.is_empty() {
            self.move_on(ChunkState::Skipped, facts.now);
        }
        let taken: HashSet<LinkUrl> = again.iter().map(|link| link.url.clone()).collect();
        let (mut rows, mut once) = (facts.rows.iter(), HashSet::new());
        self.links.retain_mut(|link| {
            let known = rows.next().is_some_and(Option::is_some) || link.is_elsewhere(frontier);
            if matches!(link.state, LinkState::Error(_) | LinkState::LeftFetched) {
                return true;
            }
            link.leave();
            known && !taken.contains(&link.url) && once.insert((link.host.clone(), link.url.clone()))
        });
        self.links.extend(again);
    }
}
