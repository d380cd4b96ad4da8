//! Chunks on the wire as callers see them: stages, states, listings.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use wayleave_core::names::{self, CrawlName};
use wayleave_core::pipeline::{link_view, request, row, view};
use wayleave_core::redact;

use crate::artifact::Artifact;
use crate::placements::Placement;
use crate::urls::UrlState;
use crate::words::words;
use crate::{BadValue, Timestamp};

words! {
    /// A stage of work that is claimed.
    Stage = request::Stage {
        /// Fetching links.
        Crawl,
        /// Building an index of what was fetched.
        Build,
    }
}

words! {
    /// Where a chunk is.
    ChunkState = row::ChunkState {
        /// A crawler fetches its links, or is awaited.
        Crawling,
        /// Its links are fetched; an index builder is awaited.
        Crawled,
        /// An index builder works on it.
        Building,
        /// Its index is built.
        Built,
        /// Too many attempts have failed; an operator may retry or skip it.
        SetAside,
        /// It ended without a result.
        Skipped,
    }
}

/// Which chunks to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListChunksQuery {
    /// Only those of this stage: `crawl` or `build`. One that was set aside or skipped belongs to the stage that it did
    /// not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub stage: Option<Stage>,
    /// Only those in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub state: Option<ChunkState>,
    /// Only those of this crawl, also if it was deleted; none if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crawl: Option<String>,
    /// The `next` of the previous page; absent for the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Rows per page, 1 to 1,000; 100 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Whether to show the user names, passwords and query values in the locations of artifacts, such as
    /// `http://user:password@host/?token=…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<bool>,
}

impl ListChunksQuery {
    /// The filter.
    pub fn filter(&self) -> Result<view::ChunkFilter, BadValue> {
        let crawl: Option<CrawlName> =
            self.crawl.as_deref().map(names::crawl).transpose().map_err(|e| BadValue::new("crawl", e))?;
        Ok(view::ChunkFilter { state: self.state.map(Into::into), stage: self.stage.map(Into::into), crawl })
    }
}

/// The links of a chunk, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChunkLinks {
    /// Not reported yet.
    pub crawling: u64,
    /// Fetched.
    pub crawled: u64,
    /// Gone, failed, or to be tried again later.
    pub error: u64,
}

/// What became of a link in its chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChunkLinkState {
    /// Not reported yet.
    Crawling,
    /// Fetched.
    Crawled,
    /// Gone, failed, or to be tried again later.
    Error,
    /// The chunk ended before it was fetched.
    GivenUp,
    /// It left the chunk: it went back to its queue, or was deleted.
    Left,
}

/// A link of a chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChunkLink {
    /// Its URL.
    pub url: String,
    /// What became of it in this chunk.
    pub state: ChunkLinkState,
    /// The state of its URL by now; null if it was deleted, or its host has moved to another shard.
    pub url_state: Option<UrlState>,
    /// The HTTP status of its last visit; null if none was reported.
    pub status: Option<u16>,
    /// Attempts at its URL without a result.
    pub attempts: u32,
}

impl From<link_view::LinkView> for ChunkLink {
    fn from(link: link_view::LinkView) -> Self {
        let state = match link.outcome {
            link_view::LinkOutcome::Open => ChunkLinkState::Crawling,
            link_view::LinkOutcome::Fetched => ChunkLinkState::Crawled,
            link_view::LinkOutcome::Failed => ChunkLinkState::Error,
            link_view::LinkOutcome::GivenUp => ChunkLinkState::GivenUp,
            link_view::LinkOutcome::Left => ChunkLinkState::Left,
        };
        let (url, url_state) = (link.url.into(), link.url_state.map(UrlState::from));
        Self { url, state, url_state, status: link.status, attempts: link.attempts }
    }
}

/// What the stages of a chunk have left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChunkArtifacts {
    /// By the crawl stage; absent while there is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crawl: Option<Artifact>,
    /// By the build stage; absent while there is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<Artifact>,
}

/// A chunk: its state, why, and when that changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Chunk {
    /// Its id.
    pub id: String,
    /// Its crawl.
    pub crawl: String,
    /// Its host, if it was claimed for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Its stage: the one it waits for or is in, or that it did not complete.
    pub stage: Stage,
    /// Its state.
    pub state: ChunkState,
    /// Why it is in this state, and what happens next; never empty.
    pub reason: String,
    /// When that changes by itself at the latest; null if it depends on a worker or an operator.
    pub until: Option<Timestamp>,
    /// The worker that has it; null if none has.
    pub worker: Option<String>,
    /// Attempts at its stage without a result; after 5 it is set aside.
    pub attempts: u32,
    /// When it was made.
    pub created_at: Timestamp,
    /// Since when it has been in its state.
    pub since: Timestamp,
    /// Its links, counted.
    pub links: ChunkLinks,
    /// Its links, those that failed first, at most 100; absent in listings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_list: Option<Vec<ChunkLink>>,
    /// How many links are not in `link_list`; absent in listings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links_more: Option<u64>,
    /// What its stages have left behind.
    pub artifacts: ChunkArtifacts,
    /// Why its last attempt ended without a result; null if none did.
    pub last_error: Option<String>,
    /// Its copies on index servers, each with its state and why; absent in listings. See `GET /v1/placements`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placements: Option<Vec<Placement>>,
}

impl From<view::ChunkView> for Chunk {
    fn from(view: view::ChunkView) -> Self {
        let (crawled, state) = (view.crawl_artifact.is_some(), view.state.into());
        let stage = match state {
            ChunkState::Crawling => Stage::Crawl,
            ChunkState::SetAside | ChunkState::Skipped if !crawled => Stage::Crawl,
            _ => Stage::Build,
        };
        let artifacts = ChunkArtifacts {
            crawl: view.crawl_artifact.map(Artifact::from),
            build: view.build_artifact.map(Artifact::from),
        };
        Self {
            id: view.id.to_string(),
            crawl: view.crawl.to_string(),
            host: view.host.map(|host| host.to_string()),
            stage,
            state,
            reason: view.reason,
            until: view.until.map(Timestamp),
            worker: view.worker,
            attempts: view.attempts,
            created_at: Timestamp(view.created_at),
            since: Timestamp(view.since),
            links: ChunkLinks { crawling: view.crawling, crawled: view.crawled, error: view.error },
            links_more: view.link_list.is_some().then_some(view.links_more),
            link_list: view.link_list.map(|links| links.into_iter().map(ChunkLink::from).collect()),
            artifacts,
            last_error: view.last_error,
            placements: view.placements.map(|copies| copies.into_iter().map(Placement::from).collect()),
        }
    }
}

impl Chunk {
    /// The same without user names and passwords in its URLs and in the locations of its artifacts, and without the values of
    /// queries in the latter.
    #[must_use]
    pub fn redacted(mut self) -> Self {
        for link in self.link_list.iter_mut().flatten() {
            link.url = redact::owned_url(std::mem::take(&mut link.url));
        }
        for artifact in [&mut self.artifacts.crawl, &mut self.artifacts.build].into_iter().flatten() {
            artifact.location = redact::location(&artifact.location);
        }
        self.placements = self.placements.map(|copies| copies.into_iter().map(Placement::redacted).collect());
        self
    }
}

/// One page of chunks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListChunksResponse {
    /// The chunks, by id.
    pub chunks: Vec<Chunk>,
    /// Pass it as `after` to get the next page; null at the end.
    pub next: Option<String>,
    /// The ids of chunks that are missing on this page, because the store is damaged there; absent if none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<String>,
}
