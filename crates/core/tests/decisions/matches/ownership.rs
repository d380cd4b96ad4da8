//! Whose workers these are: of which generation, run and installation, and what sites still owe a pool that is deleted.

use super::*;

/// A deleted pool whose only site is away and still runs a worker.
fn deleted_while_away() -> World {
    let mut world = with(spec(), &["a"]);
    world.cancel("a");
    world.deliver();
    world.alive.clear();
    world.apply(Input::Delete);
    world.pass(200_000, &[]);
    assert_eq!((world.store.workers.len(), world.runtime.containers.len()), (0, 1));
    world
}

#[test]
fn a_deleted_pool_stays_until_a_site_that_was_away_has_nothing_left_of_it() {
    let mut world = deleted_while_away();
    assert!(!world.state.is_gone(), "its site still runs a worker");
    world.reload();
    world.alive = ["site-1".into()].into();
    world.pass(20_000, &[]);
    assert!(world.runtime.containers.is_empty());
    assert!(world.state.is_gone(), "{:#?}", world.store);
    assert_eq!(world.store, super::world::Store::default());
}

#[test]
fn a_deleted_pool_stops_waiting_for_a_lost_site() {
    let mut world = deleted_while_away();
    later(&mut world, 8 * 24 * 3_600_000);
    assert!(world.state.is_gone(), "{:#?}", world.store);
}

#[test]
fn a_name_can_be_used_again_while_a_site_owes_the_pool_that_was_deleted() {
    let mut world = deleted_while_away();
    let before = world.state.worker_name(WorkerNo(1));
    assert!(matches!(set(&mut world, spec()), Answer::Pool(_)));
    assert_ne!(world.state.worker_name(WorkerNo(1)), before);
    world.alive = ["site-1".into()].into();
    world.pass(20_000, &["b"]);
    assert_eq!(world.stage("b"), Some(MatchStage::Matched));
    assert_eq!(world.runtime.containers.keys().map(|no| no.0).collect::<Vec<_>>(), [2], "the old one is removed");
    assert!(world.store.pool.as_ref().unwrap().owed.is_empty());
}

#[test]
fn names_of_workers_differ_between_pools_of_the_same_name() {
    let state =
        |generation| State::create(ShardId(0), "p".into(), "o".into(), spec().check().unwrap(), generation, Time(1));
    assert_ne!(state(1).worker_name(WorkerNo(1)), state(2).worker_name(WorkerNo(1)));
    assert_eq!(state(26).worker_no("q-000000000000001a-7"), None);
    assert_eq!(state(26).worker_no("p-000000000000001a-7"), Some(WorkerNo(7)));
    for name in ["000000000000001b-7", "1a-7", "000000000000001a-07", "000000000000001a-", "7", ""] {
        assert_eq!(state(26).worker_no(&format!("p-{name}")), None, "{name}");
    }
}

#[test]
fn an_unknown_worker_is_removed_after_a_write_and_checked_by_a_new_list() {
    let mut world = with(spec(), &["a"]);
    let mut stranger = world.runtime.containers[&WorkerNo(1)].clone();
    stranger.held.clear();
    world.runtime.containers.insert(WorkerNo(40), stranger);
    let found = world.runtime.list(&"site-1".into());
    later(&mut world, 1);
    let (site, since) = ("site-1".into(), world.now);
    world.apply(Input::Listed { site, since, found });
    let last = world.last.clone().unwrap();
    assert!(matches!(&last.effects[..], [Effect::RemoveUnknown { labels, .. }] if labels.worker == WorkerNo(40)));
    assert!(!last.writes.is_empty(), "an owner that was replaced would remove what it does not know of yet");
    let pool = world.store.pool.clone().unwrap();
    assert!(pool.next_worker > 40, "the order may be late: its number is not given to another worker");
    assert!(pool.owed.contains_key("site-1"));
    world.effects.clear();
    world.pass(10_000, &["a"]);
    assert!(!world.runtime.containers.contains_key(&WorkerNo(40)), "the order was lost, and sent again");
    assert!(world.store.pool.as_ref().unwrap().owed.is_empty());
}

#[test]
fn slots_that_others_use_are_known_after_a_crash_as_well() {
    let mut world = with(spec(), &["a"]);
    world.cancel("a");
    world.deliver();
    report(&mut world, 1, 0);
    world.reload();
    world.pass(15_000, &[]);
    assert_eq!(phases(&world), [Phase::Running], "others use it: {:#?}", world.store);
    world.pass(60_000, &[]);
    assert!(world.store.workers.is_empty(), "a report is believed for a minute");
}

#[test]
fn repeated_reports_of_the_same_are_not_written() {
    let mut world = with(spec(), &["a"]);
    report(&mut world, 1, 0);
    assert!(!world.last.as_ref().unwrap().writes.is_empty());
    later(&mut world, 5_000);
    report(&mut world, 1, 0);
    assert!(world.last.as_ref().unwrap().writes.is_empty());
}

#[test]
fn a_report_counts_only_with_the_secret_and_the_run_of_the_worker() {
    let mut world = with(spec(), &["a"]);
    let Input::Report { worker, run, secret, address, from, free } =
        world.runtime.containers[&WorkerNo(1)].report(WorkerNo(1), 0)
    else {
        panic!()
    };
    let wrong = Answer::Refused(Refusal::WrongSecret { worker: "games-000000000000004d-1".into() });
    let guess = Secret(Token([7; 16]));
    for (run, secret) in [(run, guess), (run + 1, secret)] {
        let before = world.store.clone();
        let address = "10.6.6.6:1".into();
        assert_eq!(world.apply(Input::Report { worker, run, secret, address, from, free: 0 }), wrong);
        assert_eq!(world.store, before);
    }
    assert_eq!(world.apply(Input::Report { worker, run, secret, address, from, free }), Answer::Taken);
    assert!(!format!("{:?}", world.state.workers()).contains("Secret"));
}

#[test]
fn an_address_that_a_report_names_is_kept_with_where_the_report_came_from() {
    let mut world = with(spec(), &["a"]);
    let named = |world: &World| {
        let row = &world.store.workers[&WorkerNo(1)];
        (row.instance.as_ref().unwrap().address.to_string(), row.reported_from)
    };
    let (runtime, none) = named(&world);
    assert_eq!(none, None, "its runtime named it");
    report(&mut world, 1, 0);
    assert_eq!(named(&world), (runtime, None), "the report says the same");
    for (text, from) in [("10.6.6.6:1", [10, 6, 6, 6]), ("10.6.6.6:1", [10, 6, 6, 7])] {
        let Input::Report { worker, run, secret, free, .. } =
            world.runtime.containers[&WorkerNo(1)].report(WorkerNo(1), 0)
        else {
            panic!()
        };
        world.apply(Input::Report { worker, run, secret, address: text.into(), from: from.into(), free });
        assert_eq!(named(&world), (text.to_owned(), Some(from.into())));
    }
}

#[test]
fn a_process_that_was_replaced_by_a_restart_cannot_report() {
    let process = PoolSpec {
        runtime: Some(RuntimeKind::Process),
        command: vec!["game".into()],
        image: None,
        port: None,
        idle_ms: Some(600_000),
        ..spec()
    };
    let mut world = World::new(process.check().unwrap());
    world.deliver();
    world.put("a");
    world.deliver();
    let stale = world.runtime.containers[&WorkerNo(1)].report(WorkerNo(1), 0);
    exit(&mut world, 1, Exit::Clean);
    world.put("a");
    let restart = world.effects.iter().find_map(|effect| match effect {
        Effect::Restart(make) => Some(make.clone()),
        _ => None,
    });
    let restart = restart.unwrap();
    assert_eq!((restart.recipe.runtime, restart.run), (RuntimeKind::Process, 2));
    world.deliver();
    assert_eq!(world.stage("a"), Some(MatchStage::Matched));
    assert!(matches!(world.apply(stale), Answer::Refused(Refusal::WrongSecret { .. })));
}

#[test]
fn a_container_created_but_not_started_is_neither_running_nor_gone() {
    let mut world = World::new(spec().check().unwrap());
    world.deliver();
    world.put("a");
    later(&mut world, 1);
    let list = |instance, exit| vec![WorkerFound { worker: WorkerNo(1), generation: 77, instance, exit }];
    let listed = |world: &World, found| Input::Listed { site: "site-1".into(), since: world.now, found };
    let created = listed(&world, list(None, None));
    world.apply(created);
    assert_eq!(phases(&world), [Phase::Creating]);
    world.deliver();
    assert_eq!(world.stage("a"), Some(MatchStage::Matched));
    // A restart that has not happened yet shows the end of the run before.
    exit(&mut world, 1, Exit::Clean);
    world.put("a");
    assert_eq!(phases(&world), [Phase::Restarting]);
    later(&mut world, 1);
    let found = world.runtime.list(&"site-1".into());
    let before = listed(&world, found);
    world.apply(before);
    assert_eq!(phases(&world), [Phase::Restarting]);
}
