//! Configuration of the roles handle: plain data with its defaults.

use std::sync::Arc;

use wayleave_core::limits;
use wayleave_core::time::Millis;
use wayleave_engine::{Entropy, entropy};

/// Called with the name of a role.
pub type Changed = Arc<dyn Fn(&str) + Send + Sync>;

/// How roles are run.
#[derive(Clone)]
pub struct Config {
    /// How often a role with waiting callers is polled, for changes through other nodes.
    pub poll: Millis,
    /// The maximum number of concurrent long polls.
    pub waiters_max: usize,
    /// The runtime on which changes are carried out; by default the caller's. A store may block its callers while it
    /// writes, which must not block an API server.
    pub runtime: Option<tokio::runtime::Handle>,
    /// Called for every role whose holder has changed here, so that other nodes can be notified.
    pub changed: Option<Changed>,
    /// Random bits.
    pub entropy: Entropy,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            poll: limits::ROLE_POLL,
            waiters_max: limits::ROLE_WAITERS_MAX,
            runtime: None,
            changed: None,
            entropy: Arc::new(entropy::system),
        }
    }
}
