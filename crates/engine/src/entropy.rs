//! Random bits for callers of the core, which draws none itself: tokens, jitter, node names.

use std::sync::Arc;

/// A source of random bits.
pub type Entropy = Arc<dyn Fn() -> u128 + Send + Sync>;

/// Random bits from the operating system. There is no fallback: tokens from a weaker source could be guessed. Panics if
/// the operating system provides none.
#[must_use]
pub fn system() -> u128 {
    let mut bytes = [0; 16];
    match getrandom::fill(&mut bytes) {
        Ok(()) => u128::from_ne_bytes(bytes),
        Err(error) => panic!("the operating system provides no random bits: {error}"),
    }
}
