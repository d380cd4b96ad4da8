//! Why a node could not join, or had to leave.

use wayleave_core::ids::NodeId;
use wayleave_engine::Error;

/// Why a node could not join, or had to leave.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// A live node has the same address.
    #[error(
        "node {id} ('{name}') is alive at {address}, this node's own address: give each node a different --advertise"
    )]
    AddressTaken {
        /// The address.
        address: String,
        /// What people call the other node.
        name: String,
        /// The other node.
        id: NodeId,
    },
    /// Another process has taken over the address of this node, which had joined.
    #[error(
        "another process, node {id} ('{name}'), has taken {address}, the address of this node: other nodes and clients reach \
         that process there. This node has given up its shards and ends; give each node a different --advertise"
    )]
    Replaced {
        /// The address.
        address: String,
        /// What people call the other node.
        name: String,
        /// The other node.
        id: NodeId,
    },
    /// The engine failed.
    #[error("cannot join the other nodes: {0}")]
    Engine(#[from] Error),
}
