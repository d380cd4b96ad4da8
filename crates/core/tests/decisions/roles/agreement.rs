//! Random histories of a role in continue mode, checked against what its primary really knows: under any loss of
//! messages, no standby takes over that the primary might not have asked.

use proptest::prelude::*;
use wayleave_core::roles::Peer;

use super::*;

const T: u64 = 1_000;
/// The longest time to live here.
const LONGEST: u64 = 2_500;

#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    /// Candidate, whether the answer is lost, and whether it bids for the term that it has seen.
    Beat(u8, bool, bool),
    /// Continue time; zero is strict mode.
    Set(u64),
    /// Time to live.
    Live(u64),
    Release(u8),
    FailOver(bool),
    /// The store's clock steps forward, or the server that decides from now on has just started.
    Jump(u64),
}

fn step(failovers: u32) -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop_oneof![0..300u64, 900..1_100u64, 2_900..3_100u64].prop_map(Step::Pass),
        12 => (0..4u8, prop::bool::weighted(0.25), any::<bool>()).prop_map(|(who, lost, bid)| Step::Beat(who, lost, bid)),
        1 => prop_oneof![Just(0u64), Just(1_000), Just(3_000)].prop_map(Step::Set),
        1 => prop_oneof![Just(T), Just(LONGEST)].prop_map(Step::Live),
        1 => (0..4u8).prop_map(Step::Release),
        failovers => any::<bool>().prop_map(Step::FailOver),
        1 => prop_oneof![Just(0u64), Just(1_000), Just(3_000), Just(10_000)].prop_map(Step::Jump),
    ]
}

/// What the last primary knows from the answers that reached it.
#[derive(Clone, Debug, Default)]
struct Primary {
    uuid: String,
    expires_at: Time,
    version: u64,
    goes_on: Millis,
    members: Vec<String>,
}

impl Primary {
    fn acts_until(&self) -> Time {
        self.expires_at.after(self.goes_on)
    }
}

fn beat(
    world: &mut World,
    primary: &mut Option<Primary>,
    (who, lost, bids): (u8, bool, bool),
) -> Result<(), TestCaseError> {
    let (now, uuid) = (world.facts.now, format!("c{who}"));
    let own = primary.clone().filter(|primary| primary.uuid == uuid);
    let acts = own.filter(|primary| now < primary.acts_until());
    if acts.is_none() {
        // A candidate that no longer acts has forgotten its term.
        world.tokens.remove(&uuid);
    }
    let term = world.facts.row.as_ref().and_then(|row| row.term.as_ref()).map(|term| term.bid());
    let ask = HeartbeatCall {
        candidate: candidate(&uuid),
        token: acts.as_ref().and_then(|_| world.tokens.get(&uuid).copied()),
        heard: acts.as_ref().map(|primary| primary.version).filter(|version| *version > 0),
        take_over: term.filter(|_| bids),
        slot: None,
        from: None,
    };
    let known = world.tokens.get(&uuid).copied();
    let Ok(answer) = world.ask(ask) else { return Ok(()) };
    match answer.outcome {
        Outcome::Standby => {}
        Outcome::Acquired => {
            if let Some(last) = primary.as_ref() {
                let asked = now >= last.expires_at && bids && last.members.contains(&uuid);
                let over = now >= last.acts_until() || asked;
                prop_assert!(over, "{} took over from {:?} at {:?}", uuid, last, now);
            }
            *primary = None;
            world.tokens.retain(|holder, _| *holder == uuid);
            if !lost {
                let expires_at = now.after(answer.remaining);
                *primary = Some(Primary { uuid: uuid.clone(), expires_at, ..Primary::default() });
            }
        }
        Outcome::Renewed => {
            if let Some(primary) = primary.as_mut().filter(|primary| primary.uuid == uuid && !lost) {
                primary.expires_at = now.after(answer.remaining);
                match answer.going_on {
                    Some(reply) => {
                        prop_assert!(reply.version > primary.version, "versions grow");
                        primary.version = reply.version;
                        primary.goes_on = reply.goes_on;
                        primary.members = reply.members.iter().map(|member| member.uuid.to_string()).collect();
                    }
                    None => (primary.goes_on, primary.members) = (Millis(0), Vec::new()),
                }
            }
        }
    }
    if lost {
        // With it the token, unless it was known before.
        world.tokens.remove(&uuid);
        world.tokens.extend(known.map(|token| (uuid, token)));
    }
    Ok(())
}

fn run(steps: &[Step]) -> Result<(), TestCaseError> {
    let mut world = World::after_earlier_roles();
    let going_on = |ms: u64| RoleChanges {
        mode: Change::Set(if ms == 0 { Mode::Strict } else { Mode::Continue }),
        continue_for: if ms == 0 { Change::Keep } else { Change::Set(Millis(ms)) },
        ..RoleChanges::default()
    };
    world.set_ttl(T).unwrap();
    world.set(&going_on(3_000)).unwrap();
    let mut primary = None;
    for step in steps {
        match step {
            Step::Pass(ms) => world.pass(*ms),
            Step::Beat(who, lost, bids) => beat(&mut world, &mut primary, (*who, *lost, *bids))?,
            Step::Set(ms) => world.set(&going_on(*ms)).unwrap(),
            Step::Live(ms) => world.set_ttl(*ms).unwrap(),
            Step::Release(who) => {
                let uuid = format!("c{who}");
                let token = world.tokens.remove(&uuid);
                // It stops first, whatever happens to its release.
                primary = primary.filter(|primary| primary.uuid != uuid);
                drop(world.release(&uuid, token));
            }
            Step::Jump(ms) => {
                world.step(*ms);
                // Its primary counts by another clock.
                primary.iter_mut().for_each(|primary| primary.expires_at = primary.expires_at.after(Millis(*ms)));
            }
            Step::FailOver(lost) => {
                // Every step takes at least a millisecond.
                world.pass(1);
                if *lost {
                    world.fail_over_losing_the_last_write();
                } else {
                    world.facts.incarnation += 1;
                }
            }
        }
    }
    // Calm phase: after a quiet period and the longest continue time any candidate is granted the role.
    world.pass(LONGEST + 3_000);
    world.tokens.clear();
    drop(world.beat("calm"));
    world.pass(2 * (LONGEST + 3_000));
    let reply = world.beat("calm").unwrap();
    prop_assert_ne!(reply.outcome, Outcome::Standby, "{}", reply.reason);
    Ok(())
}

fn continuing() -> World {
    let mut world = World::after_earlier_roles();
    world.set_ttl(T).unwrap();
    let changes = RoleChanges { mode: Change::Set(Mode::Continue), ..RoleChanges::default() };
    world.set(&RoleChanges { continue_for: Change::Set(Millis(3_000)), ..changes }).unwrap();
    world
}

#[test]
fn a11_a_member_that_comes_back_with_another_door_has_to_join_again() {
    let mut world = continuing();
    let with_door = |secret: u8| Candidate {
        peer: Some(Peer { address: "b:1".into(), secret: Token([secret; 16]) }),
        ..candidate("b")
    };
    world.beat("a").unwrap();
    world.beat_with(with_door(1), None).unwrap();
    world.pass(200);
    let token = world.token_of("a");
    world
        .ask(HeartbeatCall { candidate: candidate("a"), token, heard: None, take_over: None, slot: None, from: None })
        .unwrap();
    world.pass(T);
    // Same uuid, but another peer address: this process may not know what was promised at the old one.
    let reply = world.beat_with(with_door(2), None).unwrap();
    assert!(!reply.last.unwrap().take_over, "{}", reply.reason);
}

#[test]
fn a11_a_role_may_be_deleted_one_term_after_a_change_of_store() {
    let mut world = continuing();
    world.beat("a").unwrap();
    world.pass(2 * T);
    world.facts.incarnation += 1;
    // The new store is noticed with the first write; all others are gone.
    world.beat("b").unwrap();
    world.release("b", None).unwrap();
    assert!(world.delete().is_err(), "a primary unknown to this store may still act");
    world.pass(T);
    world.delete().unwrap();
}

#[test]
fn a_lost_renewal_after_a_clock_step_does_not_shorten_the_lease() {
    let (lost, heard) = (true, false);
    let steps = [
        Step::Set(0),
        Step::Live(LONGEST),
        Step::Beat(0, heard, false),
        Step::Live(T),
        Step::Jump(1_000),
        Step::Beat(0, lost, false),
        Step::Pass(1_600),
        Step::Beat(1, heard, false),
    ];
    run(&steps).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_024, ..ProptestConfig::default() })]

    #[test]
    fn a11_nobody_takes_over_whom_the_primary_might_not_have_asked(steps in prop::collection::vec(step(0), 1..60)) {
        run(&steps)?;
    }

    #[test]
    fn a11_nor_after_a_store_that_lost_what_it_wrote_last(steps in prop::collection::vec(step(1), 1..60)) {
        run(&steps)?;
    }
}
