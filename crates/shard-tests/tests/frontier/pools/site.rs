//! A site for tests: it carries out orders at once, in memory, and can keep silent about some of them.

use std::sync::MutexGuard;

use wayleave_core::matches::{Effect, Exit, Input, Instance, Labels, Make, StepId, Verdict, WorkerAsk, WorkerFound};
use wayleave_core::names::SiteName;
use wayleave_shard::matches::Matches;

use crate::prelude::*;

/// A worker that runs.
pub struct Running {
    pub labels: Labels,
    pub instance: Instance,
    pub slots: usize,
    pub held: BTreeMap<String, Token>,
}

#[derive(Default)]
pub struct Inner {
    pub workers: BTreeMap<(PoolName, String), Running>,
    /// Kinds of orders that are lost.
    pub deaf: BTreeSet<&'static str>,
    /// Every order that was carried out or lost, by kind.
    pub seen: BTreeMap<&'static str, usize>,
    started: u64,
}

/// A site. Clones are the same one.
#[derive(Clone)]
pub struct Site {
    pub name: SiteName,
    inner: Arc<Mutex<Inner>>,
}

/// A Maker's task; it ends when dropped.
pub struct Maker(Vec<JoinHandle<()>>);

impl Maker {
    /// Ends it, and waits until it has ended.
    pub async fn end(mut self) {
        for task in std::mem::take(&mut self.0) {
            task.abort();
            _ = task.await;
        }
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

impl Site {
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), inner: Arc::default() }
    }

    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    /// Loses orders of these kinds from now on, and no others.
    pub fn lose(&self, kinds: &[&'static str]) {
        assert!(kinds.iter().all(|kind| Effect::KINDS.contains(kind)));
        self.lock().deaf = kinds.iter().copied().collect();
    }

    pub fn seen(&self, kind: &str) -> usize {
        self.lock().seen.get(kind).copied().unwrap_or_default()
    }

    pub fn workers(&self) -> usize {
        self.lock().workers.len()
    }

    /// Reservations that workers hold.
    pub fn held(&self) -> usize {
        self.lock().workers.values().map(|worker| worker.held.len()).sum()
    }

    /// Polls every shard, carries orders out and reports.
    pub fn serve(&self, matches: &Matches) -> Maker {
        let poll = |shard| {
            let (site, matches) = (self.clone(), matches.clone());
            tokio::spawn(async move {
                loop {
                    let orders = matches.orders(shard, site.name.clone(), RuntimeKind::Process, Millis(5_000)).await;
                    let Ok(orders) = orders else {
                        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                        continue;
                    };
                    let inputs: Vec<_> =
                        orders.into_iter().filter_map(|(pool, effect)| site.run(pool, effect)).collect();
                    if !inputs.is_empty() {
                        _ = matches.tell(inputs).await;
                    }
                }
            })
        };
        Maker(matches.shards().into_iter().map(poll).collect())
    }

    /// Carries an order out, unless orders of its kind are lost.
    pub fn run(&self, pool: PoolName, effect: Effect) -> Option<(PoolName, Input)> {
        assert_eq!(*effect.site(), self.name, "an order for another site");
        let mut inner = self.lock();
        *inner.seen.entry(effect.kind()).or_default() += 1;
        if inner.deaf.contains(effect.kind()) {
            return None;
        }
        let input = match effect {
            Effect::Reserve(ask) => {
                let verdict = inner.reserve(&ask);
                ask.reserved(verdict)
            }
            Effect::Check(ask) => {
                let held = inner.worker_at(&ask).and_then(|worker| worker.held.get(&*ask.client).copied());
                ask.checked(yes(held == Some(ask.token)))
            }
            Effect::Release(ask) => {
                let held = inner.worker_at(&ask).and_then(|worker| worker.held.remove(&*ask.client));
                ask.released(yes(held.is_some()))
            }
            Effect::Create(make) | Effect::Restart(make) => inner.make(&pool, &make),
            Effect::Await(order) => Input::Listening { step: order.step, result: Ok(()) },
            Effect::Stop(order) => {
                inner.workers.remove(&(pool.clone(), order.name.to_string()));
                Input::Stopped { step: order.step, result: Ok(()) }
            }
            Effect::Remove(order) => {
                inner.workers.remove(&(pool.clone(), order.name.to_string()));
                Input::Removed { step: order.step, result: Ok(()) }
            }
            Effect::RemoveUnknown { labels, .. } => {
                inner.workers.retain(|(of, _), worker| *of != pool || worker.labels != labels);
                return None;
            }
            Effect::List { since, .. } => {
                let own = inner.workers.iter().filter(|((of, _), _)| *of == pool);
                let found = own.map(|(_, worker)| WorkerFound {
                    worker: worker.labels.worker,
                    generation: worker.labels.generation,
                    instance: Some(worker.instance.clone()),
                    exit: None,
                });
                Input::Listed { site: self.name.clone(), since, found: found.collect() }
            }
        };
        Some((pool, input))
    }

    /// Ends every worker of a pool. Returns its runtime's reports.
    pub fn crash(&self, pool: &PoolName) -> Vec<(PoolName, Input)> {
        let mut inner = self.lock();
        let all = std::mem::take(&mut inner.workers);
        let (gone, kept): (BTreeMap<_, _>, _) = all.into_iter().partition(|((of, _), _)| of == pool);
        inner.workers = kept;
        let listed = |((pool, _), Running { labels, instance, .. }): ((PoolName, String), Running)| {
            let Labels { worker, generation, .. } = labels;
            (pool, Input::Exited { worker, generation, instance, exit: Exit::Error("killed".into()) })
        };
        gone.into_iter().map(listed).collect()
    }
}

impl Inner {
    fn worker_at(&mut self, ask: &WorkerAsk) -> Option<&mut Running> {
        self.workers.values_mut().find(|worker| worker.instance.address == ask.address)
    }

    fn reserve(&mut self, ask: &WorkerAsk) -> Verdict {
        let Some(worker) = self.worker_at(ask) else { return Verdict::Unknown("no worker listens".into()) };
        let full = worker.held.len() >= worker.slots && !worker.held.contains_key(&*ask.client);
        if !full {
            worker.held.insert(ask.client.to_string(), ask.token);
        }
        yes(!full)
    }

    fn make(&mut self, pool: &PoolName, make: &Make) -> Input {
        let step: StepId = make.step;
        self.started += 1;
        let (id, started) = (make.name.clone(), self.started);
        let address = format!("127.0.0.1:{started}").into();
        let fresh = || Running {
            labels: make.labels.clone(),
            instance: Instance { id, started, address },
            slots: make.recipe.slots as usize,
            held: BTreeMap::new(),
        };
        let worker = self.workers.entry((pool.clone(), make.name.to_string())).or_insert_with(fresh);
        Input::Made { step, result: Ok(worker.instance.clone()) }
    }
}

const fn yes(yes: bool) -> Verdict {
    if yes { Verdict::Yes } else { Verdict::No }
}
