//! Slots: each is run by one holder, recorded with its release, and never granted again.

use proptest::prelude::*;

use super::*;

fn beat_for(world: &mut World, uuid: &str, slot: &str) -> Result<HeartbeatReply, Refusal> {
    let token = world.token_of(uuid);
    world.ask(HeartbeatCall {
        candidate: candidate(uuid),
        token,
        heard: None,
        take_over: None,
        slot: Some(slot.into()),
        from: None,
    })
}

#[test]
fn a_recorded_slot_is_never_granted_again_and_the_next_one_is() {
    let mut world = World::new();
    assert_eq!(beat_for(&mut world, "a", "mon").unwrap().outcome, Outcome::Acquired);
    let waits = beat_for(&mut world, "b", "mon").unwrap();
    assert_eq!((waits.outcome, waits.ran), (Outcome::Standby, None));
    world.release_after("a", world.token_of("a"), Some("mon")).unwrap();
    for uuid in ["a", "b", "c"] {
        let reply = beat_for(&mut world, uuid, "mon").unwrap();
        assert_eq!((reply.outcome, reply.ran.map(|run| run.epoch.0)), (Outcome::Standby, Some(1)), "{uuid}");
        assert!(reply.reason.contains("slot 'mon' was run in epoch 1"), "{}", reply.reason);
    }
    assert_eq!(world.facts.standbys.len(), 1, "a candidate of a recorded slot does not stand by: only b did before");
    assert_eq!(beat_for(&mut world, "c", "tue").unwrap().outcome, Outcome::Acquired);
    assert_eq!(world.look().last_run.map(|run| run.slot.to_string()), Some("mon".into()));
}

#[test]
fn a_run_that_failed_or_died_is_given_to_the_next() {
    let mut world = World::new();
    beat_for(&mut world, "a", "mon").unwrap();
    world.release("a", world.token_of("a")).unwrap();
    assert_eq!(beat_for(&mut world, "b", "mon").unwrap().outcome, Outcome::Acquired);
    world.pass(limits::ROLE_TTL_DEFAULT.0);
    assert_eq!(beat_for(&mut world, "c", "mon").unwrap().outcome, Outcome::Acquired);
}

#[test]
fn a_runner_whose_term_is_anothers_records_nothing() {
    let mut world = World::new();
    beat_for(&mut world, "a", "mon").unwrap();
    let late = world.token_of("a");
    world.pass(limits::ROLE_TTL_DEFAULT.0);
    beat_for(&mut world, "b", "mon").unwrap();
    assert!(matches!(world.release_after("a", late, Some("mon")), Err(Refusal::NotTheTerm { .. })));
    assert_eq!(world.look().last_run, None);
    // The holder of the term records it; after that the late one may also know that the slot was run.
    world.release_after("b", world.token_of("b"), Some("mon")).unwrap();
    assert_eq!(world.release_after("a", late, Some("mon")).unwrap().was, Was::Nobody);
}

#[test]
fn an_expired_term_still_records_before_a_takeover() {
    let mut world = World::new();
    beat_for(&mut world, "a", "mon").unwrap();
    world.pass(10 * limits::ROLE_TTL_DEFAULT.0);
    world.release_after("a", world.token_of("a"), Some("mon")).unwrap();
    assert_eq!(beat_for(&mut world, "b", "mon").unwrap().outcome, Outcome::Standby);
}

#[test]
fn a_repeated_release_reports_the_slot_truthfully() {
    let mut world = World::new();
    beat_for(&mut world, "a", "mon").unwrap();
    let token = world.token_of("a");
    world.release_after("a", token, Some("mon")).unwrap();
    world.release_after("a", token, Some("mon")).unwrap();
    assert_eq!(world.facts.row.as_ref().unwrap().runs.0.len(), 1);
    // Released without the slot, it can no longer be recorded: later callers must not hear that it was run.
    beat_for(&mut world, "b", "tue").unwrap();
    let token = world.token_of("b");
    world.release("b", token).unwrap();
    assert!(matches!(world.release_after("b", token, Some("tue")), Err(Refusal::NotTheTerm { .. })));
}

#[test]
fn the_last_slots_are_remembered_and_no_more_than_the_limit() {
    let mut world = World::new();
    for n in 0..limits::ROLE_SLOTS_KEPT + 1 {
        let slot = format!("s{n}");
        assert_eq!(beat_for(&mut world, "a", &slot).unwrap().outcome, Outcome::Acquired, "{slot}");
        world.release_after("a", world.token_of("a"), Some(&slot)).unwrap();
        world.tokens.clear();
    }
    assert_eq!(world.facts.row.as_ref().unwrap().runs.0.len(), limits::ROLE_SLOTS_KEPT);
    assert_eq!(beat_for(&mut world, "b", "s1").unwrap().outcome, Outcome::Standby, "a machine that comes late");
}

#[test]
fn the_law_refuses_slots_that_appear_or_vanish_without_their_holder() {
    let mut world = World::new();
    beat_for(&mut world, "a", "mon").unwrap();
    let held = world.facts.row.clone().unwrap();
    world.release_after("a", world.token_of("a"), Some("mon")).unwrap();
    let run = world.facts.row.clone().unwrap();
    let now = world.facts.now;
    assert_eq!(lawful_step(Some(&held), Some(&run), now), Ok(()));
    let mut forged = run.clone();
    forged.runs.0[0].epoch.0 += 1;
    assert!(lawful_step(Some(&held), Some(&forged), now).is_err(), "of another term");
    let mut kept = held.clone();
    (kept.version, kept.runs) = (kept.version + 1, run.runs.clone());
    assert!(lawful_step(Some(&held), Some(&kept), now).is_err(), "without giving the term back");
    let mut forgot = run.clone();
    forgot.version += 1;
    forgot.runs.0.clear();
    assert!(lawful_step(Some(&run), Some(&forgot), now).is_err(), "forgotten");
}

proptest! {
    /// Candidates send heartbeats, finish, fail, die and come late in any order: no slot with a recorded run starts
    /// again.
    #[test]
    fn no_slot_begins_again_after_it_was_recorded(
        steps in prop::collection::vec((0..3_usize, 0..3_usize, 0..4_u8, 0..8_000_u64), 1..80),
    ) {
        let mut world = World::new();
        let mut recorded = std::collections::BTreeSet::new();
        for (who, what, then, pause) in steps {
            let (uuid, slot) = (["a", "b", "c"][who], ["x", "y", "z"][what]);
            match then {
                0 | 1 => if let Ok(reply) = beat_for(&mut world, uuid, slot) {
                    prop_assert!(reply.outcome != Outcome::Acquired || !recorded.contains(slot), "{} twice", slot);
                    prop_assert!(reply.outcome != Outcome::Standby || reply.ran.is_some() == recorded.contains(slot));
                },
                2 => if let Some(token) = world.token_of(uuid)
                    && world.release_after(uuid, Some(token), Some(slot)).is_ok() {
                    recorded.insert(slot);
                },
                _ => _ = world.release(uuid, world.token_of(uuid)),
            }
            world.facts.now = world.facts.now.after(Millis(pause));
        }
    }
}
