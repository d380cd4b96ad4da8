//! Where owners run: on one runtime, or spread over several that have one thread each. An owner and whoever answers for it
//! wake each other all the time; on one thread that costs nothing, between threads a switch each.

use std::sync::Arc;

use tokio::runtime::Handle;
use wayleave_core::ids::ShardId;

/// The runtimes of owners.
#[derive(Clone)]
pub struct OwnerThreads(Arc<[Handle]>);

impl OwnerThreads {
    /// Owners spread evenly over these, of which there is at least one: `first` and `others`.
    #[must_use]
    pub fn new(first: Handle, others: impl IntoIterator<Item = Handle>) -> Self {
        Self(std::iter::once(first).chain(others).collect())
    }

    /// One of them, for what is not a shard's.
    #[must_use]
    pub fn first(&self) -> Option<Handle> {
        self.0.first().cloned()
    }

    pub(crate) fn of(&self, shard: ShardId) -> Option<&Handle> {
        self.0.get(usize::from(shard.0) % self.0.len().max(1))
    }
}

impl From<&Handle> for OwnerThreads {
    fn from(handle: &Handle) -> Self {
        Self::new(handle.clone(), [])
    }
}
