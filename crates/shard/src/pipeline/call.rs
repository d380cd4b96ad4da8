//! The calls that a shard owner accepts for its chunks, and its answers. Both are plain serialisable values, so an owner
//! on another node is called exactly like a local one.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{Parent, RequestId};
use wayleave_core::ids::{ChunkId, ShardId, Token};
use wayleave_core::names::CrawlName;
use wayleave_core::pipeline::departed::DepartedLink;
use wayleave_core::pipeline::request::{
    Claim, Claimed, EndChunk, LeaseEnded, LinksReported, OperatorAction, ReportLinks,
};
use wayleave_core::pipeline::row::{Artifact, ChunkState};
use wayleave_core::pipeline::state::{ChunkCounts, CrawledAt};
use wayleave_core::pipeline::view::{ChunkFilter, ChunkView};
use wayleave_core::placement::GivenUpIndex;
use wayleave_core::time::{Millis, Time};

use crate::message::{ChunkReply, Message};
use crate::routing::links::encode;
use crate::routing::protocol::Service;
use crate::routing::service_call::{ServiceCall, responses};

/// One call to a shard owner.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ChunkCall {
    Claim(Claim),
    /// The chunks already granted for a request id.
    Requested {
        worker: Arc<str>,
        request: RequestId,
    },
    Renew {
        chunk: ChunkId,
        token: Token,
        lease: Millis,
    },
    /// Extends a lease while links found on these pages are stored. Returns what those links inherit.
    Keep {
        chunk: ChunkId,
        token: Token,
        lease: Millis,
        pages: Vec<Box<str>>,
    },
    Report(ReportLinks),
    End {
        chunk: ChunkId,
        token: Token,
        end: EndChunk,
        /// DepartedLinks links that were looked for and queued where they are now.
        queued: Vec<DepartedLookup>,
    },
    Decide {
        chunk: ChunkId,
        decision: OperatorAction,
        /// As in `End`.
        queued: Vec<DepartedLookup>,
    },
    /// The crawl was deleted at this time: ends a slice of the chunks in progress that were made before. Returns whether
    /// there may be more.
    EndActive {
        crawl: CrawlName,
        deleted_at: Time,
    },
    /// The crawl was deleted at this time: ends the chunks that wait for an index builder, a slice of them after this
    /// one. Returns where the next slice starts.
    EndCrawled {
        crawl: CrawlName,
        deleted_at: Time,
        after: Option<CrawledAt>,
    },
    /// The links of a chunk that is about to be crawled again whose hosts have moved away; see `departed`. If there are
    /// any, the lease of the token lasts at least this long from now.
    DepartedLinks {
        chunk: ChunkId,
        token: Option<Token>,
        lease: Millis,
    },
    Get(ChunkId),
    List {
        filter: ChunkFilter,
        after: Option<ChunkId>,
        most: usize,
    },
    Counts,
    /// Built chunks that placement may not know yet, at most a batch of them.
    Unplaced,
    /// Placement knows these chunks, or has refused them for good, and why.
    Placed(Vec<NotedIndex>),
    /// The number of a chunk's index, if placement knows it.
    PlacedIndex(ChunkId),
    /// Placement has given up these indexes.
    IndexLost(Vec<GivenUpIndex>),
}

/// A call from one node to another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum PipelineCall {
    /// For one shard.
    Ask { shard: ShardId, call: ChunkCall },
    /// For whichever of its shards has something.
    Claim(Claim),
    /// The chunks that some of its shards granted for this request id.
    Requested { worker: Arc<str>, request: RequestId, shards: Vec<ShardId> },
}

impl ChunkCall {
    /// Whether this is a slice of a listing. Slices have the lowest priority in the inbox.
    pub const fn is_listing(&self) -> bool {
        matches!(self, Self::List { .. })
    }

    /// Whether it is in vain once its caller has left: nobody reads the list, and what is claimed would end unused and
    /// cost an attempt. A claim with a request id is granted for the repetition.
    pub fn needs_caller(&self) -> bool {
        self.is_listing() || matches!(self, Self::Claim(claim) if claim.request.is_none())
    }
}

impl ServiceCall for ChunkCall {
    type Response = ChunkResponse;
    const SERVICE: Service = Service::Pipeline;

    fn is_read_only(&self) -> bool {
        match self {
            Self::Requested { .. }
            | Self::Get(_)
            | Self::List { .. }
            | Self::Counts
            | Self::Unplaced
            | Self::PlacedIndex(_) => true,
            Self::Claim(_)
            | Self::DepartedLinks { .. }
            | Self::Renew { .. }
            | Self::Keep { .. }
            | Self::Report(_)
            | Self::End { .. }
            | Self::Decide { .. }
            | Self::EndActive { .. }
            | Self::EndCrawled { .. }
            | Self::Placed(_)
            | Self::IndexLost(_) => false,
        }
    }

    fn is_visit(&self) -> bool {
        matches!(self, Self::Claim(_) | Self::Report(_) | Self::End { .. })
    }

    fn message(self, reply: ChunkReply) -> Message {
        Message::Chunk { call: self, reply }
    }

    fn encode(&self, shard: ShardId) -> Result<Vec<u8>, String> {
        encode(&PipelineCall::Ask { shard, call: self.clone() })
    }
}

/// A page of chunks, where the next one starts, and the chunks that are left out because they cannot be read.
pub(crate) type ChunkPage = (Vec<ChunkView>, Option<ChunkId>, Vec<ChunkId>);

/// A departed link after it was looked for where its host lives now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DepartedLookup {
    pub url: Box<str>,
    /// Whether it was found there: then it is queued, handed out or finished there.
    pub known: bool,
}

/// Links of a crawl whose hosts have moved away: hosts and URLs.
pub(crate) type DepartedLinks = Option<(CrawlName, Vec<DepartedLink>)>;

/// Built chunks, with their indexes and the numbers of those.
pub(crate) type BuiltIndexes = Vec<(ChunkId, Artifact, u32)>;

/// A chunk and the number of its index that placement knows, or has refused for good, and why.
pub(crate) type NotedIndex = (ChunkId, u32, Option<Box<str>>);

responses! {
    /// The answer of a shard owner.
    ChunkResponse {
        Claimed(Vec<Claimed>),
        Renewed((Time, Vec<Box<str>>)),
        Parents(Vec<Option<Parent>>),
        Reported(LinksReported),
        LeaseEnded(LeaseEnded),
        State(ChunkState),
        Chunk(Option<Box<ChunkView>>),
        Page(ChunkPage),
        Counts(ChunkCounts),
        Built(BuiltIndexes),
        DepartedLinks(DepartedLinks),
        Next(Option<CrawledAt>),
        Index(Option<u32>),
        More(bool),
        Done(()),
    }
}
