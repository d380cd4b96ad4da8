//! Starts the long-running tasks of a process. A tokio runtime does so in production; whoever keeps the tasks in hand
//! can pause or end them, as happens to a process that is stopped or killed.

use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// Something that runs tasks.
pub trait Spawn: Send + Sync + 'static {
    /// Starts a task; the handle ends it.
    fn spawn(&self, task: BoxFuture<'static, ()>) -> AbortHandle;
}

impl Spawn for Handle {
    fn spawn(&self, task: BoxFuture<'static, ()>) -> AbortHandle {
        Self::spawn(self, task).abort_handle()
    }
}
