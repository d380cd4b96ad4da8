//! Carries out one order: waits for a permit, does the work by its deadline and reports the outcome.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use wayleave_core::limits::STOP_TIME;
use wayleave_core::matches::{Effect, Input, Make, Order, Verdict, WorkerAsk, WorkerNo};
use wayleave_core::time::{Millis, Time};

use super::permits::{AskKind, Late};
use super::shared::Accepted;
use super::steps::{LAST, StepKind};
use crate::limits::CALLS_PER_WORKER_MAX;
use crate::listening::await_listening;
use crate::runtime::{Failure, WorkerKey};

/// Deadline of a list.
const LIST_TIME: Duration = Duration::from_secs(20);
/// An outcome must reach the pool before the pool's own deadline: this fraction of the time is reserved for delivery, up to
/// [`WAY_MAX`].
const WAY_PART: u64 = 10;
const WAY_MAX: Millis = Millis(500);

impl Accepted {
    /// Carries the order out and reports its outcome, unless the order became obsolete.
    pub async fn carry_out(self, effect: Effect) {
        let stopping = self.shared.stopping.clone();
        let worker = worker(&effect);
        let news = match &effect {
            Effect::Reserve(_) | Effect::Check(_) | Effect::Release(_) | Effect::Await(_) | Effect::List { .. } => {
                tokio::select! {
                    () = stopping.cancelled() => None,
                    news = self.run(effect) => news,
                }
            }
            // A runtime call that has begun must run to its end.
            _ => self.run(effect).await,
        };
        if let Some(news) = news {
            self.shared.outcomes.report(self.pool.clone(), worker, news);
        }
    }

    async fn run(&self, effect: Effect) -> Option<Input> {
        let (shared, runtime) = (&self.shared, &self.shared.site.runtime);
        match effect {
            Effect::Reserve(ask) => Some(ask.reserved(self.ask(AskKind::Reserve, &ask).await?)),
            Effect::Check(ask) => Some(ask.checked(self.ask(AskKind::Check, &ask).await?)),
            Effect::Release(ask) => Some(ask.released(self.ask(AskKind::Release, &ask).await?)),
            Effect::Await(order) => self.await_worker(&order).await,
            Effect::Create(make) => self.make(&make, true).await,
            Effect::Restart(make) => self.make(&make, false).await,
            Effect::Stop(order) => {
                let worker = WorkerKey::new(&self.pool, &order.labels);
                let stop = |deadline| runtime.stop(&worker, deadline);
                let result = self.in_turn(&worker, (order.step.step, StepKind::Other), order.until, stop).await?;
                Some(Input::Stopped { step: order.step, result: result.map_err(|why| why.0) })
            }
            Effect::Remove(order) => {
                let worker = WorkerKey::new(&self.pool, &order.labels);
                let remove = |deadline| runtime.remove(&worker, deadline);
                let result = self.in_turn(&worker, (order.step.step, StepKind::Remove), order.until, remove).await?;
                Some(Input::Removed { step: order.step, result: result.map_err(|why| why.0) })
            }
            Effect::RemoveUnknown { labels, .. } => {
                let worker = WorkerKey::new(&self.pool, &labels);
                let until = shared.pools.now().after(STOP_TIME);
                let remove = |deadline| runtime.remove(&worker, deadline);
                match self.in_turn(&worker, (LAST, StepKind::Remove), until, remove).await? {
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
        let runtime = &self.shared.site.runtime;
        let worker = WorkerKey::new(&self.pool, &make.labels);
        let start = async |deadline| match is_new {
            true => runtime.create(&worker, make, deadline).await,
            false => runtime.restart(&worker, make, deadline).await,
        };
        let result = self.in_turn(&worker, (make.step.step, StepKind::Make), make.until, start).await?;
        Some(Input::Made { step: make.step, result: result.map_err(|why| why.0) })
    }

    async fn await_worker(&self, order: &Order) -> Option<Input> {
        let address = &order.instance.as_ref()?.address;
        let worker = WorkerKey::new(&self.pool, &order.labels);
        let step = self.shared.begin(&worker, order.step.step, StepKind::Await)?;
        let deadline = self.deadline(order.until)?;
        let result = tokio::select! {
            result = await_listening(&self.shared.calls, address, deadline) => result,
            () = step.end.cancelled() => return None,
        };
        Some(Input::Listening { step: order.step, result: result.map_err(|why| why.0) })
    }

    /// Calls a worker. `None` if the call could not be made for reasons that are not the worker's: the pool then treats the
    /// order as lost.
    async fn ask(&self, kind: AskKind, ask: &WorkerAsk) -> Option<Verdict> {
        let deadline = self.deadline(ask.until)?;
        let Some(place) = self.permits.permit(kind, ask.worker) else {
            return Some(Verdict::Unknown("it was not asked: too many calls wait for it".into()));
        };
        let _permits = match place.permits(deadline).await {
            Ok(permits) => permits,
            Err(Late::Worker) => {
                let why = format!("it was not asked: {CALLS_PER_WORKER_MAX} calls to it were under way all the time");
                return Some(Verdict::Unknown(why.into()));
            }
            Err(Late::Pool) => {
                tracing::warn!(pool = %self.pool, "a pool has too many calls under way; one was not made in time");
                return None;
            }
        };
        let calls = &self.shared.calls;
        Some(match kind {
            AskKind::Reserve => calls.reserve(ask, deadline).await,
            AskKind::Check => calls.check(ask, deadline).await,
            AskKind::Release => calls.release(ask, deadline).await,
        })
    }

    /// Calls the runtime once earlier calls about the same worker have returned; `None` if the order is outdated by then or
    /// was given up.
    async fn in_turn<T, F>(
        &self,
        worker: &WorkerKey,
        (step, doing): (u32, StepKind),
        until: Time,
        order: impl FnOnce(Instant) -> F,
    ) -> Option<Result<T, Failure>>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let step_lock = self.shared.step_lock(worker)?;
        let _guard = step_lock.lock().await;
        let step = self.shared.begin(worker, step, doing)?;
        let work = async {
            let _permit = self.permits.orders.acquire().await.ok()?;
            let deadline = self.deadline(until)?;
            // Runtimes return by their deadline; this guards against one that does not.
            let result = timeout_at(deadline + Duration::from_secs(1), order(deadline)).await;
            Some(result.unwrap_or_else(|_| Err(Failure::new("its runtime did not answer in time"))))
        };
        tokio::select! {
            result = work => result,
            () = step.end.cancelled() => None,
        }
    }

    /// The deadline by this machine's clock; `None` if it has passed.
    fn deadline(&self, until: Time) -> Option<Instant> {
        let left = until.since(self.shared.pools.now());
        let way = Millis(left.0 / WAY_PART).min(WAY_MAX);
        (left.0 > 0).then(|| Instant::now() + Duration::from_millis(left.0 - way.0))
    }
}

/// The worker that an order is about. A list is about all workers; its outcome may be reordered with theirs.
const fn worker(effect: &Effect) -> WorkerNo {
    match effect {
        Effect::Reserve(ask) | Effect::Check(ask) | Effect::Release(ask) => ask.worker,
        Effect::Create(make) | Effect::Restart(make) => make.labels.worker,
        Effect::Await(order) | Effect::Stop(order) | Effect::Remove(order) => order.labels.worker,
        Effect::RemoveUnknown { labels, .. } => labels.worker,
        Effect::List { .. } => WorkerNo(0),
    }
}
