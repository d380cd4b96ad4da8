//! Tells pools what came of their orders: in batches, one at a time per pool. While one is on its way, further news
//! gather for the next.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wayleave_core::matches::Input;
use wayleave_core::names::PoolName;

use super::Pools;

/// News in one batch.
const BATCH_MAX: usize = 256;
/// News of one pool that wait. Beyond that the oldest are dropped: what matters is ordered again.
const WAITING_MAX: usize = 8_192;
/// Pauses between tries to tell a batch; after the last one it is dropped.
const PAUSES_MS: [u64; 6] = [50, 100, 200, 500, 1_000, 2_000];

/// News on their way.
pub struct Tells {
    pools: Arc<dyn Pools>,
    tasks: TaskTracker,
    stopping: CancellationToken,
    /// A pool is here while there is a task that tells it.
    waiting: Mutex<HashMap<PoolName, VecDeque<Input>>>,
}

impl Tells {
    pub fn new(pools: Arc<dyn Pools>, tasks: TaskTracker, stopping: CancellationToken) -> Self {
        Self { pools, tasks, stopping, waiting: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PoolName, VecDeque<Input>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells a pool something, soon.
    pub fn tell(self: &Arc<Self>, pool: PoolName, news: Input) {
        let mut waiting = self.lock();
        if let Some(others) = waiting.get_mut(&pool) {
            if others.len() >= WAITING_MAX {
                others.pop_front();
            }
            others.push_back(news);
            return;
        }
        waiting.insert(pool.clone(), VecDeque::from([news]));
        drop(waiting);
        self.tasks.spawn(Arc::clone(self).drain(pool));
    }

    /// Tells a pool its news until there are none.
    async fn drain(self: Arc<Self>, pool: PoolName) {
        while let Some(batch) = self.next_batch(&pool) {
            self.deliver(&pool, batch).await;
        }
    }

    fn next_batch(&self, pool: &PoolName) -> Option<Vec<Input>> {
        let mut waiting = self.lock();
        let news = waiting.get_mut(pool)?;
        if news.is_empty() {
            waiting.remove(pool);
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
