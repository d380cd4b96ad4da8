//! The tasks of a simulated process. They can be paused, like those of a process that is stopped and continues later as
//! if nothing had happened, and killed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::task::AbortHandle;
use wayleave_shard::{Broadcast, Spawn};

/// Some tasks of a process; clones share them.
#[derive(Clone, Default)]
pub struct Process(Arc<Inner>);

#[derive(Default)]
struct Inner {
    still: AtomicBool,
    changed: Broadcast,
    tasks: Mutex<Vec<AbortHandle>>,
}

impl Process {
    /// Pauses or resumes all tasks.
    pub fn stand_still(&self, still: bool) {
        self.0.still.store(still, Ordering::Release);
        self.0.changed.notify();
    }

    /// Ends all tasks where they are.
    pub fn kill(&self) {
        let tasks = std::mem::take(&mut *self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.iter().for_each(AbortHandle::abort);
    }

    async fn until(&self, still: bool) {
        let mut changed = self.0.changed.subscribe();
        while self.0.still.load(Ordering::Acquire) != still {
            changed.changed().await;
        }
    }

    /// Runs the task, except while the process is paused.
    async fn run(self, mut task: BoxFuture<'static, ()>) {
        loop {
            self.until(false).await;
            tokio::select! {
                biased;
                () = self.until(true) => {}
                () = &mut task => return,
            }
        }
    }
}

impl Spawn for Process {
    fn spawn(&self, task: BoxFuture<'static, ()>) -> AbortHandle {
        let started = tokio::spawn(self.clone().run(task).boxed()).abort_handle();
        let mut tasks = self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.retain(|task| !task.is_finished());
        tasks.push(started.clone());
        started
    }
}
