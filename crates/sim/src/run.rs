//! One run: faults first, then calm, then the final checks.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use wayleave_core::frontier::view::{HostFilter, UrlFilter, UrlState};
use wayleave_core::ids::{ChunkId, ShardId};
use wayleave_core::invariants::Verdict;
use wayleave_core::pipeline::row::{Artifact, ChunkState};
use wayleave_core::pipeline::state::ChunkCounts;
use wayleave_core::pipeline::view::ChunkFilter;
use wayleave_shard::Frontier;
use wayleave_shard::pipeline::Pipeline;

use crate::chunk_clients::{builder, crawler};
use crate::chunk_operator::{chunk_operator, retry_all};
use crate::chunk_oracle::ChunkCalls;
use crate::clients::{paced, putter, worker};
use crate::cluster::NODES;
use crate::cluster_faults::{bad_lines, keeper};
use crate::damage;
use crate::embedded;
use crate::faults::{disk, gremlin};
use crate::index_servers::{self, SERVERS, index_server, map_reader};
use crate::match_clients::{self, client, create_pool};
use crate::operator::{BARE, operator, set_free};
use crate::oracle::Id;
use crate::site::{maker, site_faults};
use crate::world::{Kind, World, pass};

/// Clients of the pool: more than its workers have slots.
const CLIENTS: std::ops::Range<u64> = 110..118;

/// How long the faults last.
const STORM_MS: u64 = 30_000;
/// How long the calm may take until everything is finished.
const CALM_MS: u64 = 300_000;

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Everything that happened, line by line.
    pub history: String,
    /// Reservations granted, URLs handed out in the paced form, releases acknowledged, URLs at the end.
    pub counts: [u64; 4],
    /// Calls for chunks that were worth judging.
    pub chunk_calls: ChunkCalls,
}

/// Runs the simulation of a seed. Panics if a law is broken; the message says how to replay the run.
#[must_use]
pub fn run(seed: u64) -> Report {
    run_world(seed, Kind::One)
}

/// Runs the simulation of a seed on the embedded store over a simulated disk. Panics if a law is broken; the message
/// says how to replay the run.
#[must_use]
pub fn run_embedded(seed: u64) -> Report {
    run_world(seed, Kind::Embedded)
}

/// Runs the simulation of a seed with three nodes over one store. Panics if a law is broken; the message says how to
/// replay the run.
#[must_use]
pub fn run_nodes(seed: u64) -> Report {
    run_world(seed, Kind::Nodes)
}

/// Runs the simulation of a seed with three nodes that join and leave cleanly. Panics if a law is broken or a call
/// fails; the message says how to replay the run.
#[must_use]
pub fn run_hand_overs(seed: u64) -> Report {
    run_world(seed, Kind::HandOvers)
}

fn run_world(seed: u64, kind: Kind) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    #[expect(clippy::expect_used, reason = "without a runtime nothing can be simulated")]
    let runtime = runtime.expect("a runtime");
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, simulate(seed, kind))
}

/// Ends the run if a law is broken.
pub(crate) fn verdict(world: &World, verdict: Verdict) {
    if let Err(broken) = verdict {
        fail(world, &broken.to_string());
    }
}

/// Ends the run. A task that ends is noticed only at the end, and others fail because of it: the first one counts.
pub(crate) fn fail(world: &World, what: &str) -> ! {
    let broken = world.broken.borrow().clone();
    let broken = broken.unwrap_or_else(|| {
        let summary = describe(world, what);
        *world.broken.borrow_mut() = Some(summary.clone());
        summary
    });
    panic!("{broken}");
}

/// What is broken, the last lines of the history, and how to replay it.
fn describe(world: &World, what: &str) -> String {
    let seed = world.seed;
    let test = match world.kind {
        Kind::One => "seeds::no_seed_breaks",
        Kind::Embedded => "seeds::no_seed_on_the_embedded",
        Kind::Nodes => "seeds::no_seed_of_several_nodes",
        Kind::HandOvers => "seeds::no_hand_over",
    };
    let history = world.history();
    let lines: Vec<&str> = history.lines().collect();
    if let Ok(path) = std::env::var("WAYLEAVE_SIM_HISTORY") {
        // If it cannot be written, the last lines below must do.
        _ = std::fs::write(path, &history);
    }
    let last = lines.iter().skip(lines.len().saturating_sub(60)).copied().collect::<Vec<_>>().join("\n");
    format!(
        "{last}\nseed {seed}: {what}\nreplay: WAYLEAVE_SIM_SEED={seed} cargo test -p wayleave-sim --test proofs {test}"
    )
}

async fn simulate(seed: u64, kind: Kind) -> Report {
    let world = World::new(seed, kind);
    if kind == Kind::Embedded {
        tokio::task::spawn_local(embedded::disk(world.clone(), 1));
    } else {
        tokio::task::spawn_local(disk(world.clone(), 1));
    }
    let mut storm = Vec::new();
    let mut lasting = Vec::new();
    if matches!(kind, Kind::One | Kind::Embedded) {
        world.open().await;
    } else {
        let keepers = (0..NODES).zip(60..).map(|(slot, name)| keeper(world.clone(), slot, name));
        lasting.extend(keepers.map(tokio::task::spawn_local));
    }
    if kind == Kind::Nodes {
        storm.push(tokio::task::spawn_local(bad_lines(world.clone(), 51)));
    }
    lasting.push(tokio::task::spawn_local(damage::watch(world.clone())));
    for name in 10..12 {
        tokio::task::spawn_local(putter(world.clone(), name));
    }
    lasting.extend((20..24).map(|name| tokio::task::spawn_local(worker(world.clone(), name))));
    lasting.extend((70..72).map(|name| tokio::task::spawn_local(crawler(world.clone(), name))));
    // Two, so that one may have a chunk while the other still has a token of it.
    lasting.extend((80..82).map(|name| tokio::task::spawn_local(builder(world.clone(), name))));
    lasting.extend(SERVERS.map(|name| tokio::task::spawn_local(index_server(world.clone(), name))));
    lasting.push(tokio::task::spawn_local(map_reader(world.clone(), 95)));
    start_pool(&world, &mut lasting);
    lasting.extend((30..32).map(|name| tokio::task::spawn_local(paced(world.clone(), name))));
    storm.push(tokio::task::spawn_local(operator(world.clone(), 40)));
    storm.push(tokio::task::spawn_local(chunk_operator(world.clone(), 41)));
    match kind {
        Kind::HandOvers => {}
        Kind::Embedded => storm.push(tokio::task::spawn_local(embedded::gremlin(world.clone(), 50))),
        Kind::One | Kind::Nodes => storm.push(tokio::task::spawn_local(gremlin(world.clone(), 50))),
    }
    pass(STORM_MS).await;
    world.calm.set(true);
    world.log("calm", "");
    for task in storm {
        join(&world, task).await;
    }
    let urls = settle(&world).await;
    world.done.set(true);
    for task in lasting {
        join(&world, task).await;
    }
    verdict(&world, world.oracle.borrow().judge());
    let oracle = world.oracle.borrow();
    let counts = [oracle.grants, oracle.handed_out, oracle.releases, urls];
    Report { history: world.history(), counts, chunk_calls: oracle.chunks.calls }
}

/// A pool, its clients, and the site that starts its workers.
fn start_pool(world: &Rc<World>, lasting: &mut Vec<tokio::task::JoinHandle<()>>) {
    let shards = (0..world.config.shards).map(ShardId);
    lasting.extend(shards.map(|shard| tokio::task::spawn_local(maker(world.clone(), 200, shard))));
    lasting.push(tokio::task::spawn_local(site_faults(world.clone(), 130, match_clients::pool())));
    let opened = world.clone();
    lasting.push(tokio::task::spawn_local(async move {
        create_pool(&opened).await;
        let clients = CLIENTS.map(|name| tokio::task::spawn_local(client(opened.clone(), name)));
        for client in clients.collect::<Vec<_>>() {
            join(&opened, client).await;
        }
    }));
}

async fn join(world: &World, task: tokio::task::JoinHandle<()>) {
    if let Err(error) = task.await {
        if error.is_panic() {
            std::panic::resume_unwind(error.into_panic());
        }
        fail(world, "a task was cancelled");
    }
}

/// Waits until everything is finished and checks the result.
async fn settle(world: &Rc<World>) -> u64 {
    let start = world.clock.elapsed();
    settle_nodes(world).await;
    damage::settle(world).await;
    retry_all(world).await;
    for round in 1u64.. {
        // A fault of the first phase may still strike once, and a call of it may arrive late: the next attempt must
        // succeed.
        if round == 1 || round.is_multiple_of(10) {
            while let Err(refusal) = set_free(world).await {
                world.log("set free", &refusal);
                pass(1_000).await;
            }
        }
        pass(2_000).await;
        if world.broken.borrow().is_some() {
            fail(world, "a law is broken");
        }
        let stats = match world.ask(async |frontier| frontier.stats().await).await {
            Ok(stats) => stats,
            Err(refusal) => fail(world, &format!("no stats in the calm: {refusal}")),
        };
        let chunks = match world.ask(async |frontier| Pipeline::new(frontier).counts().await).await {
            Ok(chunks) => chunks,
            Err(refusal) => fail(world, &format!("no numbers of chunks in the calm: {refusal}")),
        };
        let bare = world.ask(async |frontier| frontier.host(BARE.into()).await).await;
        let waits = bare.is_ok_and(|view| view.queued_at.is_some());
        let idle = stats.urls.scheduled() == 0 && stats.reservations == 0 && chunks == ChunkCounts::default() && !waits;
        let mut left = if idle { index_servers::unplaced(world, &built(world).await).await } else { None };
        if idle && left.is_none() {
            left = match_clients::unsettled(world, CLIENTS.count()).await;
        }
        if idle && left.is_none() {
            break;
        }
        if world.clock.elapsed() - start > CALM_MS {
            let hosts = world.ask(async |frontier| frontier.hosts(&HostFilter::default(), None, 100).await).await;
            world.log("hosts", &format!("{hosts:#?}"));
            fail(world, &format!("law 5: not everything has ended in the calm: {stats:?} {chunks:?} {left:?}"));
        }
    }
    reckon(world).await
}

/// Waits until several nodes have shared the shards; a single process has them all.
async fn settle_nodes(world: &World) {
    if let Some(cluster) = &world.cluster {
        cluster.settle(world).await;
    }
}

/// Law 3 and the counts, over all pages; then once more after a crash.
async fn reckon(world: &Rc<World>) -> u64 {
    let before = known_everywhere(world).await;
    verdict(world, world.oracle.borrow().judge_known(&before));
    verdict(world, world.oracle.borrow().judge_possible(&before));
    let finished: BTreeSet<Id> = world.oracle.borrow().finished.keys().cloned().collect();
    let doomed = world.oracle.borrow().doomed.clone();
    verdict(world, wayleave_core::invariants::durable_before_answered(&(&finished - &doomed), &before));
    let chunks = chunks(world).await;
    let ended = chunks.iter().map(|(id, state, crawled, _)| (*id, (*state, crawled.is_some())));
    verdict(world, world.oracle.borrow().chunks.judge(&ended.collect::<BTreeMap<_, _>>()));
    world.crash().await;
    settle_nodes(world).await;
    let after = known_everywhere(world).await;
    if before != after {
        fail(world, "a crash in the calm changed which URLs are known");
    }
    if chunks != self::chunks(world).await {
        fail(world, "a crash in the calm changed the chunks");
    }
    if let Some(unplaced) = index_servers::unplaced(world, &built(world).await).await {
        fail(world, &format!("a crash in the calm changed the copies: {unplaced}"));
    }
    let times = [world.now(), world.now()];
    verdict(world, wayleave_core::invariants::clock_never_goes_back(&times));
    after.len() as u64
}

/// The chunks that are built.
async fn built(world: &World) -> Vec<ChunkId> {
    let all = chunks(world).await.into_iter();
    all.filter(|(_, state, ..)| *state == ChunkState::Built).map(|(id, ..)| id).collect()
}

/// All chunks, each with its state and what its stages left behind.
async fn chunks(world: &World) -> Vec<(ChunkId, ChunkState, Option<Artifact>, Option<Artifact>)> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let call = async |frontier| Pipeline::new(frontier).chunks(ChunkFilter::default(), after, 11).await;
        let (page, next, damaged) = match world.ask(call).await {
            Ok(page) => page,
            Err(refusal) => fail(world, &format!("no list of chunks in the calm: {refusal}")),
        };
        if !damaged.is_empty() {
            fail(world, &format!("chunks cannot be read in the calm: {damaged:?}"));
        }
        for chunk in page {
            if chunk.reason.is_empty() {
                fail(world, &format!("law 10: chunk {} is {:?} without a reason", chunk.id, chunk.state));
            }
            all.push((chunk.id, chunk.state, chunk.crawl_artifact, chunk.build_artifact));
        }
        after = next;
        if after.is_none() {
            return all;
        }
    }
}

/// The known URLs: the same at every process.
async fn known_everywhere(world: &World) -> BTreeSet<Id> {
    let mut all: Option<BTreeSet<Id>> = None;
    for node_client in world.node_clients() {
        let known = known(world, &node_client.frontier).await;
        let stats = node_client.frontier.stats().await;
        let total = stats.map(|stats| stats.urls.total());
        if total != Ok(known.len() as u64) {
            fail(world, &format!("the totals say {total:?}, the pages show {}", known.len()));
        }
        if all.as_ref().is_some_and(|all| *all != known) {
            fail(world, "two nodes list different URLs");
        }
        all = Some(known);
    }
    all.unwrap_or_default()
}

async fn known(world: &World, frontier: &Frontier) -> BTreeSet<Id> {
    let (mut all, mut after) = (BTreeSet::new(), None);
    loop {
        let page = match frontier.urls(&UrlFilter::default(), after.as_deref(), 17).await {
            Ok(page) => page,
            Err(refusal) => fail(world, &format!("no listing in the calm: {refusal}")),
        };
        for url in page.items {
            if matches!(url.state, UrlState::Queued | UrlState::Reserved) {
                fail(world, &format!("{} is not finished", url.url));
            }
            let id = (url.crawl.to_string(), url.url.to_string());
            if url.state != UrlState::Fetched && world.oracle.borrow().chunks.counts(&id) {
                fail(world, &format!("law 3: {id:?} counts in a chunk and is {:?}", url.state));
            }
            if !all.insert(id) {
                fail(world, &format!("{} is listed twice", url.url));
            }
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return all,
        }
    }
}
