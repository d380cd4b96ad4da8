//! Chunks as an export carries them from one store to another: without leases and tokens, and with URLs in full, because
//! keys of rows mean nothing elsewhere.
//!
//! An export is read while the store works: URLs first, then chunks, each chunk at another moment. So whatever an
//! export says of a URL is older than what it says of the chunk, which `restore` must take into account.

use serde::{Deserialize, Serialize};

use super::row::{Artifact, ChunkRow, ChunkState, LinkState};
use crate::frontier::State as Frontier;
use crate::frontier::row::UrlRow;
use crate::ids::ChunkId;
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
}

impl ChunkRow {
    /// The positions of the links whose URL rows must be read for [`ChunkRow::carry`]: their keys do not tell the URL.
    #[must_use]
    pub fn cut_links(&self) -> Vec<usize> {
        let cut = self.links.iter().enumerate().filter(|(_, link)| link.url.1.is_cut());
        cut.map(|(at, _)| at).collect()
    }

    /// The chunk as it is carried, without its copies. `rows` are those of its links, by position, as far as they were
    /// read. A link that has left the chunk is left out, and so is a long URL that was deleted.
    #[must_use]
    pub fn carry(&self, rows: &[Option<UrlRow>], frontier: &Frontier) -> CarriedChunk {
        let here = self.present(frontier);
        let mut links = Vec::with_capacity(self.links.len());
        for (at, link) in self.links.iter().enumerate() {
            let state = match link.state {
                LinkState::Crawling => CarriedLinkState::Crawling,
                LinkState::Crawled(_) => CarriedLinkState::Crawled,
                LinkState::Error(_) => CarriedLinkState::Error,
            };
            let wanted = self.state == ChunkState::Crawling && state != CarriedLinkState::Error;
            let whole = rows.get(at).and_then(|row| row.as_ref()?.whole.as_deref());
            if (wanted && here.get(at) != Some(&true)) || (link.url.1.is_cut() && whole.is_none()) {
                continue;
            }
            links.push(CarriedLink { host: link.host.clone(), url: link.url.1.url(&link.host, whole), state });
        }
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
            links,
            crawled: self.crawled.clone(),
            built: self.built.clone(),
            last_error: self.last_error.clone(),
            copies: Vec::new(),
        }
    }
}
