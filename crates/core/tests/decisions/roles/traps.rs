//! The election traps of docs/laws.md: each test is named after the one it closes.

use wayleave_core::roles::StandbyRow;

use super::*;

#[test]
fn a1_only_an_acknowledged_renewal_extends_a_term_and_reads_never_do() {
    let mut world = World::led("a");
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
fn a2_a_recreated_role_continues_above_its_epochs() {
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
fn a4_after_a_change_of_store_only_a_live_term_goes_on_for_one_ttl() {
    let mut world = World::led("a");
    world.facts.incarnation = 7;
    assert_eq!(world.beat("b").unwrap().outcome, Outcome::Standby);
    assert_eq!(world.beat("a").unwrap().outcome, Outcome::Renewed);
    world.release("a", world.tokens.get("a").copied()).unwrap();
    world.pass(14_999);
    let reply = world.beat("b").unwrap();
    assert_eq!((reply.outcome, reply.changes_in), (Outcome::Standby, Some(Millis(1))));
    assert!(reply.reason.contains("another store"), "{}", reply.reason);
    world.pass(1);
    let reply = world.beat("b").unwrap();
    assert_eq!((reply.outcome, reply.epoch.0), (Outcome::Acquired, 2 + limits::ROLE_EPOCHS_SKIPPED));
}

#[test]
fn a4_an_expired_term_is_not_revived_by_a_store_without_its_successor() {
    let mut world = World::led("a");
    world.pass(15_000);
    world.facts.incarnation = 1;
    assert_eq!(world.beat("a").unwrap().outcome, Outcome::Standby);
}

#[test]
fn a4_a_role_that_is_new_to_another_store_is_quiet_too() {
    let mut world = World::led("a");
    // The new store has lost the role's row.
    world.facts.row = None;
    world.facts.incarnation = 1;
    world.pass(1_000);
    assert_eq!(world.beat("b").unwrap().outcome, Outcome::Standby);
    world.pass(15_000);
    let reply = world.beat("b").unwrap();
    assert_eq!((reply.outcome, reply.epoch.0), (Outcome::Acquired, 1 + limits::ROLE_EPOCHS_SKIPPED));
}

/// A regression: the first role of all was granted again at once, in the same epoch, by a store that had lost it.
#[test]
fn a4_the_first_role_of_all_is_quiet_in_another_store_too() {
    let mut world = World::new();
    world.facts.incarnation = 1;
    assert_eq!(world.beat("a").unwrap().outcome, Outcome::Acquired);
    world.fail_over_losing_the_last_write();
    assert_eq!((&world.facts.row, world.facts.origin), (&None, None));
    assert_eq!(world.beat("b").unwrap().outcome, Outcome::Standby);
    world.pass(15_000);
    let told = world.beat("b").unwrap();
    assert_eq!((told.outcome, told.epoch.0), (Outcome::Acquired, 1 + limits::ROLE_EPOCHS_SKIPPED));
}

#[test]
fn after_a_forward_clock_step_a_role_changes_hands_one_ttl_later() {
    let mut world = World::led("a");
    world.step(3_600_000);
    // By the new time the term expired long ago, but its holder relies on it for another 15 s.
    let reply = world.beat("b").unwrap();
    assert_eq!((reply.outcome, reply.changes_in), (Outcome::Standby, Some(Millis(15_000))));
    assert!(reply.reason.contains("stepped forward"), "{}", reply.reason);
    assert!(world.look().reason.contains("stepped forward"), "{}", world.look().reason);
    world.pass(14_999);
    assert_eq!(world.beat("b").unwrap().outcome, Outcome::Standby);
    world.pass(1);
    let reply = world.beat("b").unwrap();
    assert_eq!((reply.outcome, reply.epoch), (Outcome::Acquired, Epoch(2)));
}

#[test]
fn a_shortened_ttl_does_not_shorten_a_lease_already_granted() {
    for step in [true, false] {
        let mut world = World::led("a");
        world.set_ttl(2_000).unwrap();
        if step {
            world.step(3_600_000);
        } else {
            world.facts.incarnation = 7;
            world.beat("b").unwrap();
            world.release("a", world.tokens.get("a").copied()).unwrap();
        }
        world.pass(14_999);
        assert_eq!(world.beat("b").unwrap().outcome, Outcome::Standby, "{step}");
        world.pass(1);
        assert_eq!(world.beat("b").unwrap().outcome, Outcome::Acquired, "{step}");
    }
}

#[test]
fn a_renewal_after_a_clock_step_keeps_the_epoch_and_later_terms_expire() {
    let mut world = World::led("a");
    world.step(3_600_000);
    let reply = world.beat("a").unwrap();
    assert_eq!((reply.outcome, reply.epoch, reply.remaining), (Outcome::Renewed, Epoch(1), Millis(15_000)));
    world.pass(1);
    world.beat("a").unwrap();
    world.pass(15_000);
    assert_eq!(world.beat("b").unwrap().outcome, Outcome::Acquired, "the step is over");
}

#[test]
fn a_vacant_role_is_not_quiet_after_a_clock_step() {
    let mut world = World::led("a");
    world.release("a", world.tokens.get("a").copied()).unwrap();
    world.step(3_600_000);
    assert_eq!(world.beat("b").unwrap().outcome, Outcome::Acquired);
}

#[test]
fn a9_a_heartbeat_overtaken_by_its_release_grants_nothing() {
    let mut world = World::led("a");
    let token = world.tokens["a"];
    world.release("a", Some(token)).unwrap();
    let late = world.beat_with(candidate("a"), Some(token)).unwrap_err();
    assert!(matches!(late, Refusal::NotTheTerm { .. }), "{late}");
    let again = world.beat_with(candidate("a"), None).unwrap();
    assert_eq!((again.outcome, again.epoch), (Outcome::Acquired, Epoch(2)), "it may stand again, as anybody");
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
    let reply = world.beat("a").unwrap().going_on.unwrap();
    assert_eq!((reply.goes_on, reply.members.len()), (limits::ROLE_CONTINUE_DEFAULT, 1));
    (world, reply.version)
}

#[test]
fn a11_an_hour_without_a_store_leaves_those_who_may_take_over() {
    let (mut world, _) = agreed();
    let hour = Change::Set(Millis(7_200_000));
    world.set(&RoleChanges { continue_for: hour, ..RoleChanges::default() }).unwrap();
    world.beat("a").unwrap();
    world.pass(3_600_000);
    assert_eq!(ask(&mut world, "newcomer", None, true).outcome, Outcome::Standby);
    let reply = ask(&mut world, "b", None, false);
    assert!(reply.outcome == Outcome::Standby && reply.last.unwrap().take_over, "{reply:?}");
    assert_eq!(ask(&mut world, "b", None, true).outcome, Outcome::Acquired);
}

#[test]
fn a11_a_standby_that_was_left_out_of_a_list_must_join_again() {
    let (mut world, heard) = agreed();
    world.pass(8_000);
    ask(&mut world, "a", Some(heard), false);
    world.pass(8_000);
    let reply = ask(&mut world, "a", None, false).going_on.unwrap();
    assert_eq!(reply.members, [], "b has missed a term's length");
    assert_eq!(ask(&mut world, "b", None, false).outcome, Outcome::Standby);
    world.pass(15_000);
    let reply = ask(&mut world, "b", None, true);
    assert!(reply.outcome == Outcome::Standby && reply.reason.contains("joined later"), "{}", reply.reason);
}

#[test]
fn a11_acknowledgements_of_another_store_do_not_count() {
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
    let reply = ask(&mut world, "a", Some(last.version), false);
    assert_eq!((reply.outcome, reply.epoch), (Outcome::Renewed, Epoch(1)));
    assert_eq!(ask(&mut world, "b", None, false).outcome, Outcome::Standby);
    let reply = ask(&mut world, "a", reply.going_on.map(|reply| reply.version), false);
    ask(&mut world, "a", reply.going_on.map(|reply| reply.version), false);
    world.pass(15_010);
    assert_eq!(ask(&mut world, "b", None, true).outcome, Outcome::Acquired);
}

#[test]
fn a11_a_strict_role_has_no_members_and_no_continue_time() {
    let mut world = World::led("a");
    let version = world.look().version;
    let reply = world.beat("b").unwrap();
    assert_eq!((world.look().version, reply.last), (version, None), "a standby changes no role");
    assert_eq!(world.beat("a").unwrap().going_on, None);
    world.pass(15_000);
    assert_eq!(world.beat("b").unwrap().outcome, Outcome::Acquired, "by a plain heartbeat");
}

#[test]
fn a12_the_primarys_uuid_without_its_token_is_refused_during_the_term() {
    let mut world = World::led("a");
    for token in [None, Some(Token([1; 16]))] {
        let refusal = world.beat_with(candidate("a"), token).unwrap_err();
        assert!(matches!(refusal, Refusal::DuplicateIdentity { .. }), "{refusal}");
    }
    world.pass(15_000);
    let reply = world.beat_with(candidate("a"), None).unwrap();
    assert_eq!((reply.outcome, reply.epoch), (Outcome::Acquired, Epoch(2)), "a new process under an old name");
}

#[test]
fn a14_standbys_are_seen_with_readiness_and_fall_silent() {
    let mut world = World::led("a");
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
    let mut world = World::led("a");
    let first = world.facts.row.clone().unwrap();
    world.beat("a").unwrap();
    let second = world.facts.row.clone().unwrap();
    assert_eq!((first.version, second.version), (1, 2));
    assert_ne!(first, second);
}

#[test]
fn an_absent_preferred_standby_delays_a_takeover_by_a_quarter_ttl() {
    let mut world = World::led("a");
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
    let mut world = World::led("a");
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
