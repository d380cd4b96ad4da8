//! Failover times: figures, no assertions.

use tokio::sync::{mpsc, oneshot};
use wayleave_api::roles::WaitFor;
use wayleave_engine::rows::seat;

use crate::load::clients::pause;
use crate::prelude::*;
use crate::three_nodes::databases::Kind;
use crate::three_nodes::network::NODES;
use crate::three_nodes::stage::{PATIENCE, SHARDS, Stage};

/// The time to live of nodes and of roles.
const TTL_MS: u64 = 3_000;
/// Roles that are tried concurrently where the time to live decides; otherwise one after the other, so that they do not
/// interfere.
const AT_ONCE: usize = 5;

/// What is measured, by the names for `WAYLEAVE_MEASURE_ONLY`.
const PARTS: [&str; 4] = ["role-kill", "role-release", "node-kill", "node-stop"];

/// Measures everything, or only the named parts, each this many times.
pub async fn run(trials: usize, only: Option<&str>) {
    let only: Option<Vec<&str>> = only.map(|names| names.split(',').map(str::trim).collect());
    for name in only.iter().flatten() {
        assert!(PARTS.contains(name), "WAYLEAVE_MEASURE_ONLY={name}: it takes some of {}", PARTS.join(","));
    }
    let wanted = |part: &str| only.as_ref().is_none_or(|only| only.contains(&part));
    let mut stage = Stage::set(TTL_MS, Kind::Pair).await;
    println!("{trials} trials each, times to live of {TTL_MS} ms");
    if wanted("role-kill") {
        print("killed primary of a role -> next primary's answer", roles(&stage, trials, End::Killed).await);
    }
    if wanted("role-release") {
        print("released role -> next primary's answer", roles(&stage, trials, End::Released).await);
    }
    for (part, signal, what) in [("node-kill", Signal::KILL, "killed"), ("node-stop", Signal::TERM, "stopped")] {
        if wanted(part) {
            nodes(&mut stage, trials, signal, what).await;
        }
    }
}

async fn nodes(stage: &mut Stage, trials: usize, signal: Signal, what: &str) {
    let (mut first, mut all) = (Vec::new(), Vec::new());
    for trial in 0..trials {
        let (one, last) = node(stage, trial, signal).await;
        first.push(one);
        all.push(last);
    }
    print(&format!("{what} node -> first reservation from its shards"), first);
    print(&format!("{what} node -> a reservation from each of its shards"), all);
}

fn print(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let rank = |share: usize| times[(times.len() * share).div_ceil(100).max(1) - 1];
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let (p50, p99, max) = (ms(rank(50)), ms(rank(99)), ms(rank(100)));
    println!("{what}: p50 {p50:.0} ms, p99 {p99:.0} ms, max {max:.0} ms ({} trials)", times.len());
}

/// How a primary ends.
#[derive(Clone, Copy)]
enum End {
    Killed,
    Released,
}

async fn roles(stage: &Stage, trials: usize, end: End) -> Vec<Duration> {
    let mut times = Vec::new();
    let at_once = if matches!(end, End::Killed) { AT_ONCE } else { 1 };
    for first in (0..trials).step_by(at_once) {
        let some = first..trials.min(first + at_once);
        let runs: Vec<_> = some.map(|trial| tokio::spawn(role(stage.clients(), trial, end))).collect();
        for run in runs {
            times.push(run.await.unwrap());
        }
    }
    times
}

async fn role(nodes: Vec<Client>, trial: usize, end: End) -> Duration {
    let name = format!("trial-{trial}-{}", matches!(end, End::Killed));
    let ttl = SetRoleRequest { ttl_ms: Patch::Set(TTL_MS), ..SetRoleRequest::default() };
    nodes[0].clone().with_retry(Retry::default()).put_role(&name, &ttl).await.unwrap();
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let mut candidates: Vec<(JoinHandle<()>, Option<oneshot::Sender<()>>)> = Vec::new();
    for (who, client) in nodes.iter().enumerate() {
        let (stop, stopped) = oneshot::channel();
        let stands = stand(client.clone(), name.clone(), who, sender.clone(), stopped);
        candidates.push((tokio::spawn(stands), Some(stop)));
    }
    let (first, _) = receiver.recv().await.unwrap();
    // Any moment of its term will do.
    pause(1_000 + (trial as u64 * 379) % 1_000).await;
    let start = Instant::now();
    match end {
        End::Killed => candidates[first].0.abort(),
        End::Released => _ = candidates[first].1.take().unwrap().send(()),
    }
    let next = tokio::time::timeout(PATIENCE, async {
        loop {
            let (who, at) = receiver.recv().await.unwrap();
            if who != first {
                return at - start;
            }
        }
    });
    let took = next.await.expect("a new primary");
    candidates.iter().for_each(|(candidate, _)| candidate.abort());
    took
}

/// Asks for a role, reports when it has become primary, and releases on request.
async fn stand(
    client: Client,
    role: String,
    who: usize,
    sender: mpsc::UnboundedSender<(usize, Instant)>,
    mut stop: oneshot::Receiver<()>,
) {
    let uuid = format!("{role}-{who}");
    let (mut token, mut primary) = (None, false);
    loop {
        let request = HeartbeatRequest { token: token.clone(), ..HeartbeatRequest::new(&uuid) };
        let Ok(reply) = client.heartbeat(&role, &request, Duration::from_millis(TTL_MS / 4)).await else {
            pause(50).await;
            continue;
        };
        if reply.primary && !primary {
            _ = sender.send((who, Instant::now()));
        }
        primary = reply.primary;
        token = reply.token.or(token);
        if primary {
            tokio::select! {
                () = pause(reply.interval_ms) => {}
                _ = &mut stop => {
                    client.release_role(&role, &uuid, token.as_deref()).await.unwrap();
                    return;
                }
            }
        } else {
            let (wait_ms, wait_for) = (Some(reply.interval_ms), Some(WaitFor::Vacancy));
            _ = client.role(&role, &GetRoleQuery { wait_ms, wait_for, min_epoch: None }).await;
        }
    }
}

/// Ends a node and measures when its shards gave the first reservation, and when each of them had given one.
async fn node(stage: &mut Stage, trial: usize, signal: Signal) -> (Duration, Duration) {
    let victim = trial % NODES;
    let client = stage.client((victim + 1) % NODES);
    let crawl = format!("trial-{trial}-{}", signal.as_raw());
    let hosts = hosts_of(stage, victim, &crawl).await;
    // They become due once the node is gone: it must not serve them itself.
    let due = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap() + Duration::from_millis(400);
    let at = Some(Time(u64::try_from(due.as_millis()).unwrap()).into());
    let begun = Instant::now();
    let url = |host: &String| UrlToAdd { url: format!("http://{host}/"), at, ..UrlToAdd::default() };
    let request = AddUrlsRequest { crawl: Some(crawl.clone()), urls: hosts.iter().map(url).collect() };
    let answer = client.clone().with_retry(Retry::default()).add_urls(&request).await.unwrap();
    assert_eq!(answer.counts.added as usize, hosts.len());
    tokio::time::sleep_until((begun + Duration::from_millis(390)).into()).await;
    let start = Instant::now();
    stage.nodes[victim].signal(signal);
    let mut granted = Vec::new();
    while granted.len() < hosts.len() {
        assert!(start.elapsed() < PATIENCE, "{} of {} hosts in {PATIENCE:?}", granted.len(), hosts.len());
        let request = ReserveGroupsRequest {
            groups: hosts.len() as u64,
            crawl: Some(crawl.clone()),
            wait_ms: 5_000,
            ..ReserveGroupsRequest::new("measure")
        };
        if let Ok(answer) = client.reserve(&request).await {
            granted.extend(answer.reservations.iter().map(|_| start.elapsed()));
        }
    }
    while stage.nodes[victim].ended().is_none() {
        pause(10).await;
    }
    stage.nodes[victim].start();
    stage.settle().await;
    (granted[0], granted[granted.len() - 1])
}

/// A host for each shard that a node owns.
async fn hosts_of(stage: &mut Stage, node: usize, crawl: &str) -> Vec<String> {
    let nodes = stage.client(node).nodes().await.unwrap().nodes;
    let id = &nodes.iter().find(|node| node.here).unwrap().id;
    let scan = seat::all(SHARDS as u16);
    let (from, to) = (hex(&scan.from), hex(&scan.to));
    let rows = stage
        .database
        .pair()
        .sql(&format!(
            "select encode(key, 'hex'), encode(value, 'hex') from wayleave_rows where key >= '\\x{from}' and key < '\\x{to}'"
        ))
        .await;
    let mine = |line: &str| {
        let (key, value) = line.split_once('|').unwrap();
        let owner = seat::decode(&bytes(value)).unwrap();
        (owner.is_some_and(|owner| owner.to_string() == *id)).then(|| seat::parse_key(&bytes(key)).unwrap())
    };
    let shards: Vec<ShardId> = rows.lines().filter_map(mine).collect();
    let host_in = |shard: &ShardId| {
        let mut hosts = (0..).map(|n| format!("{crawl}-{n}.example"));
        hosts.find(|host| wayleave_shard::home(host, SHARDS as u16) == *shard).unwrap()
    };
    shards.iter().map(host_in).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    hex.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}
