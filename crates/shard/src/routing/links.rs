//! The way to other nodes: calls as bytes, and who carries them. This room knows no network: whoever brings
//! [`Links`] does.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{Put, RequestId};
use wayleave_core::ids::{NodeId, ShardId};
use wayleave_core::limits::FORWARD_TIME;
use wayleave_core::names::{Alias, HostName};
use wayleave_core::settings::PaceChanges;

use crate::ask::{Ask, Take, Told};
use crate::message::Outcomes;

/// The words that nodes speak with each other. It grows with every change of them: nodes of different numbers do not
/// forward to each other.
pub const PROTOCOL: u32 = 6;

/// Why a call to another node brought no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkError {
    /// It never left: nothing was done.
    NotSent(String),
    /// It left and no answer came: it may or may not have been done.
    Lost(String),
}

/// Carries calls to other nodes and brings their answers back.
pub trait Links: Send + Sync + 'static {
    /// Sends a call and waits for the answer, at most so long. The number of calls under way is bounded.
    fn call(&self, node: NodeId, call: Vec<u8>, within: Duration) -> BoxFuture<'static, Result<Vec<u8>, LinkError>>;
}

/// What one node asks another. The other answers with its own shards only: nothing is forwarded twice.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Call {
    Ask {
        shard: ShardId,
        ask: Ask,
    },
    Put {
        parts: Vec<(ShardId, Vec<(u64, Put)>)>,
    },
    /// To whichever of its shards has been ready longest.
    Take(Take),
    /// What some of its shards granted for a request before.
    Requested {
        holder: Arc<str>,
        request: RequestId,
        shards: Vec<ShardId>,
    },
    SetGroup(GroupChange),
    DeleteGroup(Alias),
}

/// What an alias is to be.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GroupChange {
    pub alias: Alias,
    /// The whole membership; none leaves it.
    pub hosts: Option<Vec<HostName>>,
    pub changes: PaceChanges,
    pub replace: bool,
}

/// What it answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Said {
    Told(Box<Result<Told, Refusal>>),
    /// Outcomes, and the shards that have no owner there.
    Put(Outcomes, Vec<ShardId>),
}

impl LinkError {
    /// What the caller is told; `looks` if nothing can have changed.
    fn refusal(self, looks: bool) -> Refusal {
        match self {
            Self::NotSent(_) => Refusal::Elsewhere,
            Self::Lost(why) if looks => Refusal::Unavailable(why),
            Self::Lost(why) => Refusal::OutcomeUnknown(why),
        }
    }
}

impl dyn Links {
    /// Makes a call that is answered by one value; `looks` if it changes nothing.
    pub(crate) async fn ask(&self, node: NodeId, call: &Call, looks: bool) -> Result<Told, Refusal> {
        match self.say(node, call).await {
            Ok(Said::Told(answer)) => *answer,
            Ok(Said::Put(..)) => Err(other_answer(node)),
            Err(error) => Err(error.refusal(looks)),
        }
    }

    /// Makes a call in our own words.
    pub(crate) fn say(&self, node: NodeId, call: &Call) -> BoxFuture<'static, Result<Said, LinkError>> {
        let sent = match encode(call) {
            Ok(bytes) => self.call(node, bytes, Duration::from_millis(FORWARD_TIME.0)),
            Err(why) => return std::future::ready(Err(LinkError::NotSent(why))).boxed(),
        };
        sent.map(|answer| answer.and_then(|bytes| decode(&bytes).map_err(LinkError::Lost))).boxed()
    }
}

/// The refusal of an answer that does not fit its call.
pub(crate) fn other_answer(node: NodeId) -> Refusal {
    Refusal::Internal(format!("node {node} answered another call than the one made"))
}

pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, String> {
    postcard::to_allocvec(value).map_err(|error| format!("a message between nodes cannot be written: {error}"))
}

pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, String> {
    postcard::from_bytes(bytes).map_err(|error| format!("a message between nodes cannot be read: {error}"))
}
