//! Restores a chunk that was carried from another store. Its URLs were stored before.
//!
//! A chunk keeps its id, its stage, its attempts, its artifacts and its last error. Leases and tokens do not survive: a
//! chunk that someone worked on is offered again, without counting an attempt.
//!
//! What its URLs are here may be older or newer than the chunk, and the number of shards another one:
//!
//! 1. The URL of a link to be crawled is queued: the chunk takes it out of its queue, so nobody else gets it.
//! 2. It is finished: the chunk went back to the crawl stage after the URL was read. It is crawled again.
//! 3. It is handed out, because workers claimed before the import came to the chunk: it stays with its holder, and is no
//!    link of the chunk any more. So is one that is unknown, because it was deleted.
//! 4. Its host lives in another shard: it stays there, because a chunk draws its links from one shard. Before the chunk is
//!    restored without it the URL is queued there if it is finished, see 2; a crash in between leaves it queued, and the
//!    repeated import finds nothing more to do.
//! 5. None is left: the chunk ends as skipped, which says why; its URLs are with others. It remembers these and those of 3
//!    and 4 as returned, unless they were deleted, so that the next export names them and a retry leaves them alone.
//! 6. The URL of a link that was fetched is queued: it was read before the chunk was complete, or is due again. It stays
//!    queued: a page may be fetched once more, but none is lost.
//! 7. A link has left a chunk that was sent back to the crawl stage: its URL is queued where it lives, as in 4, if it is
//!    finished here: it was read before. It may have been finished once more since the export read the chunk, or here; then
//!    it is crawled once too often. The next export does not name it any more.
//! 8. The import is repeated: the chunk is known by its id and the time it was made, and is not touched.
//! 9. A file names a URL twice: it is one link, the first one, beside what failed before. Two links of one URL would be
//!    taken from the same row, and counted twice.

use hashbrown::HashSet;
use serde::{Deserialize, Serialize};

use super::carry::{CarriedChunk, CarriedLink, CarriedLinkState};
use super::claim::Writes;
use super::departed::DepartedLink;
use super::row::{ChunkRow, ChunkState, LinkRow, LinkState, Write};
use super::state::State;
use crate::frontier::State as Frontier;
use crate::frontier::link::LinkUrl;
use crate::frontier::request::{Outcome, UrlResult};
use crate::frontier::requeue::Known;
use crate::frontier::url_key::UrlKey;
use crate::ids::{HostId, QueueId, Token};
use crate::limits;
use crate::time::Time;

/// The queue of a link whose host lives in another shard. No queue has this number.
pub(super) const ELSEWHERE: QueueId = QueueId { host: HostId(u64::MAX), no: u32::MAX };

/// What became of a chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Restored {
    /// It is restored.
    Restored,
    /// It was here before, and was not changed.
    Known,
    /// It cannot be restored. Nothing was changed.
    Refused(Box<str>),
}

/// What a decision needs: the URLs of the links, by position, as far as they are known in this shard; the time, and random
/// bits for tokens.
pub struct RestoreFacts<'a> {
    /// The URLs.
    pub urls: Vec<Option<Known>>,
    /// The time.
    pub now: Time,
    /// Random bits, as many as are drawn.
    pub entropy: &'a dyn Fn() -> u128,
}

impl CarriedChunk {
    /// The URLs that a decision must read, by position of the links.
    #[must_use]
    pub fn urls(&self, frontier: &Frontier) -> Vec<LinkUrl> {
        let url = |link: &CarriedLink| {
            let queue = frontier.queue_id(&link.host, &self.crawl).unwrap_or(ELSEWHERE);
            (queue, UrlKey::new(&link.host, &link.url))
        };
        self.links.iter().map(url).collect()
    }

    /// The links that are not restored as such: host and URL of those to be crawled that have no queue here, and of those
    /// that have left the chunk. They must be queued where they live before the chunk is restored without them.
    #[must_use]
    pub fn departed(&self, frontier: &Frontier) -> Vec<DepartedLink> {
        let wanted = |link: &&CarriedLink| match link.state {
            CarriedLinkState::Crawling | CarriedLinkState::Crawled => {
                self.state == ChunkState::Crawling && frontier.queue_id(&link.host, &self.crawl).is_none()
            }
            CarriedLinkState::Error => false,
            CarriedLinkState::Returned => true,
        };
        let departed =
            |link: &CarriedLink| DepartedLink { host: link.host.clone(), url: link.url.clone(), ended: None };
        self.links.iter().filter(wanted).map(departed).collect()
    }

    /// Why it cannot be restored in a store whose shards make their next chunks with numbers up to this one. A store cannot
    /// make so many chunks in its life, so one damaged line would use up numbers that no later import gets back.
    #[must_use]
    pub fn out_of_reach(&self, next: u64) -> Option<String> {
        let (id, number, ahead) = (self.id, self.id.counter(), limits::CHUNK_AHEAD_MAX);
        (number >= next.saturating_add(ahead)).then(|| {
            format!(
                "chunk '{id}' cannot be restored: its number {number} is {ahead} or more above the next one of this store, \
                 {next}; take the line, and the line of chunk numbers before it, as `wayleave export` wrote them"
            )
        })
    }

    /// Why it cannot be restored anywhere, if its parts contradict each other.
    #[must_use]
    pub fn contradiction(&self) -> Option<String> {
        let (id, state) = (self.id, self.state.name());
        let crawled = matches!(self.state, ChunkState::Crawled | ChunkState::Building | ChunkState::Built);
        let most = limits::CHUNK_LINKS_EVER_MAX;
        let what = if self.id.counter() >= limits::CHUNK_COUNTER_RESTORED_MAX {
            "its id was not made by Wayleave".to_owned()
        } else if crawled && self.crawled.is_none() {
            format!("it is {state} and has no artifact of its crawl stage")
        } else if self.state == ChunkState::Crawling && self.crawled.is_some() {
            "it is crawling and has an artifact of its crawl stage".to_owned()
        } else if (self.state == ChunkState::Built) != self.built.is_some() {
            let has = if self.built.is_some() { "an" } else { "no" };
            format!("it is {state} and has {has} artifact of its build stage")
        } else if self.links.len() > most {
            format!("it has {} links; the limit is {most}", self.links.len())
        } else if self.host.as_ref().is_some_and(|host| self.links.iter().any(|link| link.host != *host)) {
            "it is of one host and has a link of another".to_owned()
        } else {
            return None;
        };
        Some(format!("chunk '{id}' cannot be restored: {what}; take the line as `wayleave export` wrote it"))
    }

    /// What it meets in a store: nothing, itself, or another chunk with its id.
    #[must_use]
    pub fn met(&self, known: Option<&ChunkRow>) -> Option<Restored> {
        let known = known?;
        if (known.created_at, &known.crawl) == (self.created_at, &self.crawl) {
            return Some(Restored::Known);
        }
        let (id, theirs) = (self.id, &known.crawl);
        let why = format!(
            "chunk '{id}' is here already and is another one, of crawl '{theirs}', made at another time: two stores that have \
             made chunks of their own cannot be joined; import into a store without chunks"
        );
        Some(Restored::Refused(why.into()))
    }
}

impl State {
    /// The number of the next chunk.
    #[must_use]
    pub const fn next_number(&self) -> u64 {
        self.row.next_chunk
    }

    /// Never gives a chunk a number below this one from now on.
    pub fn raise_ids(&mut self, least: u64, writes: &mut Vec<Write>) {
        if self.row.next_chunk < least {
            self.row.next_chunk = least;
            writes.push(Write::Pipeline(self.row));
        }
    }

    /// Restores a chunk. `known` is the row of the chunk with its id, if there is one.
    pub fn restore(
        &mut self,
        carried: &CarriedChunk,
        known: Option<&ChunkRow>,
        mut facts: RestoreFacts<'_>,
        frontier: &mut Frontier,
        writes: &mut Writes,
    ) -> Restored {
        if let Some(met) = carried.met(known) {
            return met;
        }
        if let Some(why) = carried.contradiction() {
            return Restored::Refused(why.into());
        }
        if carried.id.shard() == self.shard {
            self.raise_ids(carried.id.counter() + 1, &mut writes.pipeline);
        }
        let now = facts.now;
        let (links, urls) = carried.link_rows(frontier, std::mem::take(&mut facts.urls));
        facts.urls = urls;
        let mut row = ChunkRow {
            id: carried.id,
            crawl: carried.crawl.clone(),
            host: carried.host.clone(),
            visit: None,
            state: carried.state,
            lease: None,
            attempts: carried.attempts,
            inputs_lost: carried.inputs_lost,
            created_at: carried.created_at,
            since: carried.since.min(now),
            links,
            crawled: carried.crawled.clone(),
            built: carried.built.clone(),
            // Placement is asked again, and knows it if its copies were restored.
            placed: false,
            index: carried.index,
            indexes_lost: carried.indexes_lost,
            last_error: carried.last_error.clone(),
            ended: [None; 2],
            // Its URLs may have been finished here before it takes them.
            sent_back: carried.state == ChunkState::Crawling
                || carried.links.iter().any(|link| link.state == CarriedLinkState::Returned),
        };
        match carried.state {
            ChunkState::Crawling => row.take_links(&mut facts, frontier, writes),
            ChunkState::Building => row.state = ChunkState::Crawled,
            ChunkState::Crawled | ChunkState::Built | ChunkState::SetAside | ChunkState::Skipped => {}
        }
        self.store(None, row, &mut writes.pipeline);
        Restored::Restored
    }
}

impl CarriedChunk {
    /// Its links, and with each what is known of its URL. A URL is named once, beside what failed before.
    fn link_rows(&self, frontier: &Frontier, known: Vec<Option<Known>>) -> (Vec<LinkRow>, Vec<Option<Known>>) {
        let (urls, mut once) = (self.urls(frontier), HashSet::new());
        let known = known.into_iter().chain(std::iter::repeat_with(|| None));
        // The host too: links that live elsewhere have one queue, and a key does not tell the host.
        let mut first = |link: &CarriedLink, (_, key): &LinkUrl| {
            link.state == CarriedLinkState::Error || once.insert((link.host.clone(), key.clone()))
        };
        let row = |link: &CarriedLink, url: LinkUrl| LinkRow {
            lease: None,
            host: link.host.clone(),
            url,
            // Reports under tokens of the other store are not repeated here, so no digest of them is needed.
            state: match link.state {
                CarriedLinkState::Crawling => LinkState::Crawling,
                CarriedLinkState::Crawled => LinkState::Crawled(Box::new(UrlResult::new("", Outcome::Fetched))),
                CarriedLinkState::Error => LinkState::Error(0),
                CarriedLinkState::Returned => LinkState::Returned,
            },
            replaced_by: None,
        };
        let links = self.links.iter().zip(urls).zip(known).filter(|((link, url), _)| first(link, url));
        links.map(|((link, url), known)| (row(link, url), known)).unzip()
    }
}

impl ChunkRow {
    /// Reserves the URLs of a chunk that is to be crawled, as far as they are here and nobody has them.
    fn take_links(&mut self, facts: &mut RestoreFacts<'_>, frontier: &mut Frontier, writes: &mut Writes) {
        let now = facts.now;
        // A URL that has a queue here and is unknown was deleted.
        let known: Vec<bool> =
            self.links.iter().zip(&facts.urls).map(|(link, url)| url.is_some() || link.url.0 == ELSEWHERE).collect();
        let (mut once, mut parcels): (HashSet<LinkUrl>, Vec<(QueueId, Vec<Known>)>) = (HashSet::new(), Vec::new());
        for (link, known) in self.links.iter().zip(&mut facts.urls) {
            let wanted = !link.has_left() && once.insert(link.url.clone());
            let Some(known) = known.take().filter(|_| wanted) else { continue };
            // A chunk of one host is one visit; otherwise every link is its own.
            match parcels.last_mut().filter(|_| self.host.is_some()) {
                Some((_, urls)) => urls.push(known),
                None => parcels.push((link.url.0, vec![known])),
            }
        }
        let mut held: Vec<(LinkUrl, Token)> = Vec::new();
        for (queue, urls) in parcels {
            let token = Token::new(frontier.shard(), (facts.entropy)());
            let taken = frontier.restore_link((token, self.id), (queue, urls), now, &mut writes.frontier);
            self.visit = Some(token).filter(|_| self.host.is_some() && !taken.is_empty());
            held.extend(taken.into_iter().map(|url| (url, token)));
        }
        self.since = now;
        if held.is_empty() {
            self.state = ChunkState::Skipped;
            let why =
                "none of its links could be taken over when it was imported: they are queued, or with other workers";
            self.last_error = Some(why.into());
        }
        let mut held: hashbrown::HashMap<LinkUrl, Token> = held.into_iter().collect();
        let mut known = known.into_iter();
        self.links.retain_mut(|link| {
            let known = known.next().unwrap_or_default();
            if link.has_left() {
                return true;
            }
            // Once: a URL that is named twice is one link.
            link.lease = held.remove(&link.url);
            link.state = LinkState::Crawling;
            if link.lease.is_some() {
                return true;
            }
            // It has left, like those of any chunk that was sent back: the next export names it, and a retry leaves it alone.
            link.leave(true);
            known
        });
    }
}
