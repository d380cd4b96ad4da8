//! Herds: idle callers of each kind of long poll, and their cost: CPU time of the servers, messages between nodes,
//! and the latency of one client that works beside them.
//!
//! Waiters are HTTP/2 requests that wait as long as they may, a bounded number on each connection, spread over all
//! addresses. One that is refused, or answered early, rests before it asks again.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::future::poll_fn;
use reqwest::{Client, Method};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::task::JoinSet;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::transport::{Channel, Endpoint};

use crate::args::{BenchArgs, loopback};
use crate::latency::Latency;
use crate::native::{Native, Reserved};
use crate::process;

/// Waiters on one connection.
const STREAMS: usize = 1_000;
/// The longest wait that the API takes.
const WAIT_MS: u64 = 60_000;
/// How long all waiters may take to ask, and what they began is left to settle.
const SETTLE: Duration = Duration::from_secs(5);
/// How long a waiter rests that was not let wait.
const REST: Duration = Duration::from_secs(5);
/// An answer after less than this was none that waited.
const EARLY: Duration = Duration::from_secs(1);
/// The interval at which the client that works puts, reserves and releases a URL.
const WORK_EVERY: Duration = Duration::from_millis(50);
const IDLE: &str = "bench-herds-idle";
const WORK: &str = "bench-herds-work";
const NAME: &str = "bench-herds";
/// The name of the scenario.
pub const NAMES: &str = "herds";

/// A kind of call that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Reservations,
    Claims,
    Builds,
    Map,
    Matches,
    Roles,
    Finished,
}

impl Kind {
    const ALL: [Self; 7] =
        [Self::Reservations, Self::Claims, Self::Builds, Self::Map, Self::Matches, Self::Roles, Self::Finished];

    const fn name(self) -> &'static str {
        match self {
            Self::Reservations => "reservations",
            Self::Claims => "claims",
            Self::Builds => "builds",
            Self::Map => "map",
            Self::Matches => "matches",
            Self::Roles => "roles",
            Self::Finished => "finished",
        }
    }

    fn is_called(self, name: &str) -> bool {
        name.strip_prefix(NAMES).and_then(|rest| rest.strip_prefix('-')) == Some(self.name())
    }

    /// The call of a waiter. Its name is new each time where a repetition would be recognised.
    fn call(self, no: usize, turn: u64, map: u64) -> (Method, String, String) {
        let claim = |stage: &str| {
            let id = format!("{no}-{turn}-{}", std::process::id());
            json!({"stage": stage, "worker": format!("w{no}"), "crawl": IDLE, "wait_ms": WAIT_MS, "request_id": id})
        };
        let get = |path: String| (Method::GET, path, String::new());
        match self {
            Self::Reservations => {
                let body = json!({"holder": format!("h{no}"), "crawl": IDLE, "wait_ms": WAIT_MS});
                (Method::POST, "reservations".to_owned(), body.to_string())
            }
            Self::Claims => (Method::POST, "chunks/claim".to_owned(), claim("crawl").to_string()),
            Self::Builds => (Method::POST, "chunks/claim".to_owned(), claim("build").to_string()),
            Self::Map => get(format!("map?since={map}&wait_ms={WAIT_MS}")),
            Self::Matches => (Method::PUT, format!("matches/c{no}?pool={NAME}&wait_ms={WAIT_MS}"), String::new()),
            Self::Roles => get(format!("roles/{NAME}?wait_ms={WAIT_MS}")),
            Self::Finished => get(format!("crawls/{IDLE}?wait_for=finished&wait_ms={WAIT_MS}")),
        }
    }
}

/// What a herd cost.
#[derive(Clone, Debug, Serialize)]
pub struct Herd {
    kind: Kind,
    waiters: usize,
    /// Calls that were not let wait, or failed, in a second.
    refused_per_second: f64,
    /// Of all servers whose process is known.
    cpu_s_per_minute: Option<f64>,
    /// Calls between nodes in a second.
    node_calls_per_second: f64,
    /// Messages per second in which nodes publish to each other what is ready.
    node_beats_per_second: f64,
    /// Of all servers whose process is known.
    rss_mib: Option<f64>,
    work_p50_ms: Option<f64>,
    work_p99_ms: Option<f64>,
}

/// All herds.
#[derive(Clone, Debug, Serialize)]
pub struct Herds(Vec<Herd>);

impl fmt::Display for Herds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<14}{:>8}{:>11}{:>11}{:>10}{:>13}{:>13}{:>10}{:>10}",
            "idle", "waiters", "refused/s", "cpu s/min", "rss MiB", "node calls/s", "node beats/s", "p50 ms", "p99 ms"
        )?;
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
        for herd in &self.0 {
            let (calls, beats) = (Some(herd.node_calls_per_second), Some(herd.node_beats_per_second));
            let of_servers = [Some(herd.refused_per_second), herd.cpu_s_per_minute, calls, beats].map(number);
            let [refused, cpu, calls, beats] = of_servers;
            let [rss, p50, p99] = [herd.rss_mib, herd.work_p50_ms, herd.work_p99_ms].map(number);
            writeln!(
                f,
                "{:<14}{:>8}{refused:>11}{cpu:>11}{rss:>10}{calls:>13}{beats:>13}{p50:>10}{p99:>10}",
                herd.kind.name(),
                herd.waiters
            )?;
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct Map {
    version: u64,
}

/// Whether this is the name of the scenario, or of one kind of it.
pub fn is_called(name: &str) -> bool {
    name == NAMES || Kind::ALL.into_iter().any(|kind| kind.is_called(name))
}

/// Runs the herds that were named, one after the other.
pub async fn run(args: &BenchArgs) -> Result<Herds> {
    if !args.scenario.iter().all(|name| is_called(name)) {
        bail!("the herds are run by themselves, without other scenarios");
    }
    let mut nodes = Vec::new();
    for address in &args.address {
        nodes.push(loopback(address).await?);
    }
    let first = *nodes.first().context("no address was given")?;
    let (idle, work) = (Native::new(first, IDLE)?, Native::new(first, WORK)?);
    set_up(&idle, &work).await?;
    let mut herds = Vec::new();
    let named = |kind: &Kind| args.scenario.iter().any(|name| name == NAMES || kind.is_called(name));
    for kind in Kind::ALL.into_iter().filter(named) {
        for waiters in args.waiters.iter().map(|count| *count as usize) {
            if kind == Kind::Matches {
                // Of the herd before, clients are still queued.
                let pool = json!({"runtime": "process", "command": ["true"], "paused": true, "queue_max": 100_000});
                idle.send(Method::PUT, &format!("pools/{NAME}"), pool.to_string()).await.context("creating a pool")?;
            }
            let map: Map = serde_json::from_slice(&idle.send(Method::GET, "map", String::new()).await?)?;
            herds.push(herd(args, &nodes, &work, (kind, waiters, map.version)).await?);
            if kind == Kind::Matches {
                idle.send(Method::DELETE, &format!("pools/{NAME}"), String::new())
                    .await
                    .context("deleting the pool")?;
            }
        }
    }
    Ok(Herds(herds))
}

/// A crawl that has nothing to do and is not finished, one to work on, and a role without a primary.
async fn set_up(idle: &Native, work: &Native) -> Result<()> {
    idle.without_delay().await?;
    work.without_delay().await?;
    let later = json!({"crawl": IDLE, "urls": [{"url": "http://herds.bench.example/", "at": "2100-01-01T00:00:00Z"}]});
    idle.send(Method::POST, "urls", later.to_string()).await?;
    idle.send(Method::PUT, &format!("roles/{NAME}"), "{}".to_owned()).await.map(drop)
}

async fn herd(args: &BenchArgs, nodes: &[SocketAddr], work: &Native, herd: (Kind, usize, u64)) -> Result<Herd> {
    let (kind, waiters, map) = herd;
    let refused = Arc::new(AtomicU64::new(0));
    let mut herd = JoinSet::new();
    for (no, from) in (0..waiters).step_by(STREAMS).enumerate() {
        let Some(node) = nodes.get(no % nodes.len()) else { break };
        let endpoint = Endpoint::from_shared(format!("http://{node}"))?;
        let channel = endpoint.connect().await.with_context(|| format!("no answer from {node}"))?;
        for no in from..waiters.min(from + STREAMS) {
            herd.spawn(wait(channel.clone(), *node, (kind, no, map), refused.clone()));
        }
    }
    tokio::time::sleep(SETTLE).await;
    let scrape = scraped(nodes).await?;
    let before = scraped(nodes).await?;
    // To look at the metrics takes calls between nodes, too.
    let look = before.calls.saturating_sub(scrape.calls);
    let (begun, was_refused, cpu) = (Instant::now(), refused.load(Ordering::Relaxed), process::cpu_secs_of(&args.pid));
    let latency = worked(work, Duration::from_secs_f64(args.seconds.clamp(0.05, 600.0))).await?;
    let (secs, cpu) = (begun.elapsed().as_secs_f64(), Option::zip(process::cpu_secs_of(&args.pid), cpu));
    let was_refused = refused.load(Ordering::Relaxed) - was_refused;
    let after = scraped(nodes).await?;
    herd.shutdown().await;
    Ok(Herd {
        kind,
        waiters,
        refused_per_second: was_refused as f64 / secs,
        cpu_s_per_minute: cpu.map(|(after, before)| (after - before) * 60.0 / secs),
        node_calls_per_second: after.calls.saturating_sub(before.calls + look) as f64 / secs,
        node_beats_per_second: after.beats.saturating_sub(before.beats) as f64 / secs,
        rss_mib: process::rss_mib_of(&args.pid),
        work_p50_ms: latency.percentile_ms(50),
        work_p99_ms: latency.percentile_ms(99),
    })
}

/// Waits again and again.
async fn wait(mut channel: Channel, node: SocketAddr, (kind, no, map): (Kind, usize, u64), refused: Arc<AtomicU64>) {
    for turn in 0.. {
        let begun = Instant::now();
        let waited = ask(&mut channel, node, kind.call(no, turn, map)).await;
        if !waited.is_ok_and(|status| status.is_success()) || begun.elapsed() < EARLY {
            refused.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(REST).await;
        }
    }
}

async fn ask(channel: &mut Channel, node: SocketAddr, call: (Method, String, String)) -> Result<http::StatusCode> {
    let (method, path, body) = call;
    let request = http::Request::builder().method(method).uri(format!("http://{node}/v1/{path}"));
    let request = request.header("content-type", "application/json");
    let request = request.body(Body::new(axum::body::Body::from(body)))?;
    poll_fn(|cx| channel.poll_ready(cx)).await?;
    let answer = channel.call(request).await?;
    let status = answer.status();
    axum::body::to_bytes(axum::body::Body::new(answer.into_body()), 1 << 20).await?;
    Ok(status)
}

/// One client that puts a URL, reserves and releases it, at intervals; the latency of each call.
async fn worked(work: &Native, time: Duration) -> Result<Latency> {
    let mut latency = Latency::default();
    let begun = Instant::now();
    let mut tick = tokio::time::interval(WORK_EVERY);
    let ask = json!({"holder": "bench", "crawl": WORK, "wait_ms": 1_000}).to_string();
    for no in 0.. {
        if begun.elapsed() >= time {
            break;
        }
        tick.tick().await;
        let mut timed = async |path: &str, body: String| {
            let sent = Instant::now();
            let answer = work.send(Method::POST, path, body).await;
            latency.add(sent.elapsed());
            answer
        };
        let url = format!("http://work-{}.bench.example/{no}", no % 100);
        timed("urls", json!({"crawl": WORK, "urls": [{"url": url, "again": true}]}).to_string()).await?;
        let reserved: Reserved = serde_json::from_slice(&timed("reservations", ask.clone()).await?)?;
        for reserved in reserved.reservations {
            timed(&format!("reservations/{}/release", reserved.token), json!({"results": []}).to_string()).await?;
        }
    }
    Ok(latency)
}

/// Messages between nodes so far.
struct Scraped {
    calls: u64,
    beats: u64,
}

async fn scraped(nodes: &[SocketAddr]) -> Result<Scraped> {
    let client = Client::builder().timeout(Duration::from_secs(60)).no_proxy().build()?;
    let (mut calls, mut beats) = (0, 0);
    // One after the other: each look makes calls to the other nodes, which then count the same each time.
    for node in nodes {
        let page = client.get(format!("http://{node}/metrics")).send().await?.error_for_status()?;
        let page = page.text().await.context("reading the metrics")?;
        calls += metric(&page, "wayleave_node_calls_total")?;
        beats += metric(&page, "wayleave_node_beats_total")?;
    }
    Ok(Scraped { calls, beats })
}

fn metric(page: &str, name: &str) -> Result<u64> {
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    match value {
        Some(value) => Ok(value),
        None => bail!("the server has no metric {name}: it is not of this version"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_found_by_their_whole_name() {
        let page = "# TYPE a_total counter\na_total_b 5\na_total 7\n";
        assert_eq!(metric(page, "a_total").unwrap(), 7);
        assert!(metric(page, "a").unwrap_err().to_string().contains("no metric a"));
    }

    #[test]
    fn the_table_has_a_line_for_each_herd() {
        let herd = Herd {
            kind: Kind::Builds,
            waiters: 100,
            refused_per_second: 0.0,
            cpu_s_per_minute: None,
            node_calls_per_second: 1.25,
            node_beats_per_second: 2.0,
            rss_mib: None,
            work_p50_ms: Some(1.0),
            work_p99_ms: None,
        };
        let text = Herds(vec![herd]).to_string();
        assert_eq!(text.lines().count(), 2);
        assert!(
            text.contains("builds") && text.contains("1.2") && text.lines().all(|line| line.len() == 100),
            "{text}"
        );
    }
}
