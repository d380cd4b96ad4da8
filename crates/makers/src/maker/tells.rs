//! Reports the outcomes of orders to pools, in batches, at most two in flight per pool. Outcomes that arrive meanwhile are
//! collected for the next batch.
//!
//! A pool has two lanes with at most one batch in flight each, and all outcomes of a worker use the same lane, so they
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

/// Maximum number of outcomes in a batch.
const BATCH_MAX: usize = 256;
/// Batches of one pool in flight.
const LANES: u64 = 2;
/// Outcomes that wait in one lane. Beyond that the oldest are dropped; the pool repeats orders whose outcome it misses.
const WAITING_MAX: usize = 4_096;
/// Pauses between attempts to deliver a batch; after the last one it is dropped.
const PAUSES_MS: [u64; 6] = [50, 100, 200, 500, 1_000, 2_000];

/// A pool's name, and which of its lanes.
type Lane = (PoolName, u64);

/// Outcomes that have not been delivered yet.
pub struct Tells {
    pools: Arc<dyn Pools>,
    tasks: TaskTracker,
    stopping: CancellationToken,
    /// Has an entry for every lane that a task is draining.
    waiting: Mutex<HashMap<Lane, VecDeque<Input>>>,
}

impl Tells {
    pub fn new(pools: Arc<dyn Pools>, tasks: TaskTracker, stopping: CancellationToken) -> Self {
        Self { pools, tasks, stopping, waiting: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Lane, VecDeque<Input>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues an outcome for delivery.
    pub fn tell(self: &Arc<Self>, pool: PoolName, worker: WorkerNo, news: Input) {
        let lane = (pool, worker.0 % LANES);
        let mut waiting = self.lock();
        if let Some(others) = waiting.get_mut(&lane) {
            if others.len() >= WAITING_MAX {
                others.pop_front();
            }
            others.push_back(news);
            return;
        }
        waiting.insert(lane.clone(), VecDeque::from([news]));
        drop(waiting);
        self.start(lane);
    }

    fn start(self: &Arc<Self>, lane: Lane) {
        let draining = Draining { tells: Arc::clone(self), lane };
        self.tasks.spawn(async move {
            while let Some(batch) = draining.tells.next_batch(&draining.lane) {
                draining.tells.deliver(&draining.lane.0, batch).await;
            }
        });
    }

    /// The next batch of a lane. `None` if the lane is empty; the caller's task must then end.
    fn next_batch(&self, lane: &Lane) -> Option<Vec<Input>> {
        let mut waiting = self.lock();
        let news = waiting.get_mut(lane)?;
        if news.is_empty() {
            waiting.remove(lane);
            return None;
        }
        let count = news.len().min(BATCH_MAX);
        Some(news.drain(..count).collect())
    }

    async fn deliver(&self, pool: &PoolName, batch: Vec<Input>) {
        for pause in PAUSES_MS {
            match self.pools.tell(pool, batch.clone()).await {
                Ok(()) => return,
                Err(why) => {
                    tracing::debug!(%pool, %why, pause_ms = pause, "cannot tell a pool what came of its orders")
                }
            }
            tokio::select! {
                () = self.stopping.cancelled() => break,
                () = sleep(Duration::from_millis(pause)) => {}
            }
        }
        tracing::warn!(%pool, news = batch.len(), "a pool could not be told what came of its orders; it will order again");
    }
}

/// The task that drains a lane. If it panics, its batch is lost and a new task drains the rest.
struct Draining {
    tells: Arc<Tells>,
    lane: Lane,
}

impl Drop for Draining {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(pool = %self.lane.0, "a task that tells a pool its news broke; another one goes on");
            self.tells.start(self.lane.clone());
        }
    }
}
