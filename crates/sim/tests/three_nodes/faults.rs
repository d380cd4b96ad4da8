//! What is done to the nodes, one thing after another, while clients work; after each, everything must come to rest and
//! work must go on.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::clients::pause;
use crate::history::History;
use crate::network::NODES;
use crate::stage::{PATIENCE, Stage};

/// Work that must be done while a fault lasts, by what is left.
const PROGRESS: usize = 10;

/// Everything that can happen.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// A node is killed and started again.
    Kill,
    /// A node stands still for longer than its lease.
    Pause,
    /// A node cannot reach the databases.
    CutEngine,
    /// Nodes cannot reach each other: one neither of the others, or two of them not each other.
    CutNodes,
    /// The primary database is lost and the standby promoted.
    FailOver,
    /// A node is stopped in order and started again.
    Stop,
}

pub const ALL: [Fault; 6] =
    [Fault::Kill, Fault::Pause, Fault::CutEngine, Fault::CutNodes, Fault::FailOver, Fault::Stop];

/// Does it to a node, sees that work goes on meanwhile, mends it and waits until all is well again.
pub async fn befall(stage: &mut Stage, history: &History, fault: Fault, round: usize) {
    let node = (round + fault as usize) % NODES;
    let others: Vec<usize> = (0..NODES).filter(|n| *n != node).collect();
    let (start, visits) = (Instant::now(), visits(history));
    match fault {
        Fault::Kill => {
            stage.nodes[node].kill();
            without(stage, history, &others).await;
            stage.nodes[node].start();
        }
        Fault::Pause => {
            stage.nodes[node].signal(Signal::STOP);
            without(stage, history, &others).await;
            stage.nodes[node].signal(Signal::CONT);
        }
        Fault::CutEngine => {
            stage.network.cut_engine(node, true);
            without(stage, history, &others).await;
            stage.network.cut_engine(node, false);
        }
        Fault::CutNodes => {
            // Every second time two nodes cannot hear each other that both hear the third.
            let cut = if round.is_multiple_of(2) { &others[..] } else { &others[..1] };
            cut.iter().for_each(|other| stage.network.cut_pair(node, *other, true));
            pause(3_000).await;
            progress(history, "nodes that hear the database go on").await;
            cut.iter().for_each(|other| stage.network.cut_pair(node, *other, false));
        }
        Fault::FailOver => {
            stage.fail_over(!round.is_multiple_of(2)).await;
            progress(history, "the new database serves").await;
            stage.restore_standby().await;
        }
        Fault::Stop => {
            stage.nodes[node].signal(Signal::TERM);
            let asked = Instant::now();
            while stage.nodes[node].ended().is_none() {
                assert!(asked.elapsed() < PATIENCE, "the node does not stop");
                pause(20).await;
            }
            without(stage, history, &others).await;
            stage.nodes[node].start();
        }
    }
    let faulty = start.elapsed();
    let settled = stage.settle().await;
    progress(history, "all is well again").await;
    let visits = crate::faults::visits(history) - visits;
    println!("{fault:?} of node {node}: {faulty:.1?}, calm again after {settled:.1?}; {visits} visits meanwhile");
}

/// The other nodes take over and work goes on.
async fn without(stage: &mut Stage, history: &History, others: &[usize]) {
    stage.settle_over(others).await;
    progress(history, "the other nodes go on").await;
}

/// Waits until some more visits have been made.
pub async fn progress(history: &History, why: &str) {
    let (start, before) = (Instant::now(), visits(history));
    while visits(history) < before + PROGRESS {
        history.check();
        assert!(start.elapsed() < PATIENCE, "no work was done for {PATIENCE:?} though {why}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn visits(history: &History) -> usize {
    history.counts.visits.load(Ordering::Relaxed)
}
