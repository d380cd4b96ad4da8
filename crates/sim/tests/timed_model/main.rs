//! The timed model: roles checked exhaustively within bounds, with the very functions that production runs.
//!
//! `roles` drives [`wayleave_elect::Candidate`] and the core's role decisions through lost, late and duplicated messages,
//! pauses, restarts, clock steps and failovers, and holds law 6 against every state. `document` is the election as its
//! source wrote it; the checker must break it.
//!
//! BOUNDS

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking"
)]

mod budget;
mod document;
mod roles;
mod store;

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Instant;

use budget::Budget;
use document::Document;
use roles::Roles;
use stateright::{Checker, Model};

const THREADS: usize = 2;

fn roles(budget: Budget) -> Roles {
    Roles { clients: 2, until_ms: 14_000, budget, incarnations: true, steps_ahead: false, guarded: true }
}

/// Every state within the bounds keeps the laws.
fn holds(name: &str, model: Roles) {
    let begun = Instant::now();
    let checker = model.checker().threads(THREADS).spawn_bfs().join();
    println!("{name}: {} states in {:.1?}", checker.unique_state_count(), begun.elapsed());
    checker.assert_properties();
}

/// A law is broken, and the shortest way there is shown.
#[track_caller]
fn breaks<M>(name: &str, model: M, law: &'static str) -> String
where
    M: Model + Send + Sync + Clone + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync + 'static,
{
    let checker = model.checker().threads(THREADS).spawn_bfs().join();
    let path = checker.discovery(law).unwrap_or_else(|| {
        panic!("{name}: '{law}' must be broken, but is not in {} states", checker.unique_state_count())
    });
    let steps: Vec<String> =
        path.into_vec().into_iter().filter_map(|(_, action)| action).map(|action| format!("{action:?}")).collect();
    println!("{name}: '{law}' is broken by\n  {}", steps.join("\n  "));
    steps.join(" ")
}

#[test]
fn two_candidates_keep_law_6_through_cuts_delays_and_pauses() {
    holds("cuts, delays, pauses", roles(Budget { cuts: 1, delays: 1, pauses: 1, ..Budget::default() }));
}
