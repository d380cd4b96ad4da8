//! Churn: a few hosts visited repeatedly through all nodes, while nodes come and go. It measures not the rate but
//! concurrent visits and visits too soon, of which there must be none, and the longest pause of any host.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use reqwest::{Client, Method};
use serde::Serialize;

use crate::args::{BenchArgs, loopback};
use crate::native::{Reservation, Reserved};

const HOSTS: usize = 200;
const WORKERS: usize = 8;
/// The delay between two visits of a host.
const DELAY: Duration = Duration::from_millis(100);
/// Longer than any pause to be detected: a visit whose worker lost its node must not expire unnoticed.
const LEASE_MS: u64 = 60_000;
const PATIENCE: Duration = Duration::from_secs(15);
const AFTER_REFUSAL: Duration = Duration::from_millis(20);

/// What was observed.
#[derive(Clone, Debug, Serialize)]
pub struct ChurnReport {
    seconds: f64,
    visits: u64,
    /// Calls that were refused or not answered; workers then try another node.
    refusals: u64,
    visits_at_once: u64,
    visits_too_soon: u64,
    /// Over hosts: the longest time without a visit, in milliseconds.
    pause_ms_p50: f64,
    pause_ms_p99: f64,
    pause_ms_max: f64,
}

impl fmt::Display for ChurnReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.visits as f64 / self.seconds.max(0.001);
        writeln!(f, "{} visits of {HOSTS} hosts in {:.1} s ({rate:.0}/s)", self.visits, self.seconds)?;
        writeln!(f, "{} calls refused or not answered, then made to another node", self.refusals)?;
        writeln!(f, "{} visits at once, {} too soon", self.visits_at_once, self.visits_too_soon)?;
        let (p50, p99, max) = (self.pause_ms_p50, self.pause_ms_p99, self.pause_ms_max);
        writeln!(f, "longest pause of each host: p50 {p50:.0} ms, p99 {p99:.0} ms, max {max:.0} ms")
    }
}

#[derive(Default)]
struct Host {
    /// The token of the current visit.
    visited_by: Option<String>,
    ended: Option<Instant>,
    longest: Duration,
}

#[derive(Default)]
struct Log {
    hosts: HashMap<String, Host>,
    visits: u64,
    refusals: u64,
    at_once: u64,
    too_soon: u64,
}

impl Log {
    fn begin(&mut self, group: &str, token: &str, now: Instant) {
        let host = self.hosts.entry(group.to_owned()).or_default();
        self.visits += 1;
        self.at_once += u64::from(host.visited_by.is_some());
        if let Some(ended) = host.ended {
            let pause = now.saturating_duration_since(ended);
            self.too_soon += u64::from(pause < DELAY);
            host.longest = host.longest.max(pause);
        }
        host.visited_by = Some(token.to_owned());
    }

    /// The visit counts as ended when its release is sent: the server cannot have ended it before.
    fn end(&mut self, group: &str, now: Instant) {
        if let Some(host) = self.hosts.get_mut(group) {
            host.visited_by = None;
            host.ended = Some(now);
        }
    }
}

struct Worker {
    client: Client,
    nodes: Vec<SocketAddr>,
    node: usize,
    log: Arc<Mutex<Log>>,
}

impl Worker {
    fn log(&self) -> std::sync::MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the node of this worker; after a failure the next call goes to another.
    async fn call(&mut self, method: Method, path: &str, body: serde_json::Value) -> Result<bytes::Bytes, ()> {
        let node = self.nodes.get(self.node % self.nodes.len().max(1)).ok_or(())?;
        let url = format!("http://{node}/v1/{path}");
        let sent = self.client.request(method, &url).json(&body).send().await;
        if let Ok(answer) = sent
            && answer.status().is_success()
            && let Ok(body) = answer.bytes().await
        {
            return Ok(body);
        }
        self.node += 1;
        self.log().refusals += 1;
        tokio::time::sleep(AFTER_REFUSAL).await;
        Err(())
    }

    async fn run(mut self, until: Instant) {
        while Instant::now() < until {
            let ask = serde_json::json!({
                "holder": "bench", "groups": 4, "urls": 0, "lease_ms": LEASE_MS, "wait_ms": 200,
            });
            let Ok(body) = self.call(Method::POST, "reservations", ask).await else { continue };
            let Ok(reserved) = serde_json::from_slice::<Reserved>(&body) else { continue };
            let now = Instant::now();
            for one in &reserved.reservations {
                self.log().begin(&one.group, &one.token, now);
            }
            for one in reserved.reservations {
                self.release(&one).await;
            }
        }
    }

    /// Ends a visit and requeues the host, through any node that answers.
    async fn release(&mut self, one: &Reservation) {
        let path = format!("reservations/{}/release", one.token);
        self.log().end(&one.group, Instant::now());
        for _ in 0..100 {
            let body = serde_json::json!({ "ready_at": "2020-01-01T00:00:00Z" });
            if self.call(Method::POST, &path, body).await.is_ok() {
                return;
            }
        }
    }
}

/// Runs for the configured time.
pub async fn run(args: &BenchArgs) -> Result<ChurnReport> {
    let mut nodes = Vec::new();
    for address in &args.address {
        nodes.push(loopback(address).await?);
    }
    let client = Client::builder().timeout(PATIENCE).no_proxy().tcp_nodelay(true).build()?;
    let first = nodes.first().context("no address was given")?;
    for host in 0..HOSTS {
        let url = format!("http://{first}/v1/hosts/churn-{host}.example");
        let delay = u64::try_from(DELAY.as_millis())?;
        let body = serde_json::json!({ "ready_at": "2020-01-01T00:00:00Z", "delay_ms": delay });
        client.put(&url).json(&body).send().await?.error_for_status().with_context(|| format!("setting up {url}"))?;
    }
    let log: Arc<Mutex<Log>> = Arc::default();
    let started = Instant::now();
    let until = started + Duration::from_secs_f64(args.seconds.clamp(0.05, 86_400.0));
    let worker = |node| Worker { client: client.clone(), nodes: nodes.clone(), node, log: log.clone() };
    let workers: Vec<_> = (0..WORKERS).map(|node| tokio::spawn(worker(node).run(until))).collect();
    for worker in workers {
        worker.await?;
    }
    let ended = Instant::now();
    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
    // A host that was not visited any more has paused until now.
    let last = |host: &mut Host| {
        host.longest.max(host.ended.map_or(ended - started, |at| until.saturating_duration_since(at)))
    };
    let mut pauses: Vec<Duration> = log.hosts.values_mut().map(last).collect();
    pauses.sort_unstable();
    Ok(seen(&log, &pauses, ended - started))
}

fn seen(log: &Log, pauses: &[Duration], took: Duration) -> ChurnReport {
    let at = |share: f64| {
        let place = (pauses.len().saturating_sub(1) as f64 * share).round() as usize;
        pauses.get(place).map_or(0.0, |pause| pause.as_secs_f64() * 1_000.0)
    };
    ChurnReport {
        seconds: took.as_secs_f64(),
        visits: log.visits,
        refusals: log.refusals,
        visits_at_once: log.at_once,
        visits_too_soon: log.too_soon,
        pause_ms_p50: at(0.5),
        pause_ms_p99: at(0.99),
        pause_ms_max: at(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visits_at_once_and_too_soon_are_noticed() {
        let mut log = Log::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        log.begin("a", "1", at(0));
        log.end("a", at(10));
        log.begin("a", "2", at(110));
        assert_eq!((log.at_once, log.too_soon), (0, 0));
        log.begin("a", "3", at(120));
        assert_eq!((log.at_once, log.too_soon), (1, 0), "the pause is counted from the last end");
        log.end("a", at(200));
        log.begin("a", "4", at(299));
        assert_eq!((log.at_once, log.too_soon), (1, 1));
        log.end("a", at(300));
        log.begin("a", "5", at(900));
        assert_eq!(log.hosts["a"].longest, Duration::from_millis(600));
    }

    #[test]
    fn what_was_seen_is_printed_in_words() {
        let log = Log { visits: 10, ..Log::default() };
        let text =
            seen(&log, &[Duration::from_millis(5), Duration::from_millis(9)], Duration::from_secs(2)).to_string();
        assert!(text.contains("10 visits") && text.contains("max 9 ms"), "{text}");
    }
}
