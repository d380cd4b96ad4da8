//! The election traps of docs/laws.md: each test is named after the one it closes.

use wayleave_core::ids::{Epoch, Token};
use wayleave_core::limits;
use wayleave_core::roles::{
    Candidate, HeartbeatCall, HeartbeatReply, Mode, Outcome, Refusal, RoleChanges, StandbyRow, Was,
};
use wayleave_core::settings::Change;
use wayleave_core::time::{Millis, Time};

use crate::roles::world::{World, candidate};

#[test]
fn a1_only_an_acknowledged_renewal_extends_a_term_and_reads_never_do() {
    let mut world = World::new();
    world.beat("a").unwrap();
    for _ in 0..20 {
        world.pass(1_000);
        let _ = world.look();
    }
    assert_eq!(world.primary(), None, "reads kept a primary alive");
    assert_eq!(world.beat("b").unwrap().outcome, Outcome::Acquired);
}

#[test]
fn a2_every_change_of_holder_raises_the_epoch_also_back_to_the_same_one() {
    let mut world = World::new();
    let mut last = Epoch(0);
    for uuid in ["a", "b", "a", "a", "b"] {
        let answer = world.beat_with(candidate(uuid), None).unwrap();
        assert_eq!((answer.outcome, answer.epoch), (Outcome::Acquired, Epoch(last.0 + 1)));
        last = answer.epoch;
        world.pass(limits::ROLE_TTL_DEFAULT.0);
    }
}

#[test]
fn a2_a_role_that_was_deleted_goes_on_above_its_epochs() {
    let mut world = World::new();
    for _ in 0..3 {
        world.beat_with(candidate("a"), None).unwrap();
        world.pass(20_000);
    }
    world.delete().unwrap();
    assert_eq!((world.look().version, world.facts.origin.unwrap().roles), (0, 0));
    assert_eq!(world.beat("z").unwrap().epoch, Epoch(4));
}

#[test]
fn a4_after_a_change_of_store_only_a_living_term_goes_on_for_one_time_to_live() {
    let mut world = World::new();
    world.beat("a").unwrap();
    world.facts.incarnation = 7;
    assert_eq!(world.beat("b").unwrap().outcome, Outcome::Standby);
    assert_eq!(world.beat("a").unwrap().outcome, Outcome::Renewed);
    world.release("a", world.tokens.get("a").copied()).unwrap();
    world.pass(14_999);
    let told = world.beat("b").unwrap();
    assert_eq!((told.outcome, told.changes_in), (Outcome::Standby, Some(Millis(1))));
    assert!(told.reason.contains("another store"), "{}", told.reason);
    world.pass(1);
    let told = world.beat("b").unwrap();
    assert_eq!((told.outcome, told.epoch.0), (Outcome::Acquired, 2 + limits::ROLE_EPOCHS_SKIPPED));
}

#[test]
fn a4_a_term_that_ran_out_is_not_revived_by_a_store_that_may_not_know_its_successor() {
    let mut world = World::new();
    world.beat("a").unwrap();
    world.pass(15_000);
    world.facts.incarnation = 1;
    assert_eq!(world.beat("a").unwrap().outcome, Outcome::Standby);
}

#[test]
fn a4_a_role_that_is_new_to_another_store_is_quiet_too() {
    let mut world = World::new();
    world.beat("a").unwrap();
    // The new store has lost the role's row.
    world.facts.row = None;
    world.facts.incarnation = 1;
    world.pass(1_000);
    assert_eq!(world.beat("b").unwrap().outcome, Outcome::Standby);
    world.pass(15_000);
    let told = world.beat("b").unwrap();
    assert_eq!((told.outcome, told.epoch.0), (Outcome::Acquired, 1 + limits::ROLE_EPOCHS_SKIPPED));
}

#[test]
fn after_a_forward_step_of_the_clock_a_role_changes_hands_only_one_time_to_live_later() {
    let mut world = World::new();
    world.beat("a").unwrap();
    world.step(3_600_000);
    // By the new time the term expired long ago, but its holder relies on it for another 15 s.
    let told = world.beat("b").unwrap();
    assert_eq!((told.outcome, told.changes_in), (Outcome::Standby, Some(Millis(15_000))));
    assert!(told.reason.contains("stepped forward"), "{}", told.reason);
    assert!(world.look().reason.contains("stepped forward"), "{}", world.look().reason);
    world.pass(14_999);
    assert_eq!(world.beat("b").unwrap().outcome, Outcome::Standby);
    world.pass(1);
    let told = world.beat("b").unwrap();
    assert_eq!((told.outcome, told.epoch), (Outcome::Acquired, Epoch(2)));
}

#[test]
fn a_primary_that_renews_after_a_step_keeps_its_epoch_and_later_terms_end_as_usual() {
    let mut world = World::new();
    world.beat("a").unwrap();
    world.step(3_600_000);
    let told = world.beat("a").unwrap();
    assert_eq!((told.outcome, told.epoch, told.remaining), (Outcome::Renewed, Epoch(1), Millis(15_000)));
    world.pass(1);
    world.beat("a").unwrap();
    world.pass(15_000);
    assert_eq!(world.beat("b").unwrap().outcome, Outcome::Acquired, "the step is over");
}

#[test]
fn a_role_that_nobody_holds_is_not_quiet_after_a_step() {
    let mut world = World::new();
    world.beat("a").unwrap();
    world.release("a", world.tokens.get("a").copied()).unwrap();
    world.step(3_600_000);
    assert_eq!(world.beat("b").unwrap().outcome, Outcome::Acquired);
}

#[test]
fn a6_the_store_owns_the_time_to_live_and_shortening_it_breaks_no_promise() {
    let mut world = World::new();
    let first = world.beat("a").unwrap();
    assert_eq!((first.ttl, first.remaining), (Millis(15_000), Millis(15_000)));
    world.set_ttl(2_000).unwrap();
    assert_eq!(world.look().primary.unwrap().remaining, Millis(15_000));
    world.pass(1_000);
    let told = world.beat("a").unwrap();
    assert_eq!((told.ttl, told.remaining, told.interval), (Millis(2_000), Millis(14_000), Millis(400)));
    world.pass(13_000);
    assert_eq!(world.beat("a").unwrap().remaining, Millis(2_000));
}

#[test]
fn a7_heartbeats_too_rare_for_the_time_to_live_are_refused_with_the_arithmetic() {
    let mut world = World::new();
    let every = |ms| Candidate { interval: Some(Millis(ms)), ..candidate("a") };
    assert_eq!(world.beat_with(every(3_750), None).unwrap().interval, Millis(3_750));
    let refusal = world.beat_with(every(3_751), world.tokens.get("a").copied()).unwrap_err();
    for part in ["4 x interval_ms = 15004", "every 3750 ms", "ttl_ms of at least 15004"] {
        assert!(refusal.to_string().contains(part), "{refusal}");
    }
    let refusal = world.set_ttl(14_999).unwrap_err();
    assert!(matches!(refusal, Refusal::TtlTooShort { interval_ms: 3_750, .. }), "{refusal}");
}

#[test]
fn a8_one_heartbeat_acquires_and_says_so() {
    let told = World::new().beat("a").unwrap();
    assert_eq!((told.outcome, told.holder.as_deref(), told.epoch), (Outcome::Acquired, Some("a"), Epoch(1)));
    assert!(told.token.is_some() && told.remaining == told.ttl);
}

#[test]
fn a9_a_release_frees_the_role_at_once_and_only_for_its_own_term() {
    let mut world = World::new();
    world.beat("a").unwrap();
    let token = world.tokens["a"];
    let wrong = Token([9; 16]);
    assert!(matches!(world.release("a", Some(wrong)), Err(Refusal::NotTheTerm { .. })));
    assert!(matches!(world.release("a", None), Err(Refusal::TokenMissing { .. })));
    assert_eq!(world.primary().unwrap().0, "a");
    assert_eq!(world.release("a", Some(token)).unwrap().was, Was::Primary);
    assert_eq!(world.release("a", Some(token)).unwrap().was, Was::Primary, "the same release again");
    assert_eq!(world.beat("b").unwrap().epoch, Epoch(2));
    assert!(matches!(world.release("a", Some(token)), Err(Refusal::NotTheTerm { .. })));
    assert_eq!(world.release("x", None).unwrap().was, Was::Nobody);
}

#[test]
fn a9_a_heartbeat_that_its_own_release_overtook_makes_nobody_primary() {
    let mut world = World::new();
    world.beat("a").unwrap();
    let token = world.tokens["a"];
    world.release("a", Some(token)).unwrap();
    let late = world.beat_with(candidate("a"), Some(token)).unwrap_err();
    assert!(matches!(late, Refusal::NotTheTerm { .. }), "{late}");
    let again = world.beat_with(candidate("a"), None).unwrap();
    assert_eq!((again.outcome, again.epoch), (Outcome::Acquired, Epoch(2)), "it may stand again, as anybody");
}

#[test]
fn a11_the_mode_is_kept_and_handed_out() {
    let mut world = World::new();
    assert_eq!(world.beat("a").unwrap().mode, Mode::Strict);
    world.set(&RoleChanges { mode: Change::Set(Mode::Continue), ..RoleChanges::default() }).unwrap();
    assert_eq!((world.beat("a").unwrap().mode, world.look().mode), (Mode::Continue, Mode::Continue));
}

/// A request from an acting primary that last received this version, or a bid for the last term as stored.
fn ask(world: &mut World, uuid: &str, heard: Option<u64>, bids: bool) -> HeartbeatReply {
    let token = world.tokens.get(uuid).copied();
    let term = world.facts.row.as_ref().and_then(|row| row.term.as_ref()).map(|term| term.bid());
    world
        .ask(HeartbeatCall {
            candidate: candidate(uuid),
            token,
            heard,
            take_over: term.filter(|_| bids),
            slot: None,
            from: None,
        })
        .unwrap()
}

/// A role whose primary `a` knows its standby `b`, and the version that `a` has received.
fn agreed() -> (World, u64) {
    let mut world = World::after_earlier_roles();
    let mode = Change::Set(Mode::Continue);
    world.set(&RoleChanges { mode, ..RoleChanges::default() }).unwrap();
    for uuid in ["a", "b"] {
        world.beat(uuid).unwrap();
    }
    let told = world.beat("a").unwrap().going_on.unwrap();
    assert_eq!((told.goes_on, told.members.len()), (limits::ROLE_CONTINUE_DEFAULT, 1));
    (world, told.version)
}

#[test]
fn a11_an_hour_without_a_store_leaves_those_who_may_take_over() {
    let (mut world, _) = agreed();
    let hour = Change::Set(Millis(7_200_000));
    world.set(&RoleChanges { continue_for: hour, ..RoleChanges::default() }).unwrap();
    world.beat("a").unwrap();
    world.pass(3_600_000);
    assert_eq!(ask(&mut world, "newcomer", None, true).outcome, Outcome::Standby);
    let told = ask(&mut world, "b", None, false);
    assert!(told.outcome == Outcome::Standby && told.last.unwrap().take_over, "{told:?}");
    assert_eq!(ask(&mut world, "b", None, true).outcome, Outcome::Acquired);
}

#[test]
fn a11_a_standby_that_was_left_out_of_a_list_must_join_again() {
    let (mut world, heard) = agreed();
    world.pass(8_000);
    ask(&mut world, "a", Some(heard), false);
    world.pass(8_000);
    let told = ask(&mut world, "a", None, false).going_on.unwrap();
    assert_eq!(told.members, [], "b has missed a term's length");
    assert_eq!(ask(&mut world, "b", None, false).outcome, Outcome::Standby);
    world.pass(15_000);
    let told = ask(&mut world, "b", None, true);
    assert!(told.outcome == Outcome::Standby && told.reason.contains("joined later"), "{}", told.reason);
}

#[test]
fn a11_what_a_primary_heard_of_another_store_counts_for_nobody() {
    let (mut world, heard) = agreed();
    world.pass(8_000);
    ask(&mut world, "a", Some(heard), false);
    world.pass(8_000);
    // The list without b is the last one the primary receives, and the write that removed b is lost.
    let last = ask(&mut world, "a", Some(heard), false).going_on.unwrap();
    world.fail_over_losing_the_last_write();
    assert_eq!(ask(&mut world, "a", Some(last.version), false).outcome, Outcome::Renewed, "an answer that is lost");
    world.pass(15_000);
    assert_eq!(ask(&mut world, "b", None, true).outcome, Outcome::Standby);
    // A primary that continues by agreement may still renew its term, and then acknowledges this store.
    let told = ask(&mut world, "a", Some(last.version), false);
    assert_eq!((told.outcome, told.epoch), (Outcome::Renewed, Epoch(1)));
    assert_eq!(ask(&mut world, "b", None, false).outcome, Outcome::Standby);
    let told = ask(&mut world, "a", told.going_on.map(|told| told.version), false);
    ask(&mut world, "a", told.going_on.map(|told| told.version), false);
    world.pass(15_010);
    assert_eq!(ask(&mut world, "b", None, true).outcome, Outcome::Acquired);
}

#[test]
fn a11_a_role_that_is_strict_asks_nobody_and_tells_nothing() {
    let mut world = World::new();
    world.beat("a").unwrap();
    let version = world.look().version;
    let told = world.beat("b").unwrap();
    assert_eq!((world.look().version, told.last), (version, None), "a standby changes no role");
    assert_eq!(world.beat("a").unwrap().going_on, None);
    world.pass(15_000);
    assert_eq!(world.beat("b").unwrap().outcome, Outcome::Acquired, "by a plain heartbeat");
}

#[test]
fn a12_the_primarys_uuid_without_its_token_is_refused_while_the_term_lives() {
    let mut world = World::new();
    world.beat("a").unwrap();
    for token in [None, Some(Token([1; 16]))] {
        let refusal = world.beat_with(candidate("a"), token).unwrap_err();
        assert!(matches!(refusal, Refusal::DuplicateIdentity { .. }), "{refusal}");
    }
    world.pass(15_000);
    let told = world.beat_with(candidate("a"), None).unwrap();
    assert_eq!((told.outcome, told.epoch), (Outcome::Acquired, Epoch(2)), "a new process under an old name");
}

#[test]
fn a14_standbys_are_seen_with_readiness_and_fall_silent() {
    let mut world = World::new();
    world.beat("a").unwrap();
    world.beat("b").unwrap();
    world.beat_with(Candidate { ready: false, ..candidate("c") }, None).unwrap();
    let ready: Vec<bool> = world.look().standbys.iter().map(|standby| standby.ready).collect();
    assert_eq!(ready, [true, false]);
    world.pass(15_000);
    assert_eq!(world.look().standbys.len(), 0);
    world.beat("b").unwrap();
    assert_eq!(world.facts.standbys.len(), 0, "the one that fell silent was removed in passing");
}

#[test]
fn a15_two_heartbeats_in_one_millisecond_are_two_versions() {
    let mut world = World::new();
    world.beat("a").unwrap();
    let first = world.facts.row.clone().unwrap();
    world.beat("a").unwrap();
    let second = world.facts.row.clone().unwrap();
    assert_eq!((first.version, second.version), (1, 2));
    assert_ne!(first, second);
}

#[test]
fn a_preferred_standby_that_never_comes_delays_a_takeover_by_a_quarter_of_the_time_to_live_at_most() {
    let mut world = World::new();
    world.beat("a").unwrap();
    let slow = Candidate { priority: 9, interval: Some(Millis(3_750)), ..candidate("slow") };
    world.beat_with(slow.clone(), None).unwrap();
    world.release("a", world.tokens.get("a").copied()).unwrap();
    // Even if its heartbeats named another interval than the settings allow now.
    world.set_ttl(15_000).unwrap();
    world.facts.standbys = vec![StandbyRow {
        candidate: Candidate { interval: Some(Millis(900_000)), ..slow },
        from: None,
        seen_at: Time(0),
        expires_at: Time::NEVER,
        joined: 0,
    }];
    world.pass(3_749);
    assert_eq!(world.beat("b").unwrap().outcome, Outcome::Standby);
    world.pass(1);
    assert_eq!(world.beat("b").unwrap().outcome, Outcome::Acquired);
}

#[test]
fn standbys_and_roles_are_bounded() {
    let mut world = World::new();
    world.beat("a").unwrap();
    for n in 0..limits::STANDBYS_MAX {
        world.beat(&format!("s{n}")).unwrap();
    }
    assert!(matches!(world.beat("late"), Err(Refusal::OverLimit(_))));
    world.beat("s0").unwrap();
    let mut origin = world.facts.origin.unwrap();
    origin.roles = limits::ROLES_MAX;
    let mut full = World::new();
    full.facts.origin = Some(origin);
    assert!(matches!(full.beat("a"), Err(Refusal::OverLimit(_))));
}
