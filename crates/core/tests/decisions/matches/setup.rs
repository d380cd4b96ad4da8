//! Worlds to start from, and what the tests look at.

use wayleave_core::matches::Trouble;

use super::*;

pub fn world(spec: PoolSpec) -> World {
    let mut world = World::new(spec.check().unwrap());
    world.deliver();
    world
}

/// A world in which these clients are matched.
pub fn with(spec: PoolSpec, clients: &[&str]) -> World {
    let mut world = world(spec);
    for client in clients {
        world.put(client);
    }
    world.deliver();
    for client in clients {
        assert_eq!(world.stage(client), Some(MatchStage::Matched), "{client}: {:#?}", world.store);
    }
    world
}

pub fn phases(world: &World) -> Vec<Phase> {
    world.store.workers.values().map(|row| row.phase).collect()
}

pub fn verified(answer: &Answer) -> Option<bool> {
    match answer {
        Answer::Match(view) => view.matched.is_some().then_some(view.verified),
        _ => None,
    }
}

pub fn tick_at(world: &mut World, at: Time) {
    world.now = at;
    world.apply(Input::Tick);
}

pub fn exit(world: &mut World, no: u64, exit: Exit) {
    let container = world.runtime.containers.get_mut(&WorkerNo(no)).unwrap();
    (container.running, container.exit) = (false, exit);
    container.held.clear();
    let ended = container.ended(WorkerNo(no));
    world.apply(ended);
}

pub fn report(world: &mut World, no: u64, free: u32) -> Answer {
    let report = world.runtime.containers[&WorkerNo(no)].report(WorkerNo(no), free);
    world.apply(report)
}

/// Takes the reservations that are on their way.
pub fn take_asks(world: &mut World) -> Vec<WorkerAsk> {
    let effects = std::mem::take(&mut world.effects);
    let (asks, rest) = effects.into_iter().partition(|effect| matches!(effect, Effect::Reserve(_)));
    world.effects = rest;
    let ask = |effect: Effect| match effect {
        Effect::Reserve(ask) => Some(ask),
        _ => None,
    };
    Vec::into_iter(asks).filter_map(ask).collect()
}

pub fn later(world: &mut World, ms: u64) {
    let at = world.now.after(Millis(ms));
    tick_at(world, at);
}

pub fn set(world: &mut World, spec: PoolSpec) -> Answer {
    world.apply(Input::Set(Box::new(spec.check().unwrap())))
}

pub fn trouble(world: &World) -> Option<&Trouble> {
    world.store.pool.as_ref().unwrap().trouble.as_ref()
}
