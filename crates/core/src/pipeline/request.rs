//! Requests to the pipeline and their answers: plain values, parsed at the API boundary.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::row::{Artifact, ChunkState};
use crate::frontier::request::{RequestId, UrlResult, UrlToFetch};
use crate::frontier::url_key;
use crate::ids::{ChunkId, Token};
use crate::names::{CrawlName, HostName};
use crate::time::{Millis, Time};

/// A stage of work that is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// Fetching links.
    Crawl,
    /// Building an index of what was fetched.
    Build,
}

/// Claims chunks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The stage.
    pub stage: Stage,
    /// Who claims.
    pub worker: Arc<str>,
    /// Only of this crawl.
    pub crawl: Option<CrawlName>,
    /// At most this many chunks.
    pub chunks: usize,
    /// At most this many links of each, in the crawl stage.
    pub links: usize,
    /// At least this many links, if a new chunk is made.
    pub links_min: usize,
    /// Only links of this host, which the worker paces itself.
    pub host: Option<HostName>,
    /// Duration of the leases.
    pub lease: Millis,
    /// Idempotency id: if present, live chunks already granted for it are returned again.
    pub request: Option<RequestId>,
}

impl Claim {
    /// Gives the claim an id under which it may be repeated.
    #[must_use]
    pub fn named(mut self, id: &str) -> Self {
        let (crawl, host) = (self.crawl.as_deref(), self.host.as_deref());
        let asks = format!("{:?} {} {} {} {crawl:?} {host:?}", self.stage, self.chunks, self.links, self.lease.0);
        self.request = Some(RequestId { id: id.into(), asks: url_key::hash(&asks, REQUEST_SEED) });
        self
    }
}

/// Part of the storage format of chunks; it never changes.
const REQUEST_SEED: u64 = 0x51b0_7e3a_c94d_260f;

/// A claimed chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimed {
    /// Its id.
    pub id: ChunkId,
    /// The secret that renews and ends the lease.
    pub token: Token,
    /// The stage.
    pub stage: Stage,
    /// Its crawl.
    pub crawl: CrawlName,
    /// When the lease ends.
    pub expires_at: Time,
    /// Earlier attempts without a result.
    pub attempts: u32,
    /// Its links, in the crawl stage.
    pub links: Vec<LinkToFetch>,
    /// What its crawl stage left behind, in the build stage.
    pub input: Option<Artifact>,
}

/// A link to fetch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkToFetch {
    /// The host or queue key that it belongs to.
    pub host: HostName,
    /// The URL.
    pub url: UrlToFetch,
    /// The delay to keep between two requests to its host.
    pub delay: Millis,
}

/// Reports links of a chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportLinks {
    /// The chunk.
    pub chunk: ChunkId,
    /// The token of its lease.
    pub token: Token,
    /// Results of some of its links.
    pub results: Vec<UrlResult>,
    /// Whether links that failed are replaced by fresh ones, as far as there are any.
    pub replace: bool,
}

/// The answer to a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinksReported {
    /// Fresh links in the place of failed ones.
    pub replacements: Vec<LinkToFetch>,
    /// Links that are not reported yet.
    pub left: u64,
    /// Links named in the report that are no longer part of the chunk: their host moved, or an operator ended their
    /// visit. Their results were not taken.
    pub ended: Vec<Box<str>>,
}

/// Ends the lease of a chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndChunk {
    /// The stage is complete.
    Complete(Option<Artifact>),
    /// The attempt failed.
    Fail {
        /// Why.
        reason: Box<str>,
        /// The stage before must be done again: its artifact is gone.
        input_lost: bool,
    },
}

/// The answer to a call that ended a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseEnded {
    /// The state that the chunk is in then.
    pub state: ChunkState,
    /// Where a crawler completed it: links that it had reported as fetched and that had left the chunk before, because their
    /// host moved, an operator ended their visit, another client took their URL, or its row cannot be read. Their pages do
    /// not count.
    pub ended: Vec<Box<str>>,
}

/// An operator's decision about a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperatorAction {
    /// Try a chunk again that was set aside or skipped.
    Retry,
    /// Give a chunk up.
    Skip,
}
