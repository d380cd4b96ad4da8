//! Simulations with several nodes. `WAYLEAVE_SIM_SEEDS=1000` runs more of them, `WAYLEAVE_SIM_SEED=7` runs that one and
//! prints its history.

use wayleave_sim::{ChunkCalls, run_hand_overs, run_nodes};

use crate::cores;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn no_seed_of_several_nodes_breaks_a_law() {
    if let Some(seed) = number("WAYLEAVE_SIM_SEED") {
        let report = run_nodes(seed);
        println!("{}\n{:?}", report.history, report.counts);
        return;
    }
    let seeds = number("WAYLEAVE_SIM_SEEDS").unwrap_or(100);
    let first = number("WAYLEAVE_SIM_FIRST").unwrap_or(0);
    let (mut sum, mut calls) = ([0; 4], ChunkCalls::default());
    for report in cores::run_seeds(first..first + seeds, run_nodes) {
        calls += report.chunk_calls;
        sum.iter_mut().zip(report.counts).for_each(|(sum, count)| *sum += count);
    }
    let [grants, handed_out, releases, urls] = sum;
    println!("{seeds} seeds: {grants} reservations, {handed_out} paced, {releases} finished, {urls} URLs at the end");
    println!("calls for chunks: {calls:?}");
    assert!(grants > seeds * 20 && handed_out > seeds * 20 && urls > seeds * 20, "the runs do something: {sum:?}");
    assert!(calls.is_judged() || seeds < 100, "a kind of call that is worth judging was never made: {calls:?}");
}

#[test]
fn no_hand_over_in_good_order_makes_a_call_fail() {
    if let Some(seed) = number("WAYLEAVE_SIM_SEED") {
        println!("{}", run_hand_overs(seed).history);
        return;
    }
    cores::run_seeds(0..number("WAYLEAVE_SIM_SEEDS").unwrap_or(70), |seed| {
        let report = run_hand_overs(seed);
        assert!(report.history.contains(" left: "), "seed {seed}: nobody left");
    });
}

#[test]
fn the_same_seed_of_several_nodes_gives_the_same_bytes() {
    for seed in [3, 1_000_003] {
        let (first, second) = (run_nodes(seed), run_nodes(seed));
        let differ = first.history.lines().zip(second.history.lines()).find(|(a, b)| a != b);
        assert_eq!(differ, None, "seed {seed}");
        assert_eq!(first, second);
    }
    assert_ne!(run_nodes(4).history, run_nodes(5).history);
}
