//! The scenario whose rows are the fixture: every row kind occurs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use wayleave_core::frontier::request::{HandOut, Outcome, Put, PutKind, Release, Reserve, UrlResult};
use wayleave_core::ids::{HostId, QueueId, ShardId};
use wayleave_core::metadata::Metadata;
use wayleave_core::settings::{Change, CrawlChanges, PaceChanges, Revisit};
use wayleave_core::time::{Millis, Time};
use wayleave_engine::clock::ManualClock;
use wayleave_engine::rows::job;
use wayleave_engine::{Engine, Memory, Row, Scan};
use wayleave_shard::{Config, Frontier};

use crate::format_fixture::{NOW, SHARDS};

fn put(crawl: &str, url: &str, kind: PutKind) -> Put {
    let host = url.split('/').nth(2).unwrap();
    let metadata = Metadata::new([("from", ["seed"].iter().copied())]).unwrap();
    Put { url: url.into(), host: host.into(), crawl: crawl.into(), kind, metadata }
}

fn config(log_bytes_max: usize) -> Config {
    let mut config = Config::new(SHARDS);
    let drawn = AtomicU64::new(log_bytes_max as u64);
    config.entropy = Arc::new(move || u128::from(drawn.fetch_add(1, Ordering::Relaxed)) << 3);
    config.log_bytes_max = log_bytes_max;
    config
}

/// All rows of the store at the end of the scenario.
pub async fn rows() -> Vec<Row> {
    let engine = Arc::new(Memory::new(ManualClock::new(NOW)));
    let runtime = tokio::runtime::Handle::current();
    // First with a log that is checkpointed at once, then with one that is not.
    let frontier = Frontier::open(engine.clone(), config(1), &runtime).await.unwrap();
    first_part(&frontier).await;
    frontier.stop().await;
    let frontier = Frontier::open(engine.clone(), config(1 << 20), &runtime).await.unwrap();
    second_part(&frontier).await;
    frontier.stop().await;
    let all = Scan { from: Vec::new(), to: vec![0xff; 64], limit: 1 << 20 };
    let mut rows = engine.scan_many(&[all]).await.unwrap().remove(0);
    // A deletion that was interrupted before its rows were removed.
    let queue = QueueId { host: HostId::new(ShardId(0), 999), no: 3 };
    rows.push(Row { key: job::key(ShardId(0), queue), value: Vec::new() });
    rows.sort_by(|a, b| a.key.cmp(&b.key));
    rows
}

async fn first_part(frontier: &Frontier) {
    let now = |priority| PutKind::Discovered { at: None, priority, depth: u32::from(priority) };
    let long = format!("http://a.example/{}", "x".repeat(1_500));
    let later = PutKind::Discovered { at: Some(Time(NOW.0 + 86_400_000)), priority: 1, depth: 7 };
    let mut puts = vec![put("news", &long, now(5)), put("DEFAULT", "http://d.example/later", later)];
    for host in ["a", "b", "c", "d", "e"] {
        puts.extend((0..4).map(|n| put("DEFAULT", &format!("https://{host}.example/{n}"), now(n + 3))));
    }
    puts.push(put("news", "ftp://b.example/other", now(9)));
    frontier.put(puts).await;
    let limits = CrawlChanges {
        weight: Change::Set(5),
        delay: Change::Set(Millis(2_500)),
        revisit: Change::Set(Revisit::Adaptive { min: Millis(1_000), max: Millis(9_000) }),
        urls_per_host: Change::Set(1_000),
        depth: Change::Set(30),
        attempts: Change::Set(4),
        ..CrawlChanges::default()
    };
    frontier.set_crawl("news".into(), limits, false).await.unwrap();
    let pace = PaceChanges {
        delay: Change::Set(Millis(1_234)),
        factor_milli: Change::Set(1_500),
        delay_min: Change::Set(Millis(10)),
        delay_max: Change::Set(Millis(20_000)),
        limit: Change::Set(77),
        ..PaceChanges::default()
    };
    frontier.set_host("a.example".into(), pace, false, None).await.unwrap();
    let barred = PaceChanges {
        blocked_until: Change::Set(Time(NOW.0 + 5_000_000)),
        paused: Change::Set(true),
        ..PaceChanges::default()
    };
    frontier.set_host("b.example".into(), barred, false, None).await.unwrap();
    let group = PaceChanges { delay: Change::Set(Millis(50)), parallel: Change::Set(2), ..PaceChanges::default() };
    let hosts = Some(vec!["c.example".into(), "d.example".into(), "new.example".into()]);
    frontier.set_group("pair".into(), hosts, group, false).await.unwrap();
}

async fn second_part(frontier: &Frontier) {
    let lease = Reserve {
        holder: "worker".into(),
        groups: 2,
        urls: 3,
        crawl: None,
        lease: Millis(3_600_000),
        wait: Millis(0),
        request: None,
    };
    let granted = frontier.reserve(lease.clone()).await.unwrap();
    let ends = [Outcome::Gone, Outcome::Retry, Outcome::Fetched];
    let result = |(url, outcome): (&wayleave_core::frontier::request::UrlToFetch, Outcome)| UrlResult {
        status: Some(200),
        duration: Some(Millis(350)),
        crawl_delay: Some(Millis(4_000)),
        retry_after: Some(Millis(60_000)),
        ..UrlResult::new(url.url.clone(), outcome)
    };
    let results = granted[0].urls.iter().zip(ends).map(result).collect();
    let release = Release { token: granted[0].token, results, ready_at: Some(Time(NOW.0 + 999)) };
    frontier.release(release, Vec::new()).await.unwrap();
    let paced = HandOut { host: None, crawl: None, queues: 9, urls: 2, held_below: Some(2), hold: Millis(3_000_000) };
    frontier.hand_out(paced).await.unwrap();
    frontier.put(vec![put("DEFAULT", "https://e.example/done", PutKind::Known { due: None })]).await;
    frontier.set_queue_limit("DEFAULT".into(), "e.example".into(), Some(9)).await.unwrap();
    frontier.set_default_delay(Some(Millis(777))).await.unwrap();
    frontier.set_active(false).await.unwrap();
    let bare = PaceChanges::default();
    frontier.set_host("bare.example".into(), bare, false, Some(Time(NOW.0 + 60_000))).await.unwrap();
}
