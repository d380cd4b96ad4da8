//! Shards that a node cannot open: they go to another node, and no failing node keeps them for long.

use std::sync::Mutex;

use wayleave_core::ids::Epoch;
use wayleave_engine::{Error, Expect};

use crate::prelude::*;

/// A node's own connection to the store, through which some shards cannot be taken.
struct Broken {
    store: Arc<Memory>,
    shards: Arc<Mutex<BTreeSet<ShardId>>>,
}

impl Engine for Broken {
    wayleave_engine::pass_on! { store: now get_many scan_many look commit }

    fn own<'a>(&'a self, shard: ShardId, expects: &'a [Expect]) -> Pending<'a, (Epoch, u64)> {
        if self.shards.lock().unwrap().contains(&shard) {
            let broken = Error::Corrupt("it cannot be opened here".to_owned());
            return Box::pin(std::future::ready(Err(broken)));
        }
        self.store.own(shard, expects)
    }
}

async fn start(world: &World, id: u64, shards: &Arc<Mutex<BTreeSet<ShardId>>>) -> Node {
    let broken = Arc::new(Broken { store: world.engine.clone(), shards: shards.clone() });
    world.start_on(broken, NodeId(id), &format!("http://node-{id}")).await
}

fn owned(node: &Node) -> BTreeSet<ShardId> {
    (0..SHARDS).map(ShardId).filter(|shard| node.frontier.owns(*shard)).collect()
}

/// Waits until every shard is open somewhere.
async fn all_open(nodes: &[&Node]) {
    for _ in 0..60_000 {
        if (0..SHARDS).map(ShardId).all(|shard| nodes.iter().any(|node| node.frontier.is_open(shard))) {
            return;
        }
        pass(Duration::from_millis(10)).await;
    }
    panic!("not all are open: {:?}", nodes.iter().map(|node| owned(node)).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_fails_to_open_moves_and_its_node_keeps_the_others() {
    let world = World::new();
    let bad = Arc::default();
    let (a, b) = (world.start().await, start(&world, 50, &bad).await);
    world.settle(&[&a, &b]).await;
    let before = owned(&b);
    let lost = *before.first().unwrap();
    bad.lock().unwrap().insert(lost);
    // Its owner loses the shard's state and has to open it again.
    b.frontier.close_shard(lost).await;
    all_open(&[&a, &b]).await;
    assert!(a.frontier.is_open(lost));
    let mut rest = before;
    rest.remove(&lost);
    assert!(owned(&b).is_superset(&rest), "{:?}", owned(&b));
    assert_eq!(b.frontier.readiness(), Ok(()), "it has nothing to do with it any more");
}

/// Without a limit each node would be given it again and again.
#[tokio::test(start_paused = true)]
async fn a_shard_that_no_node_can_open_is_retried_with_back_off() {
    let world = World::new();
    let lost = ShardId(3);
    let bad = Arc::new(Mutex::new(BTreeSet::from([lost])));
    let nodes = [start(&world, 50, &bad).await, start(&world, 51, &bad).await, start(&world, 52, &bad).await];
    let mut owners = vec![None];
    let mut moved = 0;
    let at = |shard| nodes.iter().position(|node| node.frontier.owns(shard));
    // Everything that happens for an hour.
    for second in 0..3_600 {
        pass(Duration::from_secs(1)).await;
        if let owner @ Some(_) = at(lost)
            && owners.last() != Some(&owner)
        {
            owners.push(owner);
            moved = second;
        }
    }
    let all: BTreeSet<_> = owners.iter().flatten().collect();
    assert_eq!(all.len(), 3, "all have tried: {owners:?}");
    assert!(owners.len() < 40, "{} moves, the last after {moved} s", owners.len());
    bad.lock().unwrap().clear();
    all_open(&nodes.each_ref()).await;
}
