//! Rows of seats and nodes that another session has locked in the store: only what needs them waits.

use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use wayleave_core::settings::{Change, CrawlChanges};
use wayleave_engine::rows::{page_ledger, seat};
use wayleave_engine::{Error, Key};
use wayleave_shard::Revoke;

use crate::prelude::*;

/// The lock timeout of the store.
const PATIENCE: Duration = Duration::from_secs(4);

/// A store in which another session holds some rows: a batch that expects or writes one of them is refused after a
/// while.
struct Locked {
    store: Arc<Memory>,
    keys: Mutex<BTreeSet<Key>>,
    refused: AtomicUsize,
}

impl Engine for Locked {
    wayleave_engine::pass_on! { store: now own get_many scan_many look }

    fn commit(&self, batch: Batch) -> Commit {
        let keys = self.keys.lock().unwrap();
        let expected = batch.expects.iter().any(|(key, _)| keys.contains(key));
        if !expected && !batch.writes.iter().any(|write| keys.contains(&write.key)) {
            return self.store.commit(batch);
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        async {
            tokio::time::sleep(PATIENCE).await;
            Err(Error::Unavailable("another session holds the rows".to_owned()))
        }
        .boxed()
    }
}

/// A node that sees such a store, and this many others.
async fn world_of(others: usize) -> (World, Arc<Locked>, Node, Vec<Node>) {
    let world = World::new();
    let engine = Arc::new(Locked { store: world.engine.clone(), keys: Mutex::default(), refused: AtomicUsize::new(0) });
    let a = world.start_on(engine.clone(), NodeId(50), "http://node-50").await;
    let mut rest = Vec::new();
    for _ in 0..others {
        rest.push(world.start().await);
    }
    world.settle(&[&a].into_iter().chain(&rest).collect::<Vec<_>>()).await;
    (world, engine, a, rest)
}

fn seat_of(node: &Node) -> Key {
    seat::key((0..SHARDS).map(ShardId).find(|shard| node.frontier.owns(*shard)).unwrap())
}

/// Waits until a node owns this many shards.
async fn owns(node: &Node, count: usize) {
    for _ in 0..1_000 {
        if node.owned() == count {
            return;
        }
        pass(Duration::from_millis(TTL.0 / 100)).await;
    }
    panic!("{} shards instead of {count}", node.owned());
}

#[tokio::test(start_paused = true)]
async fn one_locked_seat_of_a_dead_node_does_not_block_its_other_shards() {
    let (world, engine, a, mut others) = world_of(1).await;
    let locked = seat_of(&others[0]);
    engine.keys.lock().unwrap().insert(locked);
    others[0].kill(&world);
    owns(&a, usize::from(SHARDS) - 1).await;
    engine.keys.lock().unwrap().clear();
    owns(&a, usize::from(SHARDS)).await;
}

/// Taking a dead node's seat locks that node's row, so that the node cannot come back meanwhile. While another session
/// holds the row, the seats of that node wait; those of other dead nodes do not.
#[tokio::test(start_paused = true)]
async fn a_locked_row_of_one_dead_node_does_not_hold_up_the_shards_of_another() {
    let (world, engine, a, mut others) = world_of(2).await;
    let kept = others[0].owned();
    engine.keys.lock().unwrap().insert(node::key(others[0].id));
    others.iter_mut().for_each(|node| node.kill(&world));
    owns(&a, usize::from(SHARDS) - kept).await;
    engine.keys.lock().unwrap().clear();
    owns(&a, usize::from(SHARDS)).await;
}

/// The store refuses a locked row only after a while. A node whose pass waited for that would not notice anything else:
/// here, that another node has joined and wants its share.
#[tokio::test(start_paused = true)]
async fn a_node_that_waits_for_a_locked_seat_still_hands_shards_over() {
    let (world, engine, a, mut others) = world_of(1).await;
    engine.keys.lock().unwrap().insert(seat_of(&others[0]));
    others[0].kill(&world);
    owns(&a, usize::from(SHARDS) - 1).await;
    let c = world.start().await;
    let begun = tokio::time::Instant::now();
    while c.owned() < usize::from(SHARDS) / 2 - 1 {
        assert!(begun.elapsed() < PATIENCE / 2, "{} shards after {:?}", c.owned(), begun.elapsed());
        pass(Duration::from_millis(10)).await;
    }
}

/// A session holds the ledger of a page limit. What went wrong once: each question reloaded the shard that asked.
#[tokio::test(start_paused = true)]
async fn a_locked_ledger_costs_the_visits_of_its_crawl_and_reloads_no_shard() {
    let (_world, engine, a, _) = world_of(0).await;
    let frontier = &a.frontier;
    let limit = CrawlChanges { pages: Change::Set(1), ..CrawlChanges::default() };
    frontier.set_crawl("limited".into(), limit, false).await.unwrap();
    let [limited, other] = ["limited", "other"].map(|crawl| Put { crawl: crawl.into(), ..put("http://h.example/") });
    assert_eq!(frontier.put(vec![limited]).await, [PutOutcome::Added]);
    engine.keys.lock().unwrap().insert(page_ledger::key(&"limited".into()));
    let take = async |wait| frontier.reserve(ask(1, wait)).await;
    assert_eq!(take(0).await, Ok(Vec::new()), "no page can be drawn");
    assert_eq!(frontier.put(vec![other]).await, [PutOutcome::Added], "the shard goes on");
    let visit = take(0).await.unwrap().pop().expect("the other crawl is visited");
    assert_eq!(&*visit.urls[0].crawl, "other");
    frontier.revoke(Revoke::Token(visit.token)).await.unwrap();
    frontier.delete_crawl("other".into()).await.unwrap();
    engine.keys.lock().unwrap().clear();
    let visit = take(60_000).await.unwrap().pop().expect("once the row is free");
    assert_eq!(&*visit.urls[0].crawl, "limited");
}

/// What went wrong once: every shard that had pages of the crawl waited for the lock, again and again, and a shard that asked for
/// more could not use those it had.
#[tokio::test(start_paused = true)]
async fn a_ledger_that_stays_locked_is_tried_ever_more_rarely_and_shards_use_the_pages_they_have() {
    let (_world, engine, a, _) = world_of(0).await;
    let frontier = &a.frontier;
    // Enough for each shard to get one in advance.
    let limit = CrawlChanges { pages: Change::Set(16 * u64::from(SHARDS)), ..CrawlChanges::default() };
    frontier.set_crawl("limited".into(), limit, false).await.unwrap();
    let of = |n: usize| Put { crawl: "limited".into(), ..put(&format!("http://h{}.example/{}", n / 2, n % 2)) };
    let added = frontier.put((0..400).map(of).collect()).await;
    assert!(added.iter().all(|outcome| *outcome == PutOutcome::Added));
    engine.keys.lock().unwrap().insert(page_ledger::key(&"limited".into()));
    let mut visited = BTreeSet::new();
    for _ in 0..300 {
        // For longer than the test takes: a page that comes back would be used again.
        let lease = Millis(3_600_000);
        let visits = frontier.reserve(Reserve { urls: 2, lease, ..ask(1, 0) }).await.unwrap();
        visited.extend(visits.into_iter().flat_map(|visit| visit.urls).map(|url| url.url));
        pass(Duration::from_secs(1)).await;
    }
    assert_eq!(visited.len(), usize::from(SHARDS), "each shard has one page");
    let refused = engine.refused.load(Ordering::Relaxed);
    assert!((1..=15).contains(&refused), "written {refused} times");
}
