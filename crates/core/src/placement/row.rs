//! Rows of placement: chunks, copies, servers, and one ledger.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::fleet::{Desired, Judged, RowNo};
use crate::ids::ChunkId;
use crate::names::MachineId;
use crate::pipeline::row::Artifact;
use crate::time::Time;
use crate::words::words;

/// The state of a copy. A copy that is gone has no row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PlacementState {
    /// The server should fetch it.
    Assigned,
    /// The server fetches it.
    Fetching,
    /// The server has it.
    Ready,
    /// The server should delete it.
    Draining,
}

words!(PlacementState, name: Assigned "assigned", Fetching "fetching", Ready "ready", Draining "draining");

/// What a copy is to its assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CopyRole {
    /// The copy that the row shall have; for a draining copy it means nothing.
    Chosen,
    /// Serves until the chosen copy is ready.
    Leaving,
    /// The same, but its server was lost: if it comes back first, the chosen copy is cancelled.
    Lost,
}

/// A copy of a chunk on a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementRow {
    /// The server's row.
    pub row: RowNo,
    /// Its state.
    pub state: PlacementState,
    /// What it is to its assignment.
    pub role: CopyRole,
    /// The last news of it, in whole seconds, while it is not ready: since then it is assigned, or fetched. Else zero.
    pub since: Time,
}

/// A server as placement last knew it. Kept apart from the fleet's row, so that the map of a version can always be
/// rebuilt: the fleet may have changed since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerRow {
    /// Its row.
    pub row: RowNo,
    /// Its share of the row's bytes.
    pub capacity: u32,
    /// Where it is reached.
    pub address: Arc<str>,
    /// Its health.
    pub judged: Judged,
    /// Since when.
    pub since: Time,
    /// What the operator wants of it.
    pub desired: Desired,
    /// Whether it takes new copies, by its own report.
    pub accepts: bool,
    /// Whether it is suspect only because it does not answer probes.
    pub unanswered: bool,
    /// It has left the fleet; its copies are being forgotten.
    pub removed: bool,
}

/// What concerns all of placement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerRow {
    /// The version of the map.
    pub version: u64,
    /// Whether moves are frozen.
    pub frozen: bool,
    /// When the last freeze ended.
    pub thawed_at: Time,
    /// Start of the minute in which `moves` were begun.
    pub moves_from: Time,
    /// Moves towards balance in that minute.
    pub moves: u32,
}

/// A built chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltRow {
    /// Its index.
    pub artifact: Artifact,
    /// Which of the chunk's indexes: how many were given up before. Messages about another one are out of date.
    pub index: u32,
    /// Copies that servers gave up before any was ready.
    pub unfetched: u32,
}

/// Why an index is given up, and so what becomes of its chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GiveUpReason {
    /// It is lost, and how: the chunk is built anew.
    Lost(Box<str>),
    /// An operator wants another one: the chunk is built anew.
    BuildAgain,
    /// An operator wants the chunk out of the index.
    Skip,
}

/// A chunk that has left placement. The pipeline must hear of it, or has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReturnRow {
    /// The index that is given up.
    pub index: u32,
    /// Why.
    pub why: GiveUpReason,
    /// When.
    pub at: Time,
    /// Whether the pipeline knows. Then the row only distinguishes late announcements from new ones.
    pub taken: bool,
}

/// A change of rows; none removes the row. Within a list, a later write to the same row wins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// A chunk.
    Chunk(ChunkId, Option<BuiltRow>),
    /// A chunk that has left.
    Return(ChunkId, Option<ReturnRow>),
    /// A copy of a chunk on a server.
    Placement(ChunkId, MachineId, Option<PlacementRow>),
    /// A server.
    Server(MachineId, Option<ServerRow>),
    /// The ledger.
    Ledger(LedgerRow),
}
