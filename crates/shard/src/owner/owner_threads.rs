//! The runtimes that owners run on: a single one, or several with one thread each. An owner and the task that sends its
//! answers wake each other constantly; that is free on one thread and costs a context switch across threads.

use std::sync::Arc;

use tokio::runtime::Handle;
use wayleave_core::ids::ShardId;

/// The runtimes of owners.
#[derive(Clone)]
pub struct OwnerThreads(Arc<[Handle]>);

impl OwnerThreads {
    /// Spreads owners evenly over these runtimes.
    #[must_use]
    pub fn new(first: Handle, others: impl IntoIterator<Item = Handle>) -> Self {
        Self(std::iter::once(first).chain(others).collect())
    }

    /// One of the runtimes, for work that belongs to no shard.
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
