//! What a member needs of the network, in our own words: the real one speaks gRPC, the simulator's loses what it likes.

use futures::stream::BoxStream;
use wayleave_core::ids::NodeId;
use wayleave_shard::Links;

/// The way to other nodes.
pub trait Network: Links {
    /// Learns where the living nodes are; others are forgotten.
    fn meet(&self, nodes: &[(NodeId, Box<str>)]);

    /// What a node says of its shards; ends when it cannot be heard any more.
    fn listen(&self, node: NodeId) -> BoxStream<'static, Vec<u8>>;

    /// Hints that a node should look at the store now: at a role, or at nodes and shards. It may get lost.
    fn nudge(&self, node: NodeId, role: Option<&str>);
}
