//! A site without machines: it carries out at once what pools order, in memory, and answers for its workers.

use std::collections::BTreeMap;
use std::sync::Mutex;

use tokio::task::JoinHandle;
use wayleave_core::matches::{Effect, Input, Instance, Labels, Make, RuntimeKind, Verdict, WorkerFound, WorkerNo};
use wayleave_core::names::PoolName;
use wayleave_server::{KeptLog, LogOf, WorkerLogs};
use wayleave_shard::matches::Matches;

use crate::prelude::*;

/// What its workers answer.
#[derive(Clone, Debug)]
pub struct Manners {
    /// To a reservation.
    pub reserve: Verdict,
    /// To a check.
    pub check: Verdict,
    /// Why none can be started, if none can.
    pub create: Option<&'static str>,
}

/// The site, while it is there.
pub struct Site {
    pub manners: Arc<Mutex<Manners>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// What its tasks share.
#[derive(Clone)]
struct Workers {
    manners: Arc<Mutex<Manners>>,
    found: Arc<Mutex<BTreeMap<(PoolName, u64), WorkerFound>>>,
}

const NAME: &str = "here";

impl Site {
    /// Serves these pools until it is dropped.
    pub fn of(matches: &Matches) -> Self {
        let manners = Manners { reserve: Verdict::Yes, check: Verdict::Yes, create: None };
        let workers = Workers { manners: Arc::new(Mutex::new(manners)), found: Arc::default() };
        let poll = |shard| {
            let (site, matches) = (workers.clone(), matches.clone());
            tokio::spawn(async move {
                loop {
                    let orders = matches.orders(shard, NAME.into(), RuntimeKind::Process, Millis(5_000)).await;
                    let orders = orders.unwrap_or_default().into_iter();
                    let told = orders.filter_map(|(pool, order)| Some((pool.clone(), site.run(&pool, order)?)));
                    let told: Vec<_> = told.collect();
                    if !told.is_empty() {
                        matches.tell(told).await.unwrap();
                    }
                }
            })
        };
        Self { tasks: matches.shards().into_iter().map(poll).collect(), manners: workers.manners }
    }
}

impl Workers {
    fn run(&self, pool: &PoolName, order: Effect) -> Option<Input> {
        let manners = self.manners.lock().unwrap().clone();
        let gone = |worker| _ = self.found.lock().unwrap().remove(&(pool.clone(), worker));
        Some(match order {
            Effect::Reserve(ask) => ask.reserved(manners.reserve),
            Effect::Check(ask) => ask.checked(manners.check),
            Effect::Release(ask) => ask.released(Verdict::Yes),
            Effect::Create(make) | Effect::Restart(make) => {
                let result = manners.create.map_or_else(|| Ok(self.made(pool, &make)), |why| Err(why.into()));
                Input::Made { step: make.step, result }
            }
            Effect::Await(order) => Input::Listening { step: order.step, result: Ok(()) },
            Effect::Stop(order) => {
                gone(order.step.worker.0);
                Input::Stopped { step: order.step, result: Ok(()) }
            }
            Effect::Remove(order) => {
                gone(order.step.worker.0);
                Input::Removed { step: order.step, result: Ok(()) }
            }
            Effect::RemoveUnknown { .. } => return None,
            Effect::List { site, since, .. } => {
                let found = self.found.lock().unwrap();
                let here = found.iter().filter(|((of, _), _)| of == pool).map(|(_, found)| found.clone());
                Input::Listed { site, since, found: here.collect() }
            }
        })
    }

    fn made(&self, pool: &PoolName, make: &Make) -> Instance {
        let no = make.labels.worker;
        let instance = Instance { id: no.0.to_string().into(), started: 1, address: "127.0.0.1:9".into() };
        let found = WorkerFound {
            worker: no,
            generation: make.labels.generation,
            instance: Some(instance.clone()),
            exit: None,
        };
        self.found.lock().unwrap().insert((pool.clone(), no.0), found);
        instance
    }
}

/// The output of its workers.
pub struct Logs;

impl WorkerLogs for Logs {
    /// As after a restart: of pools whose names begin so there are files.
    fn kept(&self, pool: PoolName) -> BoxFuture<'static, Vec<KeptLog>> {
        let labels = Labels { owner: "".into(), generation: 7, worker: WorkerNo(9) };
        let kept = KeptLog {
            worker: format!("{pool}-7-9"),
            labels,
            site: NAME.into(),
            reason: "it exited with code 3".into(),
            removed_at: Time(5_000),
            folder: format!("/kept/{pool}/7-9").into(),
        };
        async move { if pool.starts_with("kept") { vec![kept] } else { Vec::new() } }.boxed()
    }

    fn log(&self, of: LogOf, bytes_max: usize) -> BoxFuture<'static, Option<Result<String, String>>> {
        let text = format!("{}: {bytes_max}", of.labels.worker.0);
        async move { (&*of.site == NAME).then_some(Ok(text)) }.boxed()
    }
}
