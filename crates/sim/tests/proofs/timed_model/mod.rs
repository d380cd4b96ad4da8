//! Timed models, checked exhaustively within bounds (model checking), with the very functions that production runs.
//!
//! `roles` drives [`wayleave_elect::Candidate`] and the core's role decisions through lost and late messages, pauses,
//! restarts, clock steps and failovers, and checks law 6 in every state. `naive` is an election without its safeguards;
//! the checker must break it.
//!
//! `ownership` drives nodes that own shards, with the plan, the cluster rows, the fences and the frontier's own decisions,
//! through pauses, crashes, late and lost messages, restarts and clock steps of the store, hand-overs, host moves and
//! partitions, and checks law 1 for every commit that the store accepts. `shards` has its settings, and variants that
//! the checker must break: no fence, a fence that is read before the write, one without sequence numbers, an owner that
//! does not reload, and more.
//!
//! **Bounds of roles.** T is 5 s, I is 1 s (heartbeats every 875 ms, the shortest interval after jitter). Two
//! candidates, three in one test; 8 to 14 s of time, so that a term can expire; one to three faults of the kinds that a
//! test names, each at any moment between two wake-ups. A message is late by up to 6 s, longer than T; a clock steps by
//! 6 s. Where it may step ahead, a look of a server takes as long as a late message, or a server starts: it reads the clock
//! at the end of the look, so a step is never too small to be proven; the tests of the timekeeper have such. Within these
//! bounds every order of events is explored: 37,000 to 780,000 states per setting, 5.1 million in the
//! fifteen settings that must hold; 23 s on two idle cores, 46 s on busy ones. Not modelled: clock drift (see the
//! property in `wayleave-elect`), standbys of different priority, more than two writes lost in a failover.
//!
//! `going_on` adds links between the candidates, for roles whose primary may continue by agreement: three candidates,
//! one of which may come late, an outage of the store, partitions between a candidate and the store and between two
//! candidates, pauses, late and lost messages, a change of mode, a release, a failover. T is 5 s, I is 1.2 s, the
//! time to continue 2.5 s. Faults come at the first quiet moment of every half, whole or one and a half second, as a
//! test says; late messages at any moment. 17,000 to 2.6 million states per setting; 50 s on two cores. Not modelled:
//! more than two concurrent faults except where a test says so, the grace period, clock drift. It must break when a
//! newcomer may take over, when having joined is enough, when promises are counted from their receipt, when one is
//! given despite a bid in flight, and when one is forgotten. That a bid counts only for the term it names is checked
//! by the properties of the core: here a second line of defence, a promise that is kept whatever a store grants,
//! masks its absence.
//!
//! `waiting` has callers in line for groups of another node: three callers, three groups, two callers that go, in every order. It
//! must break when a caller that goes or leaves keeps a wake-up, and when one looks before it lines up.
//!
//! **Bounds of ownership.** They are in the header of `shards`, with what is not modelled.
//!
//! To add another kind of ownership, write its world beside these and pass it to `holds` and `breaks`.

mod budget;
mod continue_mode;
mod messages;
mod naive;
mod ownership;
mod roles;
mod shards;
mod store;
mod waiting;
mod watch;

use std::fmt::Debug;

use budget::Budget;
use continue_mode::{GoingOn, Third};
use naive::Naive;
use roles::{Roles, State};
use stateright::{Checker, HasDiscoveries};
use store::Fault;
use waiting::{Lacks, Waiting};
use watch::Watching;

use crate::prelude::*;

const THREADS: usize = 2;

const NOTHING: Budget = Budget {
    cuts: 0,
    delays: 0,
    pauses: 0,
    restarts: 0,
    failovers: 0,
    ends: 0,
    crashes: 0,
    steps: 0,
    looks: 0,
    moves: 0,
    outages: 0,
    sets: 0,
    commits: 0,
};

/// Two candidates until `secs` seconds have passed.
fn roles(secs: u64, budget: Budget) -> Roles {
    Roles {
        clients: 2,
        until_ms: secs * 1_000,
        budget,
        incarnations: true,
        steps_ahead: false,
        watching: Watching::Throughout,
        steps_behind: false,
        guarded: true,
    }
}

/// Every state within the bounds keeps the laws.
#[track_caller]
fn holds<M>(name: &str, model: M)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync + 'static,
{
    let begun = Instant::now();
    let checker = model.checker().threads(THREADS).spawn_bfs().join();
    println!("{name}: {} states in {:.1?}", checker.unique_state_count(), begun.elapsed());
    checker.assert_properties();
}

/// A law is broken; prints the shortest path to it.
#[track_caller]
fn breaks<M>(name: &str, model: M, law: &'static str, line: fn(&M::State) -> String)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync + 'static,
{
    // One thread searches breadth-first and stops soon after the first find, so the path is about the shortest.
    let found = HasDiscoveries::AnyOf([law].into());
    let checker = model.checker().finish_when(found).spawn_bfs().join();
    let count = checker.unique_state_count();
    let path = checker.discovery(law).unwrap_or_else(|| panic!("{name}: '{law}' holds in all {count} states"));
    println!("{name}: '{law}' is broken by");
    for (state, action) in path.into_vec() {
        println!("  {}  {}", line(&state), action.map_or_else(String::new, |action| format!("-> {action:?}")));
    }
}

#[test]
fn cuts_delays_and_pauses_break_nothing() {
    holds("cut, pause", roles(11, Budget { cuts: 1, pauses: 1, ..NOTHING }));
    holds("cut, delay", roles(10, Budget { cuts: 1, delays: 1, ..NOTHING }));
    holds("delay, pause", roles(12, Budget { delays: 1, pauses: 1, ..NOTHING }));
    holds("two delays", roles(9, Budget { delays: 2, ..NOTHING }));
}

#[test]
fn releases_break_nothing_though_messages_are_late() {
    holds("end, delay, pause", roles(8, Budget { ends: 1, delays: 1, pauses: 1, ..NOTHING }));
    holds("two ends, delay", roles(9, Budget { ends: 2, delays: 1, ..NOTHING }));
}

#[test]
fn a_store_that_restarts_with_its_clock_set_back_breaks_nothing() {
    holds("restart, cut", roles(12, Budget { restarts: 1, cuts: 1, ..NOTHING }));
    holds("restart, delay", roles(12, Budget { restarts: 1, delays: 1, ..NOTHING }));
    holds("restart, pause", roles(12, Budget { restarts: 1, pauses: 1, ..NOTHING }));
}

#[test]
fn three_candidates_are_no_worse_than_two() {
    holds("three: cut", Roles { clients: 3, ..roles(10, Budget { cuts: 1, ..NOTHING }) });
    holds("three: pause, end", Roles { clients: 3, ..roles(10, Budget { pauses: 1, ends: 1, ..NOTHING }) });
}

#[test]
fn a_failover_that_loses_the_last_writes_breaks_nothing() {
    let behind = |secs, budget| Roles { steps_behind: true, ..roles(secs, budget) };
    holds("failover, delay", behind(14, Budget { failovers: 1, delays: 1, ..NOTHING }));
    holds("failover, pause", behind(14, Budget { failovers: 1, pauses: 1, ..NOTHING }));
    holds("failover, cut", behind(12, Budget { failovers: 1, cuts: 1, ..NOTHING }));
    holds("failover, end, pause", behind(11, Budget { failovers: 1, ends: 1, pauses: 1, ..NOTHING }));
}

#[test]
fn without_that_quiet_time_a_failover_makes_two_primaries() {
    let unknown = Roles { incarnations: false, ..roles(12, Budget { failovers: 1, ends: 1, ..NOTHING }) };
    breaks("an unnoticed failover", unknown.clone(), roles::ONE_BELIEVER, State::line);
    breaks("an unnoticed failover", unknown, roles::ONE_HOLDER, State::line);
}

#[test]
fn without_the_guard_a_pause_lets_an_old_primary_write() {
    let unguarded = Roles { guarded: false, ..roles(12, Budget { pauses: 1, ..NOTHING }) };
    breaks("a receiver that forgets epochs", unguarded, roles::NO_OVERLAP, State::line);
}

fn ahead(watching: Watching, budget: Budget) -> Roles {
    Roles { steps_ahead: true, watching, ..roles(12, Budget { restarts: 1, ..budget }) }
}

const SLOW_LOOK: Budget = Budget { looks: 1, ends: 1, ..NOTHING };
const FRESH: Budget = Budget { crashes: 1, ends: 1, ..NOTHING };

/// A clock that jumps ahead ends terms that their holders still rely on. A server that has watched the clock throughout notices that,
/// however slow its look, and one that has not grants nothing, until the last of them is over.
#[test]
fn a_store_whose_clock_jumps_ahead_keeps_all_laws() {
    holds("ahead: delay", ahead(Watching::Throughout, Budget { delays: 1, ..NOTHING }));
    holds("ahead: slow look", ahead(Watching::Throughout, SLOW_LOOK));
    holds("ahead: fresh server", ahead(Watching::Throughout, FRESH));
    holds("ahead: slow look, fresh server", ahead(Watching::Throughout, Budget { crashes: 1, ..SLOW_LOOK }));
}

/// Then only the epochs hold.
#[test]
fn a_clock_that_jumps_ahead_unnoticed_makes_two_primaries() {
    let slow = ahead(Watching::NotSlowLooks(200), SLOW_LOOK);
    breaks("a step that a slow look hides", slow, roles::ONE_BELIEVER, State::line);
    let fresh = ahead(Watching::NotAtStart, FRESH);
    breaks("a server that started after the step", fresh, roles::ONE_BELIEVER, State::line);
    let blind = ahead(Watching::Never, NOTHING);
    breaks("a clock ahead of time", blind.clone(), roles::ONE_BELIEVER, State::line);
    let checker = blind.checker().threads(THREADS).spawn_bfs().join();
    for law in [roles::ONE_HOLDER, roles::EPOCHS_GROW, roles::NO_OVERLAP] {
        assert!(checker.discovery(law).is_none(), "{law}");
    }
}

/// Three candidates that may continue by agreement, until `secs` seconds have passed.
fn going_on(secs: u64, slot_ms: u64, budget: Budget) -> GoingOn {
    GoingOn {
        until_ms: secs * 1_000,
        budget,
        slot_ms,
        third: Third::Member,
        late_asks: false,
        fault: Fault::None,
        promises_blindly: false,
        forgets: false,
        counts_from_receipt: false,
    }
}

#[test]
fn a_primary_that_continues_by_agreement_is_the_only_one() {
    holds("agreement: outage, cut", going_on(11, 500, Budget { outages: 1, cuts: 1, ..NOTHING }));
    holds("agreement: outage, delay", going_on(11, 1_000, Budget { outages: 1, delays: 1, ..NOTHING }));
    holds("agreement: outage, pause", going_on(11, 1_000, Budget { outages: 1, pauses: 1, ..NOTHING }));
    holds("agreement: cut, delay", going_on(11, 1_000, Budget { cuts: 1, delays: 1, ..NOTHING }));
}

#[test]
fn a_newcomer_does_not_disturb_an_agreement() {
    let late = |slot_ms, budget| GoingOn { third: Third::Newcomer, ..going_on(11, slot_ms, budget) };
    holds("agreement: newcomer, outage, cut", late(1_000, Budget { outages: 1, cuts: 1, ..NOTHING }));
    holds("agreement: newcomer, outage, delay", late(1_500, Budget { outages: 1, delays: 1, ..NOTHING }));
}

#[test]
fn an_agreement_survives_a_change_of_mode_a_release_and_a_failover() {
    holds("agreement: outage, set", going_on(11, 500, Budget { outages: 1, sets: 1, ..NOTHING }));
    holds("agreement: cut, set", going_on(11, 500, Budget { cuts: 1, sets: 1, ..NOTHING }));
    holds("agreement: outage, end", going_on(11, 500, Budget { outages: 1, ends: 1, ..NOTHING }));
    holds("agreement: outage, failover", going_on(11, 1_000, Budget { outages: 1, failovers: 1, ..NOTHING }));
    holds("agreement: cut, failover", going_on(13, 1_000, Budget { cuts: 1, failovers: 1, ..NOTHING }));
    // A heartbeat that counts late, in a store that has lost a take-over, must not revive what has ended.
    let two = |budget| GoingOn { third: Third::Absent, ..going_on(13, 1_000, budget) };
    holds("agreement: pause, delay, failover", two(Budget { pauses: 1, delays: 1, failovers: 1, ..NOTHING }));
}

#[test]
fn an_agreement_breaks_without_any_of_its_parts() {
    let usual = going_on(11, 1_000, Budget { outages: 1, cuts: 1, ..NOTHING });
    let late = GoingOn { third: Third::Newcomer, ..usual.clone() };
    let broken = |name, model| breaks(name, model, continue_mode::ONE_BELIEVER, continue_mode::World::line);
    broken("a newcomer may take over", GoingOn { fault: Fault::AnybodyTakesOver, ..late.clone() });
    broken("joined is enough", GoingOn { fault: Fault::JoinedIsEnough, ..late });
    broken("a promise is forgotten", GoingOn { forgets: true, ..usual });
    // All are in an outage; when it is over, only the primary is cut off, and a promise reaches it late.
    let apart = Budget { outages: 1, cuts: 1, delays: 1, ..NOTHING };
    let apart = GoingOn { third: Third::Absent, late_asks: true, ..going_on(11, 1_000, apart) };
    holds("agreement: late promise", apart.clone());
    broken("counted from the receipt", GoingOn { counts_from_receipt: true, ..apart });
    // The primary is cut off and paused across the end of its term; its last question arrives late.
    let late = Budget { cuts: 1, pauses: 1, delays: 2, ..NOTHING };
    let blind = GoingOn { third: Third::Absent, late_asks: true, ..going_on(9, 1_000, late) };
    holds("agreement: late asks", blind.clone());
    broken("a promise while asking", GoingOn { promises_blindly: true, ..blind });
}

/// Trap a1 (docs/laws.md): lost heartbeats with working reads, then a partition: two primaries for up to T - 2 I.
#[test]
fn a1_a_term_that_counts_from_reads_makes_two_primaries() {
    let naive = Naive { until: 14, budget: Budget { cuts: 2, ..NOTHING } };
    breaks("naive", naive, naive::ONE_PRIMARY, naive::State::line);
}

/// Trap a2: without an epoch, a pause between check and write goes unnoticed.
#[test]
fn a2_without_an_epoch_the_write_of_a_replaced_primary_counts() {
    let naive = Naive { until: 14, budget: Budget { pauses: 1, ..NOTHING } };
    breaks("naive", naive, naive::NO_STALE_WRITE, naive::State::line);
}

fn waiting(lacks: Lacks) -> Waiting {
    Waiting { callers: 3, groups: 3, gone: 2, lacks }
}

#[test]
fn no_caller_sleeps_beside_a_ready_group_whoever_goes() {
    holds("waiting", waiting(Lacks::Nothing));
}

#[test]
fn a_woken_caller_that_goes_leaves_another_one_asleep_unless_it_passes_the_wake_up_on() {
    let all = [Lacks::PassingOnWhenItGoes, Lacks::PassingOnWhenItTakes, Lacks::LiningUpFirst];
    for lacks in all {
        breaks(&format!("{lacks:?}"), waiting(lacks), waiting::NO_ONE_SLEEPS, waiting::State::line);
    }
}
