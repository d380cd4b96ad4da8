//! Thousands of calls that wait for owners on other nodes: they leave the connection free, and each gets its answer
//! in time.

use wayleave_core::matches::MatchView;

use super::moves::Cluster;
use super::*;
use crate::prelude::*;

const HERD: usize = 1_000;

type Put = JoinHandle<Result<Option<MatchView>, Refusal>>;

/// Room for the herd.
fn wide() -> PoolSpec {
    PoolSpec { slots: Some(100), max: Some(10), match_ms_max: Some(600_000), ..spec() }
}

/// A pool at node 0.
async fn cluster(spec: PoolSpec) -> Cluster {
    let cluster = Cluster::new();
    cluster.at(0).set_pool(pool(), settings(spec)).await.unwrap();
    cluster
}

/// Puts that wait through the node at which the pool is not.
fn puts(cluster: &Cluster, count: usize) -> Vec<Put> {
    let put = |n| {
        let matches = cluster.at(1);
        tokio::spawn(async move { put(&matches, &format!("c{n}"), LONG).await })
    };
    (0..count).map(put).collect()
}

async fn all_matched(puts: Vec<Put>) {
    for put in puts {
        assert_eq!(put.await.unwrap().unwrap().unwrap().stage, MatchStage::Matched);
    }
}

#[tokio::test(start_paused = true)]
async fn clients_that_wait_on_another_node_cost_nothing_until_news_arrives() {
    let cluster = cluster(wide()).await;
    let waiting = puts(&cluster, HERD);
    pass(5_000).await;
    assert_eq!(cluster.calls(), HERD, "each is queued");
    pass(30_000).await;
    assert_eq!(cluster.calls(), 0, "they wait here");
    let site = Site::new("s");
    let (begun, _maker) = (Instant::now(), site.serve(&cluster.at(0)));
    all_matched(waiting).await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let calls = cluster.calls();
    assert!(calls <= HERD + HERD / 10, "{calls} questions for {HERD} matches");
    assert_eq!(site.held(), HERD);
}

#[tokio::test(start_paused = true)]
async fn a_client_whose_remote_wait_times_out_gets_the_current_state() {
    let cluster = cluster(wide()).await;
    let (here, begun) = (cluster.at(1), Instant::now());
    let first = put(&here, "first", Millis(2_000));
    let second = async {
        pass(10).await;
        put(&here, "second", Millis(20_000)).await
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!(first.unwrap().unwrap().position, Some(1));
    assert_eq!(here.cancel(pool(), asker("first"), None).await, Ok(true));
    assert_eq!(second.unwrap().unwrap().position, Some(2));
    assert!(begun.elapsed() >= Duration::from_secs(20));
    let third = put(&here, "second", Millis(5_000)).await.unwrap().unwrap();
    assert_eq!(third.position, Some(1), "one has left");
}

#[tokio::test(start_paused = true)]
async fn idle_makers_and_pools_of_several_nodes_make_no_calls() {
    let cluster = cluster(PoolSpec { slots: Some(1), ..spec() }).await;
    let (site, other) = (Site::new("s"), Site::new("t"));
    let _makers = [site.serve(&cluster.at(1)), other.serve(&cluster.at(0))];
    assert_eq!(put(&cluster.at(0), "a", LONG).await.unwrap().unwrap().stage, MatchStage::Matched);
    assert_eq!(cluster.at(0).cancel(pool(), asker("a"), None).await, Ok(true));
    until("idle workers are stopped", || async { site.workers() + other.workers() == 0 }).await;
    pass(10_000).await;
    cluster.calls();
    pass(30_000).await;
    // Each minute a site is asked to list what it has.
    let calls = cluster.calls();
    assert!(calls <= 4, "{calls} calls in half a minute without anything to do");
    // Both are alive anyway: either may make the next worker, at once.
    let begun = Instant::now();
    for client in ["b", "c"] {
        assert_eq!(put(&cluster.at(0), client, LONG).await.unwrap().unwrap().stage, MatchStage::Matched);
    }
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(site.workers() + other.workers(), 2);
}

#[tokio::test(start_paused = true)]
async fn news_and_orders_of_a_node_that_was_not_heard_for_a_while_are_not_lost() {
    let mut cluster = cluster(wide()).await;
    let waiting = puts(&cluster, 20);
    pass(1_000).await;
    cluster.part();
    // The pool orders, and its clients are matched, while nothing of it is heard at the other node.
    let (site, far) = (Site::new("s"), Site::new("far"));
    let maker = site.serve(&cluster.at(0));
    until("all are matched", || async { site.held() == 20 }).await;
    pass(2_000).await;
    assert!(waiting.iter().all(|put| !put.is_finished()), "the other node has not heard");
    cluster.miss();
    cluster.listen();
    pass(100).await;
    assert!(waiting.iter().all(JoinHandle::is_finished));
    all_matched(waiting).await;
    // And so with orders for a Maker there, once no other one is alive.
    maker.end().await;
    let _far = far.serve(&cluster.at(1));
    pass(30_000).await;
    cluster.part();
    cluster.at(0).set_pool("q".into(), settings(PoolSpec { min: Some(1), ..spec() })).await.unwrap();
    pass(1_000).await;
    assert_eq!(far.workers(), 0);
    cluster.miss();
    cluster.listen();
    until("it is made", || async { far.workers() == 1 }).await;
}

/// A wake-up is not passed on, because it is for one client: its match is there for whichever call asks next, and ends if
/// none does. Then the slot is the next client's.
#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_after_its_wake_up_blocks_no_one() {
    let one = PoolSpec { slots: Some(1), max: Some(1), reservation_ms: Some(10_000), ..wide() };
    for leaves in [false, true] {
        let mut cluster = cluster(one.clone()).await;
        let mut waiting = puts(&cluster, 2);
        pass(1_000).await;
        // It is matched, and has not heard.
        cluster.part();
        let site = Site::new("s");
        let _maker = site.serve(&cluster.at(0));
        until("one is matched", || async { site.held() == 1 }).await;
        let first = stage(&cluster.at(0), "c0").await;
        let (first, second) = if first == Some(MatchStage::Matched) { (0, 1) } else { (1, 0) };
        if leaves {
            waiting[first].abort();
        }
        cluster.miss();
        cluster.listen();
        pass(1_000).await;
        assert!(waiting[first].is_finished() && !waiting[second].is_finished());
        if leaves {
            let begun = Instant::now();
            let second = waiting.swap_remove(second).await.unwrap().unwrap().unwrap();
            assert_eq!(second.stage, MatchStage::Matched);
            assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
        }
    }
}
