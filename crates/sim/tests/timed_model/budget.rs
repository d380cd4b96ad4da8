//! How much may go wrong in one run of a model.

/// So many of each, where the model knows of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// A connection is cut, or turns deaf, until it is mended (which is free).
    pub cuts: u8,
    /// A message or an answer takes up to more than T.
    pub delays: u8,
    /// A process stands still, perhaps between a check and a write, until it goes on (which is free).
    pub pauses: u8,
    /// The store restarts, with another clock.
    pub restarts: u8,
    /// Another store steps in that has not seen the last writes.
    pub failovers: u8,
    /// Guarded work ends by itself; a node leaves.
    pub ends: u8,
    /// A node dies; another may start in its place (which is free).
    pub crashes: u8,
    /// The store's clock steps forward.
    pub steps: u8,
    /// A host is moved from one shard to another.
    pub moves: u8,
    /// No server answers anybody, until one does again (which is free).
    pub outages: u8,
    /// An operator changes how a role is set up.
    pub sets: u8,
    /// What owners decide in all.
    pub commits: u8,
}
