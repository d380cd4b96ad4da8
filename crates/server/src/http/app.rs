//! What every handler needs.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use wayleave_roles::Roles;
use wayleave_shard::Frontier;

use crate::budget::Budget;
use crate::repeated::Repeated;
use crate::{Config, Health, Metrics, Peers, Store};

/// The handle that requests are served with; cheap to clone.
#[derive(Clone)]
pub struct App {
    /// Where hosts, groups and URLs are decided on.
    pub frontier: Frontier,
    /// Where primaries are elected.
    pub roles: Roles,
    /// Other nodes that share the store; none where this process has it to itself.
    pub peers: Option<Peers>,
    /// The numbers of this process.
    pub metrics: Arc<Metrics>,
    /// Cancelled when the server stops: long polls end early.
    pub stopping: CancellationToken,
    /// How the server listens.
    pub config: Arc<Config>,
    /// Bytes that all connections together may hold.
    pub budget: Arc<Budget>,
    /// The store beneath, where whoever started the server told of it.
    pub store: Option<Arc<dyn Store>>,
    /// One snapshot at a time: each keeps the disk busy, and old tables on it.
    pub(crate) snapshots: Arc<Semaphore>,
    /// Failures that were logged.
    pub(crate) repeated: Arc<Repeated>,
}

impl App {
    /// The handle of a server with these settings.
    #[must_use]
    pub fn new(config: Config, frontier: Frontier, roles: Roles, peers: Option<Peers>) -> Self {
        let (metrics, stopping) = (Arc::default(), CancellationToken::new());
        let (snapshots, repeated) = (Arc::new(Semaphore::new(1)), Arc::default());
        let (budget, config) = (Arc::new(Budget::new(config.held_bytes_max)), Arc::new(config));
        Self { frontier, roles, peers, metrics, stopping, config, budget, store: None, snapshots, repeated }
    }

    /// Why requests cannot be served, if they cannot.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let alone = || self.frontier.readiness().err();
        // The store first: what its owners say follows from it.
        let health = self.health().trouble();
        health.or_else(|| self.peers.as_ref().and_then(Peers::trouble).map(str::to_owned)).or_else(alone)
    }

    /// How the store is.
    #[must_use]
    pub fn health(&self) -> Health {
        self.store.as_ref().map_or(Health::Ok, |store| store.health())
    }
}
