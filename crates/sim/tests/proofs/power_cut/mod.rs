//! The real binary on a file system that repeatedly loses power while clients put URLs and report visits. Everything
//! acknowledged must be there afterwards: the records of our own journal as well as fjall's tables and manifests. A
//! `kill -9` cannot reveal a missing sync, because the kernel still writes back the pages of a dead process.
//!
//! It needs root and loop devices, so an ordinary run ignores it; `cargo xtask prove disk` runs it, with as
//! many cuts as `WAYLEAVE_POWER_CUTS` says.

mod disk;

use disk::Disk;
use wayleave_api::reservations::{Outcome, UrlResult};

use crate::load::clients::{known, pause};
use crate::load::history::{History, Id};
use crate::load::server::{End, Server};
use crate::prelude::*;

const CUTS: usize = 20;
const PUTTERS: usize = 12;
const WORKERS: usize = 4;
const HOSTS: usize = 200;
/// URLs of a call.
const URLS: usize = 40;
const CRAWL: &str = "disk";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root and loop devices: `cargo xtask prove disk`"]
async fn nothing_acknowledged_is_lost_whenever_the_power_is_cut() {
    let cuts = std::env::var("WAYLEAVE_POWER_CUTS").map_or(CUTS, |text| text.parse().unwrap());
    let (disk, begun) = (Disk::new(), Instant::now());
    let mut server = Server::start(&disk.mounted().join("data"));
    let client = Client::new(&server.base).unwrap();
    let no_delay = SetCrawlRequest { delay_ms: Patch::Set(0), ..SetCrawlRequest::default() };
    client.put_crawl(CRAWL, &no_delay).await.unwrap();
    let history = Arc::new(History::new(20));
    let impatient = client.clone().with_retry(Retry::NEVER);
    let mut working: Vec<_> = (0..PUTTERS).map(|n| tokio::spawn(put(impatient.clone(), n, history.clone()))).collect();
    working.extend((0..WORKERS).map(|n| tokio::spawn(work(impatient.clone(), n, history.clone()))));
    for round in 0..cuts {
        // Any moment will do: other clients are in the middle of a call when a response arrives.
        history.answers(URLS * (60 + round * 137 % 400)).await;
        disk.cut();
        server.end(End::Kill);
        disk.restore();
        server.run();
        if round % 10 == 9 {
            judge(&client, &history).await;
        }
    }
    history.next_phase();
    history.next_phase();
    for client in working {
        client.await.unwrap();
    }
    let (added, fetched) = judge(&client, &history).await;
    println!(
        "seen: {cuts} power cuts in {:.0?}: {added} URLs and {fetched} results acknowledged, nothing lost",
        begun.elapsed()
    );
    assert!(added > 100 && fetched > 10, "it worked at all");
    server.end(End::Kill);
}

async fn put(client: Client, n: usize, history: Arc<History>) {
    for round in 0.. {
        if history.is_over() {
            return;
        }
        // Long names, so that a journal file is soon full.
        let text = |i: usize| {
            format!("http://h{}.example/{n}/{round}/{i}/{}", (round * 11 + i) % HOSTS, "a-long-path-".repeat(20))
        };
        let url = |i| UrlToAdd { url: text(i), ..UrlToAdd::default() };
        let request = AddUrlsRequest { crawl: Some(CRAWL.to_owned()), urls: (0..URLS).map(url).collect() };
        let Ok(answer) = client.add_urls(&request).await else {
            pause(history.rest_ms).await;
            continue;
        };
        let results = answer.results.unwrap_or_default();
        let stored = request.urls.into_iter().zip(results);
        let stored = stored.filter(|(_, result)| matches!(result.status, AddStatus::Added | AddStatus::Known));
        history.added(stored.map(|(url, _)| (CRAWL.to_owned(), url.url)));
    }
}

async fn work(client: Client, n: usize, history: Arc<History>) {
    while !history.is_over() {
        let request = ReserveGroupsRequest {
            groups: 4,
            urls: 5,
            crawl: Some(CRAWL.to_owned()),
            lease_ms: 5_000,
            wait_ms: 50,
            ..ReserveGroupsRequest::new(format!("worker {n}"))
        };
        let Ok(answer) = client.reserve(&request).await else {
            pause(history.rest_ms).await;
            continue;
        };
        for reservation in answer.reservations {
            let ids: Vec<Id> = reservation.urls.into_iter().map(|url| (url.crawl, url.url)).collect();
            // An acknowledged result that was lost shows here first: its URL is handed out again.
            history.served(&ids, Instant::now());
            let results = ids.iter().map(|(_, url)| fetched(url)).collect();
            let request = ReleaseReservationRequest { results, ready_at: None };
            if client.release(&reservation.token, &request).await.is_ok() {
                history.finished(ids, |_| UrlState::Fetched);
            }
        }
    }
}

fn fetched(url: &str) -> UrlResult {
    UrlResult { status: Some(200), duration_ms: Some(2), ..UrlResult::new(url, Outcome::Fetched) }
}

/// Everything acknowledged before now is there. Returns the number of URLs and results.
async fn judge(client: &Client, history: &History) -> (usize, usize) {
    history.check();
    let acknowledged = history.acknowledged();
    acknowledged.judge(&known(client).await);
    (acknowledged.added.len(), acknowledged.finished.len())
}
