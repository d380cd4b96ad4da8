//! A site of a run: workers in memory, and the Maker that carries out what pools order. Orders, outcomes and workers get
//! lost, workers die and refuse, and the Maker dies with everything that it was doing.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use wayleave_core::ids::{ShardId, Token};
use wayleave_core::invariants::{Broken, Verdict as Judged};
use wayleave_core::matches::{
    Effect, Exit, Input, Instance, Labels, Make, RuntimeKind, Verdict, WorkerAsk, WorkerFound,
};
use wayleave_core::names::{PoolName, SiteName};
use wayleave_core::time::{Millis, Time};
use wayleave_shard::matches::Matches;

use crate::chance::Chance;
use crate::run::verdict;
use crate::world::{Kind, World, pass};

/// A worker: it runs, or has ended.
struct Worker {
    labels: Labels,
    instance: Instance,
    slots: usize,
    exit: Option<Exit>,
    /// Reservations, and when it drops them unless they are confirmed.
    held: BTreeMap<String, (Token, Time)>,
}

/// The reservations that clients were granted and have not given back.
struct Used {
    address: String,
    until: Time,
}

/// The site of a run, and what its workers have promised.
#[derive(Default)]
pub struct Site {
    workers: RefCell<BTreeMap<String, Worker>>,
    /// Reservations that workers have accepted.
    granted: RefCell<BTreeSet<(String, Token)>>,
    used: RefCell<BTreeMap<String, Used>>,
    started: Cell<u64>,
    /// Counts the lives of the Maker: what an earlier one was doing is lost.
    life: Cell<u64>,
}

fn site_name() -> SiteName {
    "site".into()
}

impl Site {
    /// Workers that run or have left something behind.
    pub fn left(&self) -> Vec<String> {
        self.workers.borrow().keys().cloned().collect()
    }

    /// Judges what a client was granted.
    pub fn judge_grant(&self, client: &str, token: Token, address: &str, until: Time) -> Judged {
        if !self.granted.borrow().contains(&(client.to_owned(), token)) {
            let what = format!("'{client}' was granted a reservation at {address} that no worker has made");
            return Err(Broken { law: 7, name: "durable before answered", what });
        }
        self.used.borrow_mut().insert(client.to_owned(), Used { address: address.to_owned(), until });
        Ok(())
    }

    /// A client is about to give its worker back, or no longer counts on it.
    pub fn given_back(&self, client: &str) {
        self.used.borrow_mut().remove(client);
    }

    /// No worker is ended while a client that was granted it counts on it.
    fn ending(&self, address: &str, now: Time) -> Judged {
        let used = self.used.borrow();
        match used.iter().find(|(_, used)| used.address == address && used.until > now) {
            Some((client, _)) => {
                let what = format!("the worker at {address} is ended while '{client}' uses it");
                Err(Broken { law: 4, name: "a current lease counts", what })
            }
            None => Ok(()),
        }
    }

    fn ask(&self, effect: &Effect, ask: &WorkerAsk, now: Time) -> Verdict {
        let mut workers = self.workers.borrow_mut();
        let running = |worker: &&mut Worker| worker.exit.is_none() && worker.instance.address == ask.address;
        let Some(worker) = workers.values_mut().find(running) else {
            return Verdict::Unknown("no worker listens".into());
        };
        worker.held.retain(|_, (_, until)| *until > now);
        let held = worker.held.get(&*ask.client).map(|(token, _)| *token);
        let until = now.after(ask.reservation);
        let yes = match effect {
            Effect::Reserve(_) if held == Some(ask.token) => true,
            Effect::Reserve(_) => worker.held.len() < worker.slots && held.is_none(),
            Effect::Release(_) if held == Some(ask.token) => {
                worker.held.remove(&*ask.client);
                return Verdict::Yes;
            }
            _ => held == Some(ask.token),
        };
        if yes && !matches!(effect, Effect::Release(_)) {
            worker.held.insert(ask.client.to_string(), (ask.token, until));
            self.granted.borrow_mut().insert((ask.client.to_string(), ask.token));
        }
        if yes { Verdict::Yes } else { Verdict::No }
    }

    fn make(&self, make: &Make) -> Instance {
        let mut workers = self.workers.borrow_mut();
        let started = self.started.get() + 1;
        let fresh = Instance { id: make.name.clone(), started, address: format!("127.0.0.1:{started}").into() };
        let worker = workers.entry(make.name.to_string()).or_insert_with(|| Worker {
            labels: make.labels.clone(),
            instance: fresh.clone(),
            slots: make.recipe.slots as usize,
            exit: None,
            held: BTreeMap::new(),
        });
        if worker.exit.take().is_some() {
            worker.instance = fresh;
            worker.held.clear();
        }
        if worker.instance.started == started {
            self.started.set(started);
        }
        worker.instance.clone()
    }

    /// Carries an order out. Returns the report of it, or the law that it breaks.
    fn run(&self, effect: &Effect, chance: &Chance, (now, faulty): (Time, bool)) -> Result<Option<Input>, Broken> {
        let fails = faulty && chance.once_in(12);
        let ended = |name: &str| -> Judged {
            let workers = self.workers.borrow();
            let running = workers.get(name).filter(|worker| worker.exit.is_none());
            running.map_or(Ok(()), |worker| self.ending(&worker.instance.address, now))
        };
        Ok(Some(match effect {
            Effect::Reserve(ask) | Effect::Check(ask) | Effect::Release(ask) => {
                if now >= ask.until {
                    return Ok(None);
                }
                let mut verdict = self.ask(effect, ask, now);
                if fails {
                    // The worker has acted, and its answer is lost.
                    verdict = Verdict::Unknown("timeout".into());
                }
                match effect {
                    Effect::Reserve(_) => ask.reserved(verdict),
                    Effect::Check(_) => ask.checked(verdict),
                    _ => ask.released(verdict),
                }
            }
            Effect::Create(make) | Effect::Restart(make) => {
                let result = if fails { Err("it does not start".into()) } else { Ok(self.make(make)) };
                Input::Made { step: make.step, result }
            }
            Effect::Await(order) => {
                let workers = self.workers.borrow();
                let runs = workers.get(&*order.name).is_some_and(|worker| worker.exit.is_none());
                let result = if runs && !fails { Ok(()) } else { Err("it never listened".into()) };
                Input::Listening { step: order.step, result }
            }
            Effect::Stop(order) => {
                ended(&order.name)?;
                self.workers.borrow_mut().remove(&*order.name);
                Input::Stopped { step: order.step, result: Ok(()) }
            }
            Effect::Remove(order) => {
                ended(&order.name)?;
                self.workers.borrow_mut().remove(&*order.name);
                Input::Removed { step: order.step, result: Ok(()) }
            }
            Effect::RemoveUnknown { labels, .. } => {
                let workers = self.workers.borrow();
                let named = workers.iter().find(|(_, worker)| worker.labels == *labels).map(|(name, _)| name.clone());
                drop(workers);
                if let Some(name) = named {
                    ended(&name)?;
                    self.workers.borrow_mut().remove(&name);
                }
                return Ok(None);
            }
            Effect::List { since, .. } => {
                let found = |worker: &Worker| WorkerFound {
                    worker: worker.labels.worker,
                    generation: worker.labels.generation,
                    instance: Some(worker.instance.clone()),
                    exit: worker.exit.clone(),
                };
                let found = self.workers.borrow().values().map(found).collect();
                Input::Listed { site: site_name(), since: *since, found }
            }
        }))
    }

    /// Ends a worker. Returns its runtime's report.
    fn kill(&self, chance: &Chance) -> Option<Input> {
        let mut workers = self.workers.borrow_mut();
        let at = chance.below(workers.len().max(1) as u64) as usize;
        let worker = workers.values_mut().filter(|worker| worker.exit.is_none()).nth(at)?;
        let exit = if chance.once_in(2) { Exit::Clean } else { Exit::Error("killed".into()) };
        worker.exit = Some(exit.clone());
        let Labels { worker: no, generation, .. } = worker.labels.clone();
        Some(Input::Exited { worker: no, generation, instance: worker.instance.clone(), exit })
    }
}

/// Whether orders, workers and the Maker may be lost now.
fn is_faulty(world: &World) -> bool {
    !world.calm.get() && world.kind != Kind::HandOvers
}

/// The Maker's poll of one shard.
pub async fn maker(world: Rc<World>, name: u64, shard: ShardId) {
    let chance = Rc::new(Chance::new(world.seed, name + u64::from(shard.0)));
    while !world.done.get() {
        let call = async |frontier| {
            Matches::new(frontier).orders(shard, site_name(), RuntimeKind::Process, Millis(2_000)).await
        };
        let Ok(orders) = world.ask(call).await else {
            pass(100 + chance.below(200)).await;
            continue;
        };
        for (pool, effect) in orders {
            if is_faulty(&world) && chance.once_in(20) {
                continue;
            }
            tokio::task::spawn_local(carry_out(world.clone(), chance.clone(), pool, effect));
        }
        pass(1).await;
    }
}

async fn carry_out(world: Rc<World>, chance: Rc<Chance>, pool: PoolName, effect: Effect) {
    let life = world.site.life.get();
    pass(chance.below(if world.calm.get() { 20 } else { 400 })).await;
    if world.site.life.get() != life {
        return;
    }
    let input = match world.site.run(&effect, &chance, (world.now(), is_faulty(&world))) {
        Ok(input) => input,
        Err(broken) => return verdict(&world, Err(broken)),
    };
    world.log("maker", &format!("{effect:?} {input:?}"));
    let Some(input) = input else { return };
    report(&world, &chance, pool, input, life).await;
}

/// Reports to the pool until it accepts the report, or the Maker dies.
async fn report(world: &World, chance: &Chance, pool: PoolName, input: Input, life: u64) {
    while world.site.life.get() == life && !world.done.get() {
        let call = async |frontier| Matches::new(frontier).tell(vec![(pool.clone(), input.clone())]).await;
        if world.ask(call).await.is_ok() {
            return;
        }
        pass(50 + chance.below(200)).await;
    }
}

/// Kills workers and the Maker until the calm.
pub async fn site_faults(world: Rc<World>, name: u64, pool: PoolName) {
    let chance = Chance::new(world.seed, name);
    while is_faulty(&world) {
        pass(500 + chance.below(4_000)).await;
        if chance.once_in(3) {
            world.site.life.set(world.site.life.get() + 1);
            world.log("maker dies", "");
        } else if let Some(exited) = world.site.kill(&chance) {
            world.log("worker dies", &format!("{exited:?}"));
            if chance.once_in(2) {
                report(&world, &chance, pool.clone(), exited, world.site.life.get()).await;
            }
        }
    }
}
