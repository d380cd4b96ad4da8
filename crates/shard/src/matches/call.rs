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
    Asker, Effect, Input, Lack, MatchStage, MatchView, PoolView, RemovedView, RuntimeKind, Settings, WorkerView,
};
use wayleave_core::names::{ClientName, PoolName, SiteName};
use wayleave_core::time::Millis;

use crate::message::{MatchReply, Message};
use crate::routing::links::encode;
use crate::routing::protocol::Service;
use crate::routing::service_call::ServiceCall;

/// One call to a shard owner. Every change may be repeated: the answer is the same, and nothing happens twice.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename = "PoolCall")]
pub(crate) enum MatchCall {
    /// A client wants a worker, and waits this long for it.
    Put {
        pool: PoolName,
        asker: Asker,
        wait: Millis,
        /// The client has been queued by this call before: if it has no request now, that was cancelled.
        again: bool,
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
    /// A Maker is there, and waits this long for what is to be done at its site.
    Orders {
        site: SiteName,
        runtime: RuntimeKind,
        /// What its node should be able to start besides, and cannot.
        lack: Option<Lack>,
        wait: Millis,
    },
    /// A Maker says what has become of orders, and what its runtime tells.
    Tell(Vec<(PoolName, Input)>),
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
}

impl ServiceCall for MatchCall {
    type Response = MatchResponse;
    const SERVICE: Service = Service::Matches;

    fn only_looks(&self) -> bool {
        match self {
            Self::Why { .. }
            | Self::Matches { .. }
            | Self::Pool(_)
            | Self::Pools { .. }
            | Self::Workers(_)
            | Self::Removed(_)
            // Orders whose answer is lost are given again.
            | Self::Orders { .. } => true,
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

/// Generates the enum of answers and the conversions between each answer type and the enum.
macro_rules! responses {
    ($($name:ident($kind:ty),)+) => {
        /// The answer of a shard owner.
        #[derive(Clone, Debug, Serialize, Deserialize)]
        pub(crate) enum MatchResponse { $($name($kind),)+ }

        $(
            impl From<$kind> for MatchResponse {
                fn from(value: $kind) -> Self {
                    Self::$name(value)
                }
            }

            impl TryFrom<MatchResponse> for $kind {
                type Error = Refusal;

                fn try_from(response: MatchResponse) -> Result<Self, Refusal> {
                    match response {
                        MatchResponse::$name(value) => Ok(value),
                        _ => Err(Refusal::Internal("a node's answer does not match the call".to_owned())),
                    }
                }
            }
        )+
    };
}

/// What a call that may wait is answered with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Waited {
    /// The client's match as it is; none if it has none.
    Now(Option<Box<MatchView>>),
    /// The owner ended while the call was parked. What the call has changed may be durable or not: ask the next owner.
    Interrupted,
}

/// What Makers are to do, each for a pool.
pub type Orders = Vec<(PoolName, Effect)>;

/// A page of matches by client, and the client after which the next page starts.
pub type MatchPage = (Vec<(ClientName, MatchView)>, Option<ClientName>);

/// A page of pools by name, and the name after which the next page starts.
pub type PoolPage = (Vec<PoolSummary>, Option<PoolName>);

responses! {
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
