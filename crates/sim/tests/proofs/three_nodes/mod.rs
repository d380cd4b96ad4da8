//! The real binary as three nodes over a real PostgreSQL with a synchronous standby, each on its own machine (a network
//! namespace): nodes are killed, stopped, paused and partitioned from the database and from each other, and the
//! database fails over, while clients put, visit, crawl and compete for roles at all nodes. A checker compares all
//! answers that they got with the laws; at the end everything is calm, evenly spread, finished, and the same at every
//! node.
//!
//! It needs root, iproute2, PostgreSQL and the binary (`cargo build -p wayleave-cli`, or `WAYLEAVE_BIN=path`), and
//! fails without them. `WAYLEAVE_ROUNDS=10` runs through all faults more often than a normal run. `WAYLEAVE_MEASURE=50`
//! measures failover times instead, in this many trials each; all of them, or with `WAYLEAVE_MEASURE_ONLY=role-release`
//! (comma-separated names) a part.

mod databases;
mod faults;
mod limited;
mod measure;
mod movers;
mod network;
mod stage;
mod unavailable_reservations;

pub use databases::Kind;
pub use faults::{progress, without};
pub use stage::{PATIENCE, Stage};
use wayleave_api::hosts::ListHostsQuery;

use crate::load::candidates::{self, Register};
use crate::load::history::History;
use crate::load::{self, clients, crawlers};
use crate::prelude::*;

/// How candidates for roles behave.
const MANNER: candidates::Manner = candidates::Manner { ttl_ms: 2_000, timeout_ms: 500, pause_ms: 400, renewals: 12 };
/// A node that has not renewed its lease for this long is replaced.
const NODE_TTL_MS: u64 = 2_000;

fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_laws_hold_under_faults_of_nodes_network_and_database() {
    if let Some(trials) = number("WAYLEAVE_MEASURE") {
        return measure::run(trials, std::env::var("WAYLEAVE_MEASURE_ONLY").ok().as_deref()).await;
    }
    let rounds = number("WAYLEAVE_ROUNDS").unwrap_or(2);
    let kind = Kind::asked_for();
    let seen = under_load(kind, async |stage, history, check| {
        for round in 0..rounds {
            for fault in faults::of(kind) {
                faults::befall(stage, history, fault, round).await;
                unavailable_reservations::check(&stage.client(round % stage.nodes.len()), history).await;
                check();
            }
        }
    });
    println!("seen: {rounds} rounds over {kind:?} {}", seen.await);
}

/// Starts three nodes and all clients, does something to the nodes, and lets the clients finish. Then all answers
/// that they got are checked. Returns what was seen.
pub async fn under_load(kind: Kind, deeds: impl AsyncFnOnce(&mut Stage, &History, &dyn Fn())) -> String {
    let begun = Instant::now();
    let mut stage = Stage::set(NODE_TTL_MS, kind).await;
    let first = stage.client(0).with_retry(Retry::default());
    load::set_up(&first, MANNER).await;
    unavailable_reservations::set_up(&first).await;
    limited::set_up(&first).await;
    println!("set up in {:.1?}", begun.elapsed());
    let (history, registers) = (Arc::new(History::new(50)), [Arc::default(), Arc::default()]);
    let nodes = stage.clients();
    let mut working = clients::start(&nodes, &history);
    working.extend(crawlers::start(&nodes, &history));
    working.extend(candidates::start(&nodes, &history, &registers, MANNER));
    working.extend(limited::start(&nodes, &history));
    let mut changing = unavailable_reservations::start(&nodes, &history);
    changing.extend(movers::start(&nodes, &history));
    faults::progress(&history, "nothing has happened yet").await;
    let check = || {
        history.check();
        let ended = working.iter().chain(&changing).any(JoinHandle::is_finished);
        assert!(!ended, "a client has ended; see above");
    };
    deeds(&mut stage, &history, &check).await;
    history.next_phase();
    for client in changing {
        client.await.unwrap();
    }
    unavailable_reservations::check(&stage.client(0), &history).await;
    finish(&nodes, &history).await;
    limited::used_up(&nodes[0], &history).await;
    history.next_phase();
    for client in working {
        client.await.unwrap();
    }
    let terms = judge(&stage, &history, &registers).await;
    let (took, counts) = (begun.elapsed(), &history.counts);
    let seen = format!("in {took:.0?}: {counts:?}, {terms} terms of roles; nothing lost, nothing twice");
    history.judge_words();
    seen
}

/// Waits until no URL is pending any more. Groups are visited one URL at a time, so after many rounds it takes long.
async fn finish(nodes: &[Client], history: &History) {
    let (mut least, mut since) = (u64::MAX, Instant::now());
    // A node may still be recovering from the last fault.
    let client = nodes[0].clone().with_retry(Retry::default());
    loop {
        let mut left = 0;
        for crawl in [clients::CRAWL, crawlers::CRAWL] {
            let counts = client.crawl(crawl).await.unwrap().counts;
            left += counts.queued + counts.reserved;
        }
        if left == 0 {
            return;
        }
        if left < least {
            (least, since) = (left, Instant::now());
        }
        assert!(since.elapsed() < PATIENCE, "{left} URLs are left unfinished");
        history.check();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Checks the answers against the laws, and the nodes against each other. Returns how many terms roles had.
async fn judge(stage: &Stage, history: &History, registers: &[Arc<Register>]) -> usize {
    let nodes = stage.clients();
    let known = clients::known(&nodes[0]).await;
    for client in &nodes[1..] {
        assert_eq!(clients::known(client).await, known, "{} lists the same", client.server());
    }
    limited::judge(known.iter());
    history.judge(&known, (crawlers::DELAY_MS, crawlers::HOLD_MS));
    judge_hosts(&nodes, history).await;
    for register in registers {
        assert!(register.judge() > 1, "a role changed hands");
    }
    let counts = &history.counts;
    let seen = [&counts.acknowledged, &counts.visits, &counts.finished, &counts.handed_out, &counts.heartbeats];
    let least = seen.map(|counter| counter.load(std::sync::atomic::Ordering::Relaxed));
    assert!(least.iter().all(|count| *count > 100), "it worked at all: {counts:?}");
    let refused = [&counts.stale_tokens_refused, &counts.stale_writes_refused];
    let refused = refused.map(|counter| counter.load(std::sync::atomic::Ordering::Relaxed));
    assert!(refused.iter().all(|count| *count > 0), "stale tokens and writes were tried: {counts:?}");
    history.terms()
}

/// Every host exists at every node, in the group that was acknowledged last.
async fn judge_hosts(nodes: &[Client], history: &History) {
    let places = history.places();
    let moving = clients::MOVING.map(clients::host).chain(crawlers::MOVING.map(crawlers::queue));
    assert_eq!(
        moving.filter(|host| !places.contains_key(host)).collect::<Vec<_>>(),
        [""; 0],
        "all moves were answered"
    );
    for client in nodes {
        let hosts: Vec<_> = client.all_hosts(ListHostsQuery::default()).collect().await;
        let hosts = hosts.into_iter().map(|host| host.map(|host| (host.host, host.group)));
        let groups: BTreeMap<String, String> = hosts.collect::<Result<_, _>>().unwrap();
        let all = (0..clients::HOSTS).map(clients::host).chain((0..crawlers::QUEUES).map(crawlers::queue));
        let lost: Vec<String> = all.filter(|host| !groups.contains_key(host)).collect();
        assert_eq!(lost, [""; 0], "every host is there, as {} says", client.server());
        for (host, place) in &places {
            assert_eq!(&groups[host], place, "the group of {host}, as {} says", client.server());
        }
    }
}
