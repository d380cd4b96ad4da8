//! A rolling upgrade: three nodes over a PostgreSQL are replaced one by one by a program of the next format (built with the feature
//! `next-format`, whose rows carry the next number), while clients work. Until the last one is replaced, rows are written in the old format and nodes
//! may go back. Then the format is raised, and the older program is refused.
//!
//! It needs what `three_nodes` needs, and the other program in `WAYLEAVE_BIN_NEXT`: `cargo xtask prove upgrade` builds both.

use wayleave_api::nodes::{NodeState, Nodes};
use wayleave_engine::format::VERSION;

use crate::load::server::binary;
use crate::prelude::*;
use crate::three_nodes::{Kind, PATIENCE, Stage, progress, under_load, without};

const NEXT: u32 = VERSION + 1;
const GLANCE: Duration = Duration::from_millis(50);

struct Programs {
    old: PathBuf,
    new: PathBuf,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a program of the next format: `cargo xtask prove upgrade`"]
async fn nodes_are_upgraded_one_by_one_under_load_and_then_the_format_is_raised() {
    let new = std::env::var_os("WAYLEAVE_BIN_NEXT").expect("WAYLEAVE_BIN_NEXT names the program of the next format");
    let (old, new) = (binary(), std::fs::canonicalize(new).unwrap());
    let programs = Programs { old, new };
    let seen = under_load(Kind::Pair, async |stage, history, check| {
        let old = |node| (node, &programs.old, &programs.new);
        let new = |node| (node, &programs.new, &programs.old);
        // The way back is open until the last one is replaced.
        for (replaced, killed) in [(new(0), false), (old(0), false), (new(0), true), (new(1), true)] {
            let (node, by, _) = replaced;
            replace(stage, replaced, killed).await;
            progress(history, "the other nodes go on").await;
            start(stage, node).await;
            progress(history, "nodes of two versions work together").await;
            check();
            is_old(stage, by == &programs.new).await;
        }
        // An older node that does not answer may come back.
        stage.nodes[2].signal(Signal::STOP);
        without(stage, history, &[0, 1]).await;
        let nodes = nodes_of(stage, 0).await;
        assert_eq!(nodes.format, VERSION);
        assert!(nodes.nodes.iter().any(|node| node.state == NodeState::Lost && node.holds_back), "{nodes:?}");
        stage.nodes[2].signal(Signal::CONT);
        stage.settle().await;
        is_old(stage, true).await;
        check();
        replace(stage, new(2), false).await;
        let asked = Instant::now();
        start(stage, 2).await;
        is_new(stage).await;
        let raised = asked.elapsed();
        progress(history, "the format is raised").await;
        check();
        is_refused(stage, &programs).await;
        progress(history, "the older node was refused").await;
        println!("the format was raised {raised:.1?} after the last node had been started anew");
    });
    println!("seen: upgraded one by one {}; wrong answers: 0", seen.await);
}

/// Ends a node, which runs another program when it is started again.
async fn replace(stage: &mut Stage, (node, by, program): (usize, &PathBuf, &PathBuf), killed: bool) {
    if killed {
        stage.nodes[node].kill();
    } else {
        stage.nodes[node].signal(Signal::TERM);
        ended(stage, node).await;
    }
    stage.nodes[node].replace(program, by);
}

async fn ended(stage: &mut Stage, node: usize) -> bool {
    let asked = Instant::now();
    loop {
        if let Some(status) = stage.nodes[node].ended() {
            return status.success();
        }
        assert!(asked.elapsed() < PATIENCE, "the node does not end");
        tokio::time::sleep(GLANCE).await;
    }
}

async fn start(stage: &mut Stage, node: usize) {
    stage.nodes[node].start();
    stage.settle().await;
}

async fn nodes_of(stage: &Stage, node: usize) -> Nodes {
    stage.client(node).nodes().await.unwrap()
}

/// Rows that are written in the next format.
async fn new_rows(stage: &mut Stage) -> usize {
    let count = format!("select count(*) from wayleave_rows where substring(value for 1) = '\\x{NEXT:02x}'");
    stage.database.pair().sql(&count).await.trim().parse().unwrap()
}

/// The store has the old format, whatever nodes know.
async fn is_old(stage: &mut Stage, newer: bool) {
    for node in 0..stage.nodes.len() {
        let nodes = nodes_of(stage, node).await;
        assert_eq!(nodes.format, VERSION, "{nodes:?}");
        for node in nodes.nodes {
            assert_eq!(node.holds_back, newer && node.format == VERSION, "{node:?}");
        }
    }
    assert_eq!(new_rows(stage).await, 0, "an older node could not read them");
}

/// The store has the new format.
async fn is_new(stage: &mut Stage) {
    let asked = Instant::now();
    for node in 0..stage.nodes.len() {
        while nodes_of(stage, node).await.format != NEXT {
            assert!(asked.elapsed() < PATIENCE, "the format is not raised: {:?}", nodes_of(stage, node).await);
            tokio::time::sleep(GLANCE).await;
        }
    }
    while new_rows(stage).await == 0 {
        assert!(asked.elapsed() < PATIENCE, "nothing is written in the new format");
        tokio::time::sleep(GLANCE).await;
    }
}

/// A node of the old program ends by itself, and has changed nothing.
async fn is_refused(stage: &mut Stage, programs: &Programs) {
    replace(stage, (0, &programs.old, &programs.new), false).await;
    let agreed = "select encode(value, 'hex') from wayleave_rows where get_byte(key, 2) in (16, 19)";
    let ids = |nodes: Nodes| nodes.nodes.into_iter().map(|node| node.id).collect::<Vec<_>>();
    let before = (ids(nodes_of(stage, 1).await), stage.database.pair().sql(agreed).await);
    stage.nodes[0].start();
    assert!(!ended(stage, 0).await, "it says that it failed");
    let words = stage.nodes[0].last_words();
    assert!(words.contains(&format!("format {NEXT}")) && words.contains("newer wayleave"), "{words}");
    let after = (ids(nodes_of(stage, 1).await), stage.database.pair().sql(agreed).await);
    assert_eq!(before, after);
    stage.nodes[0].replace(&programs.old, &programs.new);
    start(stage, 0).await;
}
