//! State shared by the tasks of a Maker: orders in progress, each carried out once, and the limits per pool.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wayleave_core::ids::Token;
use wayleave_core::matches::{Effect, Input};
use wayleave_core::names::{ClientName, PoolName};
use wayleave_core::time::Time;

use super::outcomes::OutcomeSender;
use super::permits::{AskKind, Permits};
use super::steps::{LAST, StepKind, Steps};
use super::{Pools, Site};
use crate::calls::Calls;
use crate::runtime::{Ended, WorkerKey};

/// The state that all tasks of a Maker share.
pub struct Shared {
    pub site: Site,
    pub pools: Arc<dyn Pools>,
    pub calls: Calls,
    pub outcomes: Arc<OutcomeSender>,
    pub stopping: CancellationToken,
    tasks: TaskTracker,
    under_way: Mutex<InProgress>,
    /// When it was last logged that orders cannot be fetched.
    complained: Mutex<Option<Instant>>,
}

/// All polls fail for the same reason, such as a full disk, so one warning covers them; it is repeated at this interval.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);

#[derive(Default)]
struct InProgress {
    orders: HashSet<OrderKey>,
    pools: HashMap<PoolName, Arc<Permits>>,
    steps: Steps,
}

/// Identifies an order, so that a repeated one is recognised.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OrderKey {
    /// A question to a worker.
    Ask(PoolName, AskKind, ClientName, Token, Time),
    /// A step of a worker.
    Step(WorkerKey, u32),
    /// Remove a worker that its pool does not know.
    Unknown(WorkerKey),
    /// List the workers of a pool at this site.
    List(PoolName),
}

/// An order in progress. Dropping it ends it.
pub struct Accepted {
    pub shared: Arc<Shared>,
    pub pool: PoolName,
    pub permits: Arc<Permits>,
    key: OrderKey,
}

impl Drop for Accepted {
    fn drop(&mut self) {
        let mut under_way = self.shared.lock();
        under_way.orders.remove(&self.key);
        if self.permits.end() {
            under_way.pools.remove(&self.pool);
        }
    }
}

impl Shared {
    pub fn new(
        site: Site,
        pools: Arc<dyn Pools>,
        calls: Calls,
        stopping: CancellationToken,
        tasks: TaskTracker,
    ) -> Arc<Self> {
        let outcomes = Arc::new(OutcomeSender::new(Arc::clone(&pools), tasks.clone(), stopping.clone()));
        let (under_way, complained) = (Mutex::default(), Mutex::default());
        Arc::new(Self { site, pools, calls, outcomes, stopping, tasks, under_way, complained })
    }

    /// Whether it is time to log again that orders cannot be fetched.
    pub fn may_complain(&self) -> bool {
        let (now, mut last) = (Instant::now(), self.complained.lock().unwrap_or_else(PoisonError::into_inner));
        let due = last.is_none_or(|last| now.duration_since(last) >= COMPLAIN_EVERY);
        if due {
            *last = Some(now);
        }
        due
    }

    fn lock(&self) -> MutexGuard<'_, InProgress> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out an order, unless the same order is already in progress.
    pub fn accept(self: &Arc<Self>, pool: PoolName, effect: Effect) {
        if *effect.site() != self.site.name {
            tracing::debug!(%pool, site = %effect.site(), "an order for another site was dropped");
            return;
        }
        let key = key(&pool, &effect);
        let mut under_way = self.lock();
        if let Some((worker, step, doing)) = step(&pool, &effect) {
            under_way.steps.ordered(&worker, step, doing, Instant::now());
        }
        if under_way.orders.contains(&key) {
            return;
        }
        let permits = under_way.pools.entry(pool.clone()).or_insert_with(|| Arc::new(Permits::new()));
        if !permits.accept() {
            tracing::warn!(%pool, "a pool has ordered too much at once; it will order again");
            return;
        }
        let permits = Arc::clone(permits);
        under_way.orders.insert(key.clone());
        drop(under_way);
        let accepted = Accepted { shared: Arc::clone(self), pool, permits, key };
        self.tasks.spawn(accepted.carry_out(effect));
    }

    /// The lock that serialises runtime calls about a worker.
    pub fn step_lock(&self, worker: &WorkerKey) -> Option<Arc<tokio::sync::Mutex<()>>> {
        self.lock().steps.step_lock(worker)
    }

    /// Begins a step of a worker, unless a later one was ordered.
    pub fn begin<'a>(&'a self, worker: &'a WorkerKey, step: u32, doing: StepKind) -> Option<Step<'a>> {
        let end = self.lock().steps.begin(worker, step, doing)?;
        Some(Step { shared: self, worker, step, end })
    }

    fn on_end(&self, ended: Ended) {
        let Ended { worker, instance, exit } = ended;
        self.lock().steps.on_end(&worker);
        let WorkerKey { pool, generation, worker, .. } = worker;
        self.outcomes.report(pool, worker, Input::Exited { worker, generation, instance, exit });
    }
}

/// A step in progress. Dropping it ends it.
pub struct Step<'a> {
    shared: &'a Shared,
    worker: &'a WorkerKey,
    step: u32,
    /// Cancelled when the step must be given up.
    pub end: CancellationToken,
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        self.shared.lock().steps.end(self.worker, self.step);
    }
}

/// Reports ended workers to their pools, until the Maker stops.
pub async fn report_ends(shared: Arc<Shared>, mut events: mpsc::Receiver<Ended>) {
    loop {
        tokio::select! {
            () = shared.stopping.cancelled() => return,
            ended = events.recv() => match ended {
                Some(ended) => shared.on_end(ended),
                None => return,
            },
        }
    }
}

fn key(pool: &PoolName, effect: &Effect) -> OrderKey {
    let of = |kind, ask: &wayleave_core::matches::WorkerAsk| {
        OrderKey::Ask(pool.clone(), kind, ask.client.clone(), ask.token, ask.sent_at)
    };
    match effect {
        Effect::Reserve(ask) => of(AskKind::Reserve, ask),
        Effect::Check(ask) => of(AskKind::Check, ask),
        Effect::Release(ask) => of(AskKind::Release, ask),
        Effect::Create(make) | Effect::Restart(make) => {
            OrderKey::Step(WorkerKey::new(pool, &make.labels), make.step.step)
        }
        Effect::Await(order) | Effect::Stop(order) | Effect::Remove(order) => {
            OrderKey::Step(WorkerKey::new(pool, &order.labels), order.step.step)
        }
        Effect::RemoveUnknown { labels, .. } => OrderKey::Unknown(WorkerKey::new(pool, labels)),
        Effect::List { .. } => OrderKey::List(pool.clone()),
    }
}

/// The runtime step that an effect orders, if it orders one.
fn step(pool: &PoolName, effect: &Effect) -> Option<(WorkerKey, u32, StepKind)> {
    let (labels, step, doing) = match effect {
        Effect::Create(make) | Effect::Restart(make) => (&make.labels, make.step.step, StepKind::Make),
        Effect::Await(order) => (&order.labels, order.step.step, StepKind::Await),
        Effect::Stop(order) => (&order.labels, order.step.step, StepKind::Other),
        Effect::Remove(order) => (&order.labels, order.step.step, StepKind::Remove),
        // The number of an unknown worker is never assigned again.
        Effect::RemoveUnknown { labels, .. } => (labels, LAST, StepKind::Remove),
        Effect::Reserve(_) | Effect::Check(_) | Effect::Release(_) | Effect::List { .. } => return None,
    };
    Some((WorkerKey::new(pool, labels), step, doing))
}
