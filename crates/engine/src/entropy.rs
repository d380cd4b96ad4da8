//! Random bits, for those who give them to the core: tokens, jitter, names of nodes.

use std::sync::Arc;

/// Brings random bits.
pub type Entropy = Arc<dyn Fn() -> u128 + Send + Sync>;

/// Random bits of the operating system; without them no token could be trusted, so there is nothing to fall back on.
///
/// # Panics
/// If the operating system gives none.
#[must_use]
pub fn system() -> u128 {
    let mut bytes = [0; 16];
    match getrandom::fill(&mut bytes) {
        Ok(()) => u128::from_ne_bytes(bytes),
        Err(error) => panic!("the operating system gives no random bits: {error}"),
    }
}
