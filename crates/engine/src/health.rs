//! The health of a store, for health checks.

/// Whether a store is usable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// It is.
    #[default]
    Ok,
    /// It serves reads and commits, but something in it is damaged or stalled, for this reason: an operator should
    /// look.
    Impaired(String),
    /// It serves reads but refuses or delays commits, for this reason; it may recover by itself.
    Degraded(String),
    /// It has failed, for this reason, and must be opened again.
    Failed(String),
}
