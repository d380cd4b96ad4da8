//! A frontier over the in-memory engine with paused time, which advances only when every task is idle: timers and the
//! engine's clock are the same.

use std::sync::atomic::AtomicU64;

use wayleave_core::frontier::request::{Released, UrlToFetch};
use wayleave_core::frontier::view::{GroupView, HostFilter, HostView, UrlView};
use wayleave_core::metadata::Metadata;
use wayleave_core::names::{CrawlName, HostName};
use wayleave_engine::clock::Clock;

use crate::prelude::*;

pub const BASE: u64 = 1_700_000_000_000;

/// An engine clock that shows the runtime's time.
#[derive(Clone)]
pub struct RuntimeClock(Instant);

impl RuntimeClock {
    pub fn new() -> Self {
        Self(Instant::now())
    }
}

impl Clock for RuntimeClock {
    fn read(&self) -> Time {
        Time(BASE + self.0.elapsed().as_millis() as u64)
    }
}

pub struct World {
    pub engine: Arc<Memory>,
    pub frontier: Frontier,
    pub config: Config,
}

impl World {
    pub async fn new(shards: u16) -> Self {
        Self::over(Memory::new(RuntimeClock::new()), shards).await
    }

    pub async fn over(engine: Memory, shards: u16) -> Self {
        let mut config = Config { clock_step: Millis(0), ..Config::new(shards) };
        let drawn = AtomicU64::new(1);
        config.entropy = Arc::new(move || scatter(drawn.fetch_add(1, Ordering::Relaxed)));
        let engine = Arc::new(engine);
        let frontier = open(&engine, &config).await;
        Self { engine, frontier, config }
    }

    /// Stops the frontier and reopens the store.
    pub async fn reopen(&mut self) {
        self.frontier.stop().await;
        self.frontier = open(&self.engine, &self.config).await;
    }

    pub fn now(&self) -> Time {
        self.frontier.now()
    }

    pub async fn put(&self, puts: Vec<Put>) -> Vec<PutOutcome> {
        self.frontier.put(puts).await
    }

    pub async fn add(&self, urls: &[&str]) {
        let outcomes = self.put(urls.iter().map(|url| disc(url)).collect()).await;
        assert_eq!(outcomes, vec![PutOutcome::Added; urls.len()], "{urls:?}");
    }

    pub async fn reserve(&self, groups: usize, urls: usize) -> Vec<Reservation> {
        self.frontier.reserve(want(groups, urls)).await.unwrap()
    }

    /// The next reservation of one URL, if a group is ready.
    pub async fn next(&self) -> Option<Reservation> {
        self.reserve(1, 1).await.pop()
    }

    /// Releases with every URL fetched.
    pub async fn fetched(&self, reservation: &Reservation) -> Released {
        self.release(reservation, |result| result).await.unwrap()
    }

    pub async fn release(
        &self,
        reservation: &Reservation,
        change: impl Fn(UrlResult) -> UrlResult,
    ) -> Result<Released, Refusal> {
        let results = reservation.urls.iter().map(|url| change(fetched(&url.url))).collect();
        let release = Release { token: reservation.token, results, ready_at: None };
        self.frontier.release(release, Vec::new()).await.map(|(released, _)| released)
    }

    pub async fn hand_out(&self, queues: usize, urls: usize) -> Vec<UrlToFetch> {
        self.frontier.hand_out(paced(queues, urls)).await.unwrap()
    }

    pub async fn lookup(&self, url: &str) -> Option<UrlView> {
        self.frontier.lookup("DEFAULT".into(), host_of(url), url).await.unwrap()
    }

    pub async fn host(&self, host: &str) -> HostView {
        self.frontier.host(host.into()).await.unwrap()
    }

    pub async fn group(&self, name: &str) -> GroupView {
        self.frontier.group(name).await.unwrap()
    }

    pub async fn state(&self, host: &str) -> State {
        self.host(host).await.standing.state
    }

    pub async fn set_host(&self, host: &str, changes: PaceChanges) -> HostView {
        self.frontier.set_host(host.into(), changes, false, None).await.unwrap()
    }

    pub async fn set_delay(&self, host: &str, ms: u64) {
        self.set_host(host, delay(ms)).await;
    }

    pub async fn set_group(&self, alias: &str, hosts: &[&str], changes: PaceChanges) -> GroupView {
        let hosts = hosts.iter().map(|host| HostName::from(*host)).collect();
        self.frontier.set_group(alias.into(), Some(hosts), changes, false).await.unwrap()
    }

    pub async fn set_crawl(&self, crawl: &str, changes: CrawlChanges) {
        self.frontier.set_crawl(crawl.into(), changes, false).await.unwrap();
    }

    /// All URLs, page by page.
    pub async fn urls(&self, filter: &UrlFilter, limit: usize) -> Vec<UrlView> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = self.frontier.urls(filter, after.as_deref(), limit).await.unwrap();
            assert!(page.items.len() <= limit);
            all.extend(page.items);
            match page.next {
                Some(next) => after = Some(next),
                None => return all,
            }
        }
    }

    /// All hosts, page by page.
    pub async fn hosts(&self, filter: &HostFilter, limit: usize) -> Vec<HostView> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = self.frontier.hosts(filter, after.as_deref(), limit).await.unwrap();
            assert!(page.items.len() <= limit);
            all.extend(page.items);
            match page.next {
                Some(next) => after = Some(next),
                None => return all,
            }
        }
    }

    /// Everything visible of the frontier as text: a restart must not change it.
    pub async fn portrait(&self) -> String {
        let mut hosts = self.hosts(&HostFilter::default(), 3).await;
        hosts.sort_by(|a, b| a.host.cmp(&b.host));
        for host in &mut hosts {
            host.queues.sort_by(|a, b| a.crawl.cmp(&b.crawl));
        }
        let mut groups = self.frontier.groups(&HostFilter::default(), None, 1_000).await.unwrap().items;
        groups.sort_by(|a, b| a.group.cmp(&b.group));
        let mut urls = self.urls(&UrlFilter::default(), 7).await;
        urls.sort_by(|a, b| (&a.crawl, &a.url).cmp(&(&b.crawl, &b.url)));
        let mut reservations = self.frontier.reservations(None, 1_000).await.unwrap().items;
        reservations.sort_by_key(|r| r.token);
        let crawls = self.frontier.crawls().await.unwrap();
        let stats = self.frontier.stats().await.unwrap();
        let active = self.frontier.is_active().await.unwrap();
        format!("{hosts:#?}{groups:#?}{urls:#?}{reservations:#?}{crawls:#?}{stats:#?}{active}")
    }

    /// Reopens the store and checks that everything looks as before.
    pub async fn survives_a_restart(&mut self) {
        let before = self.portrait().await;
        self.reopen().await;
        assert_eq!(self.portrait().await, before, "a restart changed what can be seen");
    }
}

pub async fn open(engine: &Arc<Memory>, config: &Config) -> Frontier {
    let runtime = tokio::runtime::Handle::current();
    Frontier::open(engine.clone(), config.clone(), &runtime).await.unwrap()
}

fn scatter(n: u64) -> u128 {
    let mix = |n: u64| {
        let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        n ^ (n >> 31)
    };
    u128::from(mix(n)) << 64 | u128::from(mix(n ^ 0x5555))
}

/// Advances the test's clock.
pub async fn pass(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// The `n`th host name homed in a shard.
pub fn host_in(shard: u16, shards: u16, n: usize) -> String {
    let names = (0..).map(|i| format!("h{i}.example"));
    names.filter(|name| home(name, shards).0 == shard).nth(n).unwrap()
}

/// An alias homed in a shard.
pub fn alias_in(shard: u16, shards: u16) -> String {
    (0..).map(|i| format!("alias{i}")).find(|name| home(name, shards).0 == shard).unwrap()
}

pub fn host_of(url: &str) -> HostName {
    url.split('/').nth(2).unwrap().into()
}

pub fn disc(url: &str) -> Put {
    let kind = PutKind::Discovered { at: None, priority: 5, depth: 0 };
    Put { url: url.into(), host: host_of(url), crawl: "DEFAULT".into(), kind, metadata: Metadata::default() }
}

pub fn ranked(url: &str, priority: u8) -> Put {
    Put { kind: PutKind::Discovered { at: None, priority, depth: 0 }, ..disc(url) }
}

pub fn disc_at(url: &str, at: Time) -> Put {
    Put { kind: PutKind::Discovered { at: Some(at), priority: 5, depth: 0 }, ..disc(url) }
}

pub fn known(url: &str, due: Option<Time>) -> Put {
    Put { kind: PutKind::Known { due }, ..disc(url) }
}

pub fn undelivered(url: &str, held_until: Time) -> Put {
    Put { kind: PutKind::Undelivered { held_until }, ..disc(url) }
}

pub fn of_crawl(crawl: &str, put: Put) -> Put {
    Put { crawl: CrawlName::from(crawl), ..put }
}

pub fn want(groups: usize, urls: usize) -> Reserve {
    Reserve {
        holder: "worker".into(),
        groups,
        urls,
        crawl: None,
        lease: Millis(60_000),
        wait: Millis(0),
        request: None,
    }
}

pub fn paced(queues: usize, urls: usize) -> HandOut {
    HandOut { host: None, crawl: None, queues, urls, held_below: Some(urls as u32), hold: Millis(30_000) }
}

pub fn fetched(url: &str) -> UrlResult {
    UrlResult { status: Some(200), duration: Some(Millis(10)), ..UrlResult::new(url, Outcome::Fetched) }
}

pub fn delay(ms: u64) -> PaceChanges {
    PaceChanges { delay: Change::Set(Millis(ms)), ..PaceChanges::default() }
}

pub fn paused(paused: bool) -> PaceChanges {
    PaceChanges { paused: Change::Set(paused), ..PaceChanges::default() }
}

pub fn texts(urls: &[UrlToFetch]) -> Vec<&str> {
    urls.iter().map(|url| &*url.url).collect()
}
