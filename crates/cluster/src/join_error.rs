//! Why a node could not join, or had to leave.

use wayleave_core::ids::NodeId;
use wayleave_engine::Error;

/// Why a node could not join, or had to leave.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// A newer program has written this store.
    #[error(
        "the store has format {found} and this program knows formats up to {known}: it was written by a newer version; \
         upgrade this node before it joins"
    )]
    NewerFormat {
        /// The store's format.
        found: u32,
        /// The highest that is known here.
        known: u32,
    },
    /// A living node has the same address.
    #[error(
        "node {id} ('{name}') lives at {address}, the address that this node was given: give each node an --advertise of its own"
    )]
    AddressTaken {
        /// The address.
        address: String,
        /// What people call the other node.
        name: String,
        /// The other node.
        id: NodeId,
    },
    /// Another process has taken the address of this node, which had joined.
    #[error(
        "another process, node {id} ('{name}'), has taken {address}, the address of this node: other nodes and clients reach \
         that process there. This node has given its shards up and ends; give each node an --advertise of its own"
    )]
    Replaced {
        /// The address.
        address: String,
        /// What people call the other node.
        name: String,
        /// The other node.
        id: NodeId,
    },
    /// The engine did not do as asked.
    #[error("cannot join the other nodes: {0}")]
    Engine(#[from] Error),
}
