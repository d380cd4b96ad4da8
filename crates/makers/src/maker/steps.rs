//! The steps of workers: decides which runtime orders are outdated, and cancels work that a later step supersedes.
//!
//! The runtime sees the steps of a worker in order, whatever the order in which they arrive or their tasks run: the highest
//! step is recorded on acceptance and checked under the worker's lock. It is kept for a while after the worker's last
//! order, because one of two concurrent polls may be answered late.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::runtime::WorkerKey;

/// How long the highest step of a worker is kept after its last order: longer than a poll may take.
const KEPT: Duration = Duration::from_secs(30);

/// The step of removing an unknown worker: no later one follows.
pub const LAST: u32 = u32::MAX;

/// The workers with recent orders.
#[derive(Default)]
pub struct Steps {
    by_worker: HashMap<WorkerKey, Known>,
    swept: Option<Instant>,
}

struct Known {
    highest: u32,
    ordered: Instant,
    /// Serialises runtime calls about the worker.
    step_lock: Arc<Mutex<()>>,
    making: Option<CancellableStep>,
    awaiting: Option<CancellableStep>,
}

/// Work in progress that can be cancelled.
struct CancellableStep {
    step: u32,
    end: CancellationToken,
}

/// The kind of a step: determines which later steps cancel it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// A worker is made; its removal ends that.
    Make,
    /// A worker is awaited; its end and any later step end that.
    Await,
    /// A worker is removed.
    Remove,
    /// Anything else.
    Other,
}

impl Steps {
    /// Records an ordered step, and cancels what it supersedes.
    pub fn ordered(&mut self, worker: &WorkerKey, step: u32, doing: StepKind, now: Instant) {
        self.sweep(now);
        let known = self.by_worker.entry(worker.clone()).or_insert_with(|| Known {
            highest: 0,
            ordered: now,
            step_lock: Arc::default(),
            making: None,
            awaiting: None,
        });
        known.highest = known.highest.max(step);
        known.ordered = now;
        let earlier = |it: &&CancellableStep| it.step < step;
        let making = known.making.as_ref().filter(|_| doing == StepKind::Remove);
        making.filter(earlier).into_iter().for_each(|it| it.end.cancel());
        known.awaiting.as_ref().filter(earlier).into_iter().for_each(|it| it.end.cancel());
    }

    /// The holder of this lock gives orders about the worker.
    pub fn step_lock(&self, worker: &WorkerKey) -> Option<Arc<Mutex<()>>> {
        self.by_worker.get(worker).map(|known| Arc::clone(&known.step_lock))
    }

    /// Begins a step, unless a later one was ordered. What is returned says when to give it up.
    pub fn begin(&mut self, worker: &WorkerKey, step: u32, doing: StepKind) -> Option<CancellationToken> {
        let known = self.by_worker.get_mut(worker).filter(|known| known.highest <= step)?;
        let end = CancellationToken::new();
        let under_way = CancellableStep { step, end: end.clone() };
        match doing {
            StepKind::Make => known.making = Some(under_way),
            StepKind::Await => known.awaiting = Some(under_way),
            StepKind::Remove | StepKind::Other => {}
        }
        Some(end)
    }

    /// A step is over.
    pub fn end(&mut self, worker: &WorkerKey, step: u32) {
        let Some(known) = self.by_worker.get_mut(worker) else { return };
        for under_way in [&mut known.making, &mut known.awaiting] {
            _ = under_way.take_if(|it| it.step == step);
        }
    }

    /// A worker has ended, so that it need not be awaited.
    pub fn on_end(&self, worker: &WorkerKey) {
        let awaiting = self.by_worker.get(worker).and_then(|known| known.awaiting.as_ref());
        awaiting.into_iter().for_each(|it| it.end.cancel());
    }

    fn sweep(&mut self, now: Instant) {
        if self.swept.is_some_and(|swept| now.duration_since(swept) < KEPT) {
            return;
        }
        self.swept = Some(now);
        let is_used = |known: &Known| {
            known.making.is_some() || known.awaiting.is_some() || Arc::strong_count(&known.step_lock) > 1
        };
        self.by_worker.retain(|_, known| is_used(known) || now.duration_since(known.ordered) < KEPT);
    }
}

#[cfg(test)]
mod tests {
    use wayleave_core::matches::WorkerNo;

    use super::*;

    fn key(worker: u64) -> WorkerKey {
        WorkerKey { owner: "o".into(), pool: "p".into(), generation: 1, worker: WorkerNo(worker) }
    }

    #[test]
    fn the_highest_step_is_kept_only_while_an_earlier_order_may_arrive() {
        let (mut steps, start) = (Steps::default(), Instant::now());
        steps.ordered(&key(1), 5, StepKind::Remove, start);
        steps.ordered(&key(1), 3, StepKind::Make, start + KEPT / 2);
        assert!(
            steps.begin(&key(1), 3, StepKind::Make).is_none() && steps.begin(&key(1), 5, StepKind::Remove).is_some()
        );
        let step_lock = steps.step_lock(&key(1)).unwrap();
        steps.ordered(&key(2), 1, StepKind::Other, start + 3 * KEPT);
        assert!(steps.step_lock(&key(1)).is_some(), "an order waits for its turn");
        drop(step_lock);
        steps.ordered(&key(2), 1, StepKind::Other, start + 5 * KEPT);
        assert!(steps.step_lock(&key(1)).is_none() && steps.by_worker.len() == 1);
    }

    #[test]
    fn a_removal_ends_a_making_and_any_later_step_ends_an_await() {
        let (mut steps, now) = (Steps::default(), Instant::now());
        for (later, ends_make) in [(StepKind::Remove, true), (StepKind::Other, false), (StepKind::Make, false)] {
            steps.ordered(&key(1), 1, StepKind::Make, now);
            let made = steps.begin(&key(1), 1, StepKind::Make).unwrap();
            let awaited = steps.begin(&key(1), 1, StepKind::Await).unwrap();
            steps.ordered(&key(1), 1, later, now);
            assert!(!made.is_cancelled() && !awaited.is_cancelled(), "the same step, ordered again");
            steps.ordered(&key(1), 2, later, now);
            assert_eq!((made.is_cancelled(), awaited.is_cancelled()), (ends_make, true), "{later:?}");
            steps = Steps::default();
        }
        steps.ordered(&key(1), 1, StepKind::Make, now);
        let made = steps.begin(&key(1), 1, StepKind::Make).unwrap();
        steps.end(&key(1), 1);
        steps.ordered(&key(1), LAST, StepKind::Remove, now);
        assert!(!made.is_cancelled(), "it was over");
    }
}
