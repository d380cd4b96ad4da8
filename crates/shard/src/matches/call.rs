//! The calls that a shard owner accepts for its pools, and its answers. Both are plain serialisable values, so an owner on
//! another node is called exactly like a local one.

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::ids::{ShardId, Token};
use wayleave_core::matches::row::Secret;
use wayleave_core::matches::view::PoolSummary;
use wayleave_core::matches::{
    Asker, Effect, Input, MatchStage, MatchView, PoolView, RemovedView, Settings, WorkerView,
};
use wayleave_core::names::{ClientName, PoolName};
use wayleave_core::time::Millis;

use super::readiness::LiveSite;
use crate::message::{MatchReply, Message};
use crate::routing::links::encode;
use crate::routing::protocol::Service;
use crate::routing::service_call::{ServiceCall, responses};

/// One call to a shard owner. Every change may be repeated: the answer is the same, and nothing happens twice.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename = "PoolCall")]
pub(crate) enum MatchCall {
    /// A client wants a worker, and waits this long for it.
    Put {
        pool: PoolName,
        asker: Asker,
        wait: Millis,
        before: QueuedBefore,
    },
    /// A client looks, which confirms its match; while it has none, it waits this long for it.
    Look {
        pool: PoolName,
        asker: Asker,
        wait: Millis,
    },
    /// A client wants no worker any more.
    Cancel {
        pool: PoolName,
        asker: Asker,
        /// The reservation that it means.
        token: Option<Token>,
    },
    /// A client's match, without confirming it.
    Why {
        pool: PoolName,
        client: ClientName,
    },
    Matches {
        pool: PoolName,
        stage: Option<MatchStage>,
        after: Option<ClientName>,
        most: usize,
    },
    SetPool {
        pool: PoolName,
        settings: Box<Settings>,
        /// Absent to leave it as it is.
        paused: Option<bool>,
    },
    PausePool {
        pool: PoolName,
        paused: bool,
    },
    DeletePool(PoolName),
    Pool(PoolName),
    Pools {
        after: Option<PoolName>,
        most: usize,
    },
    Workers(PoolName),
    /// Workers that are gone.
    Removed(PoolName),
    /// A worker reports itself.
    Report {
        pool: PoolName,
        report: WorkerReport,
    },
    /// A Maker is there: what is to be done at its site.
    Orders(LiveSite),
    /// A Maker says what has become of orders, and what its runtime tells.
    Tell(Vec<(PoolName, Input)>),
}

/// Whether a put has queued its client before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum QueuedBefore {
    No,
    /// It was asked before, and has not heard what came of it.
    Perhaps,
    /// If the client has no request now, that was cancelled.
    Yes,
}

/// A worker's report of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerReport {
    /// Its name, as its environment says (`WAYLEAVE_WORKER`).
    pub worker: Arc<str>,
    /// Where it is reached.
    pub address: Arc<str>,
    /// Where the report came from, as the server saw it.
    pub from: IpAddr,
    /// How many more clients it takes.
    pub free: u32,
    /// Which of its runs, as its environment says (`WAYLEAVE_RUN`).
    pub run: u32,
    /// The secret in its environment (`WAYLEAVE_SECRET`).
    pub secret: Secret,
}

/// A call from one node to another.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RemoteMatchCall {
    pub shard: ShardId,
    pub call: MatchCall,
}

impl MatchCall {
    /// Whether this is a slice of a listing. Slices have the lowest priority in the inbox.
    pub const fn is_listing(&self) -> bool {
        matches!(self, Self::Matches { .. } | Self::Pools { .. })
    }

    /// Takes out how long the call waits, if it does: it is then answered as things are.
    pub const fn take_wait(&mut self) -> Option<Millis> {
        match self {
            Self::Put { wait, .. } | Self::Look { wait, .. } if wait.0 > 0 => Some(std::mem::replace(wait, Millis(0))),
            _ => None,
        }
    }
}

impl ServiceCall for MatchCall {
    type Response = MatchResponse;
    const SERVICE: Service = Service::Matches;

    fn is_read_only(&self) -> bool {
        match self {
            Self::Why { .. }
            | Self::Matches { .. }
            | Self::Pool(_)
            | Self::Pools { .. }
            | Self::Workers(_)
            | Self::Removed(_)
            // Orders whose answer is lost are given again.
            | Self::Orders(_) => true,
            Self::Put { .. }
            | Self::Look { .. }
            | Self::Cancel { .. }
            | Self::SetPool { .. }
            | Self::PausePool { .. }
            | Self::DeletePool(_)
            | Self::Report { .. }
            | Self::Tell(_) => false,
        }
    }

    fn message(self, reply: MatchReply) -> Message {
        Message::Match { call: self, reply }
    }

    fn encode(&self, shard: ShardId) -> Result<Vec<u8>, String> {
        encode(&RemoteMatchCall { shard, call: self.clone() })
    }
}

/// What a call that may wait is answered with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Waited {
    /// The client's match as it is; none if it has none.
    Now(Option<Box<MatchView>>),
    /// The owner ended while the call was parked: ask the next owner. What the call has changed is durable, or may be.
    Interrupted(QueuedBefore),
}

/// What Makers are to do, each for a pool.
pub type Orders = Vec<(PoolName, Effect)>;

/// A page of matches by client, and the client after which the next page starts.
pub type MatchPage = (Vec<(ClientName, MatchView)>, Option<ClientName>);

/// A page of pools by name, and the name after which the next page starts.
pub type PoolPage = (Vec<PoolSummary>, Option<PoolName>);

responses! {
    /// The answer of a shard owner.
    MatchResponse {
        Done(()),
        Waited(Waited),
        Cancelled(bool),
        View(Option<Box<MatchView>>),
        Matches(MatchPage),
        Pool(Box<PoolView>),
        Pools(PoolPage),
        Workers(Vec<WorkerView>),
        Removed(Vec<RemovedView>),
        Orders(Orders),
    }
}
