//! Errors named by what the caller must do next.

/// Why an engine call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Another owner has the shard, or commits arrived out of sequence: stop writing and reload.
    #[error("fenced: shard {shard} is at epoch {epoch}, commit {seq}")]
    Fenced {
        /// The shard.
        shard: u16,
        /// The shard's epoch in the store.
        epoch: u64,
        /// The shard's last commit in the store.
        seq: u64,
    },
    /// A compare-and-swap condition failed: read again and decide again.
    #[error("conflict: an expected row has changed")]
    Conflict,
    /// Nothing was changed: try again later.
    #[error("store unavailable: {0}")]
    Unavailable(String),
    /// The change may or may not have been applied: reload before deciding anything.
    #[error("outcome unknown: {0}")]
    OutcomeUnknown(String),
    /// The store's content is invalid: stop, an operator must repair it.
    #[error("store damaged: {0}")]
    Corrupt(String),
}
