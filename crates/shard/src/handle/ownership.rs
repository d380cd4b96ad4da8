//! The handle, continued: which shards this process owns, where the others are, and what nodes tell each other of theirs.

use std::sync::Arc;

use tokio::sync::oneshot;
use wayleave_core::ids::{NodeId, ShardId};
use wayleave_engine::Expect;

use crate::handle::frontier::Frontier;
use crate::message::Message;
use crate::owner::run::{self, Post};
use crate::routing::router::Place;
use crate::shared::broadcast::Subscriber;
use crate::shared::deadline::Deadline;
use crate::shared::held_epochs::Hold;
use crate::shared::readiness::{NodeReadiness, lock};

impl Frontier {
    /// Makes this process the owner of a shard, as long as `expects` holds in the store. If it does not, or stops to,
    /// the shard is given up and nobody is fenced out.
    pub fn open_shard(&self, shard: ShardId, expects: Vec<Expect>) {
        let (inbox, messages) = crate::owner::inbox::inbox(self.router.way.clone());
        self.router.set_place(shard, Place::Here(inbox));
        let post = Post {
            shard,
            expects,
            engine: self.engine.clone(),
            config: self.config.clone(),
            readiness: self.readiness.clone(),
            router: Arc::downgrade(&self.router),
        };
        if let Some(lane) = self.lanes.of(shard) {
            let owner = lane.spawn(run::run(post, messages));
            lock(&self.owners).insert(shard, owner.abort_handle());
        }
    }

    /// Gives a shard up: what is under way is finished first, what waits goes to the next owner.
    pub async fn close_shard(&self, shard: ShardId) {
        let Place::Here(inbox) = self.router.place(shard) else { return };
        self.router.set_place(shard, Place::Nobody);
        let (done, stopped) = oneshot::channel();
        if inbox.send(Message::Stop { done }).await.is_ok() {
            _ = stopped.await;
        }
    }

    /// Says where the owner of a shard is that this process does not own; none if there is no owner at the moment.
    pub fn set_owner(&self, shard: ShardId, node: Option<NodeId>) {
        let same = match (self.router.place(shard), node) {
            (Place::There(now), Some(node)) => now == node,
            (Place::Nobody, None) => true,
            _ => false,
        };
        if !same {
            self.router.set_place(shard, node.map_or(Place::Nobody, Place::There));
        }
    }

    /// Says until when no other node can own the shards of this one. From then on owners ask the store before they
    /// answer, also where they change nothing: another node may know better.
    pub fn set_sure_until(&self, until: Deadline) {
        self.readiness.set_sure_until(until);
    }

    /// Whether another node may own the shards of this one by now.
    #[must_use]
    pub fn is_unsure(&self) -> bool {
        self.readiness.is_unsure()
    }

    /// Whether this process owns a shard, be it still opening.
    #[must_use]
    pub fn owns(&self, shard: ShardId) -> bool {
        matches!(self.router.place(shard), Place::Here(_))
    }

    /// To be told when an owner comes or goes.
    #[must_use]
    pub fn changes(&self) -> Subscriber {
        self.router.changes()
    }

    /// Waits until somebody has looked for the owner of a shard where it is not: then the owners should be looked up.
    pub async fn owner_missed(&self) {
        self.readiness.missed.notified().await;
    }

    /// What this node says of its shards, for other nodes to know whom to ask first.
    #[must_use]
    pub fn beat(&self) -> NodeReadiness {
        self.readiness.beat()
    }

    /// To be told when there is something new to say.
    #[must_use]
    pub fn news(&self) -> Subscriber {
        self.readiness.news()
    }

    /// Takes note of what another node says of its shards; none if it cannot be heard any more.
    pub fn hear(&self, node: NodeId, beat: Option<NodeReadiness>) {
        self.readiness.hear(node, beat);
    }

    /// The same frontier, with listings and totals of this node's own shards only.
    #[must_use]
    pub fn only_here(&self) -> Self {
        Self { only_here: self.router.links.is_some(), ..self.clone() }
    }

    /// Lets all owners of this process end as they are, like those of a process that is killed: nothing is finished.
    pub fn kill(&self) {
        for (shard, owner) in std::mem::take(&mut *lock(&self.owners)) {
            owner.abort();
            self.router.held.set(shard, Hold::Not);
            self.router.set_place(shard, Place::Nobody);
        }
    }

    /// Says whether this node has lost the store: callers hear that instead of what follows from it.
    pub fn set_cut_off(&self, cut_off: bool) {
        self.router.set_cut_off(cut_off);
    }
}
