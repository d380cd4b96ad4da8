//! The network as a trait: the real one is gRPC, the simulated one loses messages.

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use wayleave_core::ids::NodeId;
use wayleave_engine::Key;
use wayleave_shard::Links;

/// The way to other nodes.
pub trait Network: Links {
    /// Updates the addresses of the live nodes; others are forgotten.
    fn meet(&self, nodes: &[(NodeId, Box<str>)]);

    /// Subscribes to the shard state of a node; ends when the node becomes unreachable.
    fn listen(&self, node: NodeId) -> BoxStream<'static, Vec<u8>>;

    /// Whether a node is there and answers, also if it refuses this one's calls because it is of another version.
    fn answers(&self, node: NodeId) -> BoxFuture<'static, bool> {
        let mut beats = self.listen(node);
        async move { beats.next().await.is_some() }.boxed()
    }

    /// Hints that a node should read these rows now: they have changed. The hint may be lost.
    fn hint(&self, node: NodeId, keys: &[Key]);
}
