//! Single interleavings and rules, each with its reason in its name.

use wayleave_core::limits::{BREAKER_FAILURES, ORDER_RESENT};
use wayleave_core::matches::StepId;

use super::runtime::address;
use super::*;

#[test]
fn demand_is_counted_in_slots_so_ten_clients_start_one_worker_of_ten() {
    let mut world = world(PoolSpec { slots: Some(10), max: Some(5), ..spec() });
    let names: Vec<String> = (0..11).map(|i| format!("c{i}")).collect();
    for name in &names[..10] {
        world.put(name);
    }
    assert_eq!(phases(&world), [Phase::Creating]);
    world.put(&names[10]);
    assert_eq!(phases(&world), [Phase::Creating, Phase::Creating]);
}

#[test]
fn a_worker_that_accepts_extends_the_match_and_a_silent_one_does_not() {
    let mut world = with(spec(), &["a"]);
    let expires = |world: &World| world.state.view(&"a".into()).unwrap().matched.unwrap().expires_at;
    let first = expires(&world);
    world.now = world.now.after(Millis(15_000));
    world.put("a");
    assert_eq!(expires(&world), world.now.after(Millis(20_000)));
    let second = expires(&world);
    assert!(second > first);
    world.runtime.containers.get_mut(&WorkerNo(1)).unwrap().mood = Mood::Mute;
    world.now = world.now.after(Millis(15_000));
    assert_eq!(verified(&world.put("a")), Some(false));
    assert_eq!(expires(&world), second, "a lost machine does not hold its client for good");
    tick_at(&mut world, second);
    assert_eq!(world.stage("a"), None);
    assert_eq!(world.store.matches["a"].leftovers.len(), 1, "the worker may still hold it");
}

#[test]
fn a_call_that_is_verified_a_moment_ago_asks_no_worker() {
    let mut world = with(spec(), &["a"]);
    assert!(matches!(world.apply(Input::Put(asker("a"))), Answer::Match(_)));
    world.now = world.now.after(Millis(1_000));
    assert!(matches!(world.apply(Input::Put(asker("a"))), Answer::Verify(_)));
}

#[test]
fn a_released_slot_stays_booked_until_no_earlier_call_can_arrive() {
    let mut world = with(PoolSpec { slots: Some(1), max: Some(1), ..spec() }, &["b"]);
    world.apply(cancel("b"));
    world.deliver();
    world.put("a");
    let [Effect::Reserve(ask)] = &world.effects[..] else { panic!("{:?}", world.effects) };
    let ask = ask.clone();
    world.effects.clear();
    // (the call is on its way) (a cancels) (the release arrives first: the worker has nothing) (the call arrives)
    world.apply(cancel("a"));
    let release = world.effects.remove(0);
    let outcome = world.run(&release).unwrap();
    assert!(matches!(outcome, Input::Released { verdict: Verdict::No, .. }));
    world.apply(outcome);
    assert_eq!(world.runtime.call(&Call::Reserve, &ask, world.now), Verdict::Yes);
    world.put("c");
    assert!(world.effects.is_empty(), "c was given a slot that a may hold: {:?}", world.effects);
    // After the call's deadline the slot is released once more, and then it is free.
    let end = world.now.after(ASK_TIME);
    tick_at(&mut world, end);
    world.deliver();
    world.pass(1_000, &["c"]);
    assert_eq!(world.stage("c"), Some(MatchStage::Matched));
    assert!(!world.store.matches.contains_key("a"));
}

#[test]
fn a_hung_worker_does_not_hold_its_clients_up_if_another_has_room() {
    let mut world = with(PoolSpec { slots: Some(1), min: Some(2), max: Some(3), ..spec() }, &[]);
    assert_eq!(phases(&world), [Phase::Running, Phase::Running]);
    world.runtime.containers.get_mut(&WorkerNo(1)).unwrap().mood = Mood::Mute;
    for client in ["a", "b"] {
        world.put(client);
    }
    world.pass(4_000, &["a", "b"]);
    for client in ["a", "b"] {
        assert_eq!(world.stage(client), Some(MatchStage::Matched), "{:#?}", world.store);
    }
}

#[test]
fn a_worker_that_answers_nothing_gets_no_more_clients_and_is_replaced() {
    let mut world = with(PoolSpec { slots: Some(2), max: Some(2), ..spec() }, &["x"]);
    world.runtime.containers.get_mut(&WorkerNo(1)).unwrap().mood = Mood::Mute;
    world.pass(1_000 * 5 * u64::from(WORKER_CALL_FAILURES_MAX), &["a"]);
    assert_eq!(world.stage("a"), Some(MatchStage::Matched));
    assert_eq!(world.store.workers[&WorkerNo(1)].phase, Phase::Draining, "x may still use it");
    world.pass(60_000, &["a"]);
    assert!(!world.runtime.containers.contains_key(&WorkerNo(1)));
}

#[test]
fn an_idle_worker_stops_when_its_time_is_over_and_not_before() {
    let mut world = with(spec(), &["a"]);
    world.apply(cancel("a"));
    world.deliver();
    let idle = world.now;
    assert_eq!(world.last.as_ref().unwrap().wake_at, Some(idle.after(Millis(10_000))).min(world.state.next_wake()));
    world.announce();
    tick_at(&mut world, idle.after(Millis(9_999)));
    assert_eq!(phases(&world), [Phase::Running]);
    tick_at(&mut world, idle.after(Millis(10_000)));
    assert_eq!(phases(&world), [Phase::Stopping]);
    world.deliver();
    assert!(world.runtime.containers.is_empty() && world.store.workers.is_empty());
    assert_eq!(world.state.pool_why(), PoolWhy::AtRest { setback: Setback(None) });
}

#[test]
fn min_and_buffer_stay_without_clients() {
    let mut world = with(PoolSpec { min: Some(1), max: Some(4), buffer: Some(3), ..spec() }, &["a"]);
    world.pass(60_000, &[]);
    // Three free slots need two workers of two: neither is stopped only to be made again.
    assert_eq!(phases(&world), [Phase::Running, Phase::Running]);
    assert_eq!(world.runtime.created, world.store.pool.as_ref().unwrap().next_worker as usize - 1);
    assert!(world.runtime.created <= 3, "{} were created", world.runtime.created);
    world.apply(Input::Set(Box::new(PoolSpec { min: Some(1), ..spec() }.check().unwrap())));
    world.pass(60_000, &[]);
    assert_eq!(phases(&world), [Phase::Running]);
}

#[test]
fn a_busy_worker_is_never_stopped_however_old_or_used_it_is() {
    let old = PoolSpec { age_ms_max: Some(5_000), uses_max: Some(1), ..spec() };
    let mut world = with(old, &["a"]);
    world.pass(120_000, &["a"]);
    assert_eq!(world.store.workers[&WorkerNo(1)].phase, Phase::Draining);
    assert_eq!(verified(&world.put("a")), Some(true));
    world.apply(cancel("a"));
    world.deliver();
    assert!(!world.runtime.containers.contains_key(&WorkerNo(1)));
}

#[test]
fn concurrent_clients_do_not_exceed_the_uses_of_a_worker() {
    let once = PoolSpec { uses_max: Some(1), slots: Some(2), max: Some(2), ..spec() };
    let mut world = with(once, &["a", "b"]);
    let uses: Vec<u64> = world.store.workers.values().map(|row| row.uses).collect();
    assert_eq!(uses, [1, 1]);
    world.pass(5_000, &["a", "b"]);
    assert_eq!(phases(&world), [Phase::Draining, Phase::Draining]);
}

#[test]
fn a_worker_in_use_by_others_is_neither_stopped_nor_asked() {
    let mut world = with(PoolSpec { max: Some(1), ..spec() }, &["a"]);
    world.apply(cancel("a"));
    world.deliver();
    for _ in 0..4 {
        report(&mut world, 1, 0);
        world.pass(10_000, &[]);
    }
    assert_eq!(phases(&world), [Phase::Running]);
    world.put("b");
    assert_eq!(world.stage("b"), Some(MatchStage::Queued));
    report(&mut world, 1, 1);
    world.deliver();
    assert_eq!(world.stage("b"), Some(MatchStage::Matched));
}

#[test]
fn a_worker_that_exits_cleanly_restarts_and_a_failed_one_is_replaced() {
    let mut world = with(spec(), &["a"]);
    exit(&mut world, 1, Exit::Clean);
    assert_eq!(phases(&world), [Phase::Exited], "there is no client yet");
    world.put("a");
    assert_eq!(phases(&world), [Phase::Restarting]);
    world.deliver();
    assert_eq!(world.stage("a"), Some(MatchStage::Matched));
    assert_eq!((world.store.workers[&WorkerNo(1)].run, world.runtime.created), (2, 1));
    // So are the outcomes of its earlier steps, while it is started once more.
    exit(&mut world, 1, Exit::Clean);
    world.put("a");
    assert_eq!(phases(&world), [Phase::Restarting]);
    let step = StepId { worker: WorkerNo(1), step: world.store.workers[&WorkerNo(1)].step - 1 };
    let instance = Instance { id: "c1".into(), started: 2, address: address(WorkerNo(1)) };
    assert_eq!(world.apply(Input::Made { step, result: Ok(instance) }), Answer::Stale);
    assert_eq!(phases(&world), [Phase::Restarting]);
    world.deliver();
    // The end of the earlier run is old news.
    let first = Instance { id: "c1".into(), started: 1, address: address(WorkerNo(1)) };
    let late = Input::Exited { worker: WorkerNo(1), generation: 77, instance: first, exit: Exit::Clean };
    assert_eq!(world.apply(late), Answer::Stale);
    exit(&mut world, 1, Exit::Error("out of memory".into()));
    assert_eq!(phases(&world), [Phase::Removing]);
    world.pass(3_000, &["a"]);
    assert_eq!(world.stage("a"), Some(MatchStage::Matched));
    assert_eq!(world.runtime.created, 2);
}

#[test]
fn a_worker_that_exited_and_is_not_needed_again_is_removed() {
    let mut world = with(spec(), &["a"]);
    exit(&mut world, 1, Exit::Clean);
    world.pass(11_000, &[]);
    assert!(world.store.workers.is_empty() && world.runtime.containers.is_empty());
}

#[test]
fn failures_back_off_then_open_the_breaker_and_fail_the_waiting_clients() {
    let mut world = world(spec());
    world.runtime.broken = Some("no such image: game".into());
    world.put("a");
    world.deliver();
    let Answer::Match(view) = world.put("a") else { panic!() };
    assert!(matches!(&view.why, MatchWhy::BackingOff { failures: 1, .. }), "{:?}", view.why);
    assert!(view.why.to_string().contains("no such image: game"));
    world.pass(5_000, &[]);
    let Answer::Match(view) = world.put("a") else { panic!() };
    assert_eq!(view.stage, MatchStage::Failed);
    assert!(view.why.to_string().contains("no such image: game"), "{}", view.why);
    assert!(view.retry_after.is_some());
    assert_eq!(world.store.pool.as_ref().unwrap().trouble.as_ref().unwrap().failures, BREAKER_FAILURES);
    // While it is open, others fail at once and leave no row.
    let Answer::Match(view) = world.put("b") else { panic!() };
    assert_eq!((view.stage, world.store.matches.contains_key("b")), (MatchStage::Failed, false));
    assert!(matches!(world.state.pool_why(), PoolWhy::BackingOff { .. }));
    // After the back-off one worker is tried, for however many clients.
    world.runtime.broken = None;
    let until = world.store.pool.as_ref().unwrap().trouble.as_ref().unwrap().until;
    world.announce();
    tick_at(&mut world, until);
    for client in ["a", "b", "c", "d"] {
        world.put(client);
    }
    assert_eq!(world.state.pool_view().coming, 2, "one worker of two slots");
    world.pass(2_000, &["a", "b", "c", "d"]);
    for client in ["a", "b", "c", "d"] {
        assert_eq!(world.stage(client), Some(MatchStage::Matched));
    }
    assert_eq!(world.store.pool.as_ref().unwrap().trouble, None);
}

#[test]
fn an_old_worker_does_not_prove_that_new_ones_can_be_made() {
    let mut world = with(PoolSpec { slots: Some(1), max: Some(2), ..spec() }, &["a"]);
    world.runtime.broken = Some("no such image".into());
    world.pass(30_000, &["a", "b"]);
    let failures = world.store.pool.as_ref().unwrap().trouble.as_ref().unwrap().failures;
    assert!((3..=6).contains(&failures), "{failures} failures in 30 s");
    assert_eq!(world.stage("b"), Some(MatchStage::Queued), "it may still get a's slot");
}

#[test]
fn a_new_worker_that_refuses_its_first_client_counts_against_its_image() {
    let mut world = world(spec());
    world.runtime.mood = Mood::Refusing;
    world.put("a");
    world.deliver();
    let trouble = world.store.pool.as_ref().unwrap().trouble.clone().unwrap();
    assert!(trouble.reason.contains("404 or 409 to its first reservation"), "{}", trouble.reason);
    world.pass(20_000, &[]);
    assert_eq!(world.stage("a"), Some(MatchStage::Failed));
    assert!(world.runtime.containers.is_empty(), "the unused worker is removed");
}

#[test]
fn a_hung_runtime_blocks_its_maker_only_until_the_deadline() {
    let mut world = world(PoolSpec { makers_max: Some(1), ..spec() });
    world.put("a");
    let hung = world.effects.remove(0);
    assert!(matches!(hung, Effect::Create(_)));
    let start = world.now;
    tick_at(&mut world, start.after(Millis(7_999)));
    world.effects.clear();
    assert_eq!(phases(&world), [Phase::Creating]);
    world.announce();
    tick_at(&mut world, start.after(Millis(8_000)));
    assert_eq!(phases(&world), [Phase::Removing]);
    world.pass(5_000, &["a"]);
    assert_eq!(world.stage("a"), Some(MatchStage::Matched));
    // The runtime wakes up: its worker is unknown.
    let late = world.run(&hung).unwrap();
    assert!(world.runtime.containers.contains_key(&WorkerNo(1)));
    assert_eq!(world.apply(late), Answer::Stale);
    world.pass(70_000, &["a"]);
    assert!(!world.runtime.containers.contains_key(&WorkerNo(1)), "the next list finds it");
    assert_eq!(verified(&world.put("a")), Some(true));
}

#[test]
fn an_order_that_was_lost_is_sent_again_long_before_its_deadline() {
    let mut world = world(spec());
    world.put("a");
    let lost = std::mem::take(&mut world.effects);
    let again = world.now.after(ORDER_RESENT);
    tick_at(&mut world, again);
    assert_eq!(world.effects, lost);
}

#[test]
fn after_a_kill_live_workers_are_adopted_and_unknown_ones_ended() {
    let mut world = with(spec(), &["a", "b"]);
    let before = world.store.clone();
    let stranger = world.runtime.containers[&WorkerNo(1)].clone();
    world.runtime.containers.insert(WorkerNo(40), stranger.clone());
    let other = super::runtime::Container { generation: 5, ..stranger };
    world.runtime.containers.insert(WorkerNo(41), other);
    world.effects.clear();
    world.now = world.now.after(Millis(3_000));
    world.reload();
    world.announce();
    world.deliver();
    assert_eq!(world.runtime.containers.keys().copied().collect::<Vec<_>>(), [WorkerNo(1)]);
    for client in ["a", "b"] {
        assert_eq!(verified(&world.put(client)), Some(true));
        assert_eq!(world.store.matches[client].booking(), before.matches[client].booking());
    }
}

#[test]
fn a_list_says_nothing_about_what_was_started_after_it() {
    let mut world = world(spec());
    world.put("a");
    let old = Input::Listed { site: "site-1".into(), since: world.now, found: Vec::new() };
    world.deliver();
    assert_eq!(world.stage("a"), Some(MatchStage::Matched));
    world.apply(old);
    assert_eq!(world.stage("a"), Some(MatchStage::Matched));
    let since = world.now.after(Millis(1));
    world.now = since;
    world.runtime.containers.clear();
    world.apply(Input::Listed { site: "site-1".into(), since, found: Vec::new() });
    assert_eq!(world.stage("a"), Some(MatchStage::Vacant), "its runtime says plainly that it is gone");
    assert!(world.store.matches["a"].reason.contains("no longer has it"));
}

#[test]
fn another_process_under_the_same_id_is_not_the_worker() {
    let mut world = with(spec(), &["a"]);
    world.now = world.now.after(Millis(1));
    let instance = Instance { id: "c1".into(), started: 99, address: address(WorkerNo(1)) };
    let found = vec![WorkerFound { worker: WorkerNo(1), generation: 77, instance: Some(instance), exit: None }];
    world.apply(Input::Listed { site: "site-1".into(), since: world.now, found });
    assert_eq!(phases(&world), [Phase::Removing]);
    assert_eq!(world.stage("a"), Some(MatchStage::Vacant));
}

#[test]
fn workers_of_a_lost_site_are_replaced_and_ended_when_it_returns() {
    let mut world = with(spec(), &["a"]);
    world.alive = ["site-2".into()].into();
    // The machine is unreachable, and so are its workers.
    world.runtime.containers.get_mut(&WorkerNo(1)).unwrap().mood = Mood::Mute;
    let lost = world.runtime.containers[&WorkerNo(1)].clone();
    for _ in 0..8 {
        world.pass(20_000, &["a"]);
        world.runtime.containers.insert(WorkerNo(1), lost.clone());
    }
    assert_eq!(verified(&world.put("a")), Some(true));
    let on: Vec<_> = world.store.workers.values().map(|row| row.site.to_string()).collect();
    assert_eq!(on, ["site-2"]);
    world.alive = ["site-1".into(), "site-2".into()].into();
    world.pass(10_000, &["a"]);
    assert!(!world.runtime.containers.contains_key(&WorkerNo(1)));
}

#[test]
fn without_a_site_the_reason_says_so() {
    let mut world = World::new(spec().check().unwrap());
    world.alive.clear();
    world.now = world.now.after(Millis(20_000));
    let Answer::Match(view) = world.put("a") else { panic!() };
    assert_eq!(view.why, MatchWhy::NoSite { runtime: "docker".into(), lack: None });
    assert_eq!(world.state.pool_why(), PoolWhy::NoSite { waiting: 1, runtime: "docker".into(), lack: None });
}

#[test]
fn a_request_fails_at_its_deadline_and_a_later_call_queues_it_anew() {
    let mut world = with(PoolSpec { slots: Some(1), max: Some(1), ..spec() }, &["a"]);
    world.pass(121_000, &["a"]);
    world.put("b");
    let Answer::Match(view) = world.put("b") else { panic!() };
    assert_eq!(view.why, MatchWhy::Full { workers: 1, max: 1, ahead: 0, setback: Setback(None), held: None });
    assert_eq!(view.position, Some(1));
    let queued = world.now;
    while world.now < queued.after(Millis(120_000)) {
        world.pass(1_000, &["a"]);
    }
    let Answer::Match(view) = world.put("b") else { panic!() };
    assert_eq!(view.stage, MatchStage::Failed);
    assert!(view.why.to_string().starts_with("no worker was free within 2 min 0 s: no slot is free"), "{}", view.why);
    let Answer::Match(view) = world.put("b") else { panic!() };
    assert_eq!(view.stage, MatchStage::Queued);
}

#[test]
fn changed_settings_replace_idle_workers_at_once_and_busy_ones_when_free() {
    let mut world = with(spec(), &["a"]);
    let newer = PoolSpec { image: Some("game:2".into()), ..spec() };
    world.apply(Input::Set(Box::new(newer.check().unwrap())));
    assert_eq!(phases(&world), [Phase::Draining]);
    world.pass(5_000, &["a", "b"]);
    assert_eq!(verified(&world.put("a")), Some(true));
    assert_eq!(world.store.matches["b"].booking().unwrap().worker, WorkerNo(2));
    world.apply(cancel("a"));
    world.deliver();
    assert_eq!(world.runtime.containers.keys().copied().collect::<Vec<_>>(), [WorkerNo(2)]);
}

#[test]
fn two_hundred_clients_on_five_workers_survive_three_kills() {
    let big = PoolSpec { slots: Some(10), max: Some(5), match_ms_max: Some(30_000), ..spec() };
    let mut world = world(big);
    world.values = 65;
    let names: Vec<String> = (0..200).map(|i| format!("client {i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for name in &names {
        world.put(name);
    }
    for kill in 1..4 {
        // Some things are done, some are heard of; then the Makers die.
        for _ in 0..kill * 7 {
            if !world.effects.is_empty() {
                let effect = world.effects.remove(0);
                let outcome = world.run(&effect);
                world.outcomes.extend(outcome);
            }
            if world.outcomes.len() > 2 {
                let outcome = world.outcomes.remove(0);
                world.apply(outcome);
            }
        }
        world.effects.clear();
        world.outcomes.clear();
        world.now = world.now.after(Millis(100));
        world.reload();
        world.announce();
    }
    world.pass(10_000, &names);
    let matched = names.iter().filter(|name| world.stage(name) == Some(MatchStage::Matched)).count();
    assert_eq!((matched, world.runtime.created), (50, 5));
    // Those who have a worker keep it; the others fail when their time is over.
    let served: Vec<&str> =
        names.iter().copied().filter(|name| world.stage(name) == Some(MatchStage::Matched)).collect();
    world.pass(30_000, &served);
    let held: usize = world.runtime.containers.values().map(|container| container.held.len()).sum();
    assert_eq!(held, 50, "slots booked are clients matched");
    for name in &names {
        let view = world.state.view(&(*name).into()).unwrap();
        assert!(matches!(view.stage, MatchStage::Matched | MatchStage::Failed), "{name}: {view:?}");
        assert!(!view.why.to_string().is_empty());
    }
    world.pass(120_000, &[]);
    assert_eq!(world.runtime.containers.len(), 0);
}
