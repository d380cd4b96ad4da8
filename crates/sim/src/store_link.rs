//! A node's connection to the store that all nodes share. It behaves like one to a database: every call has latency,
//! commits are pipelined in order, and until one is durable only this node sees it. A paused node neither sends nor
//! receives; what a dead node had not delivered is lost.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::{Notify, oneshot};
use wayleave_core::ids::{Epoch, ShardId};
use wayleave_core::time::Time;
use wayleave_engine::{Batch, Commit, Engine, Error, Expect, Key, Look, Memory, Pending, Row, Scan, Value};

use crate::chance::Chance;
use crate::node_client::{ProcessHandle, ProcessState};

/// The current store.
pub type Store = Arc<Mutex<Arc<Memory>>>;

/// Rows in flight; `None` is a deletion.
type Own = BTreeMap<Key, Option<Value>>;

/// The maximum one-way latency.
const WAY_MS: u64 = 3;

/// The engine of one node.
pub struct StoreLink(Arc<Inner>);

struct Inner {
    store: Store,
    life: ProcessHandle,
    chance: Mutex<Chance>,
    flights: Mutex<Flights>,
    more: Notify,
}

#[derive(Default)]
struct Flights {
    waiting: VecDeque<Flight>,
    /// What this node has committed without an answer: by key, the number of the flight and the value.
    overlay: BTreeMap<Key, (u64, Option<Value>)>,
    numbers: u64,
}

struct Flight {
    number: u64,
    batch: Batch,
    done: oneshot::Sender<Result<(), Error>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lost() -> Error {
    Error::OutcomeUnknown("the way to the store is lost".to_owned())
}

impl StoreLink {
    pub fn new(store: Store, life: ProcessHandle, chance: Chance) -> Arc<Self> {
        let (chance, flights) = (Mutex::new(chance), Mutex::default());
        let inner = Arc::new(Inner { store, life, chance, flights, more: Notify::new() });
        tokio::spawn(send_in_a_row(inner.clone()));
        Arc::new(Self(inner))
    }
}

/// Sends fenced commits in order, pipelined.
async fn send_in_a_row(link: Arc<Inner>) {
    loop {
        let next = lock(&link.flights).waiting.pop_front();
        let Some(flight) = next else {
            tokio::select! {
                biased;
                () = link.more.notified() => continue,
                () = link.life.until(|life| life == ProcessState::Dead) => return,
            }
        };
        if link.travel().await.is_err() {
            return;
        }
        let commit = link.store().commit(flight.batch);
        let link = link.clone();
        tokio::spawn(async move {
            let answer = commit.await;
            let answer = link.travel().await.and(answer);
            link.land(flight.number, answer.is_ok());
            // The owner may be gone.
            _ = flight.done.send(answer);
        });
    }
}

impl Inner {
    fn store(&self) -> Arc<Memory> {
        lock(&self.store).clone()
    }

    /// One way, there or back.
    async fn travel(&self) -> Result<(), Error> {
        let ms = lock(&self.chance).below(WAY_MS);
        tokio::time::sleep(Duration::from_millis(ms)).await;
        if self.life.goes().await { Ok(()) } else { Err(lost()) }
    }

    /// A flight has ended. Once one is durable so are all before it, and the store may have newer values by now. A
    /// refused one is removed; those after it will be refused too.
    fn land(&self, number: u64, durable: bool) {
        let stays = |by: u64| if durable { by > number } else { by != number };
        lock(&self.flights).overlay.retain(|_, (by, _)| stays(*by));
    }

    fn take_off(&self, batch: Batch) -> oneshot::Receiver<Result<(), Error>> {
        let (done, answer) = oneshot::channel();
        let mut flights = lock(&self.flights);
        flights.numbers += 1;
        let number = flights.numbers;
        for write in &batch.writes {
            flights.overlay.insert(write.key.clone(), (number, write.value.clone()));
        }
        flights.waiting.push_back(Flight { number, batch, done });
        drop(flights);
        self.more.notify_one();
        answer
    }

    /// Reads what is durable, overlaid with what is in flight from here.
    async fn read(&self, scans: &[Scan]) -> Result<Vec<Vec<Row>>, Error> {
        self.travel().await?;
        let own: Vec<Own> = {
            let flights = lock(&self.flights);
            let within = |scan: &Scan| {
                let range = if scan.from < scan.to {
                    Some(flights.overlay.range::<Key, _>(&scan.from..&scan.to))
                } else {
                    None
                };
                range.into_iter().flatten().map(|(key, (_, value))| (key.clone(), value.clone())).collect()
            };
            scans.iter().map(within).collect()
        };
        let wider = |(scan, own): (&Scan, &Own)| Scan { limit: scan.limit + own.len(), ..scan.clone() };
        let asked: Vec<Scan> = scans.iter().zip(&own).map(wider).collect();
        let found = self.store().look(&asked).await?.rows;
        let merge = |((scan, own), rows): ((&Scan, Own), Vec<Row>)| {
            let mut all: Own = rows.into_iter().map(|row| (row.key, Some(row.value))).collect();
            all.extend(own);
            let rows = all.into_iter().filter_map(|(key, value)| Some(Row { key, value: value? }));
            rows.take(scan.limit).collect()
        };
        Ok(scans.iter().zip(own).zip(found).map(merge).collect())
    }
}

impl Engine for StoreLink {
    fn now(&self) -> Time {
        self.0.store().now()
    }

    fn own<'a>(&'a self, shard: ShardId, expects: &'a [Expect]) -> Pending<'a, (Epoch, u64)> {
        async move {
            self.0.travel().await?;
            let store = self.0.store();
            let answer = store.own(shard, expects).await;
            self.0.travel().await.and(answer)
        }
        .boxed()
    }

    fn get_many<'a>(&'a self, keys: &'a [Key]) -> Pending<'a, Vec<Option<Value>>> {
        async move {
            let one = |key: &Key| {
                let mut to = key.clone();
                to.push(0);
                Scan { from: key.clone(), to, limit: 1 }
            };
            let scans: Vec<Scan> = keys.iter().map(one).collect();
            let rows = self.0.read(&scans).await?;
            Ok(rows.into_iter().map(|rows| rows.into_iter().next().map(|row| row.value)).collect())
        }
        .boxed()
    }

    fn scan_many<'a>(&'a self, scans: &'a [Scan]) -> Pending<'a, Vec<Vec<Row>>> {
        self.0.read(scans).boxed()
    }

    fn past_damage<'a>(&'a self, scan: &'a Scan) -> Pending<'a, (Key, Vec<Row>)> {
        async move {
            self.0.travel().await?;
            let own: Own = {
                let flights = lock(&self.0.flights);
                let range = flights.overlay.range::<Key, _>(&scan.from..&scan.to);
                range.map(|(key, (_, value))| (key.clone(), value.clone())).collect()
            };
            let (end, _) = self.0.store().past_damage(scan).await?;
            self.0.travel().await?;
            let own = own.into_iter().filter(|(key, _)| *key < end);
            let rows = own.filter_map(|(key, value)| Some(Row { key, value: value? })).collect();
            Ok((end, rows))
        }
        .boxed()
    }

    fn look<'a>(&'a self, scans: &'a [Scan]) -> Pending<'a, Look> {
        async move {
            self.0.travel().await?;
            let answer = self.0.store().look(scans).await;
            self.0.travel().await.and(answer)
        }
        .boxed()
    }

    fn commit(&self, batch: Batch) -> Commit {
        let answer = if batch.fences.is_empty() {
            let (done, answer) = oneshot::channel();
            let link = self.0.clone();
            // It continues even if its future is dropped.
            tokio::spawn(async move {
                if link.travel().await.is_ok() {
                    let committed = link.store().commit(batch).await;
                    _ = done.send(link.travel().await.and(committed));
                }
            });
            answer
        } else {
            self.0.take_off(batch)
        };
        answer.map(|answer| answer.unwrap_or_else(|_| Err(lost()))).boxed()
    }
}
