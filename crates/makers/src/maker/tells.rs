//! Tells pools what came of their orders: in batches, two at a time per pool. While they are on their way, further news
//! gather for the next.
//!
//! A pool has two lanes, one batch of each is under way, and a worker has its lane: so outcomes of one worker arrive in
//! order.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wayleave_core::matches::{Input, WorkerNo};
use wayleave_core::names::PoolName;

use super::Pools;

/// News in one batch.
const BATCH_MAX: usize = 256;
/// Batches of one pool at a time.
const LANES: u64 = 2;
/// News of one lane that wait. Beyond that the oldest are dropped: what matters is ordered again.
const WAITING_MAX: usize = 4_096;
/// Pauses between tries to tell a batch; after the last one it is dropped.
const PAUSES_MS: [u64; 6] = [50, 100, 200, 500, 1_000, 2_000];

/// A pool's name, and which of its lanes.
type Lane = (PoolName, u64);

/// News on their way.
pub struct Tells {
    pools: Arc<dyn Pools>,
    tasks: TaskTracker,
    stopping: CancellationToken,
    /// A lane is here while there is a task that tells its news.
    waiting: Mutex<HashMap<Lane, VecDeque<Input>>>,
}

impl Tells {
    pub fn new(pools: Arc<dyn Pools>, tasks: TaskTracker, stopping: CancellationToken) -> Self {
        Self { pools, tasks, stopping, waiting: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Lane, VecDeque<Input>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells a pool something about a worker, soon.
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

    /// What is told next; `None` if there is nothing, and from then on the lane has no task.
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

/// The task that tells the news of a lane. If it breaks, its batch is lost and another task tells the rest.
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
