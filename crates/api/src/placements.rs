//! Copies of built chunks on index servers, on the wire.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use wayleave_core::fleet::RowNo;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::ids::{ChunkId, Token};
use wayleave_core::names::{self, MachineId};
use wayleave_core::{placement as core, redact};

use crate::BadValue;
use crate::Timestamp;
use crate::artifact::{Artifact, checksum, chunk_id};
use crate::bounds::{CHECKSUM, ROW, TOKEN, bounds};
use crate::roles::token;
use crate::words::words;

words! {
    /// The state of a copy that is listed.
    CopyState = core::PlacementState {
        /// The server should fetch it.
        Assigned,
        /// The server fetches it.
        Fetching,
        /// The server has it.
        Ready,
        /// The server should delete it and report it gone.
        Draining,
    }
}
words! {
    /// What a server says of its copy.
    SaidOfCopy = core::CopyReport {
        /// It has begun to fetch it.
        Fetching,
        /// It has it and serves it.
        Ready,
        /// It does not have it, or no longer. Of an index that is not ready yet this counts as an attempt to fetch it that
        /// failed; after three of them, if no server has it, the index is built anew.
        Gone,
        /// It does not have it, or no longer, by a fault of its own: it cannot keep or open files, for lack of space, memory maps
        /// or descriptors. The server rests, and nothing is concluded about the index. The copy is then gone.
        Unable,
    }
}

/// A copy of a built chunk on an index server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Placement {
    /// The id of the chunk.
    pub chunk: String,
    /// The name of the index server.
    pub server: String,
    /// The row of the server.
    pub row: u8,
    /// Its state.
    pub state: CopyState,
    /// What to fetch: what the index builder left behind; null if the chunk is gone.
    pub artifact: Option<Artifact>,
    /// The address that its description came from, as the server saw it: an index server may call the location there even if
    /// it is a private address. Null if it is not known.
    #[serde(default)]
    pub from: Option<String>,
    /// The addresses of other servers that hold it ready.
    pub sources: Vec<String>,
    /// Why it is in this state, and what happens next; never empty.
    pub reason: String,
    /// When that changes by time alone; null if it depends on a server or an operator.
    pub changes_at: Option<Timestamp>,
}

impl From<core::PlacementView> for Placement {
    fn from(view: core::PlacementView) -> Self {
        Self {
            chunk: view.chunk.to_string(),
            server: view.server.to_string(),
            row: view.row.0,
            state: view.state.into(),
            from: view.artifact.as_ref().and_then(|artifact| artifact.from).map(|from| from.to_string()),
            artifact: view.artifact.map(Artifact::from),
            sources: view.sources.iter().map(ToString::to_string).collect(),
            reason: view.reason,
            changes_at: view.changes_at.map(Timestamp),
        }
    }
}

impl Placement {
    /// The same without user names, passwords and the values of queries in the location of its artifact.
    #[must_use]
    pub fn redacted(mut self) -> Self {
        if let Some(artifact) = &mut self.artifact {
            artifact.location = redact::location(&artifact.location);
        }
        self
    }
}

/// Which copies to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListPlacementsQuery {
    /// Only those on this index server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Only those in this row, 0 to 63.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<u64>,
    /// Only those in this state. A copy that is gone is not listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub state: Option<CopyState>,
    /// The `next` of the previous page; absent for the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Rows per page, 1 to 1,000; 100 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Whether to show the user names, passwords and query values in the locations of artifacts, such as
    /// `http://user:password@host/?token=…`.
    /// An index server that fetches from there needs them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<bool>,
}

impl ListPlacementsQuery {
    /// The filter. Fails if the server's name or the row is invalid.
    pub fn filter(&self) -> Result<core::Filter, BadValue> {
        let server = self.server.as_deref().map(names::machine).transpose().map_err(|e| BadValue::new("server", e))?;
        let row = self.row.map(|row| ROW.check("row", row)).transpose()?;
        let row = row.and_then(|row| u8::try_from(row).ok()).map(RowNo);
        Ok(core::Filter { server, row, state: self.state.map(Into::into) })
    }

    /// The copy to go on after. Fails if the cursor was not issued by a server.
    pub fn cursor(&self) -> Result<Option<core::Cursor>, Refusal> {
        let Some(text) = self.after.as_deref() else { return Ok(None) };
        let parts = text.split_once('@').and_then(|(chunk, server)| {
            Some(core::Cursor { chunk: chunk_id(chunk).ok()?, server: names::machine(server).ok()? })
        });
        parts.map(Some).ok_or(Refusal::BadCursor)
    }
}

/// One page of copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListPlacementsResponse {
    /// The copies, by server and chunk.
    pub placements: Vec<Placement>,
    /// Pass it as `after` to get the next page; null at the end.
    pub next: Option<String>,
}

impl From<core::Page> for ListPlacementsResponse {
    fn from(page: core::Page) -> Self {
        Self {
            placements: page.placements.into_iter().map(Placement::from).collect(),
            next: page.next.map(|core::Cursor { server, chunk }| format!("{chunk}@{server}")),
        }
    }
}

/// An index server says what it does with its copy of a chunk.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportPlacementRequest {
    /// What it says.
    pub state: SaidOfCopy,
    /// The checksum of the index that it has or fetches, as its placement named it. With it, a late report about an
    /// index that has been replaced is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// The token of the server's registration. It is required once a report of the server has presented it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

bounds!(ReportPlacementRequest {} { checksum: CHECKSUM, token: TOKEN });

// The token stays out of logs.
impl std::fmt::Debug for ReportPlacementRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReportPlacementRequest").field("state", &self.state).finish_non_exhaustive()
    }
}

impl ReportPlacementRequest {
    /// The token in the core's form.
    pub fn token(&self) -> Result<Option<Token>, BadValue> {
        token(self.token.as_deref())
    }

    /// The checksum in the core's form.
    pub fn checksum(&self) -> Result<Option<[u8; 32]>, BadValue> {
        self.checksum.as_deref().map(checksum).transpose()
    }
}

/// The state of a copy after a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlacementState {
    /// The server should fetch it.
    Assigned,
    /// The server fetches it.
    Fetching,
    /// The server has it.
    Ready,
    /// The server should delete it and report it gone.
    Draining,
    /// The server does not have it.
    Gone,
}

impl From<Option<core::PlacementState>> for PlacementState {
    fn from(state: Option<core::PlacementState>) -> Self {
        match state {
            Some(core::PlacementState::Assigned) => Self::Assigned,
            Some(core::PlacementState::Fetching) => Self::Fetching,
            Some(core::PlacementState::Ready) => Self::Ready,
            Some(core::PlacementState::Draining) => Self::Draining,
            None => Self::Gone,
        }
    }
}

/// The copy after a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReportPlacementResponse {
    /// The id of the chunk.
    pub chunk: String,
    /// The name of the index server.
    pub server: String,
    /// The state of the copy now.
    pub state: PlacementState,
    /// What that means for the server; never empty.
    pub reason: String,
}

impl ReportPlacementResponse {
    /// The answer to a report.
    #[must_use]
    pub fn new(chunk: ChunkId, server: &MachineId, state: Option<core::PlacementState>) -> Self {
        let state = state.into();
        let reason = match state {
            PlacementState::Assigned => "the server should fetch it",
            PlacementState::Fetching => "the server is fetching it; readers are sent to it once it reports it ready",
            PlacementState::Ready => "the server has it",
            PlacementState::Draining => "no longer wanted here: the server deletes it and reports it gone",
            PlacementState::Gone => "the server does not have it, and readers are not sent to it for this chunk",
        };
        Self { chunk: chunk.to_string(), server: server.to_string(), state, reason: reason.to_owned() }
    }
}
