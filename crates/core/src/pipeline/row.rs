//! The rows of the pipeline, as values. Their encoding is the engine's concern.

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::frontier::request::{RequestId, UrlResult};
use crate::frontier::url_key::UrlKey;
use crate::ids::{ChunkId, QueueId, Token};
use crate::names::{CrawlName, HostName};
use crate::time::Time;

/// A chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkRow {
    /// Its id.
    pub id: ChunkId,
    /// The crawl of all its links.
    pub crawl: CrawlName,
    /// The host of all its links, if the crawler asked for one and paces itself.
    pub host: Option<HostName>,
    /// The one reservation of such a chunk. Its visit continues until the chunk ends, even if all links have failed.
    pub visit: Option<Token>,
    /// Where it is.
    pub state: ChunkState,
    /// Who works on it.
    pub lease: Option<ChunkLease>,
    /// Attempts at the present stage that have ended without a result.
    pub attempts: u32,
    /// How often its content was lost after it was crawled.
    pub inputs_lost: u32,
    /// When it was made.
    pub created_at: Time,
    /// Since when it has been in its state, or offered.
    pub since: Time,
    /// Its links. Those that were replaced stay, so that a repeated report is recognised.
    pub links: Vec<LinkRow>,
    /// What its crawl stage left behind.
    pub crawled: Option<Artifact>,
    /// What its build stage left behind.
    pub built: Option<Artifact>,
    /// Whether placement knows its index.
    pub placed: bool,
    /// Which of its indexes is built or to be built: how many were given up. It never goes back, so that placement and
    /// pipeline never mistake one for another.
    pub index: u32,
    /// How often its index was lost after it was built.
    pub indexes_lost: u32,
    /// Why the last attempt ended without a result.
    pub last_error: Option<Box<str>>,
    /// The last call that ended a lease, of the crawl stage and of the build stage: a repetition is answered alike.
    pub ended: [Option<Ended>; 2],
}

/// Where a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChunkState {
    /// A crawler fetches its links, or is awaited.
    Crawling,
    /// Its links are fetched; an index builder is awaited.
    Crawled,
    /// An index builder works on it.
    Building,
    /// Its index is built.
    Built,
    /// Too many attempts have failed. An operator may retry or skip it.
    SetAside,
    /// It ended without an artifact: all its links failed, its crawl was deleted, or an operator skipped it.
    Skipped,
}

impl ChunkState {
    /// Whether no worker has anything left to do with it, unless an operator decides so.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Built | Self::SetAside | Self::Skipped)
    }
}

impl ChunkRow {
    /// Whether a crawler is awaited, or the groups of its links.
    #[must_use]
    pub const fn is_offered(&self) -> bool {
        matches!(self.state, ChunkState::Crawling) && self.lease.is_none()
    }

    /// Whether nothing happens to it any more unless someone asks for it. A chunk that is built is still to be
    /// announced to placement.
    #[must_use]
    pub const fn is_at_rest(&self) -> bool {
        self.state.has_ended() && (self.placed || !matches!(self.state, ChunkState::Built))
    }
}

/// A worker's lease on a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkLease {
    /// Its secret.
    pub token: Token,
    /// Who holds it.
    pub worker: Arc<str>,
    /// When it was granted.
    pub granted_at: Time,
    /// When it ends.
    pub expires_at: Time,
    /// The idempotent request it was granted for, if any.
    pub request: Option<Box<RequestId>>,
}

/// A link of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkRow {
    /// The reservation in the frontier that keeps its URL; `None` once it has ended.
    pub lease: Option<Token>,
    /// Its host.
    pub host: HostName,
    /// Its URL.
    pub url: (QueueId, UrlKey),
    /// What became of it.
    pub state: LinkState,
    /// The link that took its place, by position.
    pub replaced_by: Option<u32>,
}

/// What became of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Not reported yet.
    Crawling,
    /// Reported as fetched. The result, which does not name the URL again, counts when the chunk is complete: until then the content may be lost.
    Crawled(Box<UrlResult>),
    /// Failed for this chunk: gone, failed, or to be tried again later. The digest recognises a repeated report.
    Error(u64),
    /// It has left the chunk for good, which remembers it so that a retry leaves it alone: its URL went back to its
    /// queue, or was not there any more.
    Left,
    /// The same, but it was reported as fetched, and had left when the chunk was last completed. The answer named it, and
    /// so must its repetition.
    LeftFetched,
}

/// A description of what a stage left behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// Its URL.
    pub location: Box<str>,
    /// Its size.
    pub bytes: u64,
    /// Its SHA-256.
    pub checksum: [u8; 32],
    /// The address that its description came from, if that is known: the location may be called there.
    pub from: Option<IpAddr>,
}

/// A call that ended a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The lease.
    pub token: Token,
    /// A digest of the call.
    pub call: u64,
}

/// What the pipeline of a shard keeps besides its chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipelineRow {
    /// The number of the next chunk.
    pub next_chunk: u64,
}

impl Default for PipelineRow {
    fn default() -> Self {
        Self { next_chunk: 1 }
    }
}

/// What of a chunk differs from what is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkChanges {
    /// Whether anything but its links does.
    pub head: bool,
    /// The positions of its links that are new or differ, in order.
    pub links: Vec<usize>,
    /// How many links are stored.
    pub links_before: usize,
}

impl ChunkRow {
    /// What of it differs from the row before, if there is one.
    #[must_use]
    pub fn changes_since(&self, before: Option<&Self>) -> ChunkChanges {
        let links_before = before.map_or(&[][..], |before| &before.links);
        let differs = |(at, link): (usize, &LinkRow)| (links_before.get(at) != Some(link)).then_some(at);
        ChunkChanges {
            head: before.is_none_or(|before| !self.has_head_of(before)),
            links: self.links.iter().enumerate().filter_map(differs).collect(),
            links_before: links_before.len(),
        }
    }

    /// Whether it is the other one but for its links. Every field is named, so that none is forgotten.
    fn has_head_of(&self, other: &Self) -> bool {
        let Self { id, crawl, host, visit, state, lease, attempts, inputs_lost, created_at, .. } = self;
        let Self { since, links: _, crawled, built, placed, index, indexes_lost, last_error, ended, .. } = self;
        (id, crawl, host, visit, state) == (&other.id, &other.crawl, &other.host, &other.visit, &other.state)
            && (lease, attempts, inputs_lost) == (&other.lease, &other.attempts, &other.inputs_lost)
            && (created_at, since, placed) == (&other.created_at, &other.since, &other.placed)
            && (crawled, built, index) == (&other.crawled, &other.built, &other.index)
            && (indexes_lost, last_error, ended) == (&other.indexes_lost, &other.last_error, &other.ended)
    }
}

/// A write to a row of the pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// The shard's own row.
    Pipeline(PipelineRow),
    /// A chunk. One at rest has a row of another kind, so that opening a shard reads only those in progress.
    Chunk {
        /// The chunk.
        row: Box<ChunkRow>,
        /// Whether its row was of the other kind, and must go.
        moved: bool,
        /// What is to be written of it.
        changes: ChunkChanges,
    },
}
