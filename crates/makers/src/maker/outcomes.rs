//! Reports the outcomes of orders to pools, in batches, at most two in flight per pool. Outcomes that arrive meanwhile are
//! collected for the next batch.
//!
//! A pool has two queues with at most one batch in flight each, and all outcomes of a worker use the same queue, so they
//! arrive in order.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wayleave_core::matches::{Input, WorkerNo};
use wayleave_core::names::PoolName;

use super::Pools;
use crate::limits::{OUTCOMES_PER_BATCH_MAX, OUTCOMES_WAITING_MAX};

/// Batches of one pool in flight.
const QUEUES: u64 = 2;
/// Pauses between attempts to deliver a batch; after the last one it is dropped.
const PAUSES_MS: [u64; 6] = [50, 100, 200, 500, 1_000, 2_000];

/// A pool's name, and which of its queues.
type OutcomeQueue = (PoolName, u64);

/// Outcomes that have not been delivered yet.
pub struct OutcomeSender {
    pools: Arc<dyn Pools>,
    tasks: TaskTracker,
    stopping: CancellationToken,
    /// Has an entry for every queue that a task is draining.
    waiting: Mutex<HashMap<OutcomeQueue, VecDeque<Input>>>,
}

impl OutcomeSender {
    pub fn new(pools: Arc<dyn Pools>, tasks: TaskTracker, stopping: CancellationToken) -> Self {
        Self { pools, tasks, stopping, waiting: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<OutcomeQueue, VecDeque<Input>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues an outcome for delivery.
    pub fn report(self: &Arc<Self>, pool: PoolName, worker: WorkerNo, news: Input) {
        let queue = (pool, worker.0 % QUEUES);
        let mut waiting = self.lock();
        if let Some(others) = waiting.get_mut(&queue) {
            if others.len() >= OUTCOMES_WAITING_MAX {
                others.pop_front();
            }
            others.push_back(news);
            return;
        }
        waiting.insert(queue.clone(), VecDeque::from([news]));
        drop(waiting);
        self.start(queue);
    }

    fn start(self: &Arc<Self>, queue: OutcomeQueue) {
        let draining = Draining { outcomes: Arc::clone(self), queue };
        self.tasks.spawn(async move {
            while let Some(batch) = draining.outcomes.next_batch(&draining.queue) {
                draining.outcomes.deliver(&draining.queue.0, batch).await;
            }
        });
    }

    /// The next batch of a queue. `None` if the queue is empty; the caller's task must then end.
    fn next_batch(&self, queue: &OutcomeQueue) -> Option<Vec<Input>> {
        let mut waiting = self.lock();
        let news = waiting.get_mut(queue)?;
        if news.is_empty() {
            waiting.remove(queue);
            return None;
        }
        let count = news.len().min(OUTCOMES_PER_BATCH_MAX);
        Some(news.drain(..count).collect())
    }

    async fn deliver(&self, pool: &PoolName, batch: Vec<Input>) {
        for pause in PAUSES_MS {
            match self.pools.report(pool, batch.clone()).await {
                Ok(()) => return,
                Err(why) => {
                    tracing::debug!(%pool, %why, pause_ms = pause, "cannot report the outcomes of orders to a pool")
                }
            }
            tokio::select! {
                () = self.stopping.cancelled() => break,
                () = sleep(Duration::from_millis(pause)) => {}
            }
        }
        tracing::warn!(%pool, news = batch.len(), "outcomes of orders could not be reported to a pool; it will order again");
    }
}

/// The task that drains a queue. If it panics, its batch is lost and a new task drains the rest.
struct Draining {
    outcomes: Arc<OutcomeSender>,
    queue: OutcomeQueue,
}

impl Drop for Draining {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(pool = %self.queue.0, "a task that reports to a pool has panicked; another one continues");
            self.outcomes.start(self.queue.clone());
        }
    }
}
