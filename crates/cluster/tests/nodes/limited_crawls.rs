//! What page limits cost where several nodes share a store: a ledger is asked rarely, whatever the number of crawls, shards
//! and visits, and pages that were given to shards in advance are used to the last one.

use std::sync::atomic::AtomicUsize;

use wayleave_core::frontier::request::{Outcome, Release, UrlResult};
use wayleave_core::settings::{Change, CrawlChanges};
use wayleave_engine::rows::page_ledger;

use crate::prelude::*;

const CRAWLS: usize = 20;

/// A store that counts how often ledgers are read and written.
struct Counting {
    store: Arc<Memory>,
    looks: AtomicUsize,
    writes: AtomicUsize,
}

fn is_ledger(key: &[u8]) -> bool {
    page_ledger::parse_key(key).is_ok_and(|crawl| page_ledger::key(&crawl) == key)
}

impl Engine for Counting {
    wayleave_engine::pass_on! { store: now own get_many scan_many }

    fn look<'a>(&'a self, scans: &'a [Scan]) -> Pending<'a, Look> {
        let ledgers = scans.iter().filter(|scan| is_ledger(&scan.from)).count();
        self.looks.fetch_add(ledgers, Ordering::Relaxed);
        self.store.look(scans)
    }

    fn commit(&self, batch: Batch) -> Commit {
        let ledgers = batch.writes.iter().filter(|write| is_ledger(&write.key)).count();
        self.writes.fetch_add(ledgers, Ordering::Relaxed);
        self.store.commit(batch)
    }
}

impl Counting {
    /// Reads and writes since the last call.
    fn take(&self) -> (usize, usize) {
        (self.looks.swap(0, Ordering::Relaxed), self.writes.swap(0, Ordering::Relaxed))
    }
}

async fn counted_world() -> (World, Arc<Counting>, Vec<Node>) {
    let world = World::new();
    let (looks, writes) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let engine = Arc::new(Counting { store: world.engine.clone(), looks, writes });
    let mut nodes = Vec::new();
    for id in 1..=3 {
        nodes.push(world.start_on(engine.clone(), NodeId(id), &format!("http://node-{id}")).await);
    }
    world.settle(&nodes.iter().collect::<Vec<_>>()).await;
    (world, engine, nodes)
}

fn name(crawl: usize) -> String {
    format!("c{crawl}")
}

async fn limit(node: &Node, crawl: &str, pages: u64) {
    let changes = CrawlChanges { pages: Change::Set(pages), ..CrawlChanges::default() };
    node.frontier.set_crawl(crawl.into(), changes, false).await.unwrap();
}

/// Puts a URL of each of these crawls on each of some hosts, and visits them. Returns the visits.
async fn work(nodes: &[Node], crawls: &[String], label: &str) -> usize {
    for crawl in crawls {
        let of = |n| Put { crawl: crawl.as_str().into(), ..put(&format!("http://{label}-{n}-{crawl}.example/")) };
        nodes[0].frontier.put((0..32).map(of).collect()).await;
    }
    pass(Duration::from_millis(100)).await;
    let mut visits = 0;
    for node in nodes.iter().cycle().take(1_000) {
        let got = node.frontier.reserve(ask(100, 0)).await.unwrap();
        visits += got.len();
        for reservation in &got {
            fetched(node, reservation).await;
        }
        if visits >= 32 * crawls.len() {
            break;
        }
        pass(Duration::from_millis(10)).await;
    }
    visits
}

async fn fetched(node: &Node, reservation: &Reservation) {
    let result = |url: &str| UrlResult { status: Some(200), ..UrlResult::new(url, Outcome::Fetched) };
    let results = reservation.urls.iter().map(|url| result(&url.url)).collect();
    node.frontier.release(Release { token: reservation.token, results, ready_at: None }, Vec::new()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn visits_of_limited_crawls_do_not_ask_for_pages_while_there_are_many() {
    let (world, engine, mut nodes) = counted_world().await;
    let crawls: Vec<String> = (0..CRAWLS).map(name).collect();
    engine.take();
    for (n, crawl) in crawls.iter().enumerate() {
        limit(&nodes[n % 3], crawl, 1_000_000).await;
    }
    let (looks, writes) = engine.take();
    assert!(looks <= 2 * CRAWLS && writes <= CRAWLS, "{looks} looks and {writes} writes to set {CRAWLS} limits");
    assert_eq!(work(&nodes, &crawls, "a").await, 32 * CRAWLS);
    // Homes look once whether their ledgers are open.
    pass(Duration::from_secs(60)).await;
    let (looks, writes) = engine.take();
    assert!(looks <= CRAWLS && writes == 0, "{looks} looks and {writes} writes for {} visits", 32 * CRAWLS);
    // Set again, as a deployment may do.
    for crawl in &crawls {
        limit(&nodes[0], crawl, 1_000_000).await;
    }
    engine.take();
    assert_eq!(work(&nodes, &crawls, "b").await, 32 * CRAWLS);
    assert_eq!(engine.take().1, 0);
    // Owners that were not told read what their shards have, and write nothing.
    nodes.pop().unwrap().leave(&world).await;
    world.settle(&nodes.iter().collect::<Vec<_>>()).await;
    assert_eq!(work(&nodes, &crawls, "c").await, 32 * CRAWLS);
    let (looks, writes) = engine.take();
    assert!(looks <= CRAWLS * usize::from(SHARDS) && writes == 0, "{looks} looks and {writes} writes");
}

/// All shards are given pages, and few have URLs.
#[tokio::test(start_paused = true)]
async fn pages_that_were_given_in_advance_are_used_to_the_last_one() {
    const PAGES: u64 = 600;
    let (_world, engine, nodes) = counted_world().await;
    limit(&nodes[0], "DEFAULT", PAGES).await;
    engine.take();
    for host in 0..3 {
        let urls: Vec<Put> = (0..300).map(|n| put(&format!("http://h{host}.example/{n}"))).collect();
        nodes[0].frontier.put(urls).await;
    }
    let mut visits = 0;
    for _ in 0..200 {
        for node in &nodes {
            let ask = Reserve { urls: 7, ..ask(9, 0) };
            for reservation in node.frontier.reserve(ask).await.unwrap() {
                visits += 1;
                fetched(node, &reservation).await;
            }
        }
        let counts = nodes[0].frontier.crawl("DEFAULT".into()).await.unwrap().counts;
        assert!(counts.fetched + counts.reserved <= PAGES, "{counts:?}");
        if counts.fetched == PAGES {
            let (_, writes) = engine.take();
            assert!(writes <= visits, "{writes} writes of the ledger for {visits} visits");
            return;
        }
        pass(Duration::from_secs(1)).await;
    }
    panic!("not all pages were handed out");
}
