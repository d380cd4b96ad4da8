//! Random histories against a naive model, which remembers only who reported when and since when anybody listens.

use proptest::prelude::*;
use wayleave_core::limits::{DEAF_AFTER, FREEZE_MACHINES_MIN, PROBATION_BASE, PROBATION_MAX, SUSPECT_AFTER};

use super::*;

const MACHINES: u8 = 5;

#[derive(Clone, Debug)]
enum Step {
    /// Machines that report, all in one batch, with their own token or another.
    Beat(Vec<(u8, bool, bool)>),
    /// Time passes, the owner ticks at its end, and these machines report every 5 s.
    Pass(u64, u8),
    /// The owner is not called.
    Stall(u64),
    Probe(u8, bool),
    Desire(u8, Desired),
    Delete(u8, bool),
    /// Placement has nothing on it any more.
    WriteOff(u8),
    Takeover,
}

fn step() -> impl Strategy<Value = Step> {
    let beat = (0..MACHINES, prop::bool::weighted(0.95), prop::bool::weighted(0.1));
    prop_oneof![
        6 => prop::collection::vec(beat, 1..4).prop_map(Step::Beat),
        8 => (prop_oneof![1..200u64, 4_000..6_000u64, 9_000..60_000u64], any::<u8>()).prop_map(|(ms, who)| Step::Pass(ms, who)),
        1 => (1..60_000u64).prop_map(Step::Stall),
        3 => (0..MACHINES, any::<bool>()).prop_map(|(who, ok)| Step::Probe(who, ok)),
        1 => (0..MACHINES, prop_oneof![Just(Desired::Online), Just(Desired::Drain), Just(Desired::Paused)]).prop_map(|(who, d)| Step::Desire(who, d)),
        1 => (0..MACHINES, any::<bool>()).prop_map(|(who, holds)| Step::Delete(who, holds)),
        2 => (0..MACHINES).prop_map(Step::WriteOff),
        1 => Just(Step::Takeover),
    ]
}

#[derive(Default)]
struct Model {
    /// The last report of each machine and whether it was an error.
    heard: BTreeMap<String, (Time, bool)>,
    listening_since: Time,
    last_call: Time,
}

impl Model {
    fn called(&mut self, now: Time) {
        if now.since(self.last_call) > DEAF_AFTER {
            self.listening_since = now;
        }
        self.last_call = now;
    }
}

fn name(who: u8) -> String {
    format!("m{who}")
}

fn beat(world: &mut World, model: &mut Model, who: u8, own: bool, error: bool) -> Result<(), TestCaseError> {
    let id = name(who);
    let kind = if who == 0 { Kind::Crawler } else { Kind::Server };
    let state = if error { Reported::Error } else { Reported::Online };
    let known = world.store.get(id.as_str()).cloned();
    let token = if own { known.as_ref().map(|row| row.token) } else { Some(Token([9; 16])) };
    let answer = world.report(&id, &Report { state, token, ..report(kind) });
    let wrote = !world.written.is_empty();
    match (known, own) {
        (None, true) => prop_assert!(answer.unwrap().registered),
        (None, false) => prop_assert_eq!(answer.unwrap_err(), Refusal::Deleted(id.clone())),
        (Some(_), false) => prop_assert_eq!(answer.unwrap_err(), Refusal::AnothersToken(id.clone())),
        (Some(before), true) => {
            let answer = answer.unwrap();
            let after = &world.store[id.as_str()];
            let same = before.confirmed
                && before.reported == state
                && before.judged == answer.judged
                && before.cause == after.cause;
            prop_assert!(
                wrote != same || before.failures != after.failures,
                "a report that changes nothing writes nothing"
            );
            if before.judged == Judged::Failed && !error {
                prop_assert_eq!(answer.judged, Judged::Probation, "what reports is not failed");
            }
        }
    }
    if own {
        model.called(world.now);
        model.heard.insert(id, (world.now, error));
    }
    Ok(())
}

/// The verdicts before a step and after it, against what the model knows.
fn check(world: &World, model: &Model, before: &Verdicts) -> Result<(), TestCaseError> {
    let now = world.now;
    for (id, row) in &world.store {
        let (heard, error) = model.heard.get(&**id).copied().unwrap_or_default();
        let silent = now.since(heard.max(model.listening_since));
        let was = before.get(&**id).copied();
        if row.judged == Judged::Failed && was.is_some_and(|(judged, _, _)| judged != Judged::Failed) {
            prop_assert!(error || silent >= FAILED_AFTER, "{} was failed after {} ms", id, silent.0);
        }
        if row.judged == Judged::Healthy && matches!(was, Some((Judged::Probation, ..))) {
            let (_, failures, since) = was.unwrap();
            let hold = Millis(PROBATION_BASE.0 * u64::from(failures)).min(PROBATION_MAX);
            prop_assert!(now >= since.after(hold), "{} left probation too early", id);
        }
        if row.judged == Judged::Healthy && was.is_some_and(|(judged, ..)| judged != Judged::Healthy) {
            prop_assert!(!error && now.since(heard) < SUSPECT_AFTER, "{} was promoted without a report", id);
        }
        prop_assert!(!row.written_off || row.judged == Judged::Failed, "{} lives and is written off", id);
        let view = world.state.view(id, now).unwrap();
        prop_assert!(!view.reason.is_empty());
    }
    for kind in Kind::ALL {
        let counts = |row: &&MachineRow| row.kind == kind && row.desired == Desired::Online && !row.written_off;
        let online: Vec<_> = world.store.values().filter(counts).collect();
        let dead = online.iter().filter(|row| row.judged == Judged::Failed).count();
        let frozen = online.len() >= FREEZE_MACHINES_MIN && 2 * dead > online.len();
        prop_assert_eq!(world.state.frozen(kind).is_some(), frozen);
    }
    Ok(())
}

type Verdicts = BTreeMap<String, (Judged, u32, Time)>;

fn verdicts(world: &World) -> Verdicts {
    world.store.iter().map(|(id, row)| (id.to_string(), (row.judged, row.failures, row.judged_at))).collect()
}

/// After a tick no verdict is overdue.
fn nothing_overdue(world: &World, model: &Model) -> Result<(), TestCaseError> {
    for (id, row) in &world.store {
        let heard = model.heard.get(&**id).map_or(Time::ZERO, |(at, _)| *at);
        let silent = world.now.since(heard.max(model.listening_since));
        prop_assert!(silent < FAILED_AFTER || row.judged == Judged::Failed, "{} should be failed", id);
        prop_assert!(silent < SUSPECT_AFTER || row.judged != Judged::Healthy, "{} should be suspect", id);
        let changes_at = world.state.view(id, world.now).unwrap().changes_at;
        prop_assert!(changes_at.is_none_or(|at| at > world.now), "{} is late", id);
    }
    Ok(())
}

fn pass(world: &mut World, model: &mut Model, ms: u64, who: u8) -> Result<(), TestCaseError> {
    let end = world.now.after(Millis(ms));
    while world.now < end {
        let next = world.state.next_tick().unwrap_or(end);
        let before = verdicts(world);
        world.now = next.clamp(world.now.after(Millis(1)), end.min(world.now.after(Millis(5_000))));
        for machine in (0..MACHINES).filter(|machine| who & (1 << machine) != 0) {
            if world.store.contains_key(name(machine).as_str()) {
                beat(world, model, machine, true, false)?;
            }
        }
        model.called(world.now);
        world.tick();
        check(world, model, &before)?;
        nothing_overdue(world, model)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]
    #[test]
    fn the_judge_is_fair_whatever_happens(steps in prop::collection::vec(step(), 1..60)) {
        let (mut world, mut model) = (World::new(), Model::default());
        for step in steps {
            let before = verdicts(&world);
            match step {
                Step::Beat(beats) => for (who, own, error) in beats {
                    let before = verdicts(&world);
                    beat(&mut world, &mut model, who, own, error)?;
                    check(&world, &model, &before)?;
                },
                Step::Pass(ms, who) => {
                    // It checks after every tick.
                    pass(&mut world, &mut model, ms, who)?;
                    continue;
                }
                Step::Stall(ms) => world.now = world.now.after(Millis(ms)),
                Step::Probe(who, ok) => {
                    world.probed(&name(who), ok);
                    model.called(world.now);
                }
                Step::WriteOff(who) => {
                    let id = name(who);
                    let was = world.store.get(id.as_str()).cloned();
                    let frozen = world.state.frozen(Kind::Server).is_some();
                    world.write_off(&id);
                    if let Some(was) = was {
                        let lost = was.judged == Judged::Failed && was.kind == Kind::Server && !frozen;
                        prop_assert_eq!(world.store[id.as_str()].written_off, was.written_off || lost);
                    }
                }
                Step::Desire(who, desired) => drop(world.desire(&name(who), desired)),
                Step::Delete(who, holds) => {
                    let known = world.store.contains_key(name(who).as_str());
                    let deleted = world.delete(&name(who), Holdings { needed: usize::from(holds), surplus: 0 });
                    prop_assert_eq!(deleted.is_ok(), known && !holds);
                    if deleted.is_ok() {
                        model.heard.remove(&name(who));
                    }
                }
                Step::Takeover => {
                    world.reload();
                    (model.listening_since, model.last_call) = (world.now, world.now);
                    prop_assert_eq!(&before, &verdicts(&world));
                }
            }
            check(&world, &model, &before)?;
        }
    }
}
