//! A real pool in memory: the core's state behind the trait that Makers use. Its rows are as durable as this process.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::time::timeout;
use wayleave_core::ids::ShardId;
use wayleave_core::matches::{
    Answer, Asker, Decision, Effect, Input, MatchView, PoolSpec, RuntimeKind, State, WorkerView,
};
use wayleave_core::names::{PoolName, SiteName};
use wayleave_core::time::{Millis, Time};
use wayleave_makers::{Failure, Pools};

use super::{OWNER, POOL};

pub struct Pool {
    inner: Mutex<Inner>,
    news: Notify,
    /// Batches and news that were reported.
    pub batches: AtomicUsize,
    pub reported: AtomicUsize,
}

struct Inner {
    state: State,
    effects: Vec<Effect>,
    /// Every order that was given, by name.
    given: Vec<&'static str>,
    wake_at: Option<Time>,
}

impl Pool {
    pub fn new(spec: PoolSpec) -> Self {
        let settings = spec.check().unwrap();
        let state = State::create(ShardId(0), POOL.into(), OWNER.into(), settings, 0xabc, clock());
        let inner = Inner { state, effects: Vec::new(), given: Vec::new(), wake_at: None };
        Self {
            inner: Mutex::new(inner),
            news: Notify::new(),
            batches: AtomicUsize::new(0),
            reported: AtomicUsize::new(0),
        }
    }

    pub fn apply(&self, input: Input) -> Answer {
        let mut inner = self.inner.lock().unwrap();
        let random: Vec<u128> = (0..300)
            .map(|_| u128::from(getrandom::u64().unwrap()) << 64 | u128::from(getrandom::u64().unwrap()))
            .collect();
        let Decision { answer, effects, wake_at, .. } = inner.state.apply(input, clock(), &random);
        inner.given.extend(effects.iter().map(Effect::kind));
        inner.effects.extend(effects);
        inner.wake_at = wake_at;
        if !inner.effects.is_empty() {
            self.news.notify_one();
        }
        answer
    }

    pub fn put(&self, client: &str) -> Answer {
        self.apply(Input::Put(Asker { client: client.into(), principal: None }))
    }

    pub fn view(&self, client: &str) -> Option<MatchView> {
        self.inner.lock().unwrap().state.view(&client.into())
    }

    pub fn workers(&self) -> Vec<WorkerView> {
        self.inner.lock().unwrap().state.workers()
    }

    pub fn given(&self, what: &str) -> usize {
        self.inner.lock().unwrap().given.iter().filter(|name| **name == what).count()
    }

    pub fn why(&self) -> String {
        format!("{:?}", self.inner.lock().unwrap().state.pool_why())
    }
}

fn clock() -> Time {
    Time(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64)
}

#[async_trait]
impl Pools for Pool {
    fn shards(&self) -> u16 {
        1
    }

    fn now(&self) -> Time {
        clock()
    }

    async fn orders(
        &self,
        _: ShardId,
        site: &SiteName,
        runtime: RuntimeKind,
        wait: Millis,
    ) -> Result<Vec<(PoolName, Effect)>, Failure> {
        self.apply(Input::SiteAlive { site: site.clone(), runtime, lack: None });
        let until = clock().after(wait);
        loop {
            let taken = std::mem::take(&mut self.inner.lock().unwrap().effects);
            if !taken.is_empty() || clock() >= until {
                return Ok(taken.into_iter().map(|effect| (PoolName::from(POOL), effect)).collect());
            }
            let wake_at = self.inner.lock().unwrap().wake_at.unwrap_or(until).min(until);
            if timeout(Duration::from_millis(wake_at.since(clock()).0.max(1)), self.news.notified()).await.is_err() {
                self.apply(Input::Tick);
            }
        }
    }

    async fn report(&self, _: &PoolName, news: Vec<Input>) -> Result<(), Failure> {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.reported.fetch_add(news.len(), Ordering::Relaxed);
        news.into_iter().for_each(|news| _ = self.apply(news));
        Ok(())
    }
}
