//! The real binary as three nodes over a real PostgreSQL with a synchronous standby, each on its own machine (a network
//! namespace): nodes are killed, stopped, paused and partitioned from the database and from each other, and the
//! database fails over, while clients put, visit, crawl and stand for roles at all nodes. A checker compares everything
//! they were told with the laws; at the end everything is calm, evenly spread, finished, and the same at every node.
//!
//! It needs root, iproute2, PostgreSQL and the binary (`cargo build -p wayleave-cli`, or `WAYLEAVE_BIN=path`), and
//! fails without them. `WAYLEAVE_ROUNDS=10` runs through all faults more often than a normal run. `WAYLEAVE_MEASURE=50`
//! measures failover times instead, in this many trials each; all of them, or with `WAYLEAVE_MEASURE_ONLY=role-release`
//! (comma-separated names) a part.

mod candidates;
mod clients;
mod crawlers;
mod databases;
mod faults;
mod history;
mod limited;
mod measure;
mod movers;
mod network;
mod process;
mod stage;
mod word;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use candidates::Register;
use databases::Kind;
use futures::StreamExt;
use history::History;
use stage::{PATIENCE, Stage};
use tokio::task::JoinHandle;
use wayleave_api::Patch;
use wayleave_api::groups::SetGroupRequest;
use wayleave_api::hosts::{ListHostsQuery, SetHostRequest};
use wayleave_api::roles::SetRoleRequest;
use wayleave_client::{Client, Retry};

/// A node that has not renewed its lease for this long is replaced.
const NODE_TTL_MS: u64 = 2_000;

fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_laws_hold_whatever_befalls_nodes_network_and_database() {
    if let Some(trials) = number("WAYLEAVE_MEASURE") {
        return measure::run(trials, std::env::var("WAYLEAVE_MEASURE_ONLY").ok().as_deref()).await;
    }
    let rounds = number("WAYLEAVE_ROUNDS").unwrap_or(2);
    let begun = Instant::now();
    let kind = Kind::asked_for();
    let mut stage = Stage::set(NODE_TTL_MS, kind).await;
    set_up(&stage.client(0)).await;
    println!("set up in {:.1?}", begun.elapsed());
    let (history, registers) = (Arc::new(History::new()), [Arc::default(), Arc::default()]);
    let nodes = stage.clients();
    let mut working = clients::start(&nodes, &history);
    working.extend(crawlers::start(&nodes, &history));
    working.extend(candidates::start(&nodes, &history, &registers));
    working.extend(limited::start(&nodes, &history));
    let mut changing = word::start(&nodes, &history);
    changing.extend(movers::start(&nodes, &history));
    faults::progress(&history, "nothing has happened yet").await;
    for round in 0..rounds {
        for fault in faults::of(kind) {
            faults::befall(&mut stage, &history, fault, round).await;
            word::check(&stage.client(round % nodes.len()), &history).await;
            history.check();
            let ended = working.iter().chain(&changing).any(JoinHandle::is_finished);
            assert!(!ended, "a client has ended; see above");
        }
    }
    history.next_phase();
    for client in changing {
        client.await.unwrap();
    }
    word::check(&stage.client(0), &history).await;
    finish(&nodes, &history).await;
    limited::used_up(&nodes[0], &history).await;
    history.next_phase();
    for client in working {
        client.await.unwrap();
    }
    let terms = judge(&stage, &history, &registers).await;
    let (took, counts) = (begun.elapsed(), &history.counts);
    let terms = format!("{terms} terms of roles; nothing lost, nothing twice");
    println!("seen: {rounds} rounds over {kind:?} in {took:.0?}: {counts:?}, {terms}");
    history.judge_words();
}

/// Delays, a group of hosts from several shards, roles.
async fn set_up(client: &Client) {
    let client = &client.clone().with_retry(Retry::default());
    let hosts = (0..clients::HOSTS).map(|n| (clients::host(n), clients::DELAY_MS));
    for (host, delay) in hosts.chain((0..crawlers::QUEUES).map(|n| (crawlers::queue(n), crawlers::DELAY_MS))) {
        let delay = SetHostRequest { delay_ms: Patch::Set(delay), ..SetHostRequest::default() };
        client.patch_host(&host, &delay).await.unwrap();
    }
    let hosts = Some(vec![clients::host(0), clients::host(1), clients::host(2)]);
    let delay_ms = Patch::Set(clients::DELAY_MS);
    client.put_group("trio", &SetGroupRequest { hosts, delay_ms, ..SetGroupRequest::default() }).await.unwrap();
    word::set_up(client).await;
    limited::set_up(client).await;
    for role in candidates::ROLES {
        let ttl = SetRoleRequest { ttl_ms: Patch::Set(candidates::TTL_MS), ..SetRoleRequest::default() };
        client.put_role(role, &ttl).await.unwrap();
    }
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
        assert!(since.elapsed() < PATIENCE, "{left} URLs are left that nobody finishes");
        history.check();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Checks what was told against the laws, and the nodes against each other. Returns how many terms roles had.
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
