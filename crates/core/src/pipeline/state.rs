//! The chunks of one shard that are in progress, and their order. Chunks that wait for an index builder or for placement
//! are kept by id alone: there may be millions, and their rows are read when they are wanted. Chunks at rest are not kept at all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use super::offers::Offers;
use super::refusal::ChunkRefusal;
use super::row::{ChunkLease, ChunkRow, ChunkState, LinkState, PipelineRow, Write};
use crate::frontier::State as Frontier;
use crate::frontier::request::RequestId;
use crate::frontier::requested::digest;
use crate::frontier::row::UrlRow;
use crate::frontier::url_key::UrlKey;
use crate::ids::{ChunkId, ShardId, Token};
use crate::limits;
use crate::names::CrawlName;
use crate::time::Time;

/// The chunks of one shard that are in progress.
#[derive(Default)]
pub struct State {
    pub(super) shard: ShardId,
    pub(super) row: PipelineRow,
    /// Chunks in the crawl stage, and those that an index builder works on.
    pub(super) active: HashMap<ChunkId, ChunkRow>,
    /// Deadlines of all leases and offers.
    pub(super) ends: BTreeSet<(Time, ChunkId)>,
    /// Chunks that a crawler is awaited for.
    pub(super) offers: Offers,
    /// How many of the active ones an index builder works on.
    pub(super) building: usize,
    /// Counts chunks that became claimable since the last call of [`State::publish`]: by crawlers, and by index builders.
    pub(super) news: (Claimable, Claimable),
    /// Chunks that an index builder is awaited for, oldest first.
    pub(super) crawled: BTreeSet<(Time, ChunkId)>,
    /// The same by crawl.
    pub(super) crawled_of: HashMap<CrawlName, BTreeSet<(Time, ChunkId)>>,
    /// Built chunks that placement may not know yet.
    pub(super) unplaced: BTreeSet<ChunkId>,
    /// Leases by idempotent request.
    pub(super) requests: HashMap<(Arc<str>, Arc<str>), Vec<ChunkId>>,
    /// Requests that gained or lost a lease since the last call, by digest.
    request_changes: Vec<(u64, bool)>,
}

impl State {
    /// The pipeline of a shard without chunks, from its row.
    #[must_use]
    pub fn new(shard: ShardId, row: PipelineRow) -> Self {
        Self { shard, row, ..Self::default() }
    }

    /// Adds a chunk that is not at rest, from its row. Its links in the frontier get its deadline.
    pub fn load(&mut self, chunk: ChunkRow, frontier: &mut Frontier) {
        if let Some(lease) = &chunk.lease {
            chunk.leases().for_each(|token| frontier.set_link_deadline(token, lease.expires_at));
        }
        self.insert(chunk);
    }

    /// A fresh chunk id, never used before.
    pub(super) fn next_id(&mut self) -> (ChunkId, Write) {
        let id = ChunkId::new(self.shard, self.row.next_chunk);
        self.row.next_chunk += 1;
        (id, Write::Pipeline(self.row))
    }

    /// The id that the next new chunk gets.
    #[must_use]
    pub const fn peek_id(&self) -> ChunkId {
        ChunkId::new(self.shard, self.row.next_chunk)
    }

    /// Enters a chunk into every index.
    pub(super) fn insert(&mut self, chunk: ChunkRow) {
        let id = chunk.id;
        match (chunk.state, &chunk.lease) {
            (ChunkState::Crawling | ChunkState::Building, Some(lease)) => {
                self.ends.insert((lease.expires_at, id));
                if let Some(request) = &lease.request {
                    let key = (lease.worker.clone(), request.id.clone());
                    self.requests.entry(key).or_default().push(id);
                    self.request_changes.push((digest(&lease.worker, &request.id), true));
                }
                self.building += usize::from(chunk.state == ChunkState::Building);
                self.active.insert(id, chunk);
            }
            (ChunkState::Crawling, None) => {
                *self.news.0.entry(chunk.crawl.clone()).or_default() += 1;
                self.offers.add(&chunk);
                self.ends.insert((chunk.offer_ends(), id));
                self.active.insert(id, chunk);
            }
            (ChunkState::Crawled, _) | (ChunkState::Building, None) => {
                *self.news.1.entry(chunk.crawl.clone()).or_default() += 1;
                self.crawled.insert((chunk.since, id));
                self.crawled_of.entry(chunk.crawl).or_default().insert((chunk.since, id));
            }
            (ChunkState::Built, _) if !chunk.placed => _ = self.unplaced.insert(id),
            (ChunkState::Built | ChunkState::SetAside | ChunkState::Skipped, _) => {}
        }
    }

    /// Takes a chunk out of every index.
    pub(super) fn remove(&mut self, chunk: &ChunkRow) {
        let id = chunk.id;
        if self.active.remove(&id).is_some_and(|before| before.state == ChunkState::Building) {
            self.building -= 1;
        }
        if chunk.state == ChunkState::Crawling && chunk.lease.is_none() {
            self.offers.remove(chunk);
            self.ends.remove(&(chunk.offer_ends(), id));
        }
        self.unplaced.remove(&id);
        if self.crawled.remove(&(chunk.since, id))
            && let Some(of) = self.crawled_of.get_mut(&chunk.crawl)
        {
            of.remove(&(chunk.since, id));
            if of.is_empty() {
                self.crawled_of.remove(&chunk.crawl);
            }
        }
        let Some(lease) = &chunk.lease else { return };
        self.ends.remove(&(lease.expires_at, id));
        let Some(request) = &lease.request else { return };
        let key = (lease.worker.clone(), request.id.clone());
        if let Some(ids) = self.requests.get_mut(&key) {
            ids.retain(|known| *known != id);
            if ids.is_empty() {
                self.requests.remove(&key);
            }
            self.request_changes.push((digest(&lease.worker, &request.id), false));
        }
    }

    /// Replaces a chunk, and writes it.
    pub(super) fn store(&mut self, before: Option<&ChunkRow>, after: ChunkRow, writes: &mut Vec<Write>) {
        if let Some(before) = before {
            self.remove(before);
        }
        let moved = before.is_some_and(|before| before.is_at_rest() != after.is_at_rest());
        let changes = after.changes_since(before);
        writes.push(Write::Chunk { row: Box::new(after.clone()), moved, changes });
        self.insert(after);
    }

    /// A chunk that is kept in memory.
    #[must_use]
    pub fn active(&self, id: ChunkId) -> Option<&ChunkRow> {
        self.active.get(&id)
    }

    /// All chunks in memory, in no order.
    pub fn all_active(&self) -> impl Iterator<Item = &ChunkRow> {
        self.active.values()
    }

    /// The chunk whose live lease has this token. Fails if the chunk is not kept here, or the token is not that of its
    /// live lease. `made` names the caller's discarded work.
    pub(super) fn current(
        &self,
        id: ChunkId,
        token: Token,
        now: Time,
        made: Option<&str>,
    ) -> Result<&ChunkRow, ChunkRefusal> {
        let chunk = self.active.get(&id);
        let held = |chunk: &&ChunkRow| chunk.lease.as_ref().is_some_and(|l| l.token == token && l.expires_at > now);
        chunk.filter(held).ok_or_else(|| self.not_current(id, made))
    }

    /// The refusal of a token.
    #[must_use]
    pub fn not_current(&self, id: ChunkId, made: Option<&str>) -> ChunkRefusal {
        let why = match self.active.get(&id).map(|chunk| (&chunk.lease, &chunk.last_error)) {
            Some((Some(lease), _)) => format!("'{}' holds it now, with another token", lease.worker),
            Some((None, Some(error))) => format!("its lease has ended ({error}), and it is offered again"),
            _ => "its lease has ended: it was completed, given up, skipped or ran out".to_owned(),
        };
        // Another chunk may refer to it, if the caller has mistaken the id.
        let unused =
            |location| format!(", and delete {location}, if it was made for this chunk, which does not refer to it");
        let garbage = made.map(unused).unwrap_or_default();
        ChunkRefusal::NotCurrent { chunk: id, why, garbage }
    }

    /// Chunks whose leases or offers have ended, oldest first, with at most `most` links together, but at least one.
    #[must_use]
    pub fn expired(&self, now: Time, most: usize) -> Vec<ChunkId> {
        let (mut ids, mut links) = (Vec::new(), 0);
        for (_, id) in self.ends.iter().take_while(|(at, _)| *at <= now) {
            links += self.active.get(id).map_or(0, |chunk| chunk.links.len());
            if links > most && !ids.is_empty() {
                break;
            }
            ids.push(*id);
        }
        ids
    }

    /// When this shard's pipeline has work of its own next: a lease or an offer ends, or a chunk that is offered
    /// again becomes claimable, which must wake the waiting claims.
    #[must_use]
    pub fn next_wake(&self) -> Option<Time> {
        self.ends.first().map(|(at, _)| *at).into_iter().chain(self.offers.next_look()).min()
    }

    /// What this shard has to offer at `now`, and how much of it has become claimable since the last call.
    pub fn publish(&mut self, now: Time) -> Published {
        let (mut offered, crawled) = std::mem::take(&mut self.news);
        let (mut due, active) = (Claimable::new(), &self.active);
        self.offers.announce(now, |id| {
            let crawl = active.get(&id).map(|chunk| chunk.crawl.clone());
            crawl.into_iter().for_each(|crawl| *due.entry(crawl).or_default() += 1);
        });
        for (crawl, due) in due {
            let offered = offered.entry(crawl).or_default();
            *offered = due.max(*offered);
        }
        let builds = self.crawled.len() as u64;
        Published { crawl_at: self.offers.first_look(), builds, offered, crawled }
    }

    /// The live chunks granted for a request. Fails if they were granted for a request of the same name that asked for
    /// something else: the id is returned.
    pub fn requested(&self, worker: &Arc<str>, request: &RequestId, now: Time) -> Result<Vec<ChunkId>, Box<str>> {
        let ids = self.requests.get(&(worker.clone(), request.id.clone()));
        let mut found = Vec::new();
        for id in ids.into_iter().flatten() {
            let lease = self.active.get(id).and_then(|chunk| chunk.lease.as_ref());
            let Some(lease) = lease.filter(|lease| lease.expires_at > now) else { continue };
            if lease.request.as_ref().is_some_and(|granted| granted.asks != request.asks) {
                return Err((*request.id).into());
            }
            found.push(*id);
        }
        Ok(found)
    }

    /// The digests of requests that gained (true) or lost a lease since the last call.
    pub fn take_request_changes(&mut self) -> Vec<(u64, bool)> {
        std::mem::take(&mut self.request_changes)
    }

    /// Chunks of a crawl that was deleted at this time, which someone works on, or which a crawler is awaited for:
    /// the first ones by id, bounded in number and in links together, but at least one. Also returns whether there
    /// are more.
    #[must_use]
    pub fn of_deleted_crawl(
        &self,
        crawl: &CrawlName,
        deleted_at: Time,
        (chunks, links): (usize, usize),
    ) -> (Vec<ChunkId>, bool) {
        let of_crawl = |chunk: &&ChunkRow| chunk.crawl == *crawl && chunk.is_deleted(deleted_at);
        let mut all: Vec<(ChunkId, usize)> =
            self.active.values().filter(of_crawl).map(|chunk| (chunk.id, chunk.links.len().max(1))).collect();
        all.sort_unstable();
        let (mut ids, mut taken) = (Vec::new(), 0);
        for (id, own) in all.iter().take(chunks) {
            taken += own;
            if taken > links && !ids.is_empty() {
                break;
            }
            ids.push(*id);
        }
        let more = ids.len() < all.len();
        (ids, more)
    }

    /// Chunks of a crawl that wait for an index builder, after this one in their order.
    #[must_use]
    pub fn crawled_after(&self, crawl: &CrawlName, after: Option<CrawledAt>, most: usize) -> Vec<CrawledAt> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = (after.map_or(Unbounded, Excluded), Unbounded);
        let waiting = self.crawled_of.get(crawl).into_iter().flat_map(|waiting| waiting.range(from));
        waiting.take(most).copied().collect()
    }

    /// How many chunks are in progress: crawled by someone, offered to crawlers, offered to builders, being built.
    #[must_use]
    pub fn counts(&self) -> ChunkCounts {
        let (active, offered, building) = (self.active.len(), self.offers.len(), self.building);
        ChunkCounts {
            crawling: active.saturating_sub(offered + building) as u64,
            offered: offered as u64,
            crawled: self.crawled.len() as u64,
            building: building as u64,
        }
    }

    /// The positions of the links whose URL rows must be read to find and name those that have left a chunk.
    #[must_use]
    pub fn unclear(&self, id: ChunkId, frontier: &Frontier) -> Vec<usize> {
        self.active.get(&id).map(|chunk| chunk.unclear(frontier)).unwrap_or_default()
    }

    /// Renews a lease. `rows` are those of its links, by position, at least [`State::unclear`]. Fails if the token is
    /// not that of the chunk's live lease.
    pub fn renew(
        &mut self,
        (id, token): (ChunkId, Token),
        (until, now): (Time, Time),
        rows: &[Option<UrlRow>],
        frontier: &mut Frontier,
        writes: &mut Vec<Write>,
    ) -> Result<Renewed, ChunkRefusal> {
        let before = self.current(id, token, now, None)?.clone();
        let mut after = before.clone();
        after.lease = after.lease.map(|lease| ChunkLease { expires_at: until, ..lease });
        for token in after.leases() {
            frontier.set_link_deadline(token, until);
        }
        let here = after.present(frontier, rows);
        let left = here
            .into_iter()
            .enumerate()
            .filter(|(_, here)| !here)
            .filter_map(|(at, _)| Some((at, after.links.get(at)?)));
        let gone = left.filter(|(_, link)| link.lease.is_some()).map(|(at, link)| link.whole_text(at, rows)).collect();
        self.store(Some(&before), after, writes);
        Ok(Renewed { expires_at: until, ended: gone })
    }
}

/// A place in the order of chunks that wait for an index builder: since when, and which.
pub type CrawledAt = (Time, ChunkId);

/// The answer to a renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// The new deadline.
    pub expires_at: Time,
    /// Links that are no longer part of the chunk: the deadline that holds for them is an earlier one.
    pub ended: Vec<Box<str>>,
}

/// Numbers of chunks in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ChunkCounts {
    /// Leased to crawlers.
    pub crawling: u64,
    /// Offered to crawlers again.
    pub offered: u64,
    /// Offered to index builders.
    pub crawled: u64,
    /// Leased to index builders.
    pub building: u64,
}

impl ChunkRow {
    /// The reservations that keep its links, each once.
    pub fn leases(&self) -> impl Iterator<Item = Token> {
        let mut tokens: Vec<Token> = self.links.iter().filter_map(|link| link.lease).chain(self.visit).collect();
        tokens.sort_unstable();
        tokens.dedup();
        tokens.into_iter()
    }

    /// The URLs that a decision about it must read, by position of their links.
    #[must_use]
    pub fn urls(&self) -> Vec<crate::frontier::link::LinkUrl> {
        self.links.iter().map(|link| link.url.clone()).collect()
    }

    /// Whether it belonged to a crawl of its name that was deleted at this time, and not to one that was made since.
    #[must_use]
    pub fn is_deleted(&self, deleted_at: Time) -> bool {
        self.created_at <= deleted_at
    }

    /// Whether it has had as many attempts as a stage may have.
    pub(super) const fn is_exhausted(&self) -> bool {
        self.attempts >= limits::CHUNK_ATTEMPTS_MAX
    }
}

/// Numbers of chunks that became claimable, by crawl.
pub type Claimable = BTreeMap<CrawlName, usize>;

/// What a shard has to offer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// From when on a chunk that is offered again may be claimable.
    pub crawl_at: Option<Time>,
    /// How many chunks wait for an index builder.
    pub builds: u64,
    /// How many chunks became claimable by crawlers since the last time.
    pub offered: Claimable,
    /// How many became claimable by index builders.
    pub crawled: Claimable,
}

impl super::row::LinkRow {
    /// Takes it out of its chunk, which remembers it.
    pub(super) fn leave(&mut self) {
        self.lease = None;
        if self.state != LinkState::LeftFetched {
            self.state = LinkState::Left;
        }
    }

    /// Whether it was a link of its chunk before, and is remembered.
    pub(super) const fn has_left(&self) -> bool {
        matches!(self.state, LinkState::Error(_)) || self.is_returned()
    }

    /// Whether its URL went back to its queue.
    pub(super) const fn is_returned(&self) -> bool {
        matches!(self.state, LinkState::Left | LinkState::LeftFetched)
    }

    /// Its whole URL. `rows` are those of all links, as far as they were read. One over a kilobyte that was deleted is cut.
    pub(super) fn whole_text(&self, at: usize, rows: &[Option<UrlRow>]) -> Box<str> {
        let row = rows.get(at).and_then(Option::as_ref);
        self.url.1.url(&self.host, row.and_then(|row| row.whole.as_deref()))
    }

    /// Its URL, from its key: one over a kilobyte is cut.
    pub(super) fn text(&self) -> Box<str> {
        self.url.1.url(&self.host, None)
    }
}

impl ChunkRow {
    /// The positions of the links that have left the chunk and whose keys cut their URLs, and of those whose
    /// reservations have lost URLs.
    #[must_use]
    pub fn unclear(&self, frontier: &Frontier) -> Vec<usize> {
        let here = self.present(frontier, &[]);
        let unclear = |(at, link): (usize, &super::row::LinkRow)| {
            let lost = link.lease.is_some_and(|token| frontier.has_lost_urls(token));
            (lost || (link.url.1.is_cut() && here.get(at) != Some(&true))).then_some(at)
        };
        self.links.iter().enumerate().filter_map(unclear).collect()
    }

    /// Which of its links still have their reservations: a link whose host moved away, or that an operator revoked, has
    /// left the chunk. So has one that a client took out of its reservation, which only its row shows: `rows` are
    /// those of the links, by position, at least of those whose reservations have lost URLs.
    pub(super) fn present(&self, frontier: &Frontier, rows: &[Option<UrlRow>]) -> Vec<bool> {
        let urls: HashMap<Token, HashSet<&UrlKey>> = self
            .leases()
            .map(|token| (token, frontier.link_urls(token).unwrap_or_default().iter().map(|(_, key)| key).collect()))
            .collect();
        let here = |(at, link): (usize, &super::row::LinkRow)| {
            let Some(token) = link.lease else { return false };
            let reserved = || rows.get(at).and_then(Option::as_ref).is_some_and(|row| row.is_reserved_by(token));
            urls.get(&token).is_some_and(|keys| keys.contains(&link.url.1))
                && (!frontier.has_lost_urls(token) || reserved())
        };
        self.links.iter().enumerate().map(here).collect()
    }

    /// When its offer ends unless it is claimed.
    pub(super) fn offer_ends(&self) -> Time {
        self.since.after(if self.host.is_some() { limits::HOST_CHUNK_OFFER_MAX } else { limits::CHUNK_OFFER_MAX })
    }
}
