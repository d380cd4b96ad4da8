//! The real binary on a file system that repeatedly loses power while clients put URLs and report visits. Everything
//! acknowledged must be there afterwards: the records of our own journal as well as fjall's tables and manifests. A
//! `kill -9` cannot reveal a missing sync, because the kernel still writes back the pages of a dead process.
//!
//! It needs root and loop devices, so an ordinary run ignores it; `cargo xtask prove disk` runs it, with as
//! many cuts as `WAYLEAVE_POWER_CUTS` says.

mod disk;
mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use disk::Disk;
use futures::StreamExt;
use server::{Server, binary};
use wayleave_api::Patch;
use wayleave_api::crawls::SetCrawlRequest;
use wayleave_api::reservations::{Outcome, ReleaseReservationRequest, ReserveGroupsRequest, UrlResult};
use wayleave_api::urls::{AddStatus, AddUrlsRequest, ListUrlsQuery, UrlState, UrlToAdd};
use wayleave_client::{Client, Retry};
use wayleave_testbed::free_port;

const CUTS: u64 = 20;
const PUTTERS: usize = 12;
const WORKERS: usize = 4;
const HOSTS: usize = 200;
const CRAWL: &str = "disk";
const PATIENCE: Duration = Duration::from_secs(60);

/// What clients were told.
#[derive(Default)]
struct Told {
    added: Mutex<BTreeSet<String>>,
    fetched: Mutex<BTreeSet<String>>,
    answers: AtomicU64,
    over: AtomicBool,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root and loop devices: `cargo xtask prove disk`"]
async fn nothing_acknowledged_is_lost_whenever_the_power_is_cut() {
    let cuts = std::env::var("WAYLEAVE_POWER_CUTS").map_or(CUTS, |text| text.parse().unwrap());
    let (binary, disk, begun) = (binary(), Disk::new(), Instant::now());
    let address = format!("127.0.0.1:{}", free_port());
    let data = disk.mounted().join("data");
    let mut server = Server::start(&binary, &data, &address);
    let client = Client::new(&format!("http://{address}")).unwrap();
    let no_delay = SetCrawlRequest { delay_ms: Patch::Set(0), ..SetCrawlRequest::default() };
    client.put_crawl(CRAWL, &no_delay).await.unwrap();
    let told = Arc::new(Told::default());
    let impatient = client.clone().with_retry(Retry::NEVER);
    let mut working: Vec<_> = (0..PUTTERS).map(|n| tokio::spawn(put(impatient.clone(), n, told.clone()))).collect();
    working.extend((0..WORKERS).map(|n| tokio::spawn(work(impatient.clone(), n, told.clone()))));
    for round in 0..cuts {
        // Any moment will do: other clients are in the middle of a call when a response arrives.
        answers(&told, 60 + round * 137 % 400).await;
        disk.cut();
        drop(server);
        disk.restore();
        server = Server::start(&binary, &data, &address);
        if round % 10 == 9 {
            judge(&client, &told).await;
        }
    }
    told.over.store(true, Ordering::Relaxed);
    for client in working {
        client.await.unwrap();
    }
    let (added, fetched) = judge(&client, &told).await;
    println!(
        "seen: {cuts} power cuts in {:.0?}: {added} URLs and {fetched} results acknowledged, nothing lost",
        begun.elapsed()
    );
    assert!(added > 100 && fetched > 10, "it worked at all");
    drop(server);
}

/// Waits until this many more calls have been answered.
async fn answers(told: &Told, more: u64) {
    let (start, before) = (Instant::now(), told.answers.load(Ordering::Relaxed));
    while told.answers.load(Ordering::Relaxed) < before + more {
        assert!(start.elapsed() < PATIENCE, "the clients' work does not go on");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn put(client: Client, n: usize, told: Arc<Told>) {
    for round in 0.. {
        if told.over.load(Ordering::Relaxed) {
            return;
        }
        // Long names, so that a journal file is soon full.
        let text = |i: usize| {
            format!("http://h{}.example/{n}/{round}/{i}/{}", (round * 11 + i) % HOSTS, "a-long-path-".repeat(20))
        };
        let url = |i| UrlToAdd { url: text(i), ..UrlToAdd::default() };
        let request = AddUrlsRequest { crawl: Some(CRAWL.to_owned()), urls: (0..40).map(url).collect() };
        let Ok(answer) = client.add_urls(&request).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let results = answer.results.unwrap_or_default();
        let stored = request.urls.into_iter().zip(results);
        let stored = stored.filter(|(_, result)| matches!(result.status, AddStatus::Added | AddStatus::Known));
        told.added.lock().unwrap().extend(stored.map(|(url, _)| url.url));
        told.answers.fetch_add(1, Ordering::Relaxed);
    }
}

async fn work(client: Client, n: usize, told: Arc<Told>) {
    while !told.over.load(Ordering::Relaxed) {
        let request = ReserveGroupsRequest {
            groups: 4,
            urls: 5,
            crawl: Some(CRAWL.to_owned()),
            lease_ms: 5_000,
            wait_ms: 50,
            ..ReserveGroupsRequest::new(format!("worker {n}"))
        };
        let Ok(answer) = client.reserve(&request).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        for reservation in answer.reservations {
            let urls: Vec<String> = reservation.urls.into_iter().map(|url| url.url).collect();
            let again = urls.iter().find(|url| told.fetched.lock().unwrap().contains(*url)).cloned();
            assert_eq!(again, None, "an acknowledged result was lost: the URL is handed out again");
            let results = urls.iter().map(|url| fetched(url)).collect();
            let request = ReleaseReservationRequest { results, ready_at: None };
            if client.release(&reservation.token, &request).await.is_ok() {
                told.fetched.lock().unwrap().extend(urls);
                told.answers.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

fn fetched(url: &str) -> UrlResult {
    UrlResult { status: Some(200), duration_ms: Some(2), ..UrlResult::new(url, Outcome::Fetched) }
}

/// Everything acknowledged before now is there. Returns the number of URLs and results.
async fn judge(client: &Client, told: &Told) -> (usize, usize) {
    let added = told.added.lock().unwrap().clone();
    let done = told.fetched.lock().unwrap().clone();
    let query = ListUrlsQuery { crawl: Some(CRAWL.to_owned()), limit: Some(1_000), ..ListUrlsQuery::default() };
    let mut known = BTreeMap::new();
    let mut urls = std::pin::pin!(client.all_urls(query));
    while let Some(url) = urls.next().await {
        let url = url.unwrap();
        assert_eq!(known.insert(url.url.clone(), url.state), None, "{} is listed twice", url.url);
    }
    let lost: Vec<_> = added.iter().filter(|url| !known.contains_key(*url)).collect();
    assert!(lost.is_empty(), "{} of {} acknowledged URLs are lost, such as {:?}", lost.len(), added.len(), lost[0]);
    let undone: Vec<_> = done.iter().filter(|url| known.get(*url) != Some(&UrlState::Fetched)).collect();
    assert!(undone.is_empty(), "{} of {} acknowledged results are lost", undone.len(), done.len());
    (added.len(), done.len())
}
