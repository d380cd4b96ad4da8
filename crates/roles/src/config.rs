//! Configuration of the roles handle: plain data with its defaults.

use wayleave_registry as registry;

/// How roles are run.
#[derive(Clone, Default)]
pub struct Config {
    /// How rows are read, written and watched.
    pub registry: registry::Config,
}
