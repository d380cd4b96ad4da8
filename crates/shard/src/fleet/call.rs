//! The calls that the owner of the control shard accepts for fleet and placement, and its answers. Both are plain
//! serialisable values, so an owner on another node is called exactly like a local one.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use wayleave_core::fleet::{self, Desired, MachineView, Probe, ProbeOutcome, Report, ReportReply};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::ids::{ChunkId, ShardId, Token};
use wayleave_core::names::MachineId;
use wayleave_core::placement::{
    self, CopyReport, Cursor, GiveUpReason, GivenUpIndex, Map, PlacementState, PlacementView,
};

use crate::message::{ControlReply, Message};
use crate::pipeline::call::BuiltIndexes;
use crate::routing::links::encode;
use crate::routing::protocol::Service;
use crate::routing::service_call::{ServiceCall, responses};

/// One call to the owner of the control shard. Every change may be repeated: the answer is the same, and nothing happens
/// twice.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ControlCall {
    Report {
        id: MachineId,
        report: Report,
    },
    SetDesired {
        id: MachineId,
        desired: Desired,
    },
    Delete(MachineId),
    Machine(MachineId),
    Machines {
        filter: fleet::Filter,
        after: Option<MachineId>,
        most: usize,
    },
    /// A server says what it does with its copy.
    ReportCopy {
        chunk: ChunkId,
        server: MachineId,
        said: CopyReport,
        /// The checksum of the index that it has or fetches.
        checksum: Option<[u8; 32]>,
        /// The machine's token, required once it has presented it.
        token: Option<Token>,
    },
    Placements {
        filter: placement::Filter,
        after: Option<Cursor>,
        most: usize,
    },
    CopiesOf(ChunkId),
    /// The map, unless it still has this version.
    Map {
        since: Option<u64>,
    },
    /// Chunks that are built, each with the number of its index, and with an answer.
    Built(BuiltIndexes),
    /// An operator wants a chunk built anew, or out of the index: this index is given up.
    GiveUp {
        chunk: ChunkId,
        index: u32,
        why: GiveUpReason,
    },
    /// Indexes that are given up and of which pipelines may not know, at most a batch of them.
    Returns {
        after: Option<ChunkId>,
    },
    /// Pipelines know of these.
    Returned(Vec<(ChunkId, u32)>),
    /// A chunk that is to be forgotten.
    Gone(ChunkId),
    /// The probes to send now. It changes nothing that is durable: one whose answer is lost is missed once.
    ProbesDue,
    Probed(Vec<(Probe, ProbeOutcome)>),
}

impl ControlCall {
    /// Whether this is a slice of a listing, or the map. They have the lowest priority in the inbox.
    pub const fn is_listing(&self) -> bool {
        matches!(self, Self::Machines { .. } | Self::Placements { .. } | Self::Map { .. })
    }
}

impl ServiceCall for ControlCall {
    type Response = ControlResponse;
    const SERVICE: Service = Service::Fleet;

    fn is_read_only(&self) -> bool {
        match self {
            Self::Machine(_)
            | Self::Machines { .. }
            | Self::Placements { .. }
            | Self::CopiesOf(_)
            | Self::Map { .. }
            | Self::Returns { .. }
            | Self::ProbesDue => true,
            Self::Report { .. }
            | Self::SetDesired { .. }
            | Self::Delete(_)
            | Self::ReportCopy { .. }
            | Self::Built(_)
            | Self::GiveUp { .. }
            | Self::Returned(_)
            | Self::Gone(_)
            | Self::Probed(_) => false,
        }
    }

    fn message(self, reply: ControlReply) -> Message {
        Message::Control { call: self, reply }
    }

    fn encode(&self, _: ShardId) -> Result<Vec<u8>, String> {
        encode(self)
    }
}

/// Whether each chunk was taken, or why not.
pub(crate) type Taken = Vec<Result<(), placement::Refusal>>;

responses! {
    /// The answer of the owner.
    ControlResponse {
        Done(()),
        Answer(Box<ReportReply>),
        Machine(Box<MachineView>),
        Machines(fleet::Page),
        Copy(Option<PlacementState>),
        Placements(placement::Page),
        Copies(Vec<PlacementView>),
        Map(Option<Arc<Map>>),
        Taken(Taken),
        Probes(Vec<Probe>),
        Returns(Vec<GivenUpIndex>),
    }
}
