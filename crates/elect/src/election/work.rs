//! The guarded work of one term: a task that is asked to stop, then cancelled, then ended by the watchdog.

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

/// How long work may take to stop, and the time after that for ending it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub grace: Millis,
    pub reserve: Millis,
}

/// Running work. Dropping this cancels it.
pub(super) struct Running<B> {
    pub term: Term,
    task: JoinHandle<ControlFlow<B, Duration>>,
    /// Of a task that has ended, while there are holds.
    outcome: Option<Outcome<B>>,
    watch: Arc<Watch>,
    patience: Patience,
    /// The end of the term, also after [`Term::end`].
    until: Moment,
    /// Set once it was asked to stop. A heartbeat that is acknowledged meanwhile does not move it.
    bound: Option<Bound>,
}

/// When work that was asked to stop is cancelled, and when the last line is called.
#[derive(Clone, Copy, Debug)]
struct Bound {
    cancel_at: Moment,
    end_at: Moment,
    cancelled: bool,
}

impl<B: Send + 'static> Running<B> {
    pub fn start<F>(
        term: Term,
        work: impl FnOnce(Term) -> F,
        dog: &Watchdog,
        patience: Patience,
        last: LastLine,
    ) -> Self
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
        let watch = Arc::new(dog.watch(until.before(patience.reserve), until, cancel, last));
        term.set_watch(&watch);
        // The task owns the watch: the work is watched until it has really ended, whatever happens to us.
        let (work, watched) = (work(term.clone()), watch.clone());
        let task = tokio::spawn(async move {
            let outcome = work.await;
            drop(watched);
            outcome
        });
        _ = aborter.set(task.abort_handle());
        Self { term, task, outcome: None, watch, patience, until, bound: None }
    }

    /// The end of the term has moved.
    pub fn move_end(&mut self, until: Moment) {
        self.term.move_end(until);
        self.until = until;
        let (cancel_at, end_at) = (until.before(self.patience.reserve), until);
        match &mut self.bound {
            None => self.watch.move_to(cancel_at, end_at),
            Some(bound) => {
                (bound.cancel_at, bound.end_at) = (bound.cancel_at.min(cancel_at), bound.end_at.min(end_at));
                self.watch.move_to(bound.cancel_at, bound.end_at);
            }
        }
    }

    /// Asks the work to stop. It has the grace period, or what is left of the term.
    pub fn ask_to_stop(&mut self, now: Moment) {
        self.term.ask_to_stop();
        let Patience { grace, reserve } = self.patience;
        let (until, over) = (self.until, now.after(grace));
        // Work that ends by itself exactly at the end of its grace period is not cancelled.
        let cancel_at = until.before(reserve).min(over.after(Millis(reserve.0 / 2)));
        self.end_by(Bound { cancel_at, end_at: until.min(over.after(reserve)), cancelled: false });
    }

    /// Ends the work now: another candidate may already be primary.
    pub fn end_now(&mut self, now: Moment) {
        let end_at = self.until.min(now.after(self.patience.reserve));
        self.term.end();
        self.task.abort();
        self.end_by(Bound { cancel_at: now, end_at, cancelled: true });
    }

    /// Applies a bound; one that was set before is never exceeded.
    fn end_by(&mut self, bound: Bound) {
        let end_at = self.bound.map_or(bound.end_at, |earlier| earlier.end_at.min(bound.end_at));
        self.watch.move_to(bound.cancel_at, end_at);
        self.bound = Some(Bound { end_at, ..bound });
    }

    /// When the task must be cancelled.
    pub fn drop_at(&self) -> Option<Moment> {
        self.bound.filter(|bound| !bound.cancelled).map(|bound| bound.cancel_at)
    }

    /// Waits until the work has ended, and nothing holds its term.
    pub async fn ended(&mut self) -> Outcome<B> {
        loop {
            // Kept here while there are holds: this call may be cancelled and repeated.
            if self.outcome.is_none() {
                self.outcome = Some((&mut self.task).await);
            }
            self.term.let_go().await;
            if let Some(outcome) = self.outcome.take() {
                return outcome;
            }
        }
    }
}

impl<B> Drop for Running<B> {
    fn drop(&mut self) {
        self.term.end();
        self.task.abort();
    }
}
