//! Chunks and machines on the wire as an export carries them from one store to another, and their restoration.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use wayleave_core::fleet::{self, RowNo};
use wayleave_core::names::{self, CrawlName, HostName};
use wayleave_core::pipeline::{carry as core, restore, row};
use wayleave_core::{limits, placement};

use crate::Timestamp;
use crate::artifact::{Artifact, chunk_id};
use crate::bad_value::{BadValue, TooMany, at_most, between};
use crate::bounded::bounded;
use crate::bounded_int::whole;
use crate::chunk_list::ChunkState;
use crate::fleet::{Desired, MachineState, MachineType, ReportMachineRequest, words};
use crate::object;
use crate::placements::CopyState;

const SMALL_MAX: u64 = limits::RESTORED_COUNT_MAX;
const ROW_MAX: u64 = limits::ROW_MAX;
const LINKS_MAX: usize = limits::CHUNK_LINKS_EVER_MAX;
/// Every server may have one.
const COPIES_MAX: usize = limits::MACHINES_MAX;

words! {
    /// What became of a link of an exported chunk.
    ExportedLinkState = core::CarriedLinkState {
        /// Not fetched, as far as is known.
        Crawling,
        /// Fetched.
        Crawled,
        /// Gone, failed, or to be tried again later.
        Error,
        /// It left the chunk: its URL is queued, or with others, even if the export calls it finished.
        Returned,
    }
}

/// A link of an exported chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportedLink {
    /// Its URL, with its user name and password if it has any.
    pub url: String,
    /// Its host or queue key.
    pub host: String,
    /// What became of it.
    pub state: ExportedLinkState,
}

/// A copy of an exported chunk on an index server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportedCopy {
    /// The name of the index server.
    pub server: String,
    /// The row of the server.
    #[serde(deserialize_with = "whole::<_, _, 0, ROW_MAX>")]
    pub row: u64,
    /// Its state.
    pub state: CopyState,
}

/// A chunk as an export carries it: everything but its lease and tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportedChunk {
    /// Its id, which it keeps.
    pub id: String,
    /// Its crawl.
    pub crawl: String,
    /// Its host, if it was claimed for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Its state.
    pub state: ChunkState,
    /// The worker that has it, for people: its lease is not carried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Attempts at its stage without a result.
    #[serde(default, deserialize_with = "whole::<_, _, 0, SMALL_MAX>")]
    #[schema(default = 0)]
    pub attempts: u64,
    /// How often its content was lost.
    #[serde(default, deserialize_with = "whole::<_, _, 0, SMALL_MAX>")]
    #[schema(default = 0)]
    pub inputs_lost: u64,
    /// The number of its index: how many were given up before.
    #[serde(default, deserialize_with = "whole::<_, _, 0, SMALL_MAX>")]
    #[schema(default = 0)]
    pub index: u64,
    /// How often its index was lost.
    #[serde(default, deserialize_with = "whole::<_, _, 0, SMALL_MAX>")]
    #[schema(default = 0)]
    pub indexes_lost: u64,
    /// When it was made. With the id it says whether a chunk is here already.
    pub created_at: Timestamp,
    /// Since when it has been in its state.
    pub since: Timestamp,
    /// Its links, at most 4,000.
    #[serde(default, deserialize_with = "bounded::<_, _, LINKS_MAX>")]
    #[schema(default = json!([]))]
    pub links: Vec<ExportedLink>,
    /// What its crawl stage left behind.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub crawl_artifact: Option<Artifact>,
    /// What its build stage left behind.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub build_artifact: Option<Artifact>,
    /// Why its last attempt ended without a result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Its copies on index servers.
    #[serde(default, deserialize_with = "bounded::<_, _, COPIES_MAX>")]
    #[schema(default = json!([]))]
    pub copies: Vec<ExportedCopy>,
}

impl From<core::CarriedChunk> for ExportedChunk {
    fn from(chunk: core::CarriedChunk) -> Self {
        let link = |link: core::CarriedLink| ExportedLink {
            url: link.url.into(),
            host: link.host.to_string(),
            state: link.state.into(),
        };
        let copy = |copy: placement::CarriedCopy| ExportedCopy {
            server: copy.server.to_string(),
            row: copy.row.0.into(),
            state: copy.state.into(),
        };
        Self {
            id: chunk.id.to_string(),
            crawl: chunk.crawl.to_string(),
            host: chunk.host.map(|host| host.to_string()),
            state: chunk.state.into(),
            worker: chunk.worker,
            attempts: chunk.attempts.into(),
            inputs_lost: chunk.inputs_lost.into(),
            index: chunk.index.into(),
            indexes_lost: chunk.indexes_lost.into(),
            created_at: Timestamp(chunk.created_at),
            since: Timestamp(chunk.since),
            links: chunk.links.into_iter().map(link).collect(),
            crawl_artifact: chunk.crawled.map(Artifact::from),
            build_artifact: chunk.built.map(Artifact::from),
            last_error: chunk.last_error.map(Into::into),
            copies: chunk.copies.into_iter().map(copy).collect(),
        }
    }
}

impl TryFrom<&ExportedChunk> for core::CarriedChunk {
    type Error = BadValue;

    fn try_from(chunk: &ExportedChunk) -> Result<Self, BadValue> {
        let small = |field, number| between(field, number, 0, SMALL_MAX).map(|number| number as u32);
        let artifact = |field, artifact: &Option<Artifact>| {
            artifact.as_ref().map(row::Artifact::try_from).transpose().map_err(|e| e.within(field))
        };
        let last_error =
            chunk.last_error.as_deref().map(|error| text("last_error", error, limits::CHUNK_ERROR_BYTES_MAX));
        Ok(Self {
            id: chunk_id(&chunk.id).map_err(|e| BadValue::new("id", e))?,
            crawl: names::crawl(&chunk.crawl).map_err(|e| BadValue::new("crawl", e))?,
            host: chunk.host.as_deref().map(|host| key("host", host)).transpose()?,
            state: chunk.state.into(),
            worker: None,
            attempts: small("attempts", chunk.attempts)?,
            inputs_lost: small("inputs_lost", chunk.inputs_lost)?,
            index: small("index", chunk.index)?,
            indexes_lost: small("indexes_lost", chunk.indexes_lost)?,
            created_at: chunk.created_at.0,
            since: chunk.since.0,
            links: chunk.links.iter().map(link).collect::<Result<_, _>>()?,
            crawled: artifact("crawl_artifact", &chunk.crawl_artifact)?,
            built: artifact("build_artifact", &chunk.build_artifact)?,
            last_error: last_error.transpose()?.map(Into::into),
            copies: chunk.copies.iter().map(copy).collect::<Result<_, _>>()?,
        })
    }
}

fn text<'a>(field: &'static str, text: &'a str, most: usize) -> Result<&'a str, BadValue> {
    if text.len() > most {
        return Err(BadValue::new(field, format!("has {} bytes; the limit is {most}", text.len())));
    }
    Ok(text)
}

fn key(field: &'static str, host: &str) -> Result<HostName, BadValue> {
    names::check_key(host).map_err(|e| BadValue::new(field, e))?;
    Ok(host.into())
}

fn link(link: &ExportedLink) -> Result<core::CarriedLink, BadValue> {
    let url = text("url", &link.url, limits::URL_BYTES_MAX).and_then(|url| match url {
        "" => Err(BadValue::new("url", "must not be empty")),
        url => Ok(url.into()),
    });
    let url = url.map_err(|e| e.within("links"))?;
    let host = key("host", &link.host).map_err(|e| e.within("links"))?;
    Ok(core::CarriedLink { host, url, state: link.state.into() })
}

fn copy(copy: &ExportedCopy) -> Result<placement::CarriedCopy, BadValue> {
    let server = names::machine(&copy.server).map_err(|e| BadValue::new("server", e).within("copies"))?;
    let row = between("row", copy.row, 0, ROW_MAX).map_err(|e| e.within("copies"))?;
    Ok(placement::CarriedCopy { server, row: RowNo(row as u8), state: copy.state.into() })
}

/// Which chunks to export.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ExportChunksQuery {
    /// Only those of this crawl.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crawl: Option<String>,
    /// The `next` of the previous page; absent for the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

impl ExportChunksQuery {
    /// The crawl.
    ///
    /// # Errors
    /// If its name is invalid.
    pub fn crawl(&self) -> Result<Option<CrawlName>, BadValue> {
        self.crawl.as_deref().map(names::crawl).transpose().map_err(|e| BadValue::new("crawl", e))
    }
}

/// Some chunks as an export carries them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExportChunksResponse {
    /// The chunks.
    pub chunks: Vec<ExportedChunk>,
    /// Pass it as `after` to get the next ones; null at the end.
    pub next: Option<String>,
}

/// Restores chunks of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportChunksRequest {
    /// The chunks as they were exported, at most 100.
    #[serde(deserialize_with = "bounded::<_, _, { limits::RESTORE_CHUNKS_MAX }>")]
    pub chunks: Vec<ExportedChunk>,
}

impl ImportChunksRequest {
    /// Whether there are more chunks than one request may carry, or more links or copies than a chunk may have.
    ///
    /// # Errors
    /// If there are; the message names the limit.
    pub fn check_size(&self) -> Result<(), TooMany> {
        at_most("chunks", self.chunks.len(), limits::RESTORE_CHUNKS_MAX)?;
        self.chunks.iter().try_for_each(|chunk| {
            at_most("links", chunk.links.len(), LINKS_MAX)?;
            at_most("copies", chunk.copies.len(), COPIES_MAX)
        })
    }

    /// The chunks in the core's form.
    ///
    /// # Errors
    /// If a field is invalid.
    pub fn carried(&self) -> Result<Vec<core::CarriedChunk>, BadValue> {
        let within = |i: usize, e: BadValue| e.within(&format!("chunks[{i}]"));
        self.chunks.iter().enumerate().map(|(i, chunk)| chunk.try_into().map_err(|e| within(i, e))).collect()
    }
}

/// What became of a chunk of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ImportStatus {
    /// It is restored.
    Restored,
    /// It was here before, and was not changed.
    Known,
    /// It cannot be restored; nothing was changed.
    Rejected,
}

/// The result of one chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportedChunk {
    /// Its id.
    pub id: String,
    /// What became of it.
    pub status: ImportStatus,
    /// Why it was rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl ImportedChunk {
    /// The result of a chunk that was restored, or not.
    #[must_use]
    pub fn new(id: String, restored: restore::Restored) -> Self {
        let (status, reason) = match restored {
            restore::Restored::Restored => (ImportStatus::Restored, None),
            restore::Restored::Known => (ImportStatus::Known, None),
            restore::Restored::Refused(why) => (ImportStatus::Rejected, Some(why.into())),
        };
        Self { id, status, reason }
    }
}

/// The results, in the order of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportChunksResponse {
    /// One for each chunk.
    pub results: Vec<ImportedChunk>,
}

/// The numbers of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChunkNumbers {
    /// All chunks of the store have numbers below this one, and new ones in some shard have this one or greater ones.
    pub next: u64,
}

/// Raises the numbers of new chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RaiseChunkNumbersRequest {
    /// No new chunk will have a number below this one.
    #[serde(deserialize_with = "whole::<_, _, 0, { limits::CHUNK_COUNTER_RESTORED_MAX }>")]
    pub next: u64,
}

impl RaiseChunkNumbersRequest {
    /// The number.
    ///
    /// # Errors
    /// If it leaves too few numbers.
    pub fn least(self) -> Result<u64, BadValue> {
        between("next", self.next, 0, limits::CHUNK_COUNTER_RESTORED_MAX)
    }
}

/// Restores a machine of an export: what it registered, and what the operator wants of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreMachineRequest {
    /// What it does.
    #[serde(rename = "type")]
    pub kind: MachineType,
    /// Where others reach it: host and port.
    pub address: String,
    /// Its share of the work relative to others, 1 to 1,000,000.
    #[serde(deserialize_with = "whole::<_, _, 1, { limits::CAPACITY_MAX }>")]
    pub capacity: u64,
    /// Its row, of an index server.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "whole::<_, _, 0, ROW_MAX>")]
    pub row: Option<u64>,
    /// Its version, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What the operator wants of it.
    pub desired: Desired,
    /// How it said that it is.
    pub state: MachineState,
    /// Failures that are not forgiven yet.
    #[serde(default, deserialize_with = "whole::<_, _, 0, SMALL_MAX>")]
    #[schema(default = 0)]
    pub failures: u64,
    /// Its last report.
    pub seen_at: Timestamp,
    /// When it registered.
    pub registered_at: Timestamp,
}

impl RestoreMachineRequest {
    /// The machine in the core's form.
    ///
    /// # Errors
    /// If a field is invalid.
    pub fn machine(&self) -> Result<fleet::CarriedMachine, BadValue> {
        let report = ReportMachineRequest {
            capacity: self.capacity,
            row: self.row,
            state: self.state,
            version: self.version.clone(),
            ..ReportMachineRequest::new(self.kind, self.address.clone())
        };
        Ok(fleet::CarriedMachine {
            report: report.report(None)?,
            desired: self.desired.into(),
            failures: between("failures", self.failures, 0, SMALL_MAX)? as u32,
            seen_at: self.seen_at.0,
            registered_at: self.registered_at.0,
        })
    }
}

/// Raises the version of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RaiseMapVersionRequest {
    /// No map will have a version below this one.
    #[serde(deserialize_with = "whole::<_, _, 0, { limits::MAP_VERSION_RAISED_MAX }>")]
    pub version: u64,
}

impl RaiseMapVersionRequest {
    /// The version.
    ///
    /// # Errors
    /// If it leaves no room for others.
    pub fn least(self) -> Result<u64, BadValue> {
        between("version", self.version, 0, limits::MAP_VERSION_RAISED_MAX)
    }
}

/// The version of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MapVersion {
    /// The version.
    pub version: u64,
}
