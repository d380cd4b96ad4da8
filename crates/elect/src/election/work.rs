//! The guarded work of one term: a task that is told to stop, then cancelled, then ended by the watchdog.

use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::task::{AbortHandle, JoinError, JoinHandle};
use wayleave_core::time::Millis;

use crate::clock::Moment;
use crate::term::Term;
use crate::watchdog::{LastLine, Watch, Watchdog};

/// How the work of a term ended.
pub(super) type Outcome<B> = Result<ControlFlow<B, Duration>, JoinError>;

/// Running work. Dropping this cancels it.
pub(super) struct Running<B> {
    pub term: Term,
    task: JoinHandle<ControlFlow<B, Duration>>,
    watch: Arc<Watch>,
    reserve: Millis,
    /// When the task is cancelled.
    drop_at: Option<Moment>,
}

impl<B: Send + 'static> Running<B> {
    pub fn start<F>(term: Term, work: F, dog: &Watchdog, reserve: Millis, last: LastLine) -> Self
    where
        F: Future<Output = ControlFlow<B, Duration>> + Send + 'static,
    {
        let aborter: Arc<OnceLock<AbortHandle>> = Arc::default();
        let (ending, aborting) = (term.clone(), aborter.clone());
        let cancel = Box::new(move || {
            ending.end();
            if let Some(task) = aborting.get() {
                task.abort();
            }
        });
        let until = term.until();
        let watch = Arc::new(dog.watch(until.before(reserve), until, cancel, last));
        // The task owns the watch: the work is watched until it has really ended, whatever happens to us.
        let watched = watch.clone();
        let task = tokio::spawn(async move {
            let outcome = work.await;
            drop(watched);
            outcome
        });
        _ = aborter.set(task.abort_handle());
        Self { term, task, watch, reserve, drop_at: None }
    }

    /// The end of the term has moved.
    pub fn move_end(&mut self, until: Moment) {
        self.term.move_end(until);
        self.watch.move_to(until.before(self.reserve), until);
        if self.drop_at.is_some() {
            self.drop_at = Some(until.before(self.reserve));
        }
    }

    /// Tells the work to stop; it may use the rest of the grace period.
    pub fn tell_to_stop(&mut self) {
        self.term.tell_to_stop();
        self.drop_at = Some(self.term.until().before(self.reserve));
    }

    /// Ends the work now: another candidate may already be primary.
    pub fn end_now(&mut self, now: Moment) {
        let until = self.term.until().min(now.after(self.reserve));
        self.term.end();
        self.watch.move_to(now, until);
        self.task.abort();
        self.drop_at = None;
    }

    /// When the task must be cancelled.
    pub const fn drop_at(&self) -> Option<Moment> {
        self.drop_at
    }

    /// Waits for the work to end.
    pub async fn ended(&mut self) -> Outcome<B> {
        (&mut self.task).await
    }
}

impl<B> Drop for Running<B> {
    fn drop(&mut self) {
        self.term.end();
        self.task.abort();
    }
}
