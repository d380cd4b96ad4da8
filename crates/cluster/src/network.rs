//! What a member needs of the network, as a trait: the real one is gRPC, the simulated one loses messages.

use futures::stream::BoxStream;
use wayleave_core::ids::NodeId;
use wayleave_engine::Key;
use wayleave_shard::Links;

/// The way to other nodes.
pub trait Network: Links {
    /// Updates the addresses of the live nodes; others are forgotten.
    fn meet(&self, nodes: &[(NodeId, Box<str>)]);

    /// Subscribes to the shard state of a node; ends when the node becomes unreachable.
    fn listen(&self, node: NodeId) -> BoxStream<'static, Vec<u8>>;

    /// Hints that a node should read these rows now: they have changed. The hint may be lost.
    fn hint(&self, node: NodeId, keys: &[Key]);
}
