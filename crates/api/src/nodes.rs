//! Nodes on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Timestamp;

/// How a node stands with the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It is heard of.
    Alive,
    /// It is handing its shards over.
    Leaving,
    /// It was not heard of in time: its shards go to others.
    Lost,
}

impl NodeState {
    /// The word for it.
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
    /// What people call it.
    pub name: String,
    /// Where other nodes and clients reach it.
    pub address: String,
    /// How it stands.
    pub state: NodeState,
    /// Why, in a sentence.
    pub reason: String,
    /// How many shards it owns.
    pub shards: usize,
    /// The version of its program.
    pub version: String,
    /// When it joined.
    pub started_at: Option<Timestamp>,
    /// When it is replaced unless it is heard of before; never, where it is alone.
    pub expires_at: Option<Timestamp>,
    /// Whether it is the one that was asked.
    pub here: bool,
}

/// All nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Nodes {
    /// By id.
    pub nodes: Vec<Node>,
    /// How many shards there are in all.
    pub shards: u16,
}
