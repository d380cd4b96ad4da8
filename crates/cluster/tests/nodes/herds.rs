//! Callers that wait on one node for what another one gets: each group wakes one of them, those for another crawl do not
//! ask, and waiting costs next to no messages. A stopped node delays no answer.

use std::pin::Pin;
use std::sync::atomic::AtomicUsize;

use tokio::task::JoinHandle;
use wayleave_core::fleet::{Kind, Report, Reported};
use wayleave_core::frontier::request::RequestId;
use wayleave_core::pipeline::request::{Claim, Claimed, Stage};
use wayleave_shard::fleet::Fleet;
use wayleave_shard::pipeline::Pipeline;
use wayleave_sim::Fate;

use crate::prelude::*;

const WAIT: u64 = 600_000;

/// Counts the calls from one node to another.
fn count_calls(world: &World, from: NodeId, to: NodeId) -> Arc<AtomicUsize> {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    world.board.set_fates(Some(Arc::new(move |one, other| {
        if (one, other) == (from, to) {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        Fate::Arrives
    })));
    calls
}

async fn pair(world: &World) -> (Node, Node) {
    let (a, b) = (world.start().await, world.start().await);
    world.settle(&[&a, &b]).await;
    pass(Duration::from_secs(2)).await;
    (a, b)
}

/// URLs of a crawl, each of a host of its own that is at home at a node.
fn at(node: &Node, crawl: &str, count: usize) -> Vec<Put> {
    let here = |name: &String| node.frontier.owns(home(name, SHARDS));
    let hosts = (0..).map(|n| format!("{crawl}{n}.example")).filter(here).take(count);
    hosts.map(|host| Put { crawl: crawl.into(), ..put(&format!("http://{host}/")) }).collect()
}

fn waiting(crawl: Option<&str>) -> Reserve {
    Reserve { crawl: crawl.map(Into::into), lease: Millis(3_600_000), ..ask(1, WAIT) }
}

fn poll(node: &Node, crawl: Option<&str>) -> JoinHandle<Vec<Reservation>> {
    let (frontier, request) = (node.frontier.clone(), waiting(crawl));
    tokio::spawn(async move { frontier.reserve(request).await.unwrap() })
}

fn claim(stage: Stage, crawl: Option<&str>, request: Option<&str>) -> Claim {
    let request = request.map(|id| RequestId { id: id.into(), asks: 1 });
    let (crawl, worker, lease) = (crawl.map(Into::into), "w".into(), Millis(3_600_000));
    Claim { stage, worker, crawl, chunks: 1, links: 1, links_min: 1, host: None, lease, request }
}

async fn claim_now(node: &Node, claim: Claim) -> Vec<Claimed> {
    Pipeline::new(node.frontier.clone()).claim(claim, Millis(0), Millis(0)).await.unwrap()
}

fn claim_waiting(node: &Node, claim: Claim) -> JoinHandle<Vec<Claimed>> {
    let pipeline = Pipeline::new(node.frontier.clone());
    tokio::spawn(async move { pipeline.claim(claim, Millis(WAIT), Millis(0)).await.unwrap() })
}

#[tokio::test(start_paused = true)]
async fn idle_waiters_of_a_crawl_do_not_ask_a_node_that_has_another_one() {
    let world = World::new();
    let (a, b) = pair(&world).await;
    let idle: Vec<_> = (0..1_000).map(|_| poll(&a, Some("b"))).collect();
    pass(Duration::from_secs(1)).await;
    let calls = count_calls(&world, a.id, b.id);
    let looks = a.frontier.looks();
    // They stay ready there.
    for one in at(&b, "a", 100) {
        b.frontier.put(vec![one]).await;
        pass(Duration::from_millis(100)).await;
    }
    let (asked, looked) = (calls.load(Ordering::Relaxed), a.frontier.looks() - looks);
    assert!(asked <= 10, "{asked} calls in 10 s");
    assert!(looked <= 10, "{looked} looks in 10 s");
    // Each group of their own crawl serves one of them, at once.
    for (n, one) in at(&b, "b", 5).into_iter().enumerate() {
        b.frontier.put(vec![one]).await;
        pass(Duration::from_millis(100)).await;
        assert_eq!(idle.iter().filter(|idle| idle.is_finished()).count(), n + 1);
    }
    let asked = calls.load(Ordering::Relaxed) - asked;
    assert!(asked <= 10, "{asked} calls for 5 groups");
}

#[tokio::test(start_paused = true)]
async fn waiting_claims_cost_next_to_no_messages_and_are_woken_by_another_node() {
    let world = World::new();
    let (a, b) = pair(&world).await;
    let crawlers: Vec<_> =
        (0..300).map(|n| claim_waiting(&a, claim(Stage::Crawl, [None, Some("a")][n % 2], None))).collect();
    let builders: Vec<_> =
        (0..300).map(|n| claim_waiting(&a, claim(Stage::Build, [None, Some("a")][n % 2], None))).collect();
    pass(Duration::from_secs(1)).await;
    let calls = count_calls(&world, a.id, b.id);
    pass(Duration::from_secs(10)).await;
    let asked = calls.load(Ordering::Relaxed);
    assert!(asked <= 10, "{asked} calls in 10 s");
    for (n, one) in at(&b, "a", 6).into_iter().enumerate() {
        b.frontier.put(vec![one]).await;
        pass(Duration::from_millis(100)).await;
        assert_eq!(crawlers.iter().filter(|crawler| crawler.is_finished()).count(), n + 1);
    }
    let asked = calls.load(Ordering::Relaxed) - asked;
    assert!(asked <= 24, "{asked} calls for 6 links");
    assert!(builders.iter().all(|builder| !builder.is_finished()));
}

/// The other node has less than a full chunk for any of them.
#[tokio::test(start_paused = true)]
async fn of_claims_that_linger_one_looks_at_another_node_and_a_full_chunk_is_taken_at_once() {
    let world = World::new();
    let (a, b) = pair(&world).await;
    let mut urls = at(&b, "a", 40).into_iter();
    b.frontier.put(urls.by_ref().take(1).collect()).await;
    pass(Duration::from_millis(100)).await;
    let calls = count_calls(&world, a.id, b.id);
    let linger = |_| {
        let pipeline = Pipeline::new(a.frontier.clone());
        let claim = Claim { links: 2, ..claim(Stage::Crawl, Some("a"), None) };
        tokio::spawn(async move { pipeline.claim(claim, Millis(WAIT), Millis(60_000)).await.unwrap() })
    };
    let lingering: Vec<_> = (0..200).map(linger).collect();
    pass(Duration::from_secs(1)).await;
    calls.store(0, Ordering::Relaxed);
    pass(Duration::from_secs(10)).await;
    let asked = calls.load(Ordering::Relaxed);
    assert!(asked <= 41, "{asked} calls in 10 s");
    let host = urls.next().unwrap().host;
    let of_host = |n| Put { crawl: "a".into(), ..put(&format!("http://{host}/{n}")) };
    b.frontier.put(std::iter::once(of_host(0)).chain(urls).collect()).await;
    pass(Duration::from_secs(5)).await;
    assert!(lingering.iter().filter(|claim| claim.is_finished()).count() >= 10, "each full chunk is taken");
    pass(Duration::from_secs(60)).await;
    let asked = calls.load(Ordering::Relaxed) - asked;
    assert!(asked <= 500, "{asked} calls");
}

/// Everything that may wait does, on both nodes.
#[tokio::test(start_paused = true)]
async fn nodes_whose_callers_wait_send_each_other_one_message_a_second() {
    let world = World::new();
    let (a, b) = pair(&world).await;
    for node in [&a, &b] {
        for n in 0..50 {
            let crawl = [None, Some("a"), Some("b")][n % 3];
            poll(node, crawl);
            claim_waiting(node, claim(Stage::Crawl, crawl, None));
            claim_waiting(node, claim(Stage::Build, crawl, Some(&format!("{}-{n}", node.id.0))));
            let (fleet, version) = (Fleet::new(node.frontier.clone()), u64::MAX);
            tokio::spawn(async move { fleet.map(Some(version), Millis(WAIT)).await });
        }
    }
    pass(Duration::from_secs(5)).await;
    let messages = || [&a, &b].map(|node| node.frontier.node_messages());
    let before = messages();
    pass(Duration::from_secs(30)).await;
    for ((calls, beats), (calls_before, beats_before)) in messages().into_iter().zip(before) {
        assert_eq!(calls - calls_before, 0, "calls in 30 s");
        assert!(beats - beats_before <= 31, "{} beats in 30 s", beats - beats_before);
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_with_a_request_id_asks_another_node_once() {
    let world = World::new();
    let (a, b) = pair(&world).await;
    let calls = count_calls(&world, a.id, b.id);
    assert!(claim_now(&a, claim(Stage::Crawl, None, Some("r1"))).await.is_empty());
    assert_eq!(calls.load(Ordering::Relaxed), 1, "what it has granted before");
    b.frontier.put(at(&b, "a", 1)).await;
    pass(Duration::from_millis(100)).await;
    let first = claim_now(&a, claim(Stage::Crawl, None, Some("r2"))).await;
    assert_eq!((first.len(), calls.load(Ordering::Relaxed)), (1, 3), "the same, and for what it has");
    let again = claim_now(&a, claim(Stage::Crawl, None, Some("r2"))).await;
    assert_eq!((again[0].id, again[0].token), (first[0].id, first[0].token));
    assert_eq!(calls.load(Ordering::Relaxed), 4);
    assert_eq!(claim_now(&b, claim(Stage::Crawl, None, Some("r2"))).await[0].token, first[0].token);
}

/// A call that finds no room is not sent. What the other node has granted is not known then.
#[tokio::test(start_paused = true)]
async fn a_repeated_claim_is_refused_while_its_first_node_has_no_room() {
    let world = World::new();
    let (a, b) = pair(&world).await;
    b.frontier.put(at(&b, "a", 2)).await;
    pass(Duration::from_millis(100)).await;
    let request = || claim(Stage::Crawl, None, Some("r"));
    let first = claim_now(&a, request()).await;
    world.board.set_fates(Some(Arc::new(|_, _| Fate::NotSent)));
    a.frontier.put(at(&a, "a", 1)).await;
    let refused = Pipeline::new(a.frontier.clone()).claim(request(), Millis(0), Millis(0)).await.unwrap_err();
    assert!(refused.is_unavailable(), "{refused}");
    world.board.set_fates(None);
    assert_eq!(claim_now(&a, request()).await[0].token, first[0].token);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_stopped_makes_no_empty_answer_unclear() {
    let world = World::new();
    let (a, b) = pair(&world).await;
    for stage in [Stage::Crawl, Stage::Build] {
        for request in [None, Some("r")] {
            assert!(claim_now(&a, claim(stage, None, request)).await.is_empty());
        }
    }
    world.board.stand_still(b.id, true);
    for (n, stage) in [Stage::Crawl, Stage::Build].into_iter().enumerate() {
        for request in [None, Some(format!("s{n}"))] {
            let began = tokio::time::Instant::now();
            assert!(claim_now(&a, claim(stage, None, request.as_deref())).await.is_empty());
            assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        }
    }
    world.board.stand_still(b.id, false);
}

/// A call that is in line, and that its caller may give up without polling it again.
async fn in_line<T>(call: impl Future<Output = T>) -> Pin<Box<impl Future<Output = T>>> {
    let mut call = Box::pin(call);
    assert!(tokio::time::timeout(Duration::from_millis(100), &mut call).await.is_err(), "there is nothing yet");
    call
}

/// The other node's beat wakes the first in line, whose caller disconnects before it looks. The checks are shorter than the
/// interval at which the first in line looks by itself.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_after_its_wake_up_passes_the_work_on() {
    let world = World::new();
    let (a, b) = pair(&world).await;
    let mut urls = at(&b, "a", 4).into_iter();
    for of in [None, Some("a")] {
        let gone = in_line(a.frontier.reserve(waiting(of))).await;
        let next = poll(&a, of);
        pass(Duration::from_millis(10)).await;
        let looks = a.frontier.looks();
        b.frontier.put(urls.next().into_iter().collect()).await;
        pass(Duration::from_millis(100)).await;
        assert!(a.frontier.looks() == looks && !next.is_finished(), "the first one was woken");
        drop(gone);
        pass(Duration::from_millis(100)).await;
        assert!(next.is_finished(), "reservations for {of:?}");

        let pipeline = Pipeline::new(a.frontier.clone());
        let gone = in_line(pipeline.claim(claim(Stage::Crawl, of, None), Millis(WAIT), Millis(0))).await;
        let next = claim_waiting(&a, claim(Stage::Crawl, of, None));
        pass(Duration::from_millis(10)).await;
        b.frontier.put(urls.next().into_iter().collect()).await;
        pass(Duration::from_millis(100)).await;
        assert!(!next.is_finished(), "the first one was woken");
        drop(gone);
        pass(Duration::from_millis(100)).await;
        assert!(next.is_finished(), "claims for {of:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn readers_of_the_map_make_no_calls_before_another_node_has_changed_it() {
    let world = World::new();
    let (a, b) = pair(&world).await;
    let (owner, other) = if a.frontier.owns(ShardId(0)) { (&a, &b) } else { (&b, &a) };
    let here = Fleet::new(other.frontier.clone());
    let version = here.map(None, Millis(0)).await.unwrap().expect("a first look has a map").version;
    let readers: Vec<_> = (0..100)
        .map(|_| {
            let here = here.clone();
            tokio::spawn(async move { here.map(Some(version), Millis(WAIT)).await.unwrap().map(|map| map.version) })
        })
        .collect();
    pass(Duration::from_secs(1)).await;
    let calls = count_calls(&world, other.id, owner.id);
    pass(Duration::from_secs(20)).await;
    assert_eq!(calls.load(Ordering::Relaxed), 0, "nothing has changed");
    let server = Report {
        kind: Kind::Server,
        address: "a:1".into(),
        from: None,
        capacity: 1,
        row: None,
        state: Reported::Online,
        version: None,
        token: None,
    };
    Fleet::new(owner.frontier.clone()).report("s".into(), server).await.unwrap();
    pass(Duration::from_millis(500)).await;
    for reader in readers {
        assert!(reader.is_finished() && reader.await.unwrap().is_some_and(|now| now != version));
    }
    let calls = calls.load(Ordering::Relaxed);
    assert!(calls <= 2, "{calls} calls for one change and a hundred readers");
}

/// Draws numbers; the same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

/// Two nodes, whose links break and whose shards move. The checks are shorter than the interval at which the first in line
/// looks by itself.
#[tokio::test(start_paused = true)]
async fn no_waiter_sleeps_beside_a_ready_group_of_another_node() {
    const CRAWLS: [Option<&str>; 3] = [None, Some("a"), Some("b")];
    for seed in 0..4 {
        let (world, nodes) = World::with::<2>().await;
        let (mut dice, mut urls) = (Dice(seed), 0);
        let mut waiters: Vec<(Option<&str>, JoinHandle<Vec<Reservation>>)> = Vec::new();
        for step in 0..150 {
            match dice.roll(8) {
                0..3 => {
                    let more = 1 + dice.roll(3);
                    let puts = (0..more).map(|n| Put {
                        crawl: ["a", "b", "c"][dice.roll(3)].into(),
                        ..put(&format!("http://h{}.example/", urls + n))
                    });
                    let puts: Vec<Put> = puts.collect();
                    urls += more;
                    nodes[dice.roll(2)].frontier.put(puts).await;
                }
                3..6 => {
                    let of = CRAWLS[dice.roll(3)];
                    waiters.push((of, poll(&nodes[dice.roll(2)], of)));
                }
                6 if !waiters.is_empty() => waiters.swap_remove(dice.roll(waiters.len())).1.abort(),
                _ if dice.roll(8) == 0 => {
                    world.board.cut(nodes[0].id, nodes[1].id, true);
                    pass(Duration::from_millis(400)).await;
                    world.board.cut(nodes[0].id, nodes[1].id, false);
                    pass(Duration::from_millis(1_500)).await;
                }
                _ => {}
            }
            pass(Duration::from_millis(60)).await;
            waiters.retain(|(_, waiter)| !waiter.is_finished());
            for of in CRAWLS {
                if waiters.iter().any(|(waits, _)| *waits == of) {
                    for node in &nodes {
                        let request = Reserve { wait: Millis(0), ..waiting(of) };
                        let missed = node.frontier.reserve(request).await.unwrap();
                        assert!(
                            missed.is_empty(),
                            "seed {seed}, step {step}: a waiter for {of:?} sleeps beside {missed:?}"
                        );
                    }
                }
            }
        }
        waiters.iter().for_each(|(_, waiter)| waiter.abort());
    }
}
