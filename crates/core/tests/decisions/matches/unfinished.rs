//! Workers that are ended while they are being made: a slow runtime may finish them after they were forgotten
//! everywhere. A pool that is deleted stays until nothing of the kind can be left.
//!
//! Interleavings: (create)(delete)(list without it)(created); (create)(delete)(site silent, forgotten)(site back, list
//! without it)(created); (create)(failed at its deadline)(removed: there was nothing)(created); (restart)(delete)(list
//! without it).

use super::*;

fn slow() -> PoolSpec {
    PoolSpec { start_ms_max: Some(300_000), idle_ms: Some(600_000), ..spec() }
}

/// A world in which a worker is being made, and the order for it, which its Maker has begun.
fn making() -> (World, Make) {
    let mut world = world(slow());
    world.put("a");
    let Effect::Create(make) = world.effects.remove(0) else { panic!() };
    (world, make)
}

/// Passes time while the order is under way: later orders about the same worker wait for their turn until they are over.
fn pass_meanwhile(world: &mut World, ms: u64) {
    let end = world.now.after(Millis(ms));
    while world.now < end {
        later(world, 1_000);
        world.announce();
        let of_worker = |effect: &Effect| matches!(effect, Effect::Create(_) | Effect::Remove(_));
        world.effects.retain(|effect| !of_worker(effect));
        world.deliver();
    }
}

/// The pool goes within a while, and what is there when it goes is never removed.
fn is_gone_without_a_trace(world: &mut World) {
    for _ in 0..90 {
        if !world.state.is_gone() {
            world.pass(1_000, &[]);
        }
    }
    assert!(world.runtime.containers.is_empty(), "it is never removed: {:?}", world.runtime.containers);
    assert!(world.state.is_gone(), "{:#?}", world.store);
}

#[test]
fn a_deleted_pool_stays_while_one_of_its_workers_is_still_being_made() {
    let (mut world, make) = making();
    world.apply(Input::Delete);
    assert_eq!(phases(&world), [Phase::Removing]);
    pass_meanwhile(&mut world, 130_000);
    assert_eq!(phases(&world), [Phase::Removing], "a list without it does not say that it will not come");
    world.run(&Effect::Create(make));
    assert_eq!(world.runtime.containers.len(), 1);
    is_gone_without_a_trace(&mut world);
}

#[test]
fn a_deleted_pool_stays_until_a_silent_sites_creation_has_ended() {
    for crash in [false, true] {
        let (mut world, make) = making();
        let until = make.until;
        world.apply(Input::Delete);
        world.alive.clear();
        world.pass(60_000, &[]);
        assert!(world.store.workers.is_empty() && !world.state.is_gone());
        if crash {
            world.reload();
        }
        world.alive = ["site-1".into()].into();
        world.announce();
        let left = until.since(world.now).0;
        world.pass(left - 1_000, &[]);
        assert!(!world.state.is_gone(), "a list without it does not say that it will not come");
        world.run(&Effect::Create(make));
        is_gone_without_a_trace(&mut world);
    }
}

#[test]
fn a_site_is_listed_again_when_a_removal_may_have_come_too_early() {
    let (mut world, make) = making();
    let failed = Input::Made { step: make.step, result: Err("it was not created in time".into()) };
    world.apply(failed);
    world.apply(Input::Delete);
    while let Some(at) = world.effects.iter().position(|effect| matches!(effect, Effect::Remove(_))) {
        let effect = world.effects.remove(at);
        let removed = world.run(&effect).unwrap();
        world.apply(removed);
    }
    assert!(world.store.workers.is_empty() && !world.state.is_gone(), "{:#?}", world.store);
    world.run(&Effect::Create(make));
    is_gone_without_a_trace(&mut world);
}

#[test]
fn a_worker_due_for_restart_is_kept_though_a_list_lacks_it() {
    let mut world = with(slow(), &["a"]);
    exit(&mut world, 1, Exit::Clean);
    world.put("a");
    assert_eq!(phases(&world), [Phase::Restarting]);
    world.runtime.containers.clear();
    world.apply(Input::Delete);
    later(&mut world, 1);
    world.apply(Input::Listed { site: "site-1".into(), since: world.now, found: Vec::new() });
    assert_eq!(phases(&world), [Phase::Removing]);
    is_gone_without_a_trace(&mut world);
}

#[test]
fn what_was_made_and_is_missing_later_is_forgotten_at_once() {
    let mut world = with(slow(), &["a"]);
    world.apply(Input::Delete);
    world.cancel("a");
    let release = world.effects.remove(0);
    let released = world.run(&release).unwrap();
    world.apply(released);
    assert_eq!((world.stage("a"), world.store.workers[&WorkerNo(1)].phase), (None, Phase::Stopping));
    world.runtime.containers.clear();
    later(&mut world, 1);
    world.apply(Input::Listed { site: "site-1".into(), since: world.now, found: Vec::new() });
    assert!(world.state.is_gone(), "{:#?}", world.store);
}
