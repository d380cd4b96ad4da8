//! Configuration of a registry: plain data with its defaults.

use std::sync::Arc;

use wayleave_core::limits;
use wayleave_core::time::Millis;
use wayleave_engine::{Entropy, entropy};

use crate::Hints;

/// How a registry is run.
#[derive(Clone)]
pub struct Config {
    /// How often a watched record is polled, for changes whose hint was lost.
    pub poll: Millis,
    /// The runtime on which updates are carried out; by default the caller's. A store may block its callers while it
    /// writes, which must not block an API server.
    pub runtime: Option<tokio::runtime::Handle>,
    /// The hints of this process; its registries share them.
    pub hints: Hints,
    /// Random bits, for jitter.
    pub entropy: Entropy,
}

impl Default for Config {
    fn default() -> Self {
        Self { poll: limits::WATCH_POLL, runtime: None, hints: Hints::default(), entropy: Arc::new(entropy::system) }
    }
}
