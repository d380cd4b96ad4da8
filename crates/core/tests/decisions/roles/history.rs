//! Random histories against a naive model, which remembers only what was promised to whom, and no rows.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    /// Candidate; its own token, a wrong one or none; ready; priority.
    Beat(u8, Option<bool>, bool, u8),
    Release(u8, bool),
    Ttl(u64),
    LetGo,
    Delete,
    FailOver,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => prop_oneof![0..50u64, 400..600u64, 900..1_100u64, Just(1_000)].prop_map(Step::Pass),
        8 => (0..4u8, prop_oneof![4 => Just(Some(true)), 1 => Just(Some(false)), 1 => Just(None)], prop::bool::weighted(0.9), prop_oneof![Just(5u8), Just(9)])
            .prop_map(|(who, token, ready, priority)| Step::Beat(who, token, ready, priority)),
        1 => (0..4u8, any::<bool>()).prop_map(|(who, token)| Step::Release(who, token)),
        1 => prop_oneof![Just(1_000u64), Just(2_000), Just(500)].prop_map(Step::Ttl),
        1 => Just(Step::LetGo),
        1 => Just(Step::Delete),
        1 => Just(Step::FailOver),
    ]
}

/// The last promise, and whether it was released.
#[derive(Default)]
struct Model {
    promise: Option<(String, Token, Time)>,
    quiet: bool,
}

impl Model {
    fn alive(&self, now: Time) -> Option<&(String, Token, Time)> {
        self.promise.as_ref().filter(|(_, _, until)| now < *until)
    }
}

/// One heartbeat, checked against the model.
fn beat(
    world: &mut World,
    model: &mut Model,
    who: u8,
    own: Option<bool>,
    (ready, priority): (bool, u8),
) -> Result<(), TestCaseError> {
    let now = world.facts.now;
    let uuid = format!("c{who}");
    let known = world.token_of(&uuid);
    let token = own.and_then(|own| if own { known } else { Some(Token([255; 16])) });
    let reply = world.beat_with(Candidate { ready, priority, ..candidate(&uuid) }, token);
    match (&reply, model.alive(now)) {
        (Ok(reply), Some((holder, secret, until))) if *holder == uuid => {
            prop_assert_eq!(token, Some(*secret), "a renewal without the token");
            prop_assert_eq!(reply.outcome, Outcome::Renewed);
            prop_assert!(now.after(reply.remaining) >= *until, "a promise was cut short");
        }
        (Ok(reply), Some(_)) => prop_assert_eq!(reply.outcome, Outcome::Standby),
        (Ok(reply), None) => {
            prop_assert!(ready || reply.outcome == Outcome::Standby, "one that was not ready is primary");
            prop_assert!(!model.quiet || reply.outcome == Outcome::Standby, "granted in the quiet time");
        }
        (Err(refusal), Some((holder, secret, _))) => {
            prop_assert!(matches!(refusal, Refusal::DuplicateIdentity { .. }), "{}", refusal);
            prop_assert!(*holder == uuid && token != Some(*secret));
        }
        (Err(refusal), None) => prop_assert!(false, "refused without a primary: {}", refusal),
    }
    if let Ok(reply) = reply.as_ref()
        && let Some(secret) = reply.token
    {
        model.promise = Some((uuid, secret, now.after(reply.remaining)));
    }
    // The quiet period starts when the change of store is noticed.
    model.quiet = world.facts.row.as_ref().is_some_and(|row| row.quiet_until > now);
    Ok(())
}

fn run(steps: &[Step]) -> Result<(), TestCaseError> {
    let mut world = World::new();
    let mut model = Model::default();
    world.set_ttl(1_000).unwrap();
    for step in steps {
        let now = world.facts.now;
        match step {
            Step::Pass(ms) => world.pass(*ms),
            Step::Beat(who, own, ready, priority) => beat(&mut world, &mut model, *who, *own, (*ready, *priority))?,
            Step::Release(who, own) => {
                let uuid = format!("c{who}");
                let token = world.tokens.get(&uuid).copied().filter(|_| *own);
                let given_back = model.alive(now).is_some_and(|(h, secret, _)| *h == uuid && token == Some(*secret));
                let reply = world.release(&uuid, token);
                prop_assert!(reply.is_ok() || !given_back);
                if given_back {
                    model.promise = None;
                }
            }
            Step::Ttl(ms) => drop(world.set_ttl(*ms)),
            Step::LetGo => prop_assert_eq!(world.step_down().is_ok(), model.alive(now).is_some()),
            Step::Delete => drop(world.delete()),
            Step::FailOver => {
                world.facts.incarnation += 1;
                model.quiet = true;
            }
        }
        let now = world.facts.now;
        prop_assert_eq!(world.primary().map(|p| p.0), model.alive(now).map(|(holder, ..)| holder.clone()));
        model.quiet &= world
            .facts
            .row
            .as_ref()
            .is_none_or(|row| row.incarnation != world.facts.incarnation || row.quiet_until > now);
    }
    // Calm phase: any ready candidate gets the role within the last promise, the quiet period and the head start.
    world.pass(15_000);
    drop(world.beat("calm"));
    world.pass(15_000 + 15_000 / 4);
    let reply = world.beat("calm").unwrap();
    prop_assert_ne!(reply.outcome, Outcome::Standby, "{}", reply.reason);
    prop_assert!(reply.remaining >= Millis(500));
    Ok(())
}

/// The same without the model, with stores that lose their last writes. The world itself checks the law.
fn run_with_losses(steps: &[Step]) -> Result<(), TestCaseError> {
    // A store that has seen roles before: one that loses its very first write is indistinguishable from a new store.
    let mut world = World::after_earlier_roles();
    for step in steps {
        match step {
            Step::Pass(ms) => world.pass(15 * *ms),
            Step::Beat(who, own, ready, priority) => {
                let uuid = format!("c{who}");
                let token = own.and_then(|own| if own { world.token_of(&uuid) } else { Some(Token([255; 16])) });
                let asker = Candidate { ready: *ready, priority: *priority, ..candidate(&uuid) };
                drop(world.beat_with(asker, token));
            }
            Step::Release(who, _) => {
                let uuid = format!("c{who}");
                // A candidate that releases forgets its term first, whatever the store remembers.
                let token = world.tokens.remove(&uuid);
                drop(world.release(&uuid, token));
            }
            Step::Ttl(_) => {}
            Step::LetGo => drop(world.step_down()),
            Step::Delete => drop(world.delete()),
            Step::FailOver => world.fail_over_losing_the_last_write(),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn law_6_holds_over_any_history_and_calm_brings_a_primary(steps in prop::collection::vec(step(), 1..60)) {
        run(&steps)?;
    }

    #[test]
    fn a4_law_6_holds_over_stores_that_lose_what_they_wrote_last(steps in prop::collection::vec(step(), 1..60)) {
        run_with_losses(&steps)?;
    }
}
