//! The runtimes that owners run on: a single one, or several with one thread each. An owner and the task that sends its
//! answers wake each other constantly; that is free on one thread and costs a context switch across threads.

use std::sync::Arc;

use wayleave_core::ids::ShardId;

use crate::spawn::Spawn;

/// The runtimes of owners.
#[derive(Clone)]
pub struct OwnerThreads(Arc<[Arc<dyn Spawn>]>);

impl OwnerThreads {
    /// Spreads owners evenly over these runtimes.
    #[must_use]
    pub fn new<S: Spawn>(first: S, others: impl IntoIterator<Item = S>) -> Self {
        Self(std::iter::once(first).chain(others).map(|runtime| Arc::new(runtime) as Arc<dyn Spawn>).collect())
    }

    pub(crate) fn of(&self, shard: ShardId) -> Option<&dyn Spawn> {
        self.0.get(usize::from(shard.0) % self.0.len().max(1)).map(|runtime| &**runtime)
    }
}

impl<S: Spawn + Clone> From<&S> for OwnerThreads {
    fn from(runtime: &S) -> Self {
        Self::new(runtime.clone(), [])
    }
}
