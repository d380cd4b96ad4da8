//! The state shared by all handlers.

use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use wayleave_roles::Roles;
use wayleave_shard::Frontier;
use wayleave_shard::fleet::Fleet;
use wayleave_shard::matches::Matches;
use wayleave_shard::pipeline::Pipeline;

use super::map_body::MapBody;
use crate::{Config, Health, Metrics, Peers, Services, Store, WorkerLogs};
use wayleave_listen::Budget;
use wayleave_listen::Repeated;
use wayleave_listen::Waits;

/// The shared state. A clone counts one reference: the router clones it for every route, layer and extractor that a
/// request passes.
#[derive(Clone)]
pub struct App(Arc<AppParts>);

/// What all clones of an [`App`] share.
pub struct AppParts {
    /// Decides about hosts, groups and URLs.
    pub frontier: Frontier,
    /// Decides about chunks of links.
    pub pipeline: Pipeline,
    /// Decides which machines are well, and where built chunks are served.
    pub fleet: Fleet,
    /// Finds workers for clients.
    pub matches: Matches,
    /// The output of the workers at this process's sites.
    pub logs: Option<Arc<dyn WorkerLogs>>,
    /// Elects primaries.
    pub roles: Roles,
    /// The other nodes that share the store; `None` if this process has it to itself.
    pub peers: Option<Peers>,
    /// The metrics of this process.
    pub metrics: Arc<Metrics>,
    /// Cancelled when the server stops: calls that wait answer early.
    pub stopping: CancellationToken,
    /// The server's configuration.
    pub config: Arc<Config>,
    /// The memory budget of all connections.
    pub budget: Arc<Budget>,
    /// The calls that wait.
    pub waits: Arc<Waits>,
    /// The store below.
    pub store: Option<Arc<dyn Store>>,
    /// One snapshot at a time: each keeps the disk busy, and pins old tables.
    pub(crate) snapshots: Arc<Semaphore>,
    /// The map as its readers get it.
    pub(crate) map_body: Arc<MapBody>,
    /// Rate limits repeated log lines.
    pub(crate) repeated: Arc<Repeated>,
}

impl Deref for App {
    type Target = AppParts;

    fn deref(&self) -> &AppParts {
        &self.0
    }
}

impl App {
    /// Whether others may call what a report from this address names there. Of several nodes each calls another machine loopback.
    pub(crate) fn vouches_for(&self, from: IpAddr) -> bool {
        self.peers.is_none() || !from.is_loopback()
    }

    /// The state of a server with this configuration.
    #[must_use]
    pub fn new(config: Config, services: Services) -> Self {
        let Services { frontier, pipeline, fleet, matches, logs, roles, peers, store } = services;
        let (metrics, stopping) = (Arc::default(), CancellationToken::new());
        let (snapshots, repeated) = (Arc::new(Semaphore::new(1)), Arc::default());
        let budget = Arc::new(Budget::new(config.held_bytes_max));
        let waits = Arc::new(Waits::new(&budget, config.bounds.connections_max));
        let config = Arc::new(config);
        Self(Arc::new(AppParts {
            frontier,
            pipeline,
            fleet,
            matches,
            logs,
            roles,
            peers,
            metrics,
            stopping,
            config,
            budget,
            waits,
            store,
            snapshots,
            map_body: Arc::default(),
            repeated,
        }))
    }

    /// Why requests cannot be served, if they cannot.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let alone = || self.frontier.readiness().err();
        // The store first: it is the cause of what its owners report.
        let health = self.health().trouble();
        health.or_else(|| self.peers.as_ref().and_then(Peers::trouble).map(str::to_owned)).or_else(alone)
    }

    /// Numbers about the store, for the metrics.
    #[must_use]
    pub fn store_gauges(&self) -> Vec<(&'static str, &'static str, u64)> {
        self.store.as_ref().map(|store| store.gauges()).unwrap_or_default()
    }

    /// The health of the store.
    #[must_use]
    pub fn health(&self) -> Health {
        self.store.as_ref().map_or(Health::Ok, |store| store.health())
    }
}
