//! What a server answers for. A new service is one more field, and every place that starts a server names it.

use std::sync::Arc;

use wayleave_roles::Roles;
use wayleave_shard::Frontier;
use wayleave_shard::fleet::Fleet;
use wayleave_shard::matches::Matches;
use wayleave_shard::pipeline::Pipeline;

use crate::{Peers, Store, WorkerLogs};

/// The services behind one port.
#[derive(Clone)]
pub struct Services {
    /// Decides about hosts, groups and URLs.
    pub frontier: Frontier,
    /// Decides about chunks of links.
    pub pipeline: Pipeline,
    /// Decides which machines are well, and where built chunks are served.
    pub fleet: Fleet,
    /// Finds workers for clients.
    pub matches: Matches,
    /// The output of the workers at this process's sites; `None` if it has no runtime.
    pub logs: Option<Arc<dyn WorkerLogs>>,
    /// Elects primaries.
    pub roles: Roles,
    /// The other nodes that share the store; `None` if this process has it to itself.
    pub peers: Option<Peers>,
    /// The store below, for its health, metrics and snapshots; `None` where it has none of these.
    pub store: Option<Arc<dyn Store>>,
}
