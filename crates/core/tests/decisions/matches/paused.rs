//! A paused pool starts nothing, and touches nothing that may belong to the store that it was copied from.

use super::*;

fn paused(spec: PoolSpec) -> World {
    let mut world = world(PoolSpec { min: Some(0), ..spec });
    assert!(matches!(world.apply(Input::Pause(true)), Answer::Pool(view) if view.paused));
    world.effects.clear();
    world
}

#[test]
fn a_paused_pool_says_so_and_starts_its_worker_once_resumed() {
    let mut world = paused(spec());
    world.put("a");
    world.now = world.now.after(Millis(10_000));
    world.announce();
    assert!(phases(&world).is_empty() && world.effects.is_empty(), "{:?}", world.effects);
    assert_eq!(world.stage("a"), Some(MatchStage::Queued));
    assert!(matches!(world.state.pool_why(), PoolWhy::Paused { waiting: 1, .. }));
    let why = world.state.view(&"a".into()).unwrap().why.to_string();
    assert!(why.contains("is paused and starts nothing"), "{why}");
    world.reload();
    world.apply(Input::Tick);
    assert!(phases(&world).is_empty(), "it is paused after a restart too");
    world.apply(Input::Pause(false));
    world.announce();
    assert_eq!(phases(&world), [Phase::Creating]);
}

#[test]
fn settings_leave_a_pool_paused() {
    let mut world = paused(spec());
    let settings = PoolSpec { min: Some(2), max: Some(3), ..spec() }.check().unwrap();
    assert!(matches!(world.apply(Input::Set(Box::new(settings))), Answer::Pool(view) if view.paused));
    world.announce();
    assert!(phases(&world).is_empty());
}

/// The store may be a copy: the workers that it knows, and those that it does not, are the original's.
#[test]
fn a_paused_pool_stops_no_worker_and_removes_no_unknown_one() {
    let mut world = with(spec(), &["a"]);
    world.apply(Input::Pause(true));
    world.effects.clear();
    let found = WorkerFound { worker: WorkerNo(99), generation: 77, instance: None, exit: None };
    world.apply(Input::Listed { site: "site-1".into(), since: Time::ZERO, found: vec![found] });
    world.cancel("a");
    world.now = world.now.after(Millis(10 * 60_000));
    world.announce();
    let ends = |effect: &Effect| matches!(effect, Effect::Stop(_) | Effect::Remove(_) | Effect::RemoveUnknown { .. });
    assert!(!world.effects.iter().any(ends), "{:?}", world.effects);
}

/// A regression: a pool that was being deleted when its store was copied continued its deletion in the copy, and
/// stopped and removed what the original has.
#[test]
fn a_deletion_waits_while_its_pool_is_paused() {
    let ends = |effect: &Effect| matches!(effect, Effect::Stop(_) | Effect::Remove(_) | Effect::RemoveUnknown { .. });
    for input in [Input::Pause(false), Input::Delete] {
        let mut world = with(spec(), &["a"]);
        world.apply(Input::Delete);
        world.apply(Input::Pause(true));
        world.effects.clear();
        let found = WorkerFound { worker: WorkerNo(99), generation: 77, instance: None, exit: None };
        world.apply(Input::Listed { site: "site-1".into(), since: Time::ZERO, found: vec![found] });
        world.cancel("a");
        world.reload();
        world.now = world.now.after(Millis(10 * 60_000));
        world.announce();
        assert!(!world.effects.iter().any(ends) && !world.state.is_gone(), "{:?}", world.effects);
        assert!(matches!(world.state.pool_why(), PoolWhy::Paused { .. }));
        world.apply(input);
        world.announce();
        assert!(world.effects.iter().any(ends), "{:?}", world.effects);
    }
}

#[test]
fn a_paused_pool_can_be_deleted() {
    let mut world = paused(spec());
    world.apply(Input::Delete);
    assert!(world.state.is_gone());
}
