//! A cycle: what an owner decided in one go, its commits, and the answers that wait for them. Answers leave in order,
//! each after its own commits and all before are durable; meanwhile the owner decides the next cycle.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Notify, mpsc};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_engine::{Commit, Error};

use crate::message::Deferred;

/// Commits and the answers that wait for them.
#[derive(Default)]
pub(crate) struct Cycle {
    pub commits: Vec<Commit>,
    pub answers: Vec<Deferred>,
}

impl Cycle {
    pub fn is_empty(&self) -> bool {
        self.commits.is_empty() && self.answers.is_empty()
    }
}

/// Set once a commit has failed: what the owner has in memory is no longer what the store has.
#[derive(Default)]
pub(crate) struct Failure {
    failed: AtomicBool,
    pub told: Notify,
}

impl Failure {
    pub fn is_set(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    pub fn set(&self) {
        self.failed.store(true, Ordering::Release);
        self.told.notify_one();
    }
}

/// Sends the answers of cycles, in order, until the owner is done. After a failure every later answer is a refusal too:
/// it was decided on top of what is not there.
pub(crate) async fn answer(mut cycles: mpsc::Receiver<Cycle>, failure: Arc<Failure>) {
    let mut broken: Option<Refusal> = None;
    while let Some(cycle) = cycles.recv().await {
        for commit in cycle.commits {
            match commit.await {
                Ok(()) => {}
                Err(error) => {
                    if broken.is_none() {
                        tell(&error);
                        broken = Some(refusal(&error));
                    }
                    failure.set();
                }
            }
        }
        for answer in cycle.answers {
            answer(broken.clone().map_or(Ok(()), Err));
        }
    }
}

/// A commit failed. That another owner has the shard is what fences are for: nothing is wrong, and nothing was changed.
fn tell(error: &Error) {
    match error {
        Error::Fenced { .. } => tracing::info!(%error, "a commit came after another owner had taken the shard over"),
        Error::Unavailable(_) | Error::OutcomeUnknown(_) => {
            tracing::warn!(%error, "a commit failed; the shard reloads")
        }
        Error::Conflict | Error::Corrupt(_) => tracing::error!(%error, "a commit failed; the shard reloads"),
    }
}

/// What a caller is told of an engine's error.
pub(crate) fn refusal(error: &Error) -> Refusal {
    match error {
        Error::Fenced { .. } => Refusal::Unavailable("another owner has taken this shard over".to_owned()),
        Error::Conflict => Refusal::Unavailable("the rows have changed meanwhile".to_owned()),
        Error::Unavailable(cause) => Refusal::Unavailable(cause.clone()),
        Error::OutcomeUnknown(cause) => Refusal::OutcomeUnknown(cause.clone()),
        Error::Corrupt(cause) => Refusal::Corrupt(cause.clone()),
    }
}
