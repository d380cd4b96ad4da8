//! Reasons: clients and operators see a failure at once, with the name of the worker, and it is not forgotten.

use super::*;

fn single() -> PoolSpec {
    PoolSpec { slots: Some(1), max: Some(1), ..spec() }
}

fn of(world: &World, client: &str) -> String {
    world.state.view(&client.into()).unwrap().why.to_string()
}

fn pool(world: &World) -> String {
    world.state.pool_why().to_string()
}

/// Every reason that a client and its pool have while time passes.
fn reasons(world: &mut World, client: &str, seconds: u64) -> Vec<String> {
    let mut reasons = Vec::new();
    for _ in 0..seconds * 10 {
        world.pass(100, &[]);
        reasons.extend([of(world, client), pool(world)]);
    }
    reasons
}

#[test]
fn a_worker_that_answers_500_is_named_with_its_answer_until_it_is_gone() {
    let mut world = world(single());
    world.runtime.mood = Mood::Mute;
    world.put("a");
    world.deliver();
    world.put("b");
    for client in ["a", "b"] {
        for why in reasons(&mut world, client, 3) {
            assert!(why.contains("worker games-000000000000004d-1: 500"), "{client}: {why}");
            assert_eq!(why.matches("games-000000000000004d-1").count(), 1, "{why}");
        }
    }
}

#[test]
fn a_proven_worker_that_hangs_is_named_and_forgiven_when_it_answers() {
    let mut world = with(PoolSpec { slots: Some(2), max: Some(1), ..spec() }, &["x"]);
    let set = |world: &mut World, mood| world.runtime.containers.values_mut().for_each(|worker| worker.mood = mood);
    set(&mut world, Mood::Mute);
    world.put("a");
    world.deliver();
    assert!(of(&world, "a").contains("worker games-000000000000004d-1: 500"), "{}", of(&world, "a"));
    assert!(pool(&world).contains("worker games-000000000000004d-1: 500"), "{}", pool(&world));
    set(&mut world, Mood::Good);
    world.pass(10_000, &["x"]);
    assert_eq!(world.stage("a"), Some(MatchStage::Matched));
    assert_eq!(pool(&world), "1 worker is running, 0 free slots, 0 clients are waiting");
}

#[test]
fn a_match_that_fails_at_its_deadline_names_the_worker_once() {
    let mut world = world(PoolSpec { match_ms_max: Some(4_000), ..single() });
    world.runtime.mood = Mood::Mute;
    world.put("a");
    world.pass(10_000, &[]);
    assert_eq!(world.stage("a"), Some(MatchStage::Failed));
    let why = of(&world, "a");
    assert!(
        why.contains("worker games-000000000000004d-1: 500") && why.matches("games-000000000000004d-1").count() == 1,
        "{why}"
    );
}

#[test]
fn an_idle_pool_remembers_its_last_failure_and_promises_no_start() {
    let mut world = world(PoolSpec { match_ms_max: Some(2_000), ..single() });
    world.runtime.broken = Some("no such image: game".into());
    world.put("a");
    world.pass(600_000, &[]);
    let why = pool(&world);
    assert!(why.contains("no such image: game") && why.contains("nobody asks"), "{why}");
    world.pass(300_000, &[]);
    world.put("a");
    let view = world.state.view(&"a".into()).unwrap();
    assert_eq!((view.stage, view.estimate), (MatchStage::Queued, None), "{}", view.why);
    assert!(of(&world, "a").contains("no such image: game"), "{}", of(&world, "a"));
}

#[test]
fn a_start_that_takes_longer_than_usual_is_not_estimated_as_done() {
    let mut world = world(PoolSpec { start_ms_max: Some(60_000), ..single() });
    world.put("a");
    assert_eq!(world.state.view(&"a".into()).unwrap().estimate, Some(Millis(5_000)));
    world.effects.clear();
    world.announce();
    later(&mut world, 5_000);
    assert_eq!(world.state.view(&"a".into()).unwrap().estimate, None);
}

#[test]
fn clients_of_a_removed_pool_learn_of_its_removal() {
    let mut world = with(single(), &["a"]);
    world.put("b");
    world.apply(wayleave_core::matches::Input::Delete);
    assert_eq!((world.stage("b"), &*of(&world, "b")), (Some(MatchStage::Failed), "the pool was removed"));
}

#[test]
fn a_worker_that_refuses_its_first_client_gets_a_remedy() {
    let mut world = world(single());
    world.runtime.mood = Mood::Refusing;
    world.put("a");
    world.deliver();
    let why = pool(&world);
    let want = "worker games-000000000000004d-1: it answered 404 or 409 to its first reservation, although it has no clients: it must \
                answer 200 to POST /reservation/{client} while a slot is free";
    assert!(why.contains(want), "{why}");
}

#[test]
fn a_worker_that_never_listens_is_named_with_its_address_and_a_remedy() {
    let mut world = world(single());
    world.put("a");
    let create = world.effects.remove(0);
    let made = world.run(&create).unwrap();
    world.apply(made);
    world.effects.clear();
    world.announce();
    let end = world.now.after(Millis(8_000));
    tick_at(&mut world, end);
    let why = pool(&world);
    let want = "worker games-000000000000004d-1: it did not answer HTTP on 10.0.0.1:9001 within 8 s: it must listen on HOST and PORT";
    assert!(why.contains(want), "{why}");
}

#[test]
fn a_worker_that_ends_before_it_listens_is_named_once() {
    let mut world = world(single());
    world.put("a");
    let create = world.effects.remove(0);
    let made = world.run(&create).unwrap();
    world.apply(made);
    exit(&mut world, 1, Exit::Error("code 3".into()));
    let why = pool(&world);
    assert!(why.contains("worker games-000000000000004d-1: it ended before it listened: code 3"), "{why}");
}

#[test]
fn a_node_that_lacks_the_runtime_of_a_pool_says_why() {
    let mut world = world(spec());
    world.now = world.now.after(Millis(20_000));
    let why = "the Docker engine at /var/run/docker.sock does not answer";
    world.lack = Some(Lack { runtime: RuntimeKind::Docker, why: why.into() });
    // The only site that is there has another runtime.
    let lack = world.lack.clone();
    let site = "process:host".into();
    world.apply(wayleave_core::matches::Input::SiteAlive { site, runtime: RuntimeKind::Process, lack });
    world.put("a");
    let want = format!("no node can start workers of runtime 'docker': {why}");
    assert_eq!(of(&world, "a"), want);
    assert_eq!(pool(&world), format!("1 client is waiting, and {want}"));
}

/// A regression: the worker was shown as ending, while its reservation still kept it from ending.
#[test]
fn a_reservation_that_a_worker_may_hold_is_shown_with_client_and_end() {
    let mut world = world(single());
    world.runtime.mood = Mood::Mute;
    world.put("a");
    world.deliver();
    world.put("b");
    world.pass(5_000, &[]);
    let hold = "may still hold the reservation of client 'a', for ";
    for why in [of(&world, "b"), pool(&world)] {
        assert!(
            why.starts_with(&format!("worker games-000000000000004d-1: 500; it {hold}"))
                || why.contains(&format!(": it {hold}")),
            "{why}"
        );
        assert!(!why.contains("ending"), "{why}");
    }
    let worker = world.state.workers().remove(0);
    assert!(worker.state == "draining" && worker.reason.starts_with(&format!("500; it {hold}")), "{worker:?}");
    // Reservations last 20 s, a call that asks for one 5 s, and a worker's clock may be 1 s off.
    world.pass(22_000, &[]);
    let after = world.state.workers();
    assert!(after.iter().all(|worker| !worker.reason.contains(hold)), "{after:?}");
}

#[test]
fn a_slot_is_not_called_free_while_its_earlier_reservation_may_live() {
    let mut world = with(PoolSpec { slots: Some(2), max: Some(1), ..spec() }, &["a"]);
    world.runtime.containers.values_mut().for_each(|worker| worker.mood = Mood::Mute);
    world.apply(super::world::cancel("a"));
    world.put("a");
    world.pass(1_500, &[]);
    let view = world.state.view(&"a".into()).unwrap();
    let why = view.why.to_string();
    if why.contains("has not given up an earlier reservation of this client, which ends in ") {
        assert!(view.estimate.is_none_or(|estimate| estimate > Millis(10_000)), "{why}: {:?}", view.estimate);
    } else {
        panic!("{why}");
    }
}

#[test]
fn a_full_worker_and_an_unclear_answer_each_give_their_reason() {
    let mut world = with(PoolSpec { slots: Some(1), max: Some(1), ..spec() }, &["a"]);
    let reason = |world: &World| world.state.workers()[0].reason.to_string();
    assert_eq!(reason(&world), "it has no free slot");
    assert_eq!(of(&world, "a"), "worker games-000000000000004d-1 has reserved a slot");
    world.runtime.containers.values_mut().for_each(|worker| worker.mood = Mood::Mute);
    later(&mut world, 2_000);
    world.put("a");
    world.deliver();
    assert!(
        reason(&world).starts_with("it is left alone for ") && reason(&world).ends_with(": 500"),
        "{}",
        reason(&world)
    );
    let doubt = "worker games-000000000000004d-1 has reserved a slot; whether it still holds it is not known: 500";
    assert_eq!(of(&world, "a"), doubt);
}

#[test]
fn the_age_of_a_failure_is_that_of_the_call_and_not_of_the_last_decision() {
    let mut world = world(PoolSpec { match_ms_max: Some(2_000), ..single() });
    world.runtime.broken = Some("no such image: game".into());
    world.put("a");
    world.pass(120_000, &[]);
    let before = pool(&world);
    world.state.look_at(world.now.after(Millis(60_000)));
    let after = pool(&world);
    assert!(before.contains(" ago: no such image: game") && after != before, "{before}\n{after}");
}

/// A regression: the worker's last failed call for any client was shown to all its clients, even beside a fresh yes.
#[test]
fn an_uncertain_reservation_is_not_shown_to_other_clients_of_the_worker() {
    let mut world = with(PoolSpec { slots: Some(2), max: Some(1), ..spec() }, &["a", "b"]);
    let moods = |world: &mut World, mood: Mood| {
        world.runtime.containers.values_mut().for_each(|worker| worker.mood = mood);
    };
    let doubt = "; whether it still holds it is not known: 500";
    moods(&mut world, Mood::Mute);
    later(&mut world, 2_000);
    world.put("b");
    world.deliver();
    assert!(of(&world, "b").ends_with(doubt), "{}", of(&world, "b"));
    assert!(of(&world, "a").ends_with(" has reserved a slot"), "{}", of(&world, "a"));
    // A yes to one client says nothing about the reservation of the other.
    moods(&mut world, Mood::Good);
    later(&mut world, 2_000);
    world.put("a");
    world.deliver();
    assert!(of(&world, "a").ends_with(" has reserved a slot"), "{}", of(&world, "a"));
    assert!(of(&world, "b").ends_with(doubt), "{}", of(&world, "b"));
    later(&mut world, 2_000);
    world.put("b");
    world.deliver();
    assert!(of(&world, "b").ends_with(" has reserved a slot"), "{}", of(&world, "b"));
}
