//! Chunks on the wire: claim, report links, renew, complete, fail.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use wayleave_core::asked::AskedHost;
use wayleave_core::ids::{ChunkId, Token};
use wayleave_core::names::HostName;
use wayleave_core::pipeline::{request, row};
use wayleave_core::time::Millis;
use wayleave_core::{limits, names, redact};

use crate::Timestamp;
pub use crate::artifact::{Artifact, BadChunkId, chunk_id};
use crate::bad_value::{BadValue, TooMany};
use crate::bounded::bounded;
use crate::bounds::{Bounded, CRAWL, HOLDER, KEY, LEASE, REQUEST_ID, TOKEN, WAIT, bounds, list, text, whole};
pub use crate::chunk_list::{
    Chunk, ChunkArtifacts, ChunkLink, ChunkLinkState, ChunkLinks, ChunkState, ListChunksQuery, ListChunksResponse,
    Stage,
};
use crate::metadata::Metadata;
use crate::object;
use crate::reservations::{UrlResult, check_results, core_results, named_worker, request_id};
use crate::urls::AddUrlsResponse;

const fn lease_default() -> u64 {
    limits::LEASE_MS_DEFAULT
}

const fn links_default() -> u64 {
    limits::CHUNK_LINKS_DEFAULT as u64
}

/// Claims chunks of a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimChunksRequest {
    /// `crawl` for crawlers, `build` for index builders.
    pub stage: Stage,
    /// Name of the worker, for people.
    pub worker: String,
    /// Only chunks of this crawl; of any crawl if absent, with `host` of `DEFAULT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crawl: Option<String>,
    /// Maximum number of chunks, 1 to 100; if absent 1 for `crawl`, 5 for `build`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
    /// Maximum number of links in a chunk, 1 to 1,000, each of another group. Only for `crawl`.
    #[serde(default = "links_default")]
    pub links: u64,
    /// Only links of this host or queue key, and as many as `links`: the crawler keeps `delay_ms` between them. Only for
    /// `crawl`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The lease time of the chunks, 100 to 3,600,000.
    #[serde(default = "lease_default")]
    pub lease_ms: u64,
    /// How long to wait for a chunk of fewer than `links` links to fill up, at most 60,000; never longer than `wait_ms`.
    #[serde(default)]
    pub linger_ms: u64,
    /// The long-poll time for a chunk, at most 60,000.
    #[serde(default)]
    pub wait_ms: u64,
    /// Idempotency key, unique per request. The same request with the same id gets the same chunks again while their
    /// leases last, so a lost response costs nothing. At most 128 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

bounds! {
    ClaimChunksRequest {
        max: whole(1, limits::CLAIM_CHUNKS_MAX as u64), links: whole(1, limits::CHUNK_LINKS_MAX as u64).or(links_default()),
        lease_ms: LEASE, linger_ms: WAIT, wait_ms: WAIT,
    } { worker: HOLDER, crawl: CRAWL, host: KEY, request_id: REQUEST_ID }
}

impl ClaimChunksRequest {
    /// A claim of `worker` with all other fields at their defaults.
    #[must_use]
    pub fn new(stage: Stage, worker: impl Into<String>) -> Self {
        Self {
            stage,
            worker: worker.into(),
            crawl: None,
            max: None,
            links: links_default(),
            host: None,
            lease_ms: lease_default(),
            linger_ms: 0,
            wait_ms: 0,
            request_id: None,
        }
    }

    /// The host as requested, if there is one. Fails if no host can have that name, or an index builder names one.
    pub fn asked_host(&self) -> Result<Option<AskedHost>, BadValue> {
        let asked = self.host.as_deref().map(AskedHost::parse).transpose().map_err(|e| BadValue::new("host", e))?;
        match (self.stage, asked) {
            (Stage::Build, Some(_)) => {
                let reason = "an index builder takes chunks as they were crawled, whatever their hosts; leave it out";
                Err(BadValue::contradiction("host", reason))
            }
            (_, asked) => Ok(asked),
        }
    }

    /// The claim, with the host under its stored name.
    pub fn claim(&self, host: Option<HostName>) -> Result<request::Claim, BadValue> {
        let default = match self.stage {
            Stage::Crawl => 1,
            Stage::Build => limits::BUILD_CHUNKS_DEFAULT as u64,
        };
        self.check_bounds()?;
        let crawl = self.crawl.as_deref().or_else(|| host.is_some().then_some(names::DEFAULT_CRAWL));
        let crawl = crawl.map(names::crawl).transpose().map_err(|e| BadValue::new("crawl", e))?;
        let claim = request::Claim {
            stage: self.stage.into(),
            worker: named_worker("worker", &self.worker, "claims")?.into(),
            crawl,
            chunks: self.max.unwrap_or(default) as usize,
            links: self.links as usize,
            links_min: 1,
            host,
            lease: Millis(self.lease_ms),
            request: None,
        };
        Ok(match &self.request_id {
            Some(id) => claim.named(request_id(id)?),
            None => claim,
        })
    }

    /// How long to wait for a chunk, and for a chunk to fill up.
    pub fn waits(&self) -> Result<(Millis, Millis), BadValue> {
        self.check_bounds()?;
        Ok((Millis(self.wait_ms), Millis(self.linger_ms)))
    }
}

fn token(text: &str) -> Result<Token, BadValue> {
    Token::parse(text).map_err(|e| BadValue::new("token", e))
}

/// A link to fetch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Link {
    /// The URL.
    pub url: String,
    /// Its crawl.
    pub crawl: String,
    /// Its host or queue key.
    pub host: String,
    /// Number of links from the seed.
    pub depth: u32,
    /// The minimum time between two requests to its host.
    pub delay_ms: u64,
    /// Metadata stored with it.
    pub metadata: Metadata,
}

impl From<request::LinkToFetch> for Link {
    fn from(link: request::LinkToFetch) -> Self {
        Self {
            url: link.url.url.into(),
            crawl: link.url.crawl.to_string(),
            host: link.host.to_string(),
            depth: link.url.depth,
            delay_ms: link.delay.0,
            metadata: (&link.url.metadata).into(),
        }
    }
}

/// What an index builder reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BuildInput {
    /// The chunk that it belongs to.
    pub chunk: String,
    /// Where the crawler left the content.
    pub artifact: Artifact,
    /// The address that its description came from, as the server saw it: a builder may call the location there even if it is
    /// a private address. Null if it is not known.
    #[serde(default)]
    pub from: Option<String>,
}

/// A claimed chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClaimedChunk {
    /// Its id: a decimal number, as text, because many JSON readers would round it.
    pub id: String,
    /// The token that reports, renews and ends it.
    pub token: String,
    /// Its stage.
    pub stage: Stage,
    /// The deadline of the lease.
    pub expires_at: Timestamp,
    /// Earlier attempts at this stage without a result.
    pub attempts: u32,
    /// The links to fetch; empty for an index builder.
    pub links: Vec<Link>,
    /// What to build from; empty for a crawler.
    pub inputs: Vec<BuildInput>,
}

impl From<request::Claimed> for ClaimedChunk {
    fn from(claimed: request::Claimed) -> Self {
        let id = claimed.id.to_string();
        let input = |artifact: row::Artifact| BuildInput {
            chunk: id.clone(),
            from: artifact.from.map(|from| from.to_string()),
            artifact: Artifact::from(artifact),
        };
        Self {
            token: claimed.token.to_string(),
            stage: claimed.stage.into(),
            expires_at: Timestamp(claimed.expires_at),
            attempts: claimed.attempts,
            links: claimed.links.into_iter().map(Link::from).collect(),
            inputs: claimed.input.into_iter().map(input).collect(),
            id,
        }
    }
}

/// The claimed chunks; an empty list if there was none in time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClaimChunksResponse {
    /// The chunks, each with its own token.
    pub chunks: Vec<ClaimedChunk>,
    /// Whether the requested crawl is finished: no link of it is handed out or can become due, so a crawler may exit.
    /// Only with an empty list, for stage `crawl` with a `crawl` in the request; absent if false. A crawl that is not known,
    /// or was deleted, is not finished: its first link may still come. `GET /v1/crawls/{crawl}` tells whether it is known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub finished: bool,
}

/// Reports links of a chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportLinksRequest {
    /// The token of the lease.
    pub token: String,
    /// The results of some of its links, at most 1,000, as in a release. A link is reported once.
    #[serde(deserialize_with = "bounded::<_, _, { limits::RESULTS_MAX }>")]
    pub results: Vec<UrlResult>,
    /// Whether each link that failed is replaced by a fresh one, as far as there are any.
    #[serde(default)]
    #[schema(default = false)]
    pub replace: bool,
}

bounds!(ReportLinksRequest {} { token: TOKEN, results: list(limits::RESULTS_MAX) });

impl ReportLinksRequest {
    /// Whether there are more results or found URLs than one request may carry. The message of the error
    /// names the limit.
    pub fn check_size(&self) -> Result<(), TooMany> {
        check_results(&self.results)
    }

    /// The report in the core's form.
    pub fn report(&self, chunk: ChunkId) -> Result<request::ReportLinks, BadValue> {
        let (token, results) = (token(&self.token)?, core_results(&self.results)?);
        Ok(request::ReportLinks { chunk, token, results, replace: self.replace })
    }
}

/// What became of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReportLinksResponse {
    /// Fresh links in the place of those that failed, to be fetched under the same lease.
    pub replacements: Vec<Link>,
    /// How many links are not reported yet.
    pub left: u64,
    /// Links in the report that are no longer part of the chunk, because their host moved or an operator ended their
    /// visit. Their results were not taken; another worker gets them.
    pub ended: Vec<String>,
    /// The results of the found URLs, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<AddUrlsResponse>,
}

/// Extends the lease of a chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RenewChunkRequest {
    /// The token of the lease.
    pub token: String,
    /// The new lease time from now, 100 to 3,600,000.
    #[serde(default = "lease_default")]
    pub lease_ms: u64,
}

bounds!(RenewChunkRequest { lease_ms: LEASE } { token: TOKEN });

impl TryFrom<&RenewChunkRequest> for (Token, Millis) {
    type Error = BadValue;

    fn try_from(body: &RenewChunkRequest) -> Result<Self, BadValue> {
        body.check_bounds()?;
        Ok((token(&body.token)?, Millis(body.lease_ms)))
    }
}

/// The new deadline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RenewChunkResponse {
    /// The new deadline of the lease.
    pub expires_at: Timestamp,
    /// Links that are no longer part of the chunk: do not fetch them.
    pub ended: Vec<String>,
}

/// Completes the stage of a chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CompleteChunkRequest {
    /// The token of the lease.
    pub token: String,
    /// What the stage left behind. A crawler leaves it out if no link was fetched; then the chunk ends as skipped.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub artifact: Option<Artifact>,
}

bounds!(CompleteChunkRequest {} { token: TOKEN });

impl TryFrom<&CompleteChunkRequest> for (Token, request::EndChunk) {
    type Error = BadValue;

    fn try_from(body: &CompleteChunkRequest) -> Result<Self, BadValue> {
        let artifact = body.artifact.as_ref().map(row::Artifact::try_from).transpose();
        let artifact = artifact.map_err(|e| e.within("artifact"))?;
        Ok((token(&body.token)?, request::EndChunk::Complete(artifact)))
    }
}

/// Fails the attempt at a stage of a chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FailChunkRequest {
    /// The token of the lease.
    pub token: String,
    /// Why, for people; 1 to 1,024 bytes.
    pub reason: String,
    /// Whether the content that the crawler left behind is gone, so that the links must be crawled again. Only for
    /// `build`.
    #[serde(default)]
    #[schema(default = false)]
    pub input_lost: bool,
}

bounds!(FailChunkRequest {} { token: TOKEN, reason: text(1, limits::REASON_BYTES_MAX, r"\S") });

impl TryFrom<&FailChunkRequest> for (Token, request::EndChunk) {
    type Error = BadValue;

    fn try_from(body: &FailChunkRequest) -> Result<Self, BadValue> {
        let (reason, most) = (&body.reason, limits::REASON_BYTES_MAX);
        if reason.trim().is_empty() {
            return Err(BadValue::new("reason", "must not be empty: say what failed, for people to read"));
        }
        if reason.len() > most {
            return Err(BadValue::new("reason", format!("has {} bytes; the limit is {most}", reason.len())));
        }
        let end = request::EndChunk::Fail { reason: redact::reason(reason, most).into(), input_lost: body.input_lost };
        Ok((token(&body.token)?, end))
    }
}

/// The state of a chunk after a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChunkMoved {
    /// The chunk.
    pub id: String,
    /// Its state.
    pub state: ChunkState,
    /// For a crawler that completes it: links that it reported as fetched and that had left the chunk before, because their host
    /// moved, an operator ended their visit, another client took their URL, or the store is damaged where it keeps the URL. Their
    /// pages do not count here; if another worker fetches them, they are in two chunks. Left out if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<String>,
}

impl ChunkMoved {
    /// The state of a chunk.
    #[must_use]
    pub fn new(id: ChunkId, state: row::ChunkState) -> Self {
        Self { id: id.to_string(), state: state.into(), ended: Vec::new() }
    }
}

#[cfg(test)]
#[path = "chunks_tests.rs"]
mod tests;
