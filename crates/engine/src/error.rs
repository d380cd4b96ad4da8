//! Errors named by what the caller must do next.

/// Why an engine did not do as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Another owner has the shard, or commits were made out of turn: stop writing and reload.
    #[error("fenced: shard {shard} is at epoch {epoch}, commit {seq}")]
    Fenced {
        /// The shard.
        shard: u16,
        /// Its epoch in the store.
        epoch: u64,
        /// Its last commit in the store.
        seq: u64,
    },
    /// An expected row differs: read again and decide again.
    #[error("conflict: an expected row has changed")]
    Conflict,
    /// Nothing was changed: try again later.
    #[error("store unavailable: {0}")]
    Unavailable(String),
    /// It may or may not have been done: reload before deciding anything.
    #[error("outcome unknown: {0}")]
    OutcomeUnknown(String),
    /// The store holds what it should not: stop and ask an operator.
    #[error("store damaged: {0}")]
    Corrupt(String),
}
