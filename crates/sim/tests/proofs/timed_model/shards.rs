//! Law 1 for shards: the settings of [`crate::timed_model::ownership`] that must hold, and the variants that must not.
//!
//! **Bounds.** A node's lease is 1.5 s, a tick 1 s, so a silent node is replaced two ticks later. Two nodes, three in
//! one test; one shard with one host, or two shards of which one is handed over at the start; two or three ticks; two
//! decisions of owners (grants, releases, expiries; three in the test of `cargo xtask prove models`), at most two of one owner in
//! flight; reservations last 2 s, so that they expire or outlive their owner; one or two faults of the kinds that a
//! test names. Late messages arrive at any later moment or never, whether or not they are still awaited; a clock steps
//! by 1 s or 5 s, and then looks of nodes may have been sent a tick earlier. Within these bounds every order of steps is explored: 26,000 to 690,000 states per setting, 4.2 million in
//! the twenty settings that must hold. The whole test binary takes 72 s on two busy cores.
//!
//! Reads show what their node has in flight, as the PostgreSQL engine's do.
//!
//! Not modelled: the engine's own batching (the conformance suite and `sim` cover it), the packed log of hot rows, URLs
//! and holds, responses that change nothing and so are not fenced, a store that loses what it has acknowledged.

use stateright::Checker;

use crate::prelude::*;
use crate::timed_model::budget::Budget;
use crate::timed_model::ownership::{
    CURRENT_EPOCH, Fencing, NO_HOST_LOST, NOTHING_LOST, ON_TOP, ONE_IS_SURE, ONE_VISITOR, Ownership, State,
};
use crate::timed_model::watch::Watching;
use crate::timed_model::{NOTHING, breaks, holds};

const TWO: Budget = Budget { commits: 2, ..NOTHING };

/// Nodes and shards until `ticks` ticks have passed.
fn world(nodes: usize, shards: u16, ticks: u64, budget: Budget) -> Ownership {
    Ownership {
        nodes,
        shards,
        ticks,
        lease: Millis(2_000),
        budget,
        fencing: Fencing::Whole,
        reloads: true,
        answers_early: false,
        waits: true,
        fences_giver: true,
        overlay: true,
        drops_stale: true,
        watching: Watching::Throughout,
    }
}

#[test]
fn an_owner_that_slept_or_died_and_what_it_sent_change_nothing() {
    holds("shard: pause, delay", world(2, 1, 3, Budget { pauses: 1, delays: 1, ..TWO }));
    holds("shard: crash, delay", world(2, 1, 2, Budget { crashes: 1, delays: 1, ..TWO }));
    holds("shard: crash, pause", world(2, 1, 3, Budget { crashes: 1, pauses: 1, ..TWO }));
}

#[test]
fn commits_of_unknown_outcome_break_nothing() {
    holds("shard: two delays", world(2, 1, 2, Budget { delays: 2, ..TWO }));
    holds("shard: restart, delay", world(2, 1, 3, Budget { restarts: 1, delays: 1, ..TWO }));
}

#[test]
fn a_store_whose_clock_steps_forward_breaks_nothing() {
    holds("shard: step, delay", world(2, 1, 2, Budget { steps: 1, delays: 1, ..TWO }));
    holds("shard: step, pause", world(2, 1, 3, Budget { steps: 1, pauses: 1, ..TWO }));
    holds("shard: step, slow look", world(2, 1, 3, Budget { steps: 1, looks: 1, ..TWO }));
    holds("shard: step, crash", world(2, 1, 4, Budget { steps: 1, crashes: 1, commits: 1, ..NOTHING }));
}

/// Fences keep the law whatever the clock does. That an owner may answer reads from memory rests on the lease alone.
#[test]
fn a_node_that_trusts_a_lease_end_too_early_opens_an_owned_shard() {
    let trusting = |watching, budget| Ownership { watching, ..world(2, 1, 3, Budget { steps: 1, ..budget }) };
    let slow = trusting(Watching::NotSlowLooks(200), Budget { looks: 1, ..NOTHING });
    breaks("a step that a slow look hides", slow, ONE_IS_SURE, State::line);
    let fresh = trusting(Watching::NotAtStart, Budget { crashes: 1, ..NOTHING });
    breaks("a node that started after the step", fresh, ONE_IS_SURE, State::line);
    let blind = trusting(Watching::Never, Budget { commits: 1, ..NOTHING });
    breaks("an unnoticed step", blind.clone(), ONE_IS_SURE, State::line);
    let checker = blind.checker().spawn_bfs().join();
    assert!([ONE_VISITOR, CURRENT_EPOCH, ON_TOP].iter().all(|law| checker.discovery(law).is_none()));
}

#[test]
fn hand_overs_between_living_nodes_break_nothing() {
    holds("shard: leave, delay", world(2, 1, 2, Budget { ends: 1, delays: 1, ..TWO }));
    holds("shard: leave, pause", world(2, 1, 2, Budget { ends: 1, pauses: 1, ..TWO }));
    holds("two shards: delay", world(2, 2, 1, Budget { delays: 1, ..TWO }));
    holds("two shards: pause", world(2, 2, 3, Budget { pauses: 1, ..TWO }));
    holds("two shards: crash", world(2, 2, 3, Budget { crashes: 1, ..TWO }));
}

#[test]
fn three_nodes_are_no_worse_than_two() {
    holds("three nodes: pause", world(3, 1, 3, Budget { pauses: 1, ..TWO }));
    holds("three nodes: crash", world(3, 1, 3, Budget { crashes: 1, ..TWO }));
}

#[test]
fn a_host_that_moves_between_nodes_is_visited_once() {
    holds("move: delay", world(2, 2, 1, Budget { moves: 1, delays: 1, ..TWO }));
    holds("move: cut", world(2, 2, 1, Budget { moves: 1, cuts: 1, ..TWO }));
    holds("move: crash", world(2, 2, 2, Budget { moves: 1, crashes: 1, ..TWO }));
    holds("move: pause", world(2, 2, 2, Budget { moves: 1, pauses: 1, ..TWO }));
}

/// It spares callers a failure; the fence alone upholds the law.
#[test]
fn waiting_for_what_is_under_way_is_no_matter_of_safety() {
    let hasty = |shards, budget| Ownership { waits: false, ..world(2, shards, 1, budget) };
    holds("no waiting: leave, delay", hasty(1, Budget { ends: 1, delays: 1, ..TWO }));
    holds("no waiting: move, delay", hasty(2, Budget { moves: 1, delays: 1, ..TWO }));
}

/// Longer and with three decisions: minutes.
#[test]
#[ignore = "takes ten minutes: `cargo xtask prove models`"]
fn three_decisions_are_no_worse_than_two() {
    let three = Budget { commits: 3, ..NOTHING };
    for (name, faults) in [
        ("pause, delay", Budget { pauses: 1, delays: 1, ..three }),
        ("crash, delay", Budget { crashes: 1, delays: 1, ..three }),
        ("restart, delay", Budget { restarts: 1, delays: 1, ..three }),
        ("step, delay", Budget { steps: 1, delays: 1, ..three }),
        ("step, pause", Budget { steps: 1, pauses: 1, ..three }),
        ("leave, delay", Budget { ends: 1, delays: 1, ..three }),
        ("leave, pause", Budget { ends: 1, pauses: 1, ..three }),
    ] {
        holds(name, world(2, 1, 3, faults));
    }
    holds("three nodes: pause", world(3, 1, 3, Budget { pauses: 1, ..three }));
    holds("three nodes: crash", world(3, 1, 3, Budget { crashes: 1, ..three }));
    holds("two shards: pause", world(2, 2, 3, Budget { pauses: 1, ..three }));
    holds("move: pause", world(2, 2, 3, Budget { moves: 1, pauses: 1, ..TWO }));
    holds("move: cut, delay", world(2, 2, 1, Budget { moves: 1, cuts: 1, delays: 1, ..TWO }));
}

const PAUSE: Budget = Budget { pauses: 1, commits: 3, ..NOTHING };
const DELAY: Budget = Budget { delays: 1, commits: 3, ..NOTHING };

#[test]
fn without_a_fence_an_old_owner_grants_what_is_taken() {
    let unfenced = |budget| Ownership { fencing: Fencing::Never, ..world(2, 1, 3, budget) };
    for law in [ONE_VISITOR, CURRENT_EPOCH, ON_TOP] {
        breaks("no fence, an owner that slept", unfenced(PAUSE), law, State::line);
        breaks("no fence, a late commit", unfenced(DELAY), law, State::line);
    }
}

#[test]
fn a_fence_that_is_read_before_the_write_lets_an_old_owner_in() {
    let read_before = Ownership { fencing: Fencing::ReadBefore, ..world(2, 1, 3, DELAY) };
    for law in [ONE_VISITOR, CURRENT_EPOCH, ON_TOP] {
        breaks("a fence that is read before", read_before.clone(), law, State::line);
    }
}

/// Epochs distinguish owners, not the commits of one.
#[test]
fn a_fence_without_numbers_takes_commits_out_of_turn() {
    let by_epoch = Ownership { fencing: Fencing::EpochOnly, ..world(2, 1, 3, DELAY) };
    for law in [ONE_VISITOR, ON_TOP] {
        breaks("a fence without numbers", by_epoch.clone(), law, State::line);
    }
    let checker = by_epoch.checker().spawn_bfs().join();
    assert!(checker.discovery(CURRENT_EPOCH).is_none());
}

#[test]
fn an_owner_that_does_not_reload_after_an_unknown_outcome_grants_twice() {
    let stubborn = Ownership { reloads: false, ..world(2, 1, 3, DELAY) };
    for law in [ONE_VISITOR, ON_TOP] {
        breaks("no reload", stubborn.clone(), law, State::line);
    }
}

#[test]
fn an_answer_sent_before_its_commit_may_name_what_is_not_stored() {
    let early = Ownership { answers_early: true, ..world(2, 1, 3, DELAY) };
    breaks("early answers", early, NOTHING_LOST, State::line);
}

#[test]
fn a_move_that_is_fenced_by_the_taker_alone_lets_a_host_be_visited_twice() {
    let one_fence = Ownership { fences_giver: false, ..world(2, 2, 1, Budget { moves: 1, delays: 1, ..TWO }) };
    for law in [ONE_VISITOR, CURRENT_EPOCH, ON_TOP] {
        breaks("a move with one fence", one_fence.clone(), law, State::line);
    }
}

const LATE_MOVE: Budget = Budget { moves: 1, delays: 2, commits: 1, ..NOTHING };

/// The giver gives up and takes its shard again; then the taker finds the old request and sends a batch with the
/// giver's old fence, which the giver's reads show before the store refuses it: the giver believes that the host is
/// gone.
#[test]
fn a_host_taken_from_a_giver_that_gave_up_is_lost_under_dirty_reads() {
    let unguarded = Ownership { drops_stale: false, ..world(2, 2, 1, LATE_MOVE) };
    breaks("a late move", unguarded.clone(), NO_HOST_LOST, State::line);
    let without_overlay = Ownership { overlay: false, ..unguarded };
    let checker = without_overlay.checker().spawn_bfs().join();
    assert!(checker.discovery(NO_HOST_LOST).is_none(), "it takes the overlay to lose it");
}

#[test]
fn a_host_whose_giver_gave_up_is_not_lost() {
    holds("move: two delays", world(2, 2, 1, LATE_MOVE));
}
