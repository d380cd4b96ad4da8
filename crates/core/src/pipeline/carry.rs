//! Chunks as an export carries them from one store to another: without leases and tokens, and with URLs in full, because
//! keys of rows mean nothing elsewhere.
//!
//! An export is read while the store works: URLs first, then chunks, each chunk at another moment. So whatever an
//! export says of a URL is older than what it says of the chunk, which `restore` must take into account. A chunk that goes
//! back to the crawl stage in between makes links of URLs that the export has called finished. Those that leave it again,
//! because their hosts live elsewhere by now, nobody fetched them or they are to be tried again later, are carried as
//! returned: otherwise the file would name them nowhere but as finished.
//!
//! One that was finished again since is not carried as returned, and neither is one that was deleted: every later import would
//! crawl it once more. Whether it was is looked up, also where its host lives in another shard.

use hashbrown::HashSet;
use serde::{Deserialize, Serialize};

use super::row::{Artifact, ChunkRow, ChunkState, LinkState};
use crate::frontier::State as Frontier;
use crate::frontier::row::{UrlRow, UrlStatus};
use crate::ids::ChunkId;
use crate::limits;
use crate::names::{CrawlName, HostName};
use crate::placement::CarriedCopy;
use crate::time::Time;

/// A chunk outside of any store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedChunk {
    /// Its id.
    pub id: ChunkId,
    /// Its crawl.
    pub crawl: CrawlName,
    /// Its host, if all its links are of one.
    pub host: Option<HostName>,
    /// Where it is.
    pub state: ChunkState,
    /// Who works on it. That ends with the move; it is for people.
    pub worker: Option<String>,
    /// Attempts at the present stage without a result.
    pub attempts: u32,
    /// How often its content was lost.
    pub inputs_lost: u32,
    /// Which of its indexes is built or to be built.
    pub index: u32,
    /// How often its index was lost.
    pub indexes_lost: u32,
    /// When it was made. With the id it says whether two chunks are the same.
    pub created_at: Time,
    /// Since when it has been in its state.
    pub since: Time,
    /// Its links.
    pub links: Vec<CarriedLink>,
    /// What its crawl stage left behind.
    pub crawled: Option<Artifact>,
    /// What its build stage left behind.
    pub built: Option<Artifact>,
    /// Why the last attempt ended without a result.
    pub last_error: Option<Box<str>>,
    /// Its copies on index servers.
    pub copies: Vec<CarriedCopy>,
}

/// A link of such a chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedLink {
    /// Its host.
    pub host: HostName,
    /// Its URL.
    pub url: Box<str>,
    /// What became of it.
    pub state: CarriedLinkState,
}

/// What became of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CarriedLinkState {
    /// Not fetched, as far as is known.
    Crawling,
    /// Fetched.
    Crawled,
    /// Failed for this chunk.
    Error,
    /// It left a chunk that was sent back: its URL is queued, or with others, even if it is said to be finished.
    Returned,
}

impl ChunkRow {
    /// The positions of the links whose URL rows must be read for [`ChunkRow::carry`]: their keys do not tell the URL, or
    /// their states not whether it is to be tried again, or was finished since.
    #[must_use]
    pub fn read_links(&self, frontier: &Frontier) -> Vec<usize> {
        let ended = |link: &super::row::LinkRow| link.has_left() || self.state == ChunkState::Crawling;
        let lost = |link: &super::row::LinkRow| link.lease.is_some_and(|token| frontier.has_lost_urls(token));
        let unclear = |link: &super::row::LinkRow| (self.sent_back && ended(link)) || lost(link);
        let wanted = self.links.iter().enumerate().filter(|(_, link)| link.url.1.is_cut() || unclear(link));
        wanted.map(|(at, _)| at).collect()
    }

    /// The chunk as it is carried, without its copies. `rows` are those of its links, by position, as far as they were
    /// read. A link that has left the chunk is left out, unless the chunk was sent back, and so is a long URL that was
    /// deleted.
    ///
    /// A URL that failed and is to be tried again is returned, once, beside its error. Errors come last and only as far as
    /// there is room: without one a URL is still queued, but without its return it would be lost.
    #[must_use]
    pub fn carry(&self, rows: &[Option<UrlRow>], frontier: &Frontier) -> CarriedChunk {
        CarriedChunk {
            id: self.id,
            crawl: self.crawl.clone(),
            host: self.host.clone(),
            state: self.state,
            worker: self.lease.as_ref().map(|lease| lease.worker.to_string()),
            attempts: self.attempts,
            inputs_lost: self.inputs_lost,
            index: self.index,
            indexes_lost: self.indexes_lost,
            created_at: self.created_at,
            since: self.since,
            links: self.carry_links(rows, frontier),
            crawled: self.crawled.clone(),
            built: self.built.clone(),
            last_error: self.last_error.clone(),
            copies: Vec::new(),
        }
    }

    fn carry_links(&self, rows: &[Option<UrlRow>], frontier: &Frontier) -> Vec<CarriedLink> {
        let here = self.present(frontier, rows);
        let (mut links, mut errors) = (Vec::with_capacity(self.links.len()), Vec::new());
        let mut returned: HashSet<(HostName, Box<str>)> = HashSet::new();
        for (at, link) in self.links.iter().enumerate() {
            if link.is_returned() && !self.sent_back {
                // No export can have called its URL finished for this chunk's sake.
                continue;
            }
            let state = match link.state {
                LinkState::Crawling => CarriedLinkState::Crawling,
                LinkState::Crawled(_) => CarriedLinkState::Crawled,
                LinkState::Error(_) => CarriedLinkState::Error,
                LinkState::Returned | LinkState::Left => CarriedLinkState::Returned,
            };
            let wanted = self.state == ChunkState::Crawling && !link.has_left();
            let row = rows.get(at).and_then(Option::as_ref);
            let whole = row.and_then(|row| row.whole.as_deref());
            let left = wanted && here.get(at) != Some(&true);
            if (left && !self.sent_back) || (link.url.1.is_cut() && whole.is_none()) {
                continue;
            }
            let state = if left { CarriedLinkState::Returned } else { state };
            let done = row.is_some_and(|row| matches!(row.status, UrlStatus::Done { .. }));
            // A row of a deleted queue may still be there.
            let known = row.is_some() && frontier.has_queue(link.url.0);
            let deleted = !known && !link.is_elsewhere(frontier);
            if state == CarriedLinkState::Returned && (done || deleted) {
                continue;
            }
            if deleted && state != CarriedLinkState::Error && self.state.has_ended() && self.crawled.is_none() {
                // A retry cannot take it back, so one of the imported chunk must not: not even from a new crawl of this name.
                continue;
            }
            let again = self.sent_back
                && state == CarriedLinkState::Error
                && row.is_some_and(|row| !matches!(row.status, UrlStatus::Done { .. }));
            let carried = CarriedLink { host: link.host.clone(), url: link.url.1.url(&link.host, whole), state };
            if again || state == CarriedLinkState::Returned {
                returned.insert((carried.host.clone(), carried.url.clone()));
            }
            match state {
                CarriedLinkState::Crawling | CarriedLinkState::Crawled => links.push(carried),
                CarriedLinkState::Error => errors.push(carried),
                CarriedLinkState::Returned => {}
            }
        }
        let mut returned: Vec<_> = returned.into_iter().collect();
        returned.sort_unstable();
        let left = |(host, url)| CarriedLink { host, url, state: CarriedLinkState::Returned };
        links.extend(returned.into_iter().map(left));
        errors.truncate(limits::CHUNK_LINKS_EVER_MAX.saturating_sub(links.len()));
        links.append(&mut errors);
        links
    }
}
