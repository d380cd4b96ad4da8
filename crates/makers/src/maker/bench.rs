//! What is being carried out: each order once, so many of a pool at a time.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wayleave_core::ids::Token;
use wayleave_core::matches::{Effect, Input};
use wayleave_core::names::{ClientName, PoolName};
use wayleave_core::time::Time;

use super::tells::Tells;
use super::{Pools, Site};
use crate::calls::Calls;
use crate::runtime::{Ended, WorkerKey};

/// Calls to workers of one pool at a time.
const CALLS_MAX: usize = 256;
/// Orders to the runtime for one pool at a time.
const ORDERS_MAX: usize = 32;
/// Orders of one pool that wait or are carried out. Beyond that they are dropped, and ordered again.
const ACCEPTED_MAX: usize = 4_096;

/// What all tasks of a Maker share.
pub struct Bench {
    pub site: Site,
    pub pools: Arc<dyn Pools>,
    pub calls: Calls,
    pub tells: Arc<Tells>,
    pub stopping: CancellationToken,
    tasks: TaskTracker,
    under_way: Mutex<UnderWay>,
}

#[derive(Default)]
struct UnderWay {
    orders: HashSet<OrderKey>,
    pools: HashMap<PoolName, Arc<Permits>>,
    /// Runtime orders of a worker take turns.
    turns: HashMap<WorkerKey, Arc<tokio::sync::Mutex<()>>>,
    /// Workers that are awaited, in which step, and how to end that.
    awaited: HashMap<WorkerKey, (u32, Arc<Notify>)>,
}

/// What an order is recognised by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OrderKey {
    /// A question to a worker.
    Ask(PoolName, AskKind, ClientName, Token, Time),
    /// A step of a worker.
    Step(WorkerKey, u32),
    /// What a pool does not know is to be removed.
    Unknown(WorkerKey),
    /// What a site has of a pool is to be listed.
    List(PoolName),
}

/// Which question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AskKind {
    Reserve,
    Check,
    Release,
}

/// How much of a pool is done at a time.
pub struct Permits {
    pub calls: Semaphore,
    pub orders: Semaphore,
    accepted: Semaphore,
}

/// An order that is being carried out; dropped, it no longer is.
pub struct Accepted {
    pub bench: Arc<Bench>,
    pub pool: PoolName,
    pub permits: Arc<Permits>,
    key: OrderKey,
}

impl Drop for Accepted {
    fn drop(&mut self) {
        self.permits.accepted.add_permits(1);
        let mut under_way = self.bench.lock();
        under_way.orders.remove(&self.key);
        if self.permits.accepted.available_permits() == ACCEPTED_MAX {
            under_way.pools.remove(&self.pool);
        }
    }
}

impl Bench {
    pub fn new(site: Site, pools: Arc<dyn Pools>, stopping: CancellationToken, tasks: TaskTracker) -> Arc<Self> {
        let tells = Arc::new(Tells::new(Arc::clone(&pools), tasks.clone(), stopping.clone()));
        let (calls, under_way) = (Calls::default(), Mutex::default());
        Arc::new(Self { site, pools, calls, tells, stopping, tasks, under_way })
    }

    fn lock(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out an order, unless that is being done already.
    pub fn accept(self: &Arc<Self>, pool: PoolName, effect: Effect) {
        if *effect.site() != self.site.name {
            tracing::debug!(%pool, site = %effect.site(), "an order for another site was dropped");
            return;
        }
        let key = key(&pool, &effect);
        let mut under_way = self.lock();
        if let OrderKey::Step(worker, step) = &key
            && let Some((_, end)) = under_way.awaited.get(worker).filter(|(awaited, _)| awaited < step)
        {
            end.notify_one();
        }
        if under_way.orders.contains(&key) {
            return;
        }
        let permits = under_way.pools.entry(pool.clone()).or_insert_with(|| Arc::new(Permits::new()));
        let Ok(permit) = permits.accepted.try_acquire() else {
            tracing::warn!(%pool, "a pool has ordered too much at once; it will order again");
            return;
        };
        permit.forget();
        let permits = Arc::clone(permits);
        under_way.orders.insert(key.clone());
        drop(under_way);
        let accepted = Accepted { bench: Arc::clone(self), pool, permits, key };
        self.tasks.spawn(accepted.carry_out(effect));
    }

    /// The turn of a worker: whoever has it locked gives orders about it.
    pub fn turn(&self, worker: &WorkerKey) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(self.lock().turns.entry(worker.clone()).or_default())
    }

    /// Forgets the turns that nobody waits for.
    pub fn end_turn(&self, worker: &WorkerKey, turn: Arc<tokio::sync::Mutex<()>>) {
        let mut under_way = self.lock();
        drop(turn);
        if under_way.turns.get(worker).is_some_and(|turn| Arc::strong_count(turn) == 1) {
            under_way.turns.remove(worker);
        }
    }

    /// A worker is awaited from now on; whatever is notified ends that.
    pub fn begin_await(&self, worker: &WorkerKey, step: u32) -> Arc<Notify> {
        let end = Arc::new(Notify::new());
        self.lock().awaited.insert(worker.clone(), (step, Arc::clone(&end)));
        end
    }

    pub fn end_await(&self, worker: &WorkerKey, step: u32) {
        let mut under_way = self.lock();
        if under_way.awaited.get(worker).is_some_and(|(awaited, _)| *awaited == step) {
            under_way.awaited.remove(worker);
        }
    }

    fn on_end(&self, ended: Ended) {
        let Ended { worker, instance, exit } = ended;
        if let Some((_, end)) = self.lock().awaited.get(&worker) {
            end.notify_one();
        }
        let WorkerKey { pool, generation, worker, .. } = worker;
        self.tells.tell(pool, Input::Exited { worker, generation, instance, exit });
    }
}

impl Permits {
    fn new() -> Self {
        let [calls, orders, accepted] = [CALLS_MAX, ORDERS_MAX, ACCEPTED_MAX].map(Semaphore::new);
        Self { calls, orders, accepted }
    }
}

/// Tells pools of workers that ended, until the Maker stops.
pub async fn tell_ends(bench: Arc<Bench>, mut events: mpsc::Receiver<Ended>) {
    loop {
        tokio::select! {
            () = bench.stopping.cancelled() => return,
            ended = events.recv() => match ended {
                Some(ended) => bench.on_end(ended),
                None => return,
            },
        }
    }
}

fn key(pool: &PoolName, effect: &Effect) -> OrderKey {
    let of = |kind, ask: &wayleave_core::matches::Ask| {
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
