//! What the handle needs to know; plain data with its defaults in one place.

use std::sync::Arc;

use wayleave_core::limits;
use wayleave_core::time::Millis;

/// Brings random bits: for tokens and jitter.
pub type Entropy = Arc<dyn Fn() -> u128 + Send + Sync>;

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
            entropy: Arc::new(system_entropy),
        }
    }
}

/// Random bits of the operating system; without them no token could be trusted, so there is nothing to fall back on.
fn system_entropy() -> u128 {
    let mut bytes = [0; 16];
    match getrandom::fill(&mut bytes) {
        Ok(()) => u128::from_ne_bytes(bytes),
        Err(error) => panic!("the operating system gives no random bits: {error}"),
    }
}
