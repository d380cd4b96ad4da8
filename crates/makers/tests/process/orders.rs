//! What may happen at the same time while orders are carried out. The runtime and the pools are scripted here, because a
//! real one cannot be held in the middle of a step.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use wayleave_core::ids::ShardId;
use wayleave_core::matches::{Effect, Exit, Found, Input, Instance, Make, Order, RuntimeKind, StepId, WorkerNo};
use wayleave_core::names::{PoolName, SiteName};
use wayleave_core::time::{Millis, Time};
use wayleave_makers::runtime::{Ended, WorkerKey};
use wayleave_makers::{Failure, Maker, Pools, Runtime, Site};

use super::support::{eventually, key, labels, make, recipe};

/// A runtime that creates a worker when it is let.
struct Scripted {
    calls: Mutex<Vec<String>>,
    may_create: Semaphore,
    under_way: AtomicUsize,
    most: AtomicUsize,
    cannot_list: AtomicBool,
    ends: Mutex<Option<mpsc::Sender<Ended>>>,
}

fn instance() -> Instance {
    Instance { id: "1".into(), started: 1, address: "127.0.0.1:1".into() }
}

impl Scripted {
    fn note(&self, what: &str, worker: &WorkerKey) {
        self.calls.lock().unwrap().push(format!("{what} {}/{}", worker.pool, worker.worker.0));
    }

    fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }

    async fn called(&self, what: &str) {
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

    async fn list(&self, _: &PoolName, _: &str, _: Instant) -> Result<Vec<Found>, Failure> {
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

/// Pools that order what the test says, and take down what they are told.
struct Orders {
    sender: mpsc::UnboundedSender<(PoolName, Effect)>,
    receiver: tokio::sync::Mutex<mpsc::UnboundedReceiver<(PoolName, Effect)>>,
    told: Mutex<Vec<(PoolName, Input)>>,
    /// How often the news of a pool are refused.
    refused: Mutex<HashMap<PoolName, usize>>,
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

    async fn tell(&self, pool: &PoolName, news: Vec<Input>) -> Result<(), Failure> {
        if let Some(left) = self.refused.lock().unwrap().get_mut(pool).filter(|left| **left > 0) {
            *left -= 1;
            return Err(Failure::new("not now"));
        }
        self.told.lock().unwrap().extend(news.into_iter().map(|news| (pool.clone(), news)));
        Ok(())
    }
}

impl Orders {
    fn order(&self, pool: &str, effect: Effect) {
        self.sender.send((pool.into(), effect)).unwrap();
    }

    fn told(&self) -> Vec<(PoolName, Input)> {
        self.told.lock().unwrap().clone()
    }

    async fn hears(&self, what: &str, is_it: impl Fn(&PoolName, &Input) -> bool) {
        let heard = || async { self.told().iter().any(|(pool, news)| is_it(pool, news)).then_some(()) };
        eventually(what, heard).await;
    }
}

fn start() -> (Maker, Arc<Scripted>, Arc<Orders>) {
    let runtime = Arc::new(Scripted {
        calls: Mutex::default(),
        may_create: Semaphore::new(0),
        under_way: AtomicUsize::new(0),
        most: AtomicUsize::new(0),
        cannot_list: AtomicBool::new(false),
        ends: Mutex::default(),
    });
    let (sender, receiver) = mpsc::unbounded_channel();
    let (receiver, told, refused) = (tokio::sync::Mutex::new(receiver), Mutex::default(), Mutex::default());
    let pools = Arc::new(Orders { sender, receiver, told, refused });
    let site = Site { name: "here".into(), runtime: Arc::clone(&runtime) as _ };
    (Maker::start(site, Arc::clone(&pools) as _), runtime, pools)
}

fn create(worker: u64) -> Effect {
    Effect::Create(Make { until: Time(61_000), ..make(worker, recipe(&["x"], &[])) })
}

fn order(worker: u64, step: u32, address: &str) -> Order {
    let instance = Some(Instance { address: address.into(), ..instance() });
    let step = StepId { worker: WorkerNo(worker), step };
    Order { step, name: "w".into(), site: "here".into(), labels: labels(worker), instance, until: Time(61_000) }
}

fn list() -> Effect {
    Effect::List { site: "here".into(), owner: "test".into(), since: Time(7) }
}

#[tokio::test]
async fn a_step_that_is_ordered_again_is_not_started_twice_and_a_remove_waits_for_its_end() {
    let (maker, runtime, pools) = start();
    (0..3).for_each(|_| pools.order("a", create(1)));
    pools.order("a", Effect::Remove(order(1, 2, "127.0.0.1:1")));
    // Orders come in this order, so when another worker's is under way, those before it were accepted.
    pools.order("a", create(2));
    runtime.called("create a/2").await;
    assert_eq!(runtime.calls(), ["create a/1", "create a/2"]);
    runtime.may_create.add_permits(2);
    runtime.called("remove a/1").await;
    let calls = runtime.calls();
    let place = |what: &str| calls.iter().position(|call| call == what);
    assert!(place("created a/1") < place("remove a/1"), "{calls:?}");
    pools.hears("the worker is removed", |_, news| matches!(news, Input::Removed { result: Ok(()), .. })).await;
    pools.order("a", create(1));
    runtime.may_create.add_permits(1);
    let again = || async { (runtime.calls().iter().filter(|call| *call == "create a/1").count() == 2).then_some(()) };
    eventually("a step that is over may be ordered again", again).await;
    maker.stop().await;
}

#[tokio::test]
async fn a_pool_takes_only_permits_of_its_own() {
    let (maker, runtime, pools) = start();
    (1..=100).for_each(|worker| pools.order("a", create(worker)));
    pools.order("b", create(1));
    runtime.called("create b/1").await;
    eventually("so many at a time", || async { (runtime.under_way.load(Ordering::SeqCst) == 33).then_some(()) }).await;
    runtime.may_create.add_permits(101);
    eventually("all are made", || async { (pools.told().len() == 101).then_some(()) }).await;
    assert_eq!(runtime.most.load(Ordering::SeqCst), 33, "32 of one pool, and the one of the other");
    maker.stop().await;
}

#[tokio::test]
async fn a_worker_that_ends_or_goes_on_to_another_step_is_no_longer_awaited() {
    let (maker, runtime, pools) = start();
    // A port that takes connections and never answers.
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = mute.local_addr().unwrap().to_string();
    pools.order("browsers", Effect::Await(order(1, 2, &address)));
    pools.order("browsers", Effect::Await(order(2, 2, &address)));
    mute.set_nonblocking(true).unwrap();
    let taken = Mutex::new(Vec::new());
    let both = || async {
        taken.lock().unwrap().extend(mute.accept());
        (taken.lock().unwrap().len() == 2).then_some(())
    };
    eventually("both are awaited", both).await;
    let ended = Ended { worker: key(1), instance: instance(), exit: Exit::Clean };
    runtime.ends.lock().unwrap().as_ref().unwrap().try_send(ended).unwrap();
    pools.order("browsers", Effect::Stop(order(2, 3, &address)));
    pools
        .hears("the exit", |_, news| matches!(news, Input::Exited { worker: WorkerNo(1), exit: Exit::Clean, .. }))
        .await;
    pools.hears("the stop", |_, news| matches!(news, Input::Stopped { .. })).await;
    // The same step, ordered again, is carried out: nothing awaits that worker any more.
    let address = answer().await;
    let again = || async {
        pools.order("browsers", Effect::Await(order(1, 2, &address)));
        pools.told().iter().any(|(_, news)| matches!(news, Input::Listening { result: Ok(()), .. })).then_some(())
    };
    eventually("it listens", again).await;
    let failed = |news: &Input| matches!(news, Input::Listening { result: Err(_), .. });
    assert!(!pools.told().iter().any(|(_, news)| failed(news)), "of those that were given up nothing is told");
    maker.stop().await;
}

/// Something that answers one request after the other; its address.
async fn answer() -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            _ = stream.read(&mut [0; 1024]).await;
            _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await;
        }
    });
    address
}

#[tokio::test]
async fn news_that_a_pool_does_not_take_are_told_again_and_other_pools_do_not_wait_for_it() {
    let (maker, _, pools) = start();
    pools.refused.lock().unwrap().insert("broken".into(), 3);
    pools.order("broken", Effect::Stop(order(1, 1, "x")));
    pools.order("broken", Effect::Stop(order(2, 1, "x")));
    pools.order("well", Effect::Stop(order(1, 1, "x")));
    pools.hears("the other pool's news", |pool, _| &**pool == "well").await;
    eventually("both in the end", || async { (pools.told().len() == 3).then_some(()) }).await;
    maker.stop().await;
}

#[tokio::test]
async fn a_list_that_fails_tells_nothing_and_an_order_for_another_site_is_not_carried_out() {
    let (maker, runtime, pools) = start();
    runtime.cannot_list.store(true, Ordering::SeqCst);
    pools.order("a", list());
    let elsewhere = Order { site: "elsewhere".into(), ..order(1, 1, "x") };
    pools.order("a", Effect::Stop(elsewhere));
    pools.order("a", Effect::Stop(order(2, 1, "x")));
    pools.hears("the stop here", |_, news| matches!(news, Input::Stopped { .. })).await;
    assert_eq!((runtime.calls(), pools.told().len()), (vec!["stop a/2".to_owned()], 1));
    runtime.cannot_list.store(false, Ordering::SeqCst);
    pools.order("a", list());
    pools.hears("the list", |_, news| matches!(news, Input::Listed { since: Time(7), .. })).await;
    maker.stop().await;
}
