//! How a store is, in the words of a health check.

/// Whether a store can be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// It can.
    #[default]
    Ok,
    /// It answers reads but refuses or delays commits, for this reason; that may end by itself.
    Degraded(String),
    /// It has failed, for this reason, and must be opened again.
    Failed(String),
}
