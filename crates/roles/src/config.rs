//! What the handle needs to know; plain data with its defaults in one place.

use std::sync::Arc;

use wayleave_core::limits;
use wayleave_core::time::Millis;
use wayleave_engine::{Entropy, entropy};

/// Hears the name of a role.
pub type Changed = Arc<dyn Fn(&str) + Send + Sync>;

/// How roles are run.
#[derive(Clone)]
pub struct Config {
    /// How often a role that somebody waits for is looked at, for changes that came through other nodes.
    pub poll: Millis,
    /// Those who may wait at once.
    pub waiters_max: usize,
    /// Where changes are carried out; without one, where they are asked for. A store may hold its callers up while it writes,
    /// which must not hold up a door.
    pub runtime: Option<tokio::runtime::Handle>,
    /// Told of every role whose holder has changed here, so that other nodes can be nudged.
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
