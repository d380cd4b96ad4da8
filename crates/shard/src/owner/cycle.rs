//! A cycle: what an owner decided in one go, its commits, and the answers that wait for them. Answers leave in order,
//! each when its own commits and all before are resolved; meanwhile the owner decides the next cycle.
//!
//! Each answer is paired with the commits that its own call made, so it says what became of that call: "unavailable" only
//! if none of them was applied, "outcome unknown" if one of them may have been.

use std::ops::Range;
use std::sync::Arc;

use tokio::sync::mpsc;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_engine::{Commit, Error};

use crate::message::Deferred;
use crate::owner::term::Term;
use crate::shared::readiness::Readiness;

/// Commits and the answers that wait for them.
#[derive(Default)]
pub(crate) struct Cycle {
    /// With their numbers.
    commits: Vec<(u64, Commit)>,
    answers: Vec<Waiting>,
    /// Another node may own the shard: answers that made no commit are held to those of the whole cycle.
    unsure: bool,
}

/// An answer, and which of the cycle's commits its call made.
struct Waiting {
    own: Range<usize>,
    send: Deferred,
}

/// How many commits a cycle had when a call's turn began.
#[derive(Clone, Copy)]
pub(crate) struct Mark(usize);

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

    /// A call's turn begins: the commits from here on are its own.
    pub fn mark(&self) -> Mark {
        Mark(self.commits.len())
    }

    pub fn commit(&mut self, seq: u64, commit: Commit) {
        self.commits.push((seq, commit));
    }

    /// Leaves the answer of a call that made the commits since `mark`.
    pub fn answer(&mut self, mark: Mark, send: Deferred) {
        self.answers.push(Waiting { own: mark.0..self.commits.len(), send });
    }

    /// Holds answers that made no commit to all commits of the cycle.
    pub fn set_unsure(&mut self) {
        self.unsure = true;
    }

    /// Refuses every call, none of which has committed anything.
    pub fn refuse(&mut self, why: &Refusal) {
        self.answers.drain(..).for_each(|waiting| (waiting.send)(Err(why.clone())));
    }
}

/// Sends the answers of cycles, in order, until the owner is done. What was decided after a failed commit was decided on
/// top of what is not there.
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

/// What became of a cycle's commits.
struct Resolved {
    outcomes: Vec<Result<(), Error>>,
    /// Why an earlier cycle failed.
    broken_before: Option<String>,
    unsure: bool,
}

impl Resolved {
    /// What a call is told that made these commits.
    fn verdict(&self, own: Range<usize>) -> Result<(), Refusal> {
        let before = self.outcomes.get(..own.start).unwrap_or_default();
        let broken = self.broken_before.clone().or_else(|| errors(before).next().map(cause));
        let own = if own.is_empty() && self.unsure { 0..self.outcomes.len() } else { own };
        let own = self.outcomes.get(own).unwrap_or_default();
        let Some(first) = errors(own).next() else {
            // A commit that succeeded has all before it in the store. Who made none looked at what may not be there.
            return if own.is_empty() { broken.map_or(Ok(()), |why| Err(Refusal::Unavailable(why))) } else { Ok(()) };
        };
        let applied = own.iter().any(Result::is_ok);
        let unknown = errors(own).find(|error| matches!(error, Error::OutcomeUnknown(_)));
        Err(match (unknown, first, broken) {
            (Some(error), ..) => Refusal::OutcomeUnknown(cause(error)),
            _ if applied => Refusal::OutcomeUnknown(format!("a part of it was done, then: {}", cause(first))),
            // Its number came after one that is not there: what is wrong is what was wrong with that one.
            (_, Error::Fenced { .. }, Some(why)) => Refusal::Unavailable(why),
            _ => refusal(first),
        })
    }
}

fn errors(outcomes: &[Result<(), Error>]) -> impl Iterator<Item = &Error> {
    outcomes.iter().filter_map(|outcome| outcome.as_ref().err())
}

/// A commit failed. That another owner has the shard is what fences are for: nothing is wrong, and nothing was changed.
fn tell(error: &Error, readiness: &Readiness) {
    let Some(left_out) = readiness.log.commits.line() else { return };
    match error {
        Error::Fenced { .. } => {
            tracing::info!(%error, left_out, "a commit came after another owner had taken the shard over");
        }
        Error::Unavailable(_) | Error::OutcomeUnknown(_) => {
            tracing::warn!(%error, left_out, "a commit failed; the shard reloads");
        }
        Error::Conflict | Error::Corrupt(_) => tracing::error!(%error, left_out, "a commit failed; the shard reloads"),
    }
}

/// The cause of an error, for a sentence that says what became of a call.
fn cause(error: &Error) -> String {
    match error {
        Error::Fenced { .. } => "another owner has taken this shard over".to_owned(),
        Error::Conflict => "the rows have changed meanwhile".to_owned(),
        Error::Unavailable(cause) | Error::OutcomeUnknown(cause) | Error::Corrupt(cause) => cause.clone(),
    }
}

/// What a caller is told of an engine's error.
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
