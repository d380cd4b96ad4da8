//! Failures: which are counted, against what, and for how long workers, sites and pools are left alone after them.

use super::setup::trouble;
use super::*;

fn one() -> PoolSpec {
    PoolSpec { slots: Some(5), max: Some(1), ..spec() }
}

#[test]
fn calls_that_time_out_together_because_a_worker_paused_once_are_one_miss() {
    let mut world = with(one(), &["x"]);
    for client in ["a", "b", "c", "d"] {
        world.put(client);
        later(&mut world, 100);
    }
    let asks = take_asks(&mut world);
    assert_eq!(asks.len(), 4);
    later(&mut world, 4_000);
    for ask in asks {
        world.apply(ask.reserved(Verdict::Unknown("timeout".into())));
        later(&mut world, 100);
    }
    assert_eq!((phases(&world), trouble(&world)), (vec![Phase::Running], None));
    world.pass(3_000, &["a", "b", "c", "d"]);
    assert_eq!(world.stage("d"), Some(MatchStage::Matched), "{:#?}", world.store);
}

#[test]
fn a_worker_that_refuses_and_reports_is_given_up() {
    let mut world = with(PoolSpec { idle_ms: Some(600_000), ..one() }, &["x"]);
    world.runtime.containers.get_mut(&WorkerNo(1)).unwrap().mood = Mood::Refusing;
    for _ in 0..15 {
        world.pass(1_000, &["a"]);
        report(&mut world, 1, 4);
    }
    assert_eq!(phases(&world), [Phase::Draining]);
}

#[test]
fn a_worker_that_refuses_and_releases_is_given_up() {
    let mut world = with(PoolSpec { idle_ms: Some(600_000), ..one() }, &["w", "x", "y", "z"]);
    world.runtime.containers.get_mut(&WorkerNo(1)).unwrap().mood = Mood::Refusing;
    for client in ["w", "x", "y"] {
        world.put("a");
        world.deliver();
        world.cancel(client);
        world.deliver();
        later(&mut world, 1_300);
    }
    assert_eq!(phases(&world), [Phase::Draining]);
}

#[test]
fn the_death_of_a_worker_that_served_is_no_failure_to_make_one() {
    let mut world = world(spec());
    for no in 1..5 {
        world.put("a");
        world.deliver();
        assert_eq!(world.stage("a"), Some(MatchStage::Matched), "{:#?}", world.store);
        exit(&mut world, no, Exit::Error("out of memory".into()));
        world.deliver();
        assert_eq!(trouble(&world), None);
    }
}

#[test]
fn a_worker_that_dies_before_it_served_anybody_is_a_failure_to_make_one() {
    let mut world = with(PoolSpec { min: Some(1), ..spec() }, &[]);
    exit(&mut world, 1, Exit::Error("code 1".into()));
    assert_eq!(trouble(&world).unwrap().failures, 1);
}

#[test]
fn workers_that_fail_at_the_same_time_are_one_failure() {
    let mut world = world(PoolSpec { slots: Some(1), max: Some(5), ..spec() });
    world.runtime.broken = Some("no such image".into());
    for client in ["a", "b", "c", "d", "e"] {
        world.put(client);
    }
    assert_eq!(phases(&world).len(), 5);
    world.deliver();
    assert_eq!(trouble(&world).unwrap().failures, 1);
    assert_eq!(world.stage("a"), Some(MatchStage::Queued), "the breaker is closed");
}

#[test]
fn a_worker_of_an_old_recipe_says_nothing_about_the_new_one() {
    let mut world = with(PoolSpec { min: Some(1), ..spec() }, &[]);
    // Others use it, so it is drained and not stopped.
    report(&mut world, 1, 1);
    set(&mut world, PoolSpec { image: Some("game:2".into()), ..spec() });
    assert_eq!(phases(&world), [Phase::Draining]);
    exit(&mut world, 1, Exit::Error("code 1".into()));
    assert_eq!(trouble(&world), None);
}

#[test]
fn a_worker_that_exits_right_after_its_start_is_restarted_with_back_off() {
    let mut world = with(PoolSpec { min: Some(1), max: Some(1), idle_ms: Some(600_000), ..spec() }, &[]);
    let mut starts = 0;
    for _ in 0..120 {
        let running = |(no, container): (&WorkerNo, &super::runtime::Container)| container.running.then_some(no.0);
        if let Some(no) = world.runtime.containers.iter().find_map(running) {
            starts += 1;
            exit(&mut world, no, Exit::Clean);
        }
        world.pass(500, &[]);
    }
    assert!((3..=8).contains(&starts), "{starts} starts in a minute");
}

#[test]
fn a_site_that_fails_is_left_alone_while_another_one_works() {
    let mut world = world(PoolSpec { slots: Some(1), max: Some(4), ..spec() });
    world.alive = ["site-1".into(), "site-2".into()].into();
    world.announce();
    world.deliver();
    world.runtime.broken_sites = ["site-1".into()].into();
    let clients = ["a", "b", "c", "d"];
    for client in clients {
        world.put(client);
    }
    world.pass(5_000, &clients);
    for client in clients {
        assert_eq!(world.stage(client), Some(MatchStage::Matched), "{client}: {:#?}", world.store);
    }
    assert!(world.runtime.refused <= 6, "{} creations at a site that cannot", world.runtime.refused);
    assert_eq!(trouble(&world), None, "the recipe works");
    // It is tried again when its back-off is over, and is forgiven once it works.
    world.runtime.broken_sites.clear();
    for client in clients {
        world.cancel(client);
    }
    world.pass(60_000, &[]);
    assert!(world.runtime.containers.is_empty());
    world.pass(5_000, &clients);
    let on = world.runtime.containers.values().filter(|container| container.site.to_string() == "site-1").count();
    assert_eq!((on, world.store.pool.as_ref().unwrap().site_trouble.len()), (2, 0), "{:#?}", world.store.pool);
}

#[test]
fn a_worker_that_exited_on_a_silent_site_does_not_count_against_max() {
    let mut world = with(PoolSpec { max: Some(1), idle_ms: Some(600_000), ..spec() }, &["a"]);
    exit(&mut world, 1, Exit::Clean);
    world.alive = ["site-2".into()].into();
    world.announce();
    world.pass(20_000, &[]);
    world.pass(3_000, &["a"]);
    assert_eq!(world.stage("a"), Some(MatchStage::Matched), "{:#?}", world.store);
    // When the site is back, its worker is surplus.
    world.alive = ["site-1".into(), "site-2".into()].into();
    world.pass(70_000, &["a"]);
    assert_eq!(world.runtime.containers.len(), 1);
}

#[test]
fn a_pool_whose_workers_are_ending_does_not_call_their_slots_taken() {
    let mut world = with(PoolSpec { max: Some(1), ..spec() }, &["a"]);
    set(&mut world, PoolSpec { max: Some(1), image: Some("game:2".into()), ..spec() });
    assert_eq!(phases(&world), [Phase::Draining]);
    world.put("b");
    let why = world.state.view(&"b".into()).unwrap().why;
    assert_eq!(why, MatchWhy::Ending { workers: 1, max: 1, ahead: 0, setback: Setback(None), held: None });
    assert!(why.to_string().starts_with("1 worker is ending"), "{why}");
}

#[test]
fn a_worker_that_exits_is_noticed_at_once_if_nothing_may_be_idle() {
    let mut world = with(PoolSpec { idle_ms: Some(0), ..spec() }, &["a"]);
    exit(&mut world, 1, Exit::Clean);
    let wake = world.last.as_ref().unwrap().wake_at.unwrap();
    assert!(wake.since(world.now).0 <= 1, "it wakes in {:?}", wake.since(world.now));
    world.pass(10, &[]);
    assert!(world.runtime.containers.is_empty() && world.store.workers.is_empty());
}
