//! Two nodes with one address: whatever the order of their reads and writes, one of them is in. The interleavings have
//! their numbers from `address.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::{Barrier, Notify};
use wayleave_cluster::JoinError;
use wayleave_core::ids::NodeId;
use wayleave_engine::rows::node;
use wayleave_engine::{Batch, Commit, Engine, Memory, Write};

use crate::support::{Node, TTL, World, pass};

const ADDRESS: &str = "http://same";
const A: NodeId = NodeId(8);
const B: NodeId = NodeId(7);

/// A node's own connection to the store. The write that creates its row waits at the gate, once, if it is closed.
struct Gated {
    store: Arc<Memory>,
    me: NodeId,
    closed: AtomicBool,
    gate: Gate,
}

#[derive(Clone)]
enum Gate {
    /// Tells that the write is there, and waits to be let through.
    Told { reached: Arc<Notify>, open: Arc<Notify> },
    /// Waits for the write of the other node.
    Together(Arc<Barrier>),
}

impl Engine for Gated {
    wayleave_engine::pass_on! { store: now own get_many scan_many look }

    fn commit(&self, batch: Batch) -> Commit {
        let creates = batch.expects.contains(&(node::key(self.me), None));
        if !creates || !self.closed.swap(false, Ordering::Relaxed) {
            return self.store.commit(batch);
        }
        let (store, gate) = (self.store.clone(), self.gate.clone());
        async move {
            match gate {
                Gate::Told { reached, open } => {
                    reached.notify_one();
                    open.notified().await;
                }
                Gate::Together(both) => _ = both.wait().await,
            }
            store.commit(batch).await
        }
        .boxed()
    }
}

fn gated(world: &World, me: NodeId, gate: Gate, closed: bool) -> Arc<Gated> {
    Arc::new(Gated { store: world.engine.clone(), me, closed: AtomicBool::new(closed), gate })
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
        let start = |id| world.try_start_on(gated(&world, id, together.clone(), true), id, ADDRESS);
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
async fn a_node_whose_first_row_is_written_late_finds_the_one_that_joined_meanwhile() {
    let world = World::new();
    let (reached, open) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let early = gated(&world, A, Gate::Told { reached: reached.clone(), open: open.clone() }, true);
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
    let engine = gated(&world, A, Gate::Told { reached: reached.clone(), open: open.clone() }, false);
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
