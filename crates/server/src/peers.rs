//! The other nodes, as the server sees them: the service for calls between nodes, and the list of nodes. A process that
//! is alone has neither.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use wayleave_api::Timestamp;
use wayleave_api::nodes::{Node, NodeState};
use wayleave_cluster::{Hints, Membership, NodeView, service};
use wayleave_core::ids::NodeId;
use wayleave_shard::Frontier;

/// The other nodes, once this one has joined them.
#[derive(Clone)]
pub struct Peers {
    id: NodeId,
    secret: u128,
    hints: Hints,
    member: Arc<OnceLock<Arc<Membership>>>,
    leaving: Arc<AtomicBool>,
}

impl Peers {
    /// For a node with this shared secret, which passes hints of other nodes on.
    #[must_use]
    pub fn new(id: NodeId, secret: u128, hints: Hints) -> Self {
        Self { id, secret, hints, member: Arc::default(), leaving: Arc::default() }
    }

    /// The node has joined.
    pub fn joined(&self, member: Arc<Membership>) {
        // A process joins once; a second member would be a second node.
        _ = self.member.set(member);
    }

    /// The node is leaving: load balancers should send no more requests.
    pub fn leaving(&self) {
        self.leaving.store(true, Ordering::Release);
    }

    pub(crate) fn routes(&self, frontier: Frontier) -> axum::Router {
        let service = service(frontier, self.id, self.secret, self.hints.clone());
        tonic::service::Routes::new(service).prepare().into_axum_router().reset_fallback()
    }

    /// Why this node cannot serve, if it cannot.
    pub(crate) fn trouble(&self) -> Option<&'static str> {
        if self.leaving.load(Ordering::Acquire) {
            return Some("this node is stopping");
        }
        match self.member.get() {
            None => Some("this node has not joined the others yet"),
            Some(member) if !member.is_alive() => Some("this node has lost its lease: the store cannot be reached"),
            Some(_) => None,
        }
    }

    /// All nodes; `None` if the store could not be read for too long.
    pub(crate) fn nodes(&self) -> Option<Vec<Node>> {
        Some(self.member.get()?.nodes()?.iter().map(node).collect())
    }

    /// The format of the store; 0 before the node has joined.
    pub(crate) fn format(&self) -> u32 {
        self.member.get().map_or(0, |member| member.format())
    }
}

fn node(view: &NodeView) -> Node {
    let row = &view.row;
    let (state, reason) = match view.state {
        wayleave_cluster::NodeState::Alive => (NodeState::Alive, "it renews its lease"),
        wayleave_cluster::NodeState::Leaving => (NodeState::Leaving, "it was stopped and is handing over its shards"),
        wayleave_cluster::NodeState::Lost => {
            (NodeState::Lost, "it did not renew its lease in time; other nodes take over its shards")
        }
    };
    Node {
        id: row.id.to_string(),
        name: row.name.to_string(),
        address: row.address.to_string(),
        state,
        reason: reason.to_owned(),
        shards: view.shards,
        version: row.version.to_string(),
        format: row.format,
        holds_back: view.holds_back,
        started_at: Some(Timestamp(row.started_at)),
        expires_at: Some(Timestamp(row.expires_at)),
        here: view.here,
    }
}
