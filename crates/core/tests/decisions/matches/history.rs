//! Random histories with crashes: effects and outcomes are lost, repeated and late, workers exit, refuse and hang, sites
//! fall silent, commits fail. The world checks every rule after every decision. Then all faults end, and every client
//! must end with a worker or a reason; and when all have left, nothing may be left over.

use proptest::prelude::*;

use super::*;

const CLIENTS: [&str; 5] = ["a", "b", "c", "d", "e"];

#[derive(Clone, Debug)]
enum Step {
    Put(usize),
    Look(usize),
    Cancel(usize),
    /// An effect is carried out, and its outcome is on its way or lost.
    Run(usize, bool),
    /// An order to a runtime is carried out twice. Calls to workers are not: Makers see to that.
    RunTwice(usize),
    Lose(usize),
    /// An outcome arrives, once or twice.
    Hear(usize, bool),
    LoseOutcome(usize),
    Deliver,
    Pass(u64),
    /// The owner dies; with it go effects that it had not carried out.
    Crash(bool),
    /// The commit of a decision fails.
    Fail(usize),
    /// A worker ends by itself; its runtime says so, or not.
    Exit(usize, bool, bool),
    Mood(usize, Mood),
    /// New workers behave like this.
    NewMood(Mood),
    Broken(bool),
    /// Which sites are there. A second one is another name of the first one's engine.
    Sites(bool, bool),
    Announce,
    Report(usize, u32),
    Set(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let mood = || prop_oneof![3 => Just(Mood::Good), 1 => Just(Mood::Mute), 1 => Just(Mood::Refusing)];
    let client = || 0..CLIENTS.len();
    prop_oneof![
        10 => client().prop_map(Step::Put),
        2 => client().prop_map(Step::Look),
        3 => client().prop_map(Step::Cancel),
        12 => (0..8usize, prop::bool::weighted(0.9)).prop_map(|(i, heard)| Step::Run(i, heard)),
        2 => (0..8usize).prop_map(Step::RunTwice),
        2 => (0..8usize).prop_map(Step::Lose),
        12 => (0..8usize, prop::bool::weighted(0.1)).prop_map(|(i, twice)| Step::Hear(i, twice)),
        2 => (0..8usize).prop_map(Step::LoseOutcome),
        4 => Just(Step::Deliver),
        8 => prop_oneof![1..200u64, 500..3_000u64, 4_000..9_000u64, 9_000..40_000u64].prop_map(Step::Pass),
        3 => any::<bool>().prop_map(Step::Crash),
        2 => client().prop_map(Step::Fail),
        2 => (0..4usize, any::<bool>(), any::<bool>()).prop_map(|(i, clean, reported)| Step::Exit(i, clean, reported)),
        2 => (0..4usize, mood()).prop_map(|(i, mood)| Step::Mood(i, mood)),
        1 => mood().prop_map(Step::NewMood),
        1 => prop::bool::weighted(0.3).prop_map(Step::Broken),
        1 => any::<(bool, bool)>().prop_map(|(first, second)| Step::Sites(first, second)),
        3 => Just(Step::Announce),
        1 => (0..4usize, 0..4u32).prop_map(|(i, free)| Step::Report(i, free)),
        1 => (0..4usize).prop_map(Step::Set),
    ]
}

/// Settings that an operator changes between. Those of the first are in force at the end.
fn settings(which: usize) -> PoolSpec {
    match which {
        0 => spec(),
        1 => PoolSpec { max: Some(3), buffer: Some(1), min: Some(1), ..spec() },
        2 => PoolSpec { slots: Some(1), uses_max: Some(2), ..spec() },
        _ => PoolSpec { max: Some(1), age_ms_max: Some(20_000), ..spec() },
    }
}

fn nth_worker(world: &World, i: usize) -> Option<WorkerNo> {
    let count = world.runtime.containers.len().max(1);
    world.runtime.containers.keys().nth(i % count).copied()
}

fn act(world: &mut World, step: Step) {
    match step {
        Step::Put(i) => drop(world.put(CLIENTS[i])),
        Step::Look(i) => drop(world.look(CLIENTS[i])),
        Step::Cancel(i) => drop(world.apply(cancel(CLIENTS[i]))),
        Step::Run(i, heard) => {
            if !world.effects.is_empty() {
                let effect = world.effects.remove(i % world.effects.len());
                let outcome = world.run(&effect);
                world.outcomes.extend(outcome.filter(|_| heard));
            }
        }
        Step::RunTwice(i) => {
            let call = |effect: &&Effect| matches!(effect, Effect::Reserve(_) | Effect::Check(_) | Effect::Release(_));
            if let Some(effect) = world.effects.get(i).filter(|effect| !call(effect)).cloned() {
                let outcome = world.run(&effect);
                world.outcomes.extend(outcome);
            }
        }
        Step::Lose(i) => {
            if !world.effects.is_empty() {
                world.effects.remove(i % world.effects.len());
            }
        }
        Step::Hear(i, twice) => {
            if !world.outcomes.is_empty() {
                let outcome = world.outcomes.remove(i % world.outcomes.len());
                world.apply(outcome.clone());
                if twice {
                    world.apply(outcome);
                }
            }
        }
        Step::LoseOutcome(i) => {
            if !world.outcomes.is_empty() {
                world.outcomes.remove(i % world.outcomes.len());
            }
        }
        Step::Deliver => world.deliver(),
        Step::Pass(ms) => {
            world.now = world.now.after(Millis(ms));
            world.apply(Input::Tick);
        }
        Step::Crash(with_effects) => {
            if with_effects {
                world.effects.clear();
            }
            world.reload();
        }
        Step::Fail(i) => world.apply_in_vain(Input::Put(asker(CLIENTS[i]))),
        step => act_outside(world, step),
    }
}

/// What happens to workers, sites and settings.
fn act_outside(world: &mut World, step: Step) {
    match step {
        Step::Exit(i, clean, reported) => {
            let Some(no) = nth_worker(world, i) else { return };
            let container = world.runtime.containers.get_mut(&no).unwrap();
            if container.running {
                container.running = false;
                container.held.clear();
                container.exit = if clean { Exit::Clean } else { Exit::Error("code 1".into()) };
                let news = container.ended(no);
                world.outcomes.extend(reported.then_some(news));
            }
        }
        Step::Mood(i, mood) => {
            if let Some(no) = nth_worker(world, i) {
                world.runtime.containers.get_mut(&no).unwrap().mood = mood;
            }
        }
        Step::NewMood(mood) => world.runtime.mood = mood,
        Step::Broken(broken) => world.runtime.broken = broken.then(|| "no such image".into()),
        Step::Sites(first, second) => {
            let second = second && world.runtime.shared;
            let sites = [(first, "site-1"), (second, "site-2")];
            world.alive = sites.into_iter().filter(|(alive, _)| *alive).map(|(_, site)| site.into()).collect();
        }
        Step::Announce => world.announce(),
        Step::Report(i, free) => {
            if let Some(no) = nth_worker(world, i) {
                let report = world.runtime.containers[&no].report(no, free);
                world.apply(report);
            }
        }
        Step::Set(which) => drop(world.apply(Input::Set(Box::new(settings(which).check().unwrap())))),
        other => panic!("{other:?} is handled above"),
    }
}

/// The world is kind again.
fn calm(world: &mut World) {
    world.runtime.broken = None;
    world.runtime.mood = Mood::Good;
    world.runtime.containers.values_mut().for_each(|container| container.mood = Mood::Good);
    world.alive = ["site-1".into()].into();
    if world.runtime.shared {
        world.alive.insert("site-2".into());
    }
    // Workers of an earlier recipe keep their clients and count: with room for one more each, every client has a
    // slot.
    world.apply(Input::Set(Box::new(PoolSpec { max: Some(8), ..settings(1) }.check().unwrap())));
    world.announce();
}

fn everybody_is_served(world: &mut World) -> Result<(), TestCaseError> {
    // Together longer than every back-off, request and reservation.
    for _ in 0..35 {
        world.pass(20_000, &CLIENTS);
        if CLIENTS.iter().all(|client| world.stage(client) == Some(MatchStage::Matched)) {
            break;
        }
    }
    // What earlier reservations left behind has ended.
    world.pass(60_000, &CLIENTS);
    for client in CLIENTS {
        let view = world.state.view(&client.into());
        let stage = view.as_ref().map(|view| view.stage);
        prop_assert_eq!(stage, Some(MatchStage::Matched), "{} has {:?}: {:?}", client, view, world.store);
        let matched = view.and_then(|view| view.matched).unwrap();
        let held =
            world.runtime.containers.values().filter(|c| c.holds(&client.into(), matched.token.unwrap(), world.now));
        prop_assert_eq!(held.count(), 1, "{} is not held by its worker", client);
    }
    let held: usize = world.runtime.containers.values().filter(|c| c.running).map(|c| c.held.len()).sum();
    prop_assert_eq!(held, CLIENTS.len(), "slots booked are clients matched");
    Ok(())
}

fn nothing_is_left(world: &mut World) -> Result<(), TestCaseError> {
    for client in CLIENTS {
        world.apply(cancel(client));
    }
    world.apply(Input::Set(Box::new(spec().check().unwrap())));
    world.pass(200_000, &[]);
    prop_assert!(world.runtime.containers.is_empty(), "left over: {:?}", world.runtime.containers);
    prop_assert!(world.store.workers.is_empty(), "left over: {:?}", world.store.workers);
    prop_assert!(world.store.matches.is_empty(), "left over: {:?}", world.store.matches);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn everybody_ends_with_a_worker_whatever_happens_before(
        steps in prop::collection::vec(step(), 1..120), makers in 1..4u64, values in 1..4usize, shared: bool
    ) {
        let mut world = World::new(PoolSpec { makers_max: Some(makers), ..settings(0) }.check().unwrap());
        (world.values, world.runtime.shared) = (values, shared);
        for step in steps {
            // The number of Makers may only be checked while it does not change.
            if !matches!(step, Step::Set(_)) || makers == 1 {
                act(&mut world, step);
            }
        }
        world.values = 9;
        calm(&mut world);
        everybody_is_served(&mut world)?;
        nothing_is_left(&mut world)?;
    }

    #[test]
    fn a_deleted_pool_leaves_nothing_behind(steps in prop::collection::vec(step(), 1..60), shared: bool) {
        let mut world = World::new(settings(0).check().unwrap());
        world.runtime.shared = shared;
        for step in steps {
            act(&mut world, step);
        }
        calm(&mut world);
        world.apply(Input::Delete);
        // Clients that are matched may keep their worker until their match ends, and are not given another.
        world.pass(200_000, &CLIENTS);
        prop_assert!(world.state.is_gone(), "{:?}", world.store);
        prop_assert!(world.store == super::world::Store::default());
        prop_assert!(world.runtime.containers.is_empty());
    }
}
