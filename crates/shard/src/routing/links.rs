//! Calls between nodes: their encoding, and the trait that transports them. This module knows no network; the
//! implementation of [`Links`] does.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{Put, RequestId};
use wayleave_core::ids::{NodeId, ShardId};
use wayleave_core::limits::FORWARD_TIME;
use wayleave_core::names::{Alias, HostName};
use wayleave_core::settings::PaceChanges;

use crate::ask::{Ask, Response, Take};
use crate::routing::protocol::Service;

/// Why a call to another node returned no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkError {
    /// It was never sent: nothing was done.
    NotSent(String),
    /// It was sent and no answer came: it may or may not have been done.
    Lost(String),
}

/// Transports calls to other nodes.
pub trait Links: Send + Sync + 'static {
    /// Sends a call to a service and waits for its answer, up to `within`. The number of concurrent calls is bounded.
    fn call(
        &self,
        node: NodeId,
        service: Service,
        call: Vec<u8>,
        within: Duration,
    ) -> BoxFuture<'static, Result<Vec<u8>, LinkError>>;
}

/// A call from one node to another. The receiver answers for its own shards only: nothing is forwarded twice.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum NodeCall {
    Ask {
        shard: ShardId,
        ask: Ask,
    },
    /// The same for several of its shards: answered by a list, in the order of the shards.
    AskAll {
        shards: Vec<ShardId>,
        ask: Ask,
    },
    /// Answered by outcomes, and the shards that have no owner there.
    Put {
        parts: Vec<(ShardId, Vec<(u64, Put)>)>,
    },
    /// For whichever of its shards has been ready longest.
    Take(Take),
    /// The reservations that some of its shards granted for this request id.
    Requested {
        holder: Arc<str>,
        request: RequestId,
        shards: Vec<ShardId>,
    },
    SetGroup(GroupChange),
    DeleteGroup(Alias),
}

/// The desired state of an alias.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GroupChange {
    pub alias: Alias,
    /// The whole membership; `None` leaves it unchanged.
    pub hosts: Option<Vec<HostName>>,
    pub changes: PaceChanges,
    pub replace: bool,
}

impl LinkError {
    /// The refusal for the caller; `looks` if the call was read-only.
    pub(crate) fn refusal(self, looks: bool) -> Refusal {
        match self {
            Self::NotSent(_) => Refusal::Elsewhere,
            Self::Lost(why) if looks => Refusal::Unavailable(why),
            Self::Lost(why) => Refusal::OutcomeUnknown(why),
        }
    }
}

impl dyn Links {
    /// Makes a call that is answered like one to an owner; `looks` if it is read-only.
    pub(crate) async fn ask(&self, node: NodeId, call: &NodeCall, looks: bool) -> Result<Response, Refusal> {
        self.say(node, call).await.unwrap_or_else(|error| Err(error.refusal(looks)))
    }

    /// Encodes, sends and decodes a call; the call says what its answer is.
    pub(crate) fn say<R: DeserializeOwned + Send + 'static>(
        &self,
        node: NodeId,
        call: &NodeCall,
    ) -> BoxFuture<'static, Result<R, LinkError>> {
        let sent = match encode(call) {
            Ok(bytes) => self.call(node, Service::Frontier, bytes, Duration::from_millis(FORWARD_TIME.0)),
            Err(why) => return std::future::ready(Err(LinkError::NotSent(why))).boxed(),
        };
        sent.map(|answer| answer.and_then(|bytes| decode(&bytes).map_err(LinkError::Lost))).boxed()
    }
}

pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, String> {
    postcard::to_allocvec(value).map_err(|error| format!("cannot encode an inter-node message: {error}"))
}

pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, String> {
    postcard::from_bytes(bytes).map_err(|error| format!("cannot decode an inter-node message: {error}"))
}
