//! What every handler needs.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use wayleave_roles::Roles;
use wayleave_shard::Frontier;

use crate::{Config, Metrics};

/// The handle that requests are served with; cheap to clone.
#[derive(Clone)]
pub struct App {
    /// Where hosts, groups and URLs are decided on.
    pub frontier: Frontier,
    /// Where primaries are elected.
    pub roles: Roles,
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
    pub fn new(config: Config, frontier: Frontier, roles: Roles) -> Self {
        Self { frontier, roles, metrics: Arc::default(), stopping: CancellationToken::new(), config: Arc::new(config) }
    }
}
