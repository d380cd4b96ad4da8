//! Concurrency limits per pool.
//!
//! A call to a worker takes a permit of the worker first and then one of its pool, so calls queued behind a worker that
//! hangs hold no permit of the pool. Each kind of call has its own permits, so that confirmations cannot starve the
//! reservations that matches wait for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};
use wayleave_core::matches::WorkerNo;

use crate::limits::{CALLS_MAX, CALLS_PER_WORKER_MAX, CALLS_WAITING_PER_WORKER_MAX, ORDERS_ACCEPTED_MAX, ORDERS_MAX};

/// Which question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AskKind {
    Reserve,
    Check,
    Release,
}

/// The permits of a pool.
pub struct Permits {
    pub orders: Semaphore,
    accepted: Semaphore,
    reserves: Semaphore,
    checks: Semaphore,
    releases: Semaphore,
    workers: Mutex<HashMap<(AskKind, WorkerNo), Queue>>,
}

/// Calls of one kind to one worker.
struct Queue {
    waiting: usize,
    permits: Arc<Semaphore>,
}

/// A place in a worker's queue, until it is dropped.
pub struct CallPermit<'a> {
    pool: &'a Permits,
    key: (AskKind, WorkerNo),
    worker: Arc<Semaphore>,
}

/// Why a call was not made in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// Earlier calls to its worker have not returned.
    Worker,
    /// Its pool had too many calls in flight.
    Pool,
}

impl Permits {
    pub fn new() -> Self {
        let [reserves, checks, releases] = [CALLS_MAX; 3].map(Semaphore::new);
        let [orders, accepted] = [ORDERS_MAX, ORDERS_ACCEPTED_MAX].map(Semaphore::new);
        Self { orders, accepted, reserves, checks, releases, workers: Mutex::default() }
    }

    /// Accepts an order; false if there are too many.
    pub fn accept(&self) -> bool {
        self.accepted.try_acquire().map(SemaphorePermit::forget).is_ok()
    }

    /// An order is over. Returns whether it was the last one.
    pub fn end(&self) -> bool {
        self.accepted.add_permits(1);
        self.accepted.available_permits() == ORDERS_ACCEPTED_MAX
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(AskKind, WorkerNo), Queue>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    const fn of(&self, kind: AskKind) -> &Semaphore {
        match kind {
            AskKind::Reserve => &self.reserves,
            AskKind::Check => &self.checks,
            AskKind::Release => &self.releases,
        }
    }

    /// Joins the queue of a worker; `None` if it is full.
    pub fn permit(&self, kind: AskKind, worker: WorkerNo) -> Option<CallPermit<'_>> {
        let key = (kind, worker);
        let mut workers = self.lock();
        let queue = workers
            .entry(key)
            .or_insert_with(|| Queue { waiting: 0, permits: Arc::new(Semaphore::new(CALLS_PER_WORKER_MAX)) });
        if queue.waiting >= CALLS_WAITING_PER_WORKER_MAX {
            return None;
        }
        queue.waiting += 1;
        Some(CallPermit { pool: self, key, worker: Arc::clone(&queue.permits) })
    }
}

impl CallPermit<'_> {
    /// Waits for both permits. A permit that is granted at the deadline, when earlier calls time out, is too late.
    pub async fn permits(&self, deadline: Instant) -> Result<[SemaphorePermit<'_>; 2], Late> {
        let worker = in_time(&self.worker, deadline).await.ok_or(Late::Worker)?;
        let pool = in_time(self.pool.of(self.key.0), deadline).await.ok_or(Late::Pool)?;
        Ok([worker, pool])
    }
}

async fn in_time(permits: &Semaphore, deadline: Instant) -> Option<SemaphorePermit<'_>> {
    let permit = timeout_at(deadline, permits.acquire()).await.ok()?.ok()?;
    (Instant::now() < deadline).then_some(permit)
}

impl Drop for CallPermit<'_> {
    fn drop(&mut self) {
        let mut workers = self.pool.lock();
        if let Some(queue) = workers.get_mut(&self.key) {
            queue.waiting -= 1;
            if queue.waiting == 0 {
                workers.remove(&self.key);
            }
        }
    }
}
