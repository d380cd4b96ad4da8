//! Pending answers to puts. Every item is answered exactly once, even if the owner panics or drops it: a stream keeps
//! its sink open and would wait for ever. So at any time an item is owned by a guard that answers when dropped:
//! [`Puts`] before its turn, [`Owed`] while it is decided, and [`PendingOutcomes`] until its commit is resolved.

use hashbrown::HashSet;
use tokio::sync::mpsc;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{Put, PutOutcome};

use crate::message::{Message, Outcomes};
use crate::routing::router::never_answered;

type Sink = mpsc::UnboundedSender<Outcomes>;

/// Puts that wait for their turn, by caller.
#[derive(Default)]
pub(crate) struct Puts {
    callers: Vec<(Sink, Vec<(u64, Put)>)>,
}

impl Puts {
    pub fn is_empty(&self) -> bool {
        self.callers.is_empty()
    }

    pub fn add(&mut self, items: Vec<(u64, Put)>, sink: Sink) {
        self.callers.push((sink, items));
    }

    /// Refuses all of them; none has been decided.
    pub fn refuse(self, why: &Refusal) {
        self.take().into_iter().for_each(|(sink, items)| Message::Put { items, sink }.refuse(why));
    }

    /// Takes all of them, by caller.
    pub fn take(mut self) -> Vec<(Sink, Vec<(u64, Put)>)> {
        std::mem::take(&mut self.callers)
    }
}

impl Drop for Puts {
    fn drop(&mut self) {
        for (sink, items) in self.callers.drain(..) {
            Message::Put { items, sink }.refuse(&never_answered());
        }
    }
}

/// Answers owed to a caller whose items are being decided.
pub(crate) struct Owed {
    sink: Sink,
    tags: Vec<u64>,
    /// Items that have passed to a [`PendingOutcomes`].
    decided: Vec<u64>,
}

impl Owed {
    pub fn new(sink: Sink, items: &[(u64, Put)]) -> Self {
        Self { sink, tags: items.iter().map(|(tag, _)| *tag).collect(), decided: Vec::with_capacity(items.len()) }
    }

    /// Passes decided items to a [`PendingOutcomes`], which answers them from now on.
    pub fn decide(&mut self, outcomes: Outcomes) -> PendingOutcomes {
        self.decided.extend(outcomes.iter().map(|(tag, _)| *tag));
        PendingOutcomes { sink: self.sink.clone(), outcomes }
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        if self.decided.len() < self.tags.len() {
            let decided: HashSet<u64> = self.decided.drain(..).collect();
            let lost = self.tags.iter().filter(|tag| !decided.contains(*tag));
            _ = self.sink.send(lost.map(|tag| (*tag, PutOutcome::Failed(Box::new(never_answered())))).collect());
        }
    }
}

/// Outcomes that wait for their commits.
pub(crate) struct PendingOutcomes {
    sink: Sink,
    outcomes: Outcomes,
}

impl PendingOutcomes {
    pub fn send(mut self, durable: Result<(), Refusal>) {
        let outcomes = std::mem::take(&mut self.outcomes);
        // The caller may have disconnected.
        _ = self.sink.send(match durable {
            Ok(()) => outcomes,
            Err(refusal) => fail(outcomes, &refusal),
        });
    }
}

impl Drop for PendingOutcomes {
    fn drop(&mut self) {
        if !self.outcomes.is_empty() {
            _ = self.sink.send(fail(std::mem::take(&mut self.outcomes), &never_answered()));
        }
    }
}

/// Rejected items stay rejected; everything else did not become durable.
fn fail(outcomes: Outcomes, refusal: &Refusal) -> Outcomes {
    let failed = |outcome| match outcome {
        PutOutcome::Rejected(_) | PutOutcome::Failed(_) | PutOutcome::Moved => outcome,
        _ => PutOutcome::Failed(Box::new(refusal.clone())),
    };
    outcomes.into_iter().map(|(tag, outcome)| (tag, failed(outcome))).collect()
}
