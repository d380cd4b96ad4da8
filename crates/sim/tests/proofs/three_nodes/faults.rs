//! Faults injected into the nodes, one after the other, while clients work; after each, everything must settle and work
//! must continue.

use crate::load::clients::pause;
use crate::load::history::History;
use crate::prelude::*;
use crate::three_nodes::databases::Kind;
use crate::three_nodes::network::NODES;
use crate::three_nodes::stage::{PATIENCE, Stage};

/// The amount of work that must be done during a fault, by what is left.
const PROGRESS: usize = 10;

/// Everything that can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A node is killed and started again.
    Kill,
    /// A node is paused for longer than its lease.
    Pause,
    /// A node cannot reach the databases.
    CutEngine,
    /// Nodes cannot reach each other: one neither of the others, or two of them not each other.
    CutNodes,
    /// A node is stopped cleanly and restarted.
    Stop,
    /// The primary database is lost and the standby promoted.
    FailOver,
    /// The primary database crashes and starts again.
    Crash,
    /// The synchronous standby is paused: no commit completes meanwhile, and owners give up waiting.
    PauseStandby,
    /// A planned switchover by Patroni.
    SwitchOver,
    /// The primary's PostgreSQL is killed under its Patroni.
    KillPostgres,
    /// The primary's Patroni is killed and leaves its PostgreSQL behind.
    KillPatroni,
    /// The primary's machine loses power.
    LoseMachine,
    /// The primary's machine and all others cannot reach each other.
    CutMachine,
    /// The primary's PgBouncer is killed and started again.
    KillPooler,
}

const NODE_FAULTS: [Fault; 5] = [Fault::Kill, Fault::Pause, Fault::CutEngine, Fault::CutNodes, Fault::Stop];
const PAIR_FAULTS: [Fault; 3] = [Fault::FailOver, Fault::PauseStandby, Fault::Crash];
const PATRONI_FAULTS: [Fault; 5] =
    [Fault::SwitchOver, Fault::KillPostgres, Fault::KillPatroni, Fault::LoseMachine, Fault::CutMachine];
const POOLER_FAULTS: [Fault; 1] = [Fault::KillPooler];

/// All faults for nodes over such a database; or those that `WAYLEAVE_FAULTS` names, separated by commas.
pub fn of(kind: Kind) -> Vec<Fault> {
    let database: &[&[Fault]] = match kind {
        Kind::Pair => &[&PAIR_FAULTS],
        Kind::Patroni => &[&PATRONI_FAULTS],
        Kind::Pooled => &[&PATRONI_FAULTS, &POOLER_FAULTS],
    };
    let all = [&NODE_FAULTS[..], &database.concat()].concat();
    let Ok(asked) = std::env::var("WAYLEAVE_FAULTS") else { return all };
    let named = |name: &str| all.iter().copied().find(|fault| format!("{fault:?}") == name);
    asked.split(',').map(|name| named(name).unwrap_or_else(|| panic!("no fault '{name}' among {all:?}"))).collect()
}

/// Injects a fault into a node, checks that work continues meanwhile, heals it and waits until everything has
/// recovered.
pub async fn befall(stage: &mut Stage, history: &History, fault: Fault, round: usize) {
    let node = (round + fault as usize) % NODES;
    let others: Vec<usize> = (0..NODES).filter(|n| *n != node).collect();
    let (start, visits, moves) = (Instant::now(), visits(history), moves(history));
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
            // Every second time two nodes cannot reach each other that both reach the third.
            let cut = if round.is_multiple_of(2) { &others[..] } else { &others[..1] };
            cut.iter().for_each(|other| stage.network.cut_pair(node, *other, true));
            pause(3_000).await;
            progress(history, "nodes that hear the database go on").await;
            cut.iter().for_each(|other| stage.network.cut_pair(node, *other, false));
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
        _ => befall_database(stage, history, fault, round).await,
    }
    let faulty = start.elapsed();
    let settled = stage.settle().await;
    progress(history, "all is well again").await;
    moves_go_on(history).await;
    let of = if NODE_FAULTS.contains(&fault) { format!(" of node {node}") } else { String::new() };
    let (visits, moves) =
        (crate::three_nodes::faults::visits(history) - visits, crate::three_nodes::faults::moves(history) - moves);
    println!(
        "{fault:?}{of}: {faulty:.1?}, calm again after {settled:.1?}; {visits} visits and {moves} moves meanwhile"
    );
}

async fn befall_database(stage: &mut Stage, history: &History, fault: Fault, round: usize) {
    match fault {
        Fault::FailOver => {
            stage.database.pair().fail_over(&stage.network, !round.is_multiple_of(2)).await;
            progress(history, "the new database serves").await;
            stage.database.pair().restore_standby(&stage.network).await;
        }
        Fault::Crash => stage.database.pair().crash().await,
        Fault::PauseStandby => {
            // Longer than an owner waits for the taker of a host, shorter than the timeout of a standby.
            for pause_ms in [5_100, 5_400, 5_900] {
                moves_go_on(history).await;
                stage.database.pair().pause_standby().await;
                pause(pause_ms).await;
                stage.database.pair().resume_standby().await;
                progress(history, "the standby follows again").await;
            }
        }
        _ => befall_patroni(stage, history, fault).await,
    }
}

async fn befall_patroni(stage: &mut Stage, history: &History, fault: Fault) {
    let (start, patroni) = (Instant::now(), stage.database.patroni());
    match fault {
        Fault::SwitchOver => patroni.switch_over().await,
        Fault::KillPostgres => patroni.kill_postgres().await,
        Fault::KillPatroni => {
            let machine = patroni.kill_patroni().await;
            if patroni.is_balanced() {
                // Without a health check nodes may stay with the old primary, where no commit completes.
                progress(history, "another primary serves").await;
            }
            patroni.restart_patroni(machine);
        }
        Fault::LoseMachine => {
            let machine = patroni.lose_machine().await;
            progress(history, "another primary serves").await;
            patroni.restore_machine(machine);
        }
        Fault::CutMachine => {
            let machine = patroni.cut_machine(&stage.network).await;
            progress(history, "another primary serves").await;
            stage.network.cut_database(machine, false);
        }
        Fault::KillPooler => patroni.kill_pooler().await,
        _ => unreachable!("{fault:?} is none of a database"),
    }
    progress(history, "there is a primary").await;
    println!("{fault:?}: work went on {:.1?} after it", start.elapsed());
    stage.database.patroni().settle().await;
}

/// The other nodes take over and work continues.
pub async fn without(stage: &mut Stage, history: &History, others: &[usize]) {
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

/// Waits until every mover can have moved a host again.
async fn moves_go_on(history: &History) {
    let (start, before) = (Instant::now(), moves(history));
    while moves(history) < before + PROGRESS {
        history.check();
        assert!(start.elapsed() < PATIENCE, "no host was moved for {PATIENCE:?} though all is well");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn moves(history: &History) -> usize {
    history.counts.moves.load(Ordering::Relaxed)
}

fn visits(history: &History) -> usize {
    history.counts.visits.load(Ordering::Relaxed)
}
