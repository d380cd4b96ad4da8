//! Simulations. `WAYLEAVE_SIM_SEEDS=1000` runs more of them, `WAYLEAVE_SIM_SEED=7` runs that one and prints its
//! history.

use wayleave_sim::{ChunkCalls, Report, run, run_embedded, run_hand_overs, run_nodes};

use crate::parallel_seeds;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs seeds, as many as the environment says, by default `seeds`. Each must hand out more than `paced` URLs on average; from
/// `judged` seeds on every kind of call must have been made.
fn run_seeds(run: fn(u64) -> Report, seeds: u64, (paced, judged): (u64, u64)) {
    if let Some(seed) = number("WAYLEAVE_SIM_SEED") {
        let report = run(seed);
        println!("{}\n{:?}", report.history, report.counts);
        return;
    }
    let seeds = number("WAYLEAVE_SIM_SEEDS").unwrap_or(seeds);
    let first = number("WAYLEAVE_SIM_FIRST").unwrap_or(0);
    let (mut sum, mut calls) = ([0; 4], ChunkCalls::default());
    for report in parallel_seeds::run_seeds(first..first + seeds, run) {
        calls += report.chunk_calls;
        sum.iter_mut().zip(report.counts).for_each(|(sum, count)| *sum += count);
    }
    let [grants, handed_out, releases, urls] = sum;
    println!("{seeds} seeds: {grants} reservations, {handed_out} paced, {releases} finished, {urls} URLs at the end");
    println!("calls for chunks: {calls:?}");
    assert!(grants > seeds * 20 && handed_out > seeds * paced && urls > seeds * 20, "the runs do something: {sum:?}");
    assert!(calls.is_judged() || seeds < judged, "a kind of call that is worth judging was never made: {calls:?}");
}

/// A seed gives the same bytes each time, and another one others.
fn same_bytes(run: fn(u64) -> Report) {
    for seed in [3, 1_000_003] {
        let (first, second) = (run(seed), run(seed));
        let differ = first.history.lines().zip(second.history.lines()).find(|(a, b)| a != b);
        assert_eq!(differ, None, "seed {seed}");
        assert_eq!(first, second);
    }
    assert_ne!(run(4).history, run(5).history);
}

#[test]
fn no_seed_breaks_a_law() {
    run_seeds(run, 300, (15, 50));
}

#[test]
fn no_seed_on_the_embedded_store_breaks_a_law() {
    run_seeds(run_embedded, 100, (15, 50));
}

#[test]
fn no_seed_of_several_nodes_breaks_a_law() {
    run_seeds(run_nodes, 100, (20, 100));
}

#[test]
fn no_hand_over_in_good_order_makes_a_call_fail() {
    if let Some(seed) = number("WAYLEAVE_SIM_SEED") {
        println!("{}", run_hand_overs(seed).history);
        return;
    }
    parallel_seeds::run_seeds(0..number("WAYLEAVE_SIM_SEEDS").unwrap_or(70), |seed| {
        let report = run_hand_overs(seed);
        assert!(report.history.contains(" left: "), "seed {seed}: no node left");
    });
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    same_bytes(run);
    assert_eq!(run_embedded(7), run_embedded(7));
}

#[test]
fn the_same_seed_of_several_nodes_gives_the_same_bytes() {
    same_bytes(run_nodes);
}
