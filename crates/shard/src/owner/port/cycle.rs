//! A cycle: the commits of one turn and the answers that wait for them. Answers are sent in order, each when its own
//! commits and all earlier ones are resolved; meanwhile the owner decides the next cycle (pipelining).
//!
//! Each answer is paired with the commits of its own call, so that it reports the outcome of exactly that call:
//! "unavailable" only if none of them was applied, "outcome unknown" if one of them may have been.

use std::ops::Range;
use std::sync::Arc;

use tokio::sync::mpsc;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_engine::{Commit, Error};

use crate::message::Deferred;
use crate::owner::port::term::Term;
use crate::shared::readiness::Readiness;

/// Commits and the answers that wait for them.
#[derive(Default)]
pub(crate) struct Cycle {
    /// Commits with their sequence numbers.
    commits: Vec<(u64, Commit)>,
    answers: Vec<Waiting>,
    /// Another node may own the shard: answers without a commit of their own depend on every commit of the cycle.
    unsure: bool,
}

/// An answer, and the range of the cycle's commits that its call made.
struct Waiting {
    own: Range<usize>,
    send: Deferred,
}

/// The number of commits in the cycle when a call began.
#[derive(Clone, Copy)]
pub(crate) struct CommitMark(usize);

impl Cycle {
    pub fn is_empty(&self) -> bool {
        self.commits.is_empty() && self.answers.is_empty()
    }

    pub fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    pub fn has_commits(&self) -> bool {
        !self.commits.is_empty()
    }

    /// Marks the start of a call: the commits that follow are its own.
    pub fn mark(&self) -> CommitMark {
        CommitMark(self.commits.len())
    }

    pub fn commit(&mut self, seq: u64, commit: Commit) {
        self.commits.push((seq, commit));
    }

    /// Queues the answer of a call that made the commits since `mark`.
    pub fn answer(&mut self, mark: CommitMark, send: Deferred) {
        self.answers.push(Waiting { own: mark.0..self.commits.len(), send });
    }

    /// Makes answers without a commit of their own depend on all commits of the cycle.
    pub fn set_unsure(&mut self) {
        self.unsure = true;
    }

    /// Refuses every call of the cycle; none of them has committed anything.
    pub fn refuse(&mut self, why: &Refusal) {
        self.answers.drain(..).for_each(|waiting| (waiting.send)(Err(why.clone())));
    }
}

/// Sends the answers of all cycles in order, until the owner ends. After a failed commit every later decision was based
/// on state that the store does not have.
pub(crate) async fn answer(mut cycles: mpsc::Receiver<Cycle>, term: Arc<Term>, readiness: Arc<Readiness>) {
    let mut broken: Option<String> = None;
    while let Some(cycle) = cycles.recv().await {
        let mut outcomes = Vec::with_capacity(cycle.commits.len());
        let broken_before = broken.clone();
        for (seq, commit) in cycle.commits {
            let outcome = commit.await;
            term.on_commit(seq, &outcome);
            if let Err(error) = &outcome
                && broken.is_none()
            {
                tell(error, &readiness);
                broken = Some(cause(error));
            }
            outcomes.push(outcome);
        }
        let resolved = Resolved { outcomes, broken_before, unsure: cycle.unsure };
        for Waiting { own, send } in cycle.answers {
            send(if broken.is_none() { Ok(()) } else { resolved.verdict(own) });
        }
    }
}

/// The resolved commits of a cycle.
struct Resolved {
    outcomes: Vec<Result<(), Error>>,
    /// Why an earlier cycle failed.
    broken_before: Option<String>,
    unsure: bool,
}

impl Resolved {
    /// The outcome of a call that made these commits.
    fn verdict(&self, own: Range<usize>) -> Result<(), Refusal> {
        let before = self.outcomes.get(..own.start).unwrap_or_default();
        let broken = self.broken_before.clone().or_else(|| errors(before).next().map(cause));
        let own = if own.is_empty() && self.unsure { 0..self.outcomes.len() } else { own };
        let own = self.outcomes.get(own).unwrap_or_default();
        let Some(first) = errors(own).next() else {
            // A commit that succeeded implies that all before it are in the store. A call without a commit may have
            // read state that is not there.
            return if own.is_empty() { broken.map_or(Ok(()), |why| Err(Refusal::Unavailable(why))) } else { Ok(()) };
        };
        let applied = own.iter().any(Result::is_ok);
        let unknown = errors(own).find(|error| matches!(error, Error::OutcomeUnknown(_)));
        Err(match (unknown, first, broken) {
            (Some(error), ..) => Refusal::OutcomeUnknown(cause(error)),
            _ if applied => {
                Refusal::OutcomeUnknown(format!("the change was applied in part, then failed: {}", cause(first)))
            }
            // Fenced because an earlier commit is missing: report the cause of that one.
            (_, Error::Fenced { .. }, Some(why)) => Refusal::Unavailable(why),
            _ => refusal(first),
        })
    }
}

fn errors(outcomes: &[Result<(), Error>]) -> impl Iterator<Item = &Error> {
    outcomes.iter().filter_map(|outcome| outcome.as_ref().err())
}

/// Logs a failed commit. Being fenced by a new owner is expected: nothing is wrong and nothing was changed.
fn tell(error: &Error, readiness: &Readiness) {
    let Some(left_out) = readiness.log.commits.line() else { return };
    match error {
        Error::Fenced { .. } => {
            tracing::info!(%error, left_out, "commit fenced: another owner has taken over the shard");
        }
        Error::Unavailable(_) | Error::OutcomeUnknown(_) => {
            tracing::warn!(%error, left_out, "commit failed; reloading the shard");
        }
        Error::Conflict | Error::Corrupt(_) => tracing::error!(%error, left_out, "commit failed; reloading the shard"),
    }
}

/// The cause of an error, for use inside a sentence about the call.
fn cause(error: &Error) -> String {
    match error {
        Error::Fenced { .. } => "another owner has taken this shard over".to_owned(),
        Error::Conflict => "the rows have changed in the meantime".to_owned(),
        Error::Unavailable(cause) | Error::OutcomeUnknown(cause) | Error::Corrupt(cause) => cause.clone(),
    }
}

/// Maps an engine error to the refusal that callers see.
pub(crate) fn refusal(error: &Error) -> Refusal {
    match error {
        Error::Fenced { .. } | Error::Conflict | Error::Unavailable(_) => Refusal::Unavailable(cause(error)),
        Error::OutcomeUnknown(cause) => Refusal::OutcomeUnknown(cause.clone()),
        Error::Corrupt(cause) => Refusal::Corrupt(cause.clone()),
    }
}

#[cfg(test)]
#[path = "cycle_tests.rs"]
mod tests;
