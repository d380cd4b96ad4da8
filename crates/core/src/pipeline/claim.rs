//! Claims. In the crawl stage, chunks that are offered again come first: whole, as soon as all their groups are ready, or
//! after some patience with those links whose groups are. Otherwise a new chunk is made of ready groups.

use hashbrown::HashMap;

use super::request::{Claim, Claimed, LinkToFetch, Stage};
use super::row::{ChunkLease, ChunkRow, ChunkState, LinkRow, LinkState, Write};
use super::state::State;
use crate::frontier::State as Frontier;
use crate::frontier::request::Reservation;
use crate::frontier::row::{UrlRow, Write as FrontierWrite};
use crate::ids::{ChunkId, Token};
use crate::limits;
use crate::names::CrawlName;
use crate::time::Time;

/// Maximum number of offered chunks that one claim examines.
const LOOKS_MAX: usize = 64;

/// Where both states' writes go.
#[derive(Debug, Default)]
pub struct Writes {
    /// Those of the frontier.
    pub frontier: Vec<FrontierWrite>,
    /// Those of the pipeline.
    pub pipeline: Vec<Write>,
}

/// The part of a claim that becomes a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The token.
    pub token: Token,
    /// When the lease ends.
    pub until: Time,
}

impl State {
    fn lease(claim: &Claim, grant: &Grant, now: Time) -> ChunkLease {
        ChunkLease {
            token: grant.token,
            worker: claim.worker.clone(),
            granted_at: now,
            expires_at: grant.until,
            request: claim.request.clone().map(Box::new),
        }
    }

    /// The next chunk to offer again; its links' URL rows must be read. A chunk that may not go yet is put off.
    pub fn plan_offered(&mut self, claim: &Claim, frontier: &Frontier, now: Time) -> Option<ChunkId> {
        for _ in 0..LOOKS_MAX {
            let id = self.offers.first(claim.crawl.as_ref(), claim.host.as_ref(), now)?;
            let chunk = self.active.get(&id)?;
            let ready = chunk.ready_at(frontier);
            if ready.is_some_and(|at| at <= now) {
                return Some(id);
            }
            // A visit may end or a pause be lifted at any moment, and settings change when a group is ready.
            let soon = now.after(limits::CHUNK_LOOK_AGAIN);
            self.offers.look_at(chunk, ready.map_or(soon, |at| at.min(soon)));
        }
        None
    }

    /// Grants a chunk that is offered again. `rows` are those of its links. `None` if none of its links is left: then it
    /// ends as skipped.
    pub fn grant_offered(
        &mut self,
        id: ChunkId,
        rows: Vec<Option<UrlRow>>,
        (claim, grant): (&Claim, &Grant),
        now: Time,
        frontier: &mut Frontier,
        writes: &mut Writes,
    ) -> Option<Claimed> {
        let before = self.active.get(&id)?.clone();
        let mut after = before.clone();
        let mut links = Vec::new();
        for token in before.leases() {
            let fetch = |(link, row): (&LinkRow, &Option<UrlRow>)| {
                if link.lease != Some(token) {
                    return None;
                }
                let (url, delay) = frontier.link_to_fetch(token, &link.url.1, row.clone())?;
                Some(LinkToFetch { host: link.host.clone(), url, delay })
            };
            let fetch: Vec<Option<LinkToFetch>> = after.links.iter().zip(&rows).map(fetch).collect();
            let ready = frontier.link_ready_at(token).is_some_and(|at| at <= now);
            let goes = ready && fetch.iter().any(Option::is_some);
            for (link, fetch) in after.links.iter_mut().zip(fetch).filter(|(link, _)| link.lease == Some(token)) {
                match fetch.filter(|_| goes) {
                    Some(fetch) => {
                        link.state = LinkState::Crawling;
                        links.push(fetch);
                    }
                    None => link.lease = None,
                }
            }
            if goes {
                frontier.resume_link(token, &claim.worker, grant.until, now, &mut writes.frontier);
            } else {
                // Patience is over, and its group may not be visited now: it returns to its queue. Or it is gone.
                let rows = before.rows_of(token, &rows, frontier);
                frontier.return_link(token, rows, before.attempts, now, &mut writes.frontier);
            }
        }
        after.links.retain(|link| link.lease.is_some() || link.has_left());
        // Reports of the attempt before are not repeated under this lease.
        after.links.iter_mut().for_each(|link| link.replaced_by = None);
        after.visit = after.visit.filter(|token| frontier.is_visiting(*token));
        if links.is_empty() {
            (after.state, after.since) = (ChunkState::Skipped, now);
            after.last_error = Some("none of its links is left".into());
            self.store(Some(&before), after, &mut writes.pipeline);
            return None;
        }
        (after.lease, after.since) = (Some(Self::lease(claim, grant, now)), now);
        let claimed = after.claimed(Stage::Crawl, links, None);
        self.store(Some(&before), after, &mut writes.pipeline);
        claimed
    }

    /// Makes a new chunk of reservations that the frontier has granted for [`State::peek_id`].
    pub fn make(
        &mut self,
        granted: Vec<Reservation>,
        (claim, grant): (&Claim, &Grant),
        now: Time,
        frontier: &mut Frontier,
        writes: &mut Writes,
    ) -> Option<Claimed> {
        let crawl: CrawlName = granted.iter().flat_map(|one| &one.urls).next()?.crawl.clone();
        let (id, counter) = self.next_id();
        writes.pipeline.push(counter);
        let mut rows = Vec::new();
        let mut links = Vec::new();
        let visit = granted.first().map(|one| one.token).filter(|_| claim.host.is_some());
        for reservation in granted {
            rows.extend(new_links(reservation.token, frontier));
            frontier.set_link_deadline(reservation.token, grant.until);
            links.extend(to_fetch(reservation));
        }
        let chunk = ChunkRow {
            id,
            crawl,
            host: claim.host.clone(),
            visit,
            state: ChunkState::Crawling,
            lease: Some(Self::lease(claim, grant, now)),
            attempts: 0,
            inputs_lost: 0,
            created_at: now,
            since: now,
            links: rows,
            crawled: None,
            built: None,
            placed: false,
            index: 0,
            indexes_lost: 0,
            last_error: None,
            ended: [None; 2],
        };
        let claimed = chunk.claimed(Stage::Crawl, links, None);
        self.store(None, chunk, &mut writes.pipeline);
        claimed
    }

    /// The chunks that a builder gets next; their rows must be read.
    #[must_use]
    pub fn plan_build(&self, crawl: Option<&CrawlName>, most: usize) -> Vec<ChunkId> {
        let waiting = match crawl {
            None => Some(&self.crawled),
            Some(crawl) => self.crawled_of.get(crawl),
        };
        waiting.into_iter().flatten().take(most).map(|(_, id)| *id).collect()
    }

    /// Grants a crawled chunk to a builder.
    pub fn grant_build(
        &mut self,
        before: &ChunkRow,
        (claim, grant): (&Claim, &Grant),
        now: Time,
        writes: &mut Vec<Write>,
    ) -> Option<Claimed> {
        if !self.crawled.contains(&(before.since, before.id)) {
            return None;
        }
        let lease = Some(Self::lease(claim, grant, now));
        let after = ChunkRow { state: ChunkState::Building, lease, since: now, ..before.clone() };
        let claimed = after.claimed(Stage::Build, Vec::new(), after.crawled.clone());
        self.store(Some(before), after, writes);
        claimed
    }

    /// A claimed chunk as it was granted. `rows` are those of its links.
    #[must_use]
    pub fn granted_again(&self, id: ChunkId, rows: Vec<Option<UrlRow>>, frontier: &Frontier) -> Option<Claimed> {
        let chunk = self.active.get(&id)?;
        if chunk.state == ChunkState::Building {
            return chunk.claimed(Stage::Build, Vec::new(), chunk.crawled.clone());
        }
        let open = chunk.links.iter().zip(rows).filter(|(link, _)| link.state == LinkState::Crawling);
        let links = open.filter_map(|(link, row)| {
            let (url, delay) = frontier.link_to_fetch(link.lease?, &link.url.1, row)?;
            Some(LinkToFetch { host: link.host.clone(), url, delay })
        });
        chunk.claimed(Stage::Crawl, links.collect(), None)
    }
}

/// What the worker gets of a reservation that has just been granted for a chunk.
pub(super) fn to_fetch(granted: Reservation) -> impl Iterator<Item = LinkToFetch> {
    let Reservation { host, delay, urls, .. } = granted;
    urls.into_iter().map(move |url| LinkToFetch { host: host.clone(), url, delay })
}

/// The links of a reservation that has just been granted for a chunk.
pub(super) fn new_links(token: Token, frontier: &Frontier) -> Vec<LinkRow> {
    let urls = frontier.link_urls(token).unwrap_or_default();
    let host = frontier.link_host(token).unwrap_or_default();
    let link = |url: &crate::frontier::link::LinkUrl| LinkRow {
        lease: Some(token),
        host: host.clone(),
        url: url.clone(),
        state: LinkState::Crawling,
        replaced_by: None,
    };
    urls.iter().map(link).collect()
}

impl ChunkRow {
    /// The rows of a reservation's URLs, in its order, out of those of all links.
    pub(super) fn rows_of(&self, token: Token, rows: &[Option<UrlRow>], frontier: &Frontier) -> Vec<Option<UrlRow>> {
        let mine = self.links.iter().zip(rows).filter(|(link, _)| link.lease == Some(token));
        let known: HashMap<_, _> = mine.map(|(link, row)| (&link.url.1, row)).collect();
        let urls = frontier.link_urls(token).unwrap_or_default();
        urls.iter().map(|(_, key)| known.get(key).and_then(|row| (*row).clone())).collect()
    }

    fn claimed(&self, stage: Stage, links: Vec<LinkToFetch>, input: Option<super::row::Artifact>) -> Option<Claimed> {
        let lease = self.lease.as_ref()?;
        let (id, crawl, attempts) = (self.id, self.crawl.clone(), self.attempts);
        Some(Claimed { id, token: lease.token, stage, crawl, expires_at: lease.expires_at, attempts, links, input })
    }

    /// When a crawler may have it, as far as time decides: when the last of its groups is ready, or, after some
    /// patience, the first.
    pub(super) fn ready_at(&self, frontier: &Frontier) -> Option<Time> {
        let patience = self.since.after(limits::CHUNK_PATIENCE);
        let mut tokens = self.leases().filter(|token| frontier.link_urls(*token).is_some()).peekable();
        if tokens.peek().is_none() {
            // Nothing is left of it: the claim that finds it ends it.
            return Some(self.since);
        }
        let ready: Vec<Option<Time>> = tokens.map(|token| frontier.link_ready_at(token)).collect();
        let whole = ready.iter().copied().collect::<Option<Vec<Time>>>().and_then(|all| all.into_iter().max());
        let first = ready.into_iter().flatten().min().map(|at| at.max(patience));
        [whole, first].into_iter().flatten().min()
    }
}
