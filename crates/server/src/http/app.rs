//! What every handler needs.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use wayleave_roles::Roles;
use wayleave_shard::Frontier;

use crate::{Config, Metrics, Peers};

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
}

impl App {
    /// The handle of a server with these settings.
    #[must_use]
    pub fn new(config: Config, frontier: Frontier, roles: Roles, peers: Option<Peers>) -> Self {
        let (metrics, stopping) = (Arc::default(), CancellationToken::new());
        Self { frontier, roles, peers, metrics, stopping, config: Arc::new(config) }
    }

    /// Why requests cannot be served, if they cannot.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let alone = || self.frontier.readiness().err();
        self.peers.as_ref().and_then(Peers::trouble).map(str::to_owned).or_else(alone)
    }
}
