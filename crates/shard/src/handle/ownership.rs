//! Shard ownership as the cluster sets it: which shards this process owns, where the others are, and the readiness that
//! nodes exchange.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::FutureExt;
use tokio::sync::oneshot;
use wayleave_core::ids::{NodeId, ShardId};
use wayleave_engine::Expect;

use crate::handle::frontier::Frontier;
use crate::message::Message;
use crate::owner::run::{self, OwnerContext};
use crate::routing::router::OwnerLocation;
use crate::shared::broadcast::Subscriber;
use crate::shared::deadline::Deadline;
use crate::shared::node_readiness::{Beats, NodeReadiness};

impl Frontier {
    /// Makes this process the owner of a shard while `expects` holds in the store. If it does not hold, or ceases to,
    /// the shard is given up and no other owner is fenced out.
    pub fn open_shard(&self, shard: ShardId, expects: Vec<Expect>) {
        let (inbox, messages) = crate::owner::inbox::inbox(self.router.admission.clone());
        self.router.set_location(shard, OwnerLocation::Local(inbox));
        let context = OwnerContext {
            shard,
            expects,
            engine: self.engine.clone(),
            config: self.config.clone(),
            readiness: self.readiness.clone(),
            router: Arc::downgrade(&self.router),
        };
        if let Some(thread) = self.threads.of(shard) {
            thread.spawn(run::run(context, messages).boxed());
        }
    }

    /// Gives a shard up. Calls in progress are completed; queued calls are passed to the next owner.
    pub async fn close_shard(&self, shard: ShardId) {
        let OwnerLocation::Local(inbox) = self.router.location(shard) else { return };
        self.router.set_location(shard, OwnerLocation::Unowned);
        let (done, stopped) = oneshot::channel();
        if inbox.send(Message::Stop { done }).await.is_ok() {
            _ = stopped.await;
        }
    }

    /// Sets the node that owns a shard; `None` if it has no owner at the moment.
    pub fn set_owner(&self, shard: ShardId, node: Option<NodeId>) {
        let same = match (self.router.location(shard), node) {
            (OwnerLocation::Remote(now), Some(node)) => now == node,
            (OwnerLocation::Unowned, None) => true,
            _ => false,
        };
        if !same {
            self.router.set_location(shard, node.map_or(OwnerLocation::Unowned, OwnerLocation::Remote));
        }
    }

    /// Sets the time until which no other node can own this node's shards. After it, owners confirm every answer with a
    /// commit, even read-only ones: another node may own the shard and have newer state.
    pub fn set_sure_until(&self, until: Deadline) {
        self.readiness.set_sure_until(until);
    }

    /// Whether another node may own this node's shards by now.
    #[must_use]
    pub fn is_unsure(&self) -> bool {
        self.readiness.is_unsure()
    }

    /// Whether this process owns a shard, even if it is still being opened.
    #[must_use]
    pub fn owns(&self, shard: ShardId) -> bool {
        matches!(self.router.location(shard), OwnerLocation::Local(_))
    }

    /// Whether this process has a shard open.
    #[must_use]
    pub fn is_open(&self, shard: ShardId) -> bool {
        self.readiness.is_open(shard)
    }

    /// The shards of this process that could not be opened several times in a row.
    #[must_use]
    pub fn unopened(&self) -> Vec<ShardId> {
        self.readiness.troubles.unopened()
    }

    /// Counts anew how often shards could not be opened.
    pub fn forgive_openings(&self) {
        self.readiness.troubles.forgive_openings();
    }

    /// Subscribes to changes of ownership.
    #[must_use]
    pub fn changes(&self) -> Subscriber {
        self.router.changes()
    }

    /// Waits until a call did not find the owner of a shard where it was expected: then the owners should be looked up
    /// again.
    pub async fn owner_missed(&self) {
        self.readiness.misrouted.notified().await;
    }

    /// This node's readiness, published so that other nodes know which node to ask; one for each subscriber.
    #[must_use]
    pub fn beats(&self) -> Beats {
        Beats::new(self.readiness.clone())
    }

    /// The calls of other nodes that this one has answered, and the beats that it has published for them.
    #[must_use]
    pub fn node_messages(&self) -> (u64, u64) {
        let messages = &self.readiness.messages;
        (messages.calls.load(Ordering::Relaxed), messages.beats.load(Ordering::Relaxed))
    }

    /// Subscribes to changes of this node's readiness.
    #[must_use]
    pub fn news(&self) -> Subscriber {
        self.readiness.news()
    }

    /// Records another node's readiness; `None` if the node can no longer be reached.
    pub fn hear(&self, node: NodeId, news: Option<NodeReadiness>) {
        self.readiness.hear(node, news);
    }

    /// The same frontier, with listings and totals restricted to this node's own shards.
    #[must_use]
    pub fn only_here(&self) -> Self {
        let mut here = self.clone();
        here.only_here = self.router.links.is_some();
        here
    }

    /// Sets whether this node has lost the store. Callers are then told that, instead of its consequences.
    pub fn set_cut_off(&self, cut_off: bool) {
        self.router.set_cut_off(cut_off);
    }
}
