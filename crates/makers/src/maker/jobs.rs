//! One order: waits for its permit, does it by its deadline, tells what came of it.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use wayleave_core::limits::STOP_TIME;
use wayleave_core::matches::{Effect, Input, Make, Order};
use wayleave_core::time::{Millis, Time};

use super::bench::Accepted;
use crate::listening::await_listening;
use crate::runtime::{Failure, WorkerKey};

/// Deadline of a list.
const LIST_TIME: Duration = Duration::from_secs(20);
/// An outcome should arrive before the pool gives up: this much of the time, and at most so much, is kept for the way.
const WAY_PART: u64 = 10;
const WAY_MAX: Millis = Millis(500);

impl Accepted {
    /// Carries the order out. What becomes of it is told, unless the order is over by itself.
    pub async fn carry_out(self, effect: Effect) {
        let stopping = self.bench.stopping.clone();
        let news = match &effect {
            Effect::Reserve(_) | Effect::Check(_) | Effect::Release(_) | Effect::Await(_) | Effect::List { .. } => {
                tokio::select! {
                    () = stopping.cancelled() => None,
                    news = self.run(effect) => news,
                }
            }
            // What a runtime has begun it should end.
            _ => self.run(effect).await,
        };
        if let Some(news) = news {
            self.bench.tells.tell(self.pool.clone(), news);
        }
    }

    async fn run(&self, effect: Effect) -> Option<Input> {
        let (bench, runtime) = (&self.bench, &self.bench.site.runtime);
        match effect {
            Effect::Reserve(ask) => {
                let _permit = self.permits.calls.acquire().await.ok()?;
                Some(ask.reserved(bench.calls.reserve(&ask, self.deadline(ask.until)?).await))
            }
            Effect::Check(ask) => {
                let _permit = self.permits.calls.acquire().await.ok()?;
                Some(ask.checked(bench.calls.check(&ask, self.deadline(ask.until)?).await))
            }
            Effect::Release(ask) => {
                let _permit = self.permits.calls.acquire().await.ok()?;
                Some(ask.released(bench.calls.release(&ask, self.deadline(ask.until)?).await))
            }
            Effect::Await(order) => self.await_worker(&order).await,
            Effect::Create(make) => self.make(&make, true).await,
            Effect::Restart(make) => self.make(&make, false).await,
            Effect::Stop(order) => {
                let worker = WorkerKey::new(&self.pool, &order.labels);
                let stop = |deadline| runtime.stop(&worker, deadline);
                let result = self.in_turn(&worker, order.until, stop).await?;
                Some(Input::Stopped { step: order.step, result: result.map_err(|why| why.0) })
            }
            Effect::Remove(order) => {
                let worker = WorkerKey::new(&self.pool, &order.labels);
                let remove = |deadline| runtime.remove(&worker, deadline);
                let result = self.in_turn(&worker, order.until, remove).await?;
                Some(Input::Removed { step: order.step, result: result.map_err(|why| why.0) })
            }
            Effect::RemoveUnknown { labels, .. } => {
                let worker = WorkerKey::new(&self.pool, &labels);
                let until = bench.pools.now().after(STOP_TIME);
                let remove = |deadline| runtime.remove(&worker, deadline);
                match self.in_turn(&worker, until, remove).await? {
                    Ok(()) => tracing::info!(%worker, "removed a worker that its pool does not know"),
                    Err(why) => tracing::warn!(%worker, %why, "cannot remove a worker that its pool does not know"),
                }
                None
            }
            Effect::List { site, owner, since } => {
                let _permit = self.permits.orders.acquire().await.ok()?;
                match runtime.list(&self.pool, &owner, Instant::now() + LIST_TIME).await {
                    Ok(found) => Some(Input::Listed { site, since, found }),
                    Err(why) => {
                        tracing::warn!(pool = %self.pool, %why, "cannot list a pool's workers; it will ask again");
                        None
                    }
                }
            }
        }
    }

    async fn make(&self, make: &Make, is_new: bool) -> Option<Input> {
        let runtime = &self.bench.site.runtime;
        let worker = WorkerKey::new(&self.pool, &make.labels);
        let start = async |deadline| match is_new {
            true => runtime.create(&worker, make, deadline).await,
            false => runtime.restart(&worker, make, deadline).await,
        };
        let result = self.in_turn(&worker, make.until, start).await?;
        Some(Input::Made { step: make.step, result: result.map_err(|why| why.0) })
    }

    async fn await_worker(&self, order: &Order) -> Option<Input> {
        let address = &order.instance.as_ref()?.address;
        let worker = WorkerKey::new(&self.pool, &order.labels);
        let end = self.bench.begin_await(&worker, order.step.step);
        let result = match self.deadline(order.until) {
            Some(deadline) => tokio::select! {
                result = await_listening(&self.bench.calls, address, deadline) => Some(result),
                () = end.notified() => None,
            },
            None => None,
        };
        self.bench.end_await(&worker, order.step.step);
        Some(Input::Listening { step: order.step, result: result?.map_err(|why| why.0) })
    }

    /// Gives an order to the runtime when earlier ones about the same worker have ended.
    async fn in_turn<T, F>(
        &self,
        worker: &WorkerKey,
        until: Time,
        order: impl FnOnce(Instant) -> F,
    ) -> Option<Result<T, Failure>>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let turn = self.bench.turn(worker);
        let result = {
            let _turn = turn.lock().await;
            let _permit = self.permits.orders.acquire().await.ok()?;
            match self.deadline(until) {
                // Runtimes end by their deadline; this is for one that does not.
                Some(deadline) => Some(timeout_at(deadline + Duration::from_secs(1), order(deadline)).await),
                None => None,
            }
        };
        self.bench.end_turn(worker, turn);
        Some(result?.unwrap_or_else(|_| Err(Failure::new("its runtime did not answer in time"))))
    }

    /// Until when to work, by this machine's clock; `None` if that is over.
    fn deadline(&self, until: Time) -> Option<Instant> {
        let left = until.since(self.bench.pools.now());
        let way = Millis(left.0 / WAY_PART).min(WAY_MAX);
        (left.0 > 0).then(|| Instant::now() + Duration::from_millis(left.0 - way.0))
    }
}
