//! The fault budget of one run of a model.

/// The maximum number of each fault, where the model supports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// A connection is cut, or loses responses, until it is restored (which is free).
    pub cuts: u8,
    /// A message or a response is delayed by up to more than T.
    pub delays: u8,
    /// A process is paused, perhaps between a check and a write, until it resumes (which is free).
    pub pauses: u8,
    /// The store restarts, with another clock.
    pub restarts: u8,
    /// A failover to a store that has not seen the last writes.
    pub failovers: u8,
    /// Guarded work ends by itself; a node leaves.
    pub ends: u8,
    /// A node dies; another may start in its place (which is free).
    pub crashes: u8,
    /// The store's clock steps forward.
    pub steps: u8,
    /// A server's look at the store takes long.
    pub looks: u8,
    /// A host is moved from one shard to another.
    pub moves: u8,
    /// No server answers any candidate, until one does again (which is free).
    pub outages: u8,
    /// An operator changes the settings of a role.
    pub sets: u8,
    /// The total number of owners' decisions.
    pub commits: u8,
}
