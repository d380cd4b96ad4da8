//! Configuration of the roles handle: plain data with its defaults.

use wayleave_core::limits;
use wayleave_registry as registry;

/// How roles are run.
#[derive(Clone)]
pub struct Config {
    /// The maximum number of concurrent long polls.
    pub waiters_max: usize,
    /// How rows are read, written and watched.
    pub registry: registry::Config,
}

impl Default for Config {
    fn default() -> Self {
        Self { waiters_max: limits::ROLE_WAITERS_MAX, registry: registry::Config::default() }
    }
}
