//! A runtime and pools that do what a test says: real ones cannot be held in the middle of a step.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use wayleave_core::ids::ShardId;
use wayleave_core::matches::{Effect, Input, Instance, Make, Order, RuntimeKind, StepId, WorkerFound, WorkerNo};
use wayleave_core::names::{PoolName, SiteName};
use wayleave_core::time::{Millis, Time};
use wayleave_makers::runtime::{Ended, WorkerKey};
use wayleave_makers::{Failure, Maker, Pools, Runtime, Site};

use super::support::{eventually, labels, make, recipe};

/// A runtime that creates a worker when it is let.
pub struct Scripted {
    calls: Mutex<Vec<String>>,
    pub may_create: Semaphore,
    pub under_way: AtomicUsize,
    pub most: AtomicUsize,
    pub cannot_list: AtomicBool,
    pub ends: Mutex<Option<mpsc::Sender<Ended>>>,
}

pub fn instance() -> Instance {
    Instance { id: "1".into(), started: 1, address: "127.0.0.1:1".into() }
}

impl Scripted {
    fn note(&self, what: &str, worker: &WorkerKey) {
        self.calls.lock().unwrap().push(format!("{what} {}/{}", worker.pool, worker.worker.0));
    }

    pub fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }

    pub async fn called(&self, what: &str) {
        eventually(what, || async { self.calls().iter().any(|call| call == what).then_some(()) }).await;
    }
}

#[async_trait]
impl Runtime for Scripted {
    fn kind(&self) -> RuntimeKind {
        RuntimeKind::Process
    }

    async fn create(&self, worker: &WorkerKey, _: &Make, _: Instant) -> Result<Instance, Failure> {
        self.note("create", worker);
        let now = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        self.may_create.acquire().await.unwrap().forget();
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        self.note("created", worker);
        Ok(instance())
    }

    async fn restart(&self, worker: &WorkerKey, make: &Make, deadline: Instant) -> Result<Instance, Failure> {
        self.create(worker, make, deadline).await
    }

    async fn stop(&self, worker: &WorkerKey, _: Instant) -> Result<(), Failure> {
        self.note("stop", worker);
        Ok(())
    }

    async fn remove(&self, worker: &WorkerKey, _: Instant) -> Result<(), Failure> {
        self.note("remove", worker);
        Ok(())
    }

    async fn list(&self, _: &PoolName, _: &str, _: Instant) -> Result<Vec<WorkerFound>, Failure> {
        if self.cannot_list.load(Ordering::SeqCst) { Err(Failure::new("not now")) } else { Ok(Vec::new()) }
    }

    async fn logs(&self, _: &WorkerKey, _: usize, _: Instant) -> Result<String, Failure> {
        Ok(String::new())
    }

    fn events(&self) -> mpsc::Receiver<Ended> {
        let (sender, receiver) = mpsc::channel(16);
        *self.ends.lock().unwrap() = Some(sender);
        receiver
    }
}

/// Pools that order what the test says, and record the reports that they get.
pub struct Orders {
    sender: mpsc::UnboundedSender<(PoolName, Effect)>,
    receiver: tokio::sync::Mutex<mpsc::UnboundedReceiver<(PoolName, Effect)>>,
    reports: Mutex<Vec<(PoolName, Input)>>,
    /// How often the news of a pool are refused.
    pub refused: Mutex<HashMap<PoolName, usize>>,
    /// This many reports panic in the task that makes them.
    pub breaks: AtomicUsize,
    /// Whether reports wait for a permit, and those that wait.
    pub holds: AtomicBool,
    pub may_report: Semaphore,
    pub held: Mutex<Vec<Vec<Input>>>,
}

#[async_trait]
impl Pools for Orders {
    fn shards(&self) -> u16 {
        1
    }

    fn now(&self) -> Time {
        Time(1_000)
    }

    async fn orders(
        &self,
        _: ShardId,
        _: &SiteName,
        _: RuntimeKind,
        _: Millis,
    ) -> Result<Vec<(PoolName, Effect)>, Failure> {
        Ok(self.receiver.lock().await.recv().await.into_iter().collect())
    }

    async fn report(&self, pool: &PoolName, news: Vec<Input>) -> Result<(), Failure> {
        if let Some(left) = self.refused.lock().unwrap().get_mut(pool).filter(|left| **left > 0) {
            *left -= 1;
            return Err(Failure::new("not now"));
        }
        let broken = self.breaks.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        assert!(broken.is_err(), "broken on request");
        if self.holds.load(Ordering::SeqCst) {
            self.held.lock().unwrap().push(news.clone());
            self.may_report.acquire().await.unwrap().forget();
        }
        self.reports.lock().unwrap().extend(news.into_iter().map(|news| (pool.clone(), news)));
        Ok(())
    }
}

impl Orders {
    pub fn order(&self, pool: &str, effect: Effect) {
        self.sender.send((pool.into(), effect)).unwrap();
    }

    pub fn reports(&self) -> Vec<(PoolName, Input)> {
        self.reports.lock().unwrap().clone()
    }

    pub async fn hears(&self, what: &str, is_it: impl Fn(&PoolName, &Input) -> bool) {
        let heard = || async { self.reports().iter().any(|(pool, news)| is_it(pool, news)).then_some(()) };
        eventually(what, heard).await;
    }
}

pub fn start() -> (Maker, Arc<Scripted>, Arc<Orders>) {
    let runtime = Arc::new(Scripted {
        calls: Mutex::default(),
        may_create: Semaphore::new(0),
        under_way: AtomicUsize::new(0),
        most: AtomicUsize::new(0),
        cannot_list: AtomicBool::new(false),
        ends: Mutex::default(),
    });
    let (sender, receiver) = mpsc::unbounded_channel();
    let pools = Arc::new(Orders {
        sender,
        receiver: tokio::sync::Mutex::new(receiver),
        reports: Mutex::default(),
        refused: Mutex::default(),
        breaks: AtomicUsize::new(0),
        holds: AtomicBool::new(false),
        may_report: Semaphore::new(0),
        held: Mutex::default(),
    });
    let site = Site { name: "here".into(), runtime: Arc::clone(&runtime) as _ };
    (Maker::start(site, Arc::clone(&pools) as _, crate::support::calls()), runtime, pools)
}

pub fn create(worker: u64) -> Effect {
    Effect::Create(Make { until: Time(61_000), ..make(worker, recipe(&["x"], &[])) })
}

pub fn order(worker: u64, step: u32, address: &str) -> Order {
    let instance = Some(Instance { address: address.into(), ..instance() });
    let step = StepId { worker: WorkerNo(worker), step };
    Order { step, name: "w".into(), site: "here".into(), labels: labels(worker), instance, until: Time(61_000) }
}

pub fn list() -> Effect {
    Effect::List { site: "here".into(), owner: "test".into(), since: Time(7) }
}

/// Something that answers one request after the other; its address.
pub async fn answer() -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            _ = stream.read(&mut [0; 1024]).await;
            _ = stream.write_all(b"HTTP/1.1 404 Not WorkerFound\r\ncontent-length: 0\r\n\r\n").await;
        }
    });
    address
}
