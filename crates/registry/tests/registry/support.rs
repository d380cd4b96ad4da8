//! A record that is a number, two nodes over one store, and stores that inject events between two steps.

use std::sync::{Arc, Mutex};

use futures::FutureExt;
use tokio::sync::watch;
use wayleave_core::time::{Millis, Time};
use wayleave_engine::clock::ManualClock;
use wayleave_engine::rows::key::OUTSIDE;
use wayleave_engine::{Batch, Commit, Engine, Key, Look, Memory, Pending, Scan, Write};
use wayleave_engine_postgres::{Options, Postgres};
use wayleave_registry::{Config, Decision, News, Registry, Subject, value};
use wayleave_testbed::Cluster;

/// Long enough that a test which needs a poll does not end.
pub const NEVER: Millis = Millis(3_600_000);

/// A key outside the shards, of an otherwise unused kind.
pub fn key(name: &str) -> Key {
    [&OUTSIDE.0.to_be_bytes(), [200].as_slice(), name.as_bytes()].concat()
}

pub fn record(name: &str) -> Subject {
    Subject::row(key(name), "this record")
}

pub fn put(name: &str, number: u64) -> Write {
    Write { key: key(name), value: Some(number.to_string().into_bytes()) }
}

pub fn only(write: Write) -> Batch {
    Batch { writes: vec![write], ..Batch::default() }
}

/// The number that a look has found; zero if there is none.
pub fn number(look: &Look, name: &str) -> u64 {
    value(look, &key(name)).map_or(0, |value| String::from_utf8(value.clone()).unwrap().parse().unwrap())
}

/// Adds one; the answer is the sum.
pub fn add(name: &'static str) -> impl FnMut(&Look, bool) -> Decision<u64> + Send + 'static {
    move |look, _| {
        let sum = number(look, name) + 1;
        Decision::write(vec![put(name, sum)], News::EVERYWHERE, sum)
    }
}

pub async fn read(registry: &Registry, name: &str) -> u64 {
    number(&registry.look_at(&record(name)).await.unwrap(), name)
}

/// A store in memory with a stopped clock.
pub fn memory() -> Arc<Memory> {
    Arc::new(Memory::new(ManualClock::new(Time(1_000_000))))
}

/// The same store for two nodes.
pub fn two_in_memory() -> [Arc<dyn Engine>; 2] {
    let engine = memory();
    [engine.clone(), engine]
}

/// A separate database, opened by two nodes.
pub async fn two_over_postgres() -> [Arc<dyn Engine>; 2] {
    let url = Cluster::shared().await.fresh_database().await;
    [open(&url).await, open(&url).await]
}

pub async fn open(url: &str) -> Arc<dyn Engine> {
    Arc::new(Postgres::open(url, Options::default()).await.unwrap())
}

/// A node that never polls.
pub fn unpolled(engine: Arc<dyn Engine>) -> Registry {
    Registry::with(engine, Config { poll: NEVER, ..Config::default() })
}

/// Lets the hints of one node reach another.
pub fn link(from: &Registry, to: &Registry) {
    let hints = to.hints().clone();
    from.hints().on_send(Arc::new(move |keys| keys.iter().for_each(|key| hints.wake(key))));
}

/// A store in which another node writes between a look and the write that was decided on it.
pub struct Meanwhile {
    pub inner: Arc<dyn Engine>,
    pub other: Arc<dyn Engine>,
    /// What the other one writes, one each time.
    pub batches: Mutex<Vec<Batch>>,
}

impl Meanwhile {
    pub fn new([inner, other]: [Arc<dyn Engine>; 2], batches: Vec<Batch>) -> Arc<Self> {
        Arc::new(Self { inner, other, batches: Mutex::new(batches) })
    }
}

impl Engine for Meanwhile {
    wayleave_engine::pass_on! { inner: now own get_many scan_many look }

    fn commit(&self, batch: Batch) -> Commit {
        let (inner, other, before) = (self.inner.clone(), self.other.clone(), self.batches.lock().unwrap().pop());
        async move {
            if let Some(before) = before {
                other.commit(before).await.unwrap();
            }
            inner.commit(batch).await
        }
        .boxed()
    }
}

/// A store whose looks are answered late: with the rows as they were when they were asked for.
pub struct Late {
    pub inner: Arc<dyn Engine>,
    pub open: watch::Sender<bool>,
    /// How many looks have read their rows.
    pub looks: watch::Sender<usize>,
}

impl Late {
    pub fn new(inner: Arc<dyn Engine>) -> Arc<Self> {
        Arc::new(Self { inner, open: watch::Sender::new(false), looks: watch::Sender::new(0) })
    }
}

impl Engine for Late {
    wayleave_engine::pass_on! { inner: now own get_many scan_many commit }

    fn look<'a>(&'a self, scans: &'a [Scan]) -> Pending<'a, Look> {
        async move {
            let look = self.inner.look(scans).await;
            self.looks.send_modify(|looks| *looks += 1);
            _ = self.open.subscribe().wait_for(|open| *open).await;
            look
        }
        .boxed()
    }
}
