//! Nodes on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Timestamp;

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It renews its lease.
    Alive,
    /// It is handing over its shards.
    Leaving,
    /// It did not renew its lease in time: its shards go to others.
    Lost,
}

impl NodeState {
    /// Its name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Leaving => "leaving",
            Self::Lost => "lost",
        }
    }
}

/// A Wayleave process that shares the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Node {
    /// Random for every start.
    pub id: String,
    /// Its name, for people.
    pub name: String,
    /// Its address for other nodes and clients.
    pub address: String,
    /// Its state.
    pub state: NodeState,
    /// Why, in a sentence.
    pub reason: String,
    /// How many shards it owns.
    pub shards: usize,
    /// The version of its program.
    pub version: String,
    /// The newest format of a store that its program knows.
    pub format: u32,
    /// Whether the format of the store cannot be raised before it is upgraded or gone.
    pub holds_back: bool,
    /// When it joined.
    pub started_at: Option<Timestamp>,
    /// When its lease expires unless it is renewed; never, if it is alone.
    pub expires_at: Option<Timestamp>,
    /// Whether it is the node that answered.
    pub here: bool,
}

/// All nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Nodes {
    /// By id.
    pub nodes: Vec<Node>,
    /// The total number of shards.
    pub shards: u16,
    /// The format of the store: programs that do not know it are refused. It is raised once all nodes know a newer one.
    pub format: u32,
}
