//! Why a node could not join, or had to leave.

use wayleave_core::ids::NodeId;
use wayleave_engine::Error;

/// Why a node could not join, or had to leave.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum JoinError {
    #[error(
        "node {id} ('{name}') is alive at {address}, this node's own address: give each node a different --advertise"
    )]
    AddressTaken {
        address: String,
        /// What people call the other node.
        name: String,
        id: NodeId,
    },
    #[error(
        "another process, node {id} ('{name}'), has taken {address}, the address of this node: other nodes and clients reach \
         that process there. This node has given up its shards and ends; give each node a different --advertise"
    )]
    Replaced {
        address: String,
        /// What people call the other node.
        name: String,
        id: NodeId,
    },
    #[error(
        "the store has format {found} since all other nodes were upgraded, this program knows formats up to {known}: use a newer wayleave"
    )]
    Newer {
        found: u32,
        /// The newest that this node knows.
        known: u32,
    },
    #[error("cannot join the other nodes: {0}")]
    Engine(#[from] Error),
}
