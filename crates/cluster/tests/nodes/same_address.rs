//! Two nodes with one address: exactly one joins, in every order of their reads and writes. The interleavings have
//! their numbers from `address.rs`.

use std::sync::atomic::AtomicBool;

use tokio::sync::{Barrier, Notify};

use crate::hints::Listening;
use crate::prelude::*;

const ADDRESS: &str = "http://same";
const A: NodeId = NodeId(8);
const B: NodeId = NodeId(7);

/// A node's own connection to the store. The first write of some kind waits at the gate, if it is closed. It continues also if the node is
/// killed meanwhile.
pub struct Gated {
    store: Arc<Memory>,
    waits: Box<dyn Fn(&Batch) -> bool + Send + Sync>,
    closed: AtomicBool,
    gate: Gate,
}

#[derive(Clone)]
pub enum Gate {
    /// Announces the write, and waits until it may pass.
    Told { reached: Arc<Notify>, open: Arc<Notify> },
    /// Waits for the write of the other node.
    Together(Arc<Barrier>),
}

impl Engine for Gated {
    wayleave_engine::pass_on! { store: now own get_many scan_many look }

    fn commit(&self, batch: Batch) -> Commit {
        if !(self.waits)(&batch) || !self.closed.swap(false, Ordering::Relaxed) {
            return self.store.commit(batch);
        }
        let (store, gate) = (self.store.clone(), self.gate.clone());
        let writing = tokio::spawn(async move {
            match gate {
                Gate::Told { reached, open } => {
                    reached.notify_one();
                    open.notified().await;
                }
                Gate::Together(both) => _ = both.wait().await,
            }
            store.commit(batch).await
        });
        async move { writing.await.unwrap() }.boxed()
    }
}

impl Gated {
    /// Writes for which `waits` holds wait.
    pub fn new(world: &World, gate: Gate, waits: impl Fn(&Batch) -> bool + Send + Sync + 'static) -> Arc<Self> {
        let (store, waits) = (world.engine.clone(), Box::new(waits));
        Arc::new(Self { store, waits, closed: AtomicBool::new(true), gate })
    }
}

/// Whether a write creates the row of a node.
pub fn creates(me: NodeId) -> impl Fn(&Batch) -> bool + Send + Sync + 'static {
    move |batch| batch.expects.contains(&(node::key(me), None))
}

fn gated(world: &World, me: NodeId, gate: Gate) -> Arc<Gated> {
    Gated::new(world, gate, creates(me))
}

/// The node stays, and the store knows no other one.
async fn is_alone(world: &World, node: &Node) {
    pass(Duration::from_millis(2 * TTL.0)).await;
    let member = node.member.as_ref().unwrap();
    assert!(member.is_alive());
    assert_eq!(member.nodes().unwrap().iter().map(|node| node.row.id).collect::<Vec<_>>(), [node.id]);
    world.settle(&[node]).await;
}

/// 1: both have looked, and then both write.
#[tokio::test(start_paused = true)]
async fn of_two_that_join_at_the_same_moment_one_is_refused() {
    for a_first in [true, false] {
        let world = World::new();
        let together = Gate::Together(Arc::new(Barrier::new(2)));
        let start = |id| world.try_start_on(gated(&world, id, together.clone()), id, ADDRESS);
        let (one, other) = if a_first { (A, B) } else { (B, A) };
        let (one, other) = tokio::join!(start(one), start(other));
        let (node, refused) = match (one, other) {
            (Ok(node), Err(refused)) | (Err(refused), Ok(node)) => (node, refused),
            (one, other) => panic!("both or none: {} {}", one.is_ok(), other.is_ok()),
        };
        assert!(matches!(refused, JoinError::AddressTaken { id, .. } if id == node.id), "{refused}");
        is_alone(&world, &node).await;
    }
}

/// 2: the one that started first writes its row when the other one has joined already.
#[tokio::test(start_paused = true)]
async fn a_node_with_a_late_first_row_finds_the_node_that_joined_meanwhile() {
    let world = World::new();
    let (reached, open) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let early = gated(&world, A, Gate::Told { reached: reached.clone(), open: open.clone() });
    let meanwhile = async {
        reached.notified().await;
        pass(Duration::from_millis(10)).await;
        let late = world.start_at(B, ADDRESS).await;
        open.notify_one();
        late
    };
    let (early, late) = tokio::join!(world.try_start_on(early, A, ADDRESS), meanwhile);
    let refused = early.err().expect("two nodes have one address");
    assert!(matches!(refused, JoinError::AddressTaken { id: B, .. }), "{refused}");
    is_alone(&world, &late).await;
}

/// 3: a node whose row was removed writes it again when another one has joined.
#[tokio::test(start_paused = true)]
async fn a_node_that_comes_back_late_finds_the_one_that_joined_meanwhile() {
    let world = World::new();
    let (reached, open) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let engine = gated(&world, A, Gate::Told { reached: reached.clone(), open: open.clone() });
    engine.closed.store(false, Ordering::Relaxed);
    let old = world.start_on(engine.clone(), A, ADDRESS).await;
    world.settle(&[&old]).await;
    engine.closed.store(true, Ordering::Relaxed);
    let forget = Batch { writes: vec![Write { key: node::key(A), value: None }], ..Batch::default() };
    world.engine.commit(forget).await.unwrap();
    reached.notified().await;
    let new = world.start_at(B, ADDRESS).await;
    open.notify_one();
    let replaced = tokio::time::timeout(Duration::from_millis(TTL.0), old.member.as_ref().unwrap().replaced()).await;
    let replaced = replaced.expect("two nodes have one address");
    assert!(matches!(replaced, JoinError::Replaced { id: B, .. }), "{replaced}");
    is_alone(&world, &new).await;
}

/// Over the real network, where the node at the address refuses the calls of another version.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_living_node_of_another_version_is_not_replaced_but_a_dead_one_is() {
    let engine = Arc::new(Memory::new(wayleave_engine::clock::SystemClock::default()));
    let older = Listening::start(engine.clone(), A, Some("frontier/0")).await;
    let _joined = older.join(&older.address).await.unwrap();
    let newer = Listening::start(engine.clone(), B, None).await;
    let refused = newer.join(&older.address).await.err().expect("two nodes have one address");
    assert!(matches!(refused, JoinError::AddressTaken { id: A, .. }), "{refused}");
    // Here the newer one is at its own address, and an older one has claimed it that cannot be reached there.
    let elsewhere = Listening::start(engine, NodeId(9), None).await;
    let _claimed = elsewhere.join(&newer.address).await.unwrap();
    let _joined = newer.join(&newer.address).await.unwrap();
}

/// 4: a node that does not answer at its address renews its row while it is asked, and yet it has to go.
#[tokio::test(start_paused = true)]
async fn a_silent_node_that_renews_its_row_while_it_is_asked_is_replaced() {
    let world = World::new();
    let old = world.start_at(A, ADDRESS).await;
    world.settle(&[&old]).await;
    // It is asked for two seconds, and renews its row every second.
    world.board.stand_still(A, true);
    let new = world.start_at(B, ADDRESS).await;
    let replaced = tokio::time::timeout(Duration::from_millis(TTL.0), old.member.as_ref().unwrap().replaced()).await;
    assert!(replaced.is_ok_and(|why| matches!(why, JoinError::Replaced { id: B, .. })));
    is_alone(&world, &new).await;
}
