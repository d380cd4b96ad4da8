//! The format of the store is raised while nodes join, leave, die and pause. The interleavings have their numbers
//! from `seats.rs`.

use tokio::sync::{Barrier, Notify};
use wayleave_engine::rows::join;

use crate::prelude::*;
use crate::same_address::{Gate, Gated, creates};

const OLD: u32 = 1;
const NEW: u32 = 2;

async fn start(world: &World, format: u32) -> Node {
    world.format.store(format, Ordering::Relaxed);
    world.start().await
}

async fn start_on(world: &World, format: u32, engine: Arc<dyn Engine>, id: NodeId) -> Result<Node, JoinError> {
    world.format.store(format, Ordering::Relaxed);
    world.try_start_on(engine, id, &format!("http://node-{}", id.0)).await
}

async fn format(world: &World) -> u32 {
    let row = world.engine.get_many(&[join::key()]).await.unwrap().remove(0);
    join::decode(&row.unwrap()).unwrap().1
}

async fn is_raised(world: &World) {
    for _ in 0..2_000 {
        if format(world).await == NEW {
            return;
        }
        pass(Duration::from_millis(10)).await;
    }
    panic!("the format is not raised");
}

/// All nodes have looked and renewed their leases several times.
async fn several_looks() {
    pass(Duration::from_millis(2 * TTL.0)).await;
}

fn raises(batch: &Batch) -> bool {
    batch.writes.len() == 1 && batch.writes[0].key == join::key()
}

fn gate() -> (Gate, Arc<Notify>, Arc<Notify>) {
    let (reached, open) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    (Gate::Told { reached: reached.clone(), open: open.clone() }, reached, open)
}

async fn is_refused(world: &World) {
    let Err(refused) = start_on(world, OLD, world.engine.clone(), NodeId(99)).await else { panic!("it has joined") };
    assert_eq!(refused, JoinError::Newer { found: NEW, known: OLD });
    let text = refused.to_string();
    assert!(text.contains("format 2") && text.contains("up to 1") && text.contains("newer wayleave"), "{text}");
}

fn seen(node: &Node) -> Vec<(NodeId, bool)> {
    let nodes = node.member.as_ref().unwrap().nodes().unwrap();
    nodes.iter().map(|node| (node.row.id, node.holds_back)).collect()
}

#[tokio::test(start_paused = true)]
async fn the_format_is_raised_when_the_last_older_node_leaves() {
    let world = World::new();
    let (one, two) = (start(&world, OLD).await, start(&world, OLD).await);
    let newer = start(&world, NEW).await;
    several_looks().await;
    assert_eq!(format(&world).await, OLD);
    assert_eq!(seen(&newer), [(one.id, true), (two.id, true), (newer.id, false)]);
    world.settle(&[&one, &two, &newer]).await;
    one.leave(&world).await;
    several_looks().await;
    assert_eq!(format(&world).await, OLD, "an older node is left");
    let again = start(&world, OLD).await;
    world.settle(&[&two, &newer, &again]).await;
    two.leave(&world).await;
    again.leave(&world).await;
    is_raised(&world).await;
    is_refused(&world).await;
    several_looks().await;
    assert_eq!(newer.member.as_ref().unwrap().format(), NEW);
    assert_eq!(seen(&newer), [(newer.id, false)], "the refused one has left nothing");
    assert_eq!(newer.put(&["http://a.example/"]).await, [PutOutcome::Added]);
}

#[tokio::test(start_paused = true)]
async fn the_first_node_decides_on_the_format() {
    let world = World::new();
    _ = start(&world, NEW).await;
    assert_eq!(format(&world).await, NEW);
    is_refused(&world).await;
}

/// 1.
#[tokio::test(start_paused = true)]
async fn two_that_raise_the_format_at_once_raise_it_once() {
    let world = World::new();
    let older = start(&world, OLD).await;
    let together = Gate::Together(Arc::new(Barrier::new(2)));
    let a = start_on(&world, NEW, Gated::new(&world, together.clone(), raises), NodeId(7)).await.unwrap();
    let b = start_on(&world, NEW, Gated::new(&world, together, raises), NodeId(8)).await.unwrap();
    older.leave(&world).await;
    is_raised(&world).await;
    several_looks().await;
    assert_eq!(format(&world).await, NEW);
    world.settle(&[&a, &b]).await;
}

/// 2.
#[tokio::test(start_paused = true)]
async fn a_joining_older_node_holds_back_a_raise_of_the_format() {
    let world = World::new();
    let older = start(&world, OLD).await;
    let (gate, reached, open) = gate();
    let a = start_on(&world, NEW, Gated::new(&world, gate, raises), NodeId(7)).await.unwrap();
    older.leave(&world).await;
    reached.notified().await;
    let late = start(&world, OLD).await;
    open.notify_one();
    several_looks().await;
    assert_eq!(format(&world).await, OLD, "the older node may write");
    world.settle(&[&a, &late]).await;
    late.leave(&world).await;
    is_raised(&world).await;
}

/// 3.
#[tokio::test(start_paused = true)]
async fn an_older_node_whose_join_arrives_after_the_raise_is_refused() {
    let world = World::new();
    let (older, newer) = (start(&world, OLD).await, start(&world, NEW).await);
    let (gate, reached, open) = gate();
    let late = Gated::new(&world, gate, creates(NodeId(9)));
    let raised = async {
        reached.notified().await;
        older.leave(&world).await;
        is_raised(&world).await;
        open.notify_one();
    };
    let (late, ()) = tokio::join!(start_on(&world, OLD, late, NodeId(9)), raised);
    assert!(matches!(late, Err(JoinError::Newer { found: NEW, known: OLD })));
    several_looks().await;
    assert_eq!(seen(&newer), [(newer.id, false)]);
}

/// 4: whether its write arrives before or after that of the other one, or the other one has nothing left to raise.
#[tokio::test(start_paused = true)]
async fn a_node_that_dies_while_it_raises_the_format_leaves_it_to_others() {
    for arrives_first in [true, false] {
        let world = World::new();
        let older = start(&world, OLD).await;
        let (gate, reached, open) = gate();
        let mut a = start_on(&world, NEW, Gated::new(&world, gate, raises), NodeId(7)).await.unwrap();
        older.leave(&world).await;
        reached.notified().await;
        assert_eq!(format(&world).await, OLD);
        a.kill(&world);
        if arrives_first {
            open.notify_one();
        }
        let b = start(&world, NEW).await;
        is_raised(&world).await;
        open.notify_one();
        world.settle(&[&b]).await;
        assert_eq!(format(&world).await, NEW);
        is_refused(&world).await;
    }
}

/// 5: it holds the format back until its row is forgotten. Then it can neither write nor come back.
#[tokio::test(start_paused = true)]
async fn an_older_node_that_wakes_after_the_raise_changes_nothing_and_ends() {
    let world = World::new();
    let (older, newer) = (start(&world, OLD).await, start(&world, NEW).await);
    world.settle(&[&older, &newer]).await;
    let mine = (0..SHARDS).map(ShardId).find(|shard| older.frontier.owns(*shard)).unwrap();
    let host = (0..).map(|n| format!("h{n}.example")).find(|host| home(host, SHARDS) == mine).unwrap();
    let (one, two) = (format!("http://{host}/1"), format!("http://{host}/2"));
    assert_eq!(older.put(&[&one]).await, [PutOutcome::Added]);
    older.stand_still(&world, true);
    several_looks().await;
    world.settle_one(&newer).await;
    assert_eq!(format(&world).await, OLD, "it may come back");
    assert_eq!(seen(&newer), [(older.id, true), (newer.id, false)]);
    is_raised_after(&world, Duration::from_secs(11 * 60)).await;
    assert_eq!(newer.put(&[&one]).await, [PutOutcome::Known]);
    // Its owners continue first: they do not know yet.
    older.wake_owners(&world);
    let outcomes = older.put(&[&two]).await;
    older.stand_still(&world, false);
    let out = tokio::time::timeout(Duration::from_millis(TTL.0), older.member.as_ref().unwrap().replaced()).await;
    assert_eq!(out, Ok(JoinError::Newer { found: NEW, known: OLD }));
    let stored = newer.put(&[&two]).await == [PutOutcome::Known];
    assert!(
        stored == (outcomes == [PutOutcome::Known] || outcomes == [PutOutcome::Added]),
        "{outcomes:?}, and stored: {stored}"
    );
    several_looks().await;
    assert_eq!(older.owned(), 0);
    world.settle(&[&newer]).await;
}

async fn is_raised_after(world: &World, span: Duration) {
    pass(span).await;
    assert_eq!(format(world).await, NEW);
}
