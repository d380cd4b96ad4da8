//! Calls that are on their way to workers: a slot stays booked while one could still arrive, expiry counts from when the
//! question was sent, and a client's call that crosses another one of the same client changes nothing that it must not.
//!
//! Interleavings: (ask)(crash)(ask again)(cancel)(one answer)(the other call arrives); (ask)(exit)(restart)(the call
//! arrives); (release)(release again)(answer)(booked again)(the first release arrives); (look)(cancel)(answer);
//! (check)(settings)(cancel).

use wayleave_core::limits::RELEASE_RESENT;

use super::*;

fn single() -> PoolSpec {
    PoolSpec { slots: Some(1), max: Some(1), ..spec() }
}

fn expires(world: &World, client: &str) -> u64 {
    world.state.view(&client.into()).unwrap().matched.unwrap().expires_at.0
}

#[test]
fn a_match_ends_no_later_than_its_worker_may_drop_it() {
    let mut world = with(single(), &["x"]);
    world.cancel("x");
    world.deliver();
    world.put("a");
    let asked = world.now;
    let reserve = world.effects.remove(0);
    let outcome = world.run(&reserve).unwrap();
    later(&mut world, 4_000);
    world.apply(outcome);
    assert_eq!(expires(&world, "a"), asked.0 + 20_000, "the worker counts from when it was asked");
    later(&mut world, 10_000);
    let asked = world.now;
    let Answer::Verify(ask) = world.apply(Input::Put(asker("a"))) else { panic!() };
    let outcome = world.run(&Effect::Check(ask)).unwrap();
    later(&mut world, 3_000);
    world.apply(outcome);
    assert_eq!(expires(&world, "a"), asked.0 + 20_000);
}

#[test]
fn the_answer_to_an_older_question_does_not_shorten_a_match() {
    let mut world = with(single(), &["a"]);
    later(&mut world, 10_000);
    let Answer::Verify(old) = world.apply(Input::Put(asker("a"))) else { panic!() };
    later(&mut world, 2_000);
    world.effects.clear();
    world.put("a");
    let end = expires(&world, "a");
    later(&mut world, 1_500);
    world.apply(old.checked(Verdict::Yes));
    assert_eq!(expires(&world, "a"), end);
}

#[test]
fn a_shorter_reservation_time_holds_for_new_reservations_only() {
    let mut world = with(single(), &["a"]);
    set(&mut world, PoolSpec { reservation_ms: Some(1_000), ..single() });
    later(&mut world, 2_000);
    let Answer::Verify(ask) = world.apply(Input::Put(asker("a"))) else { panic!() };
    assert_eq!(ask.reservation, Millis(20_000));
    world.runtime.containers.get_mut(&WorkerNo(1)).unwrap().mood = Mood::Mute;
    world.apply(cancel("a"));
    let left = &world.store.matches["a"].leftovers[0];
    assert!(left.until >= world.now.after(Millis(20_000)), "the worker may hold it for 20 s more: {left:?}");
}

#[test]
fn a_worker_is_not_started_again_while_a_call_to_its_last_run_may_arrive() {
    let mut world = with(PoolSpec { idle_ms: Some(600_000), ..single() }, &["x"]);
    world.cancel("x");
    world.deliver();
    world.put("a");
    let ask = take_asks(&mut world).remove(0);
    later(&mut world, 100);
    exit(&mut world, 1, Exit::Clean);
    for crash in [false, true] {
        later(&mut world, 2_000);
        if crash {
            world.reload();
        }
        world.announce();
        world.deliver();
        assert_eq!(phases(&world), [Phase::Exited], "the call would reserve a slot that no row knows of");
    }
    tick_at(&mut world, ask.until);
    assert_eq!(phases(&world), [Phase::Restarting]);
    world.pass(3_000, &["a"]);
    assert_eq!(world.stage("a"), Some(MatchStage::Matched));
}

#[test]
fn the_answer_to_one_call_does_not_free_a_slot_that_another_call_may_take() {
    let two = PoolSpec { slots: Some(1), min: Some(2), max: Some(2), ..spec() };
    let mut world = with(two, &[]);
    world.put("a");
    let first = take_asks(&mut world).remove(0);
    world.reload();
    let second = take_asks(&mut world).remove(0);
    assert_eq!((first.worker, first.token), (second.worker, second.token));
    world.cancel("a");
    world.put("a");
    let elsewhere = take_asks(&mut world).remove(0);
    assert_ne!(elsewhere.worker, first.worker);
    // The second owner's call is refused, and so is the release; the first owner's call is still on its way.
    world.apply(elsewhere.reserved(Verdict::Yes));
    world.apply(second.reserved(Verdict::No));
    world.deliver();
    assert_eq!(world.store.booked_on(first.worker), 1, "{:#?}", world.store.matches);
    tick_at(&mut world, first.until);
    world.deliver();
    assert_eq!(world.store.booked_on(first.worker), 0, "{:#?}", world.store.matches);
}

#[test]
fn a_client_is_not_rebooked_on_a_worker_while_a_release_is_in_flight() {
    let mut world = with(PoolSpec { slots: Some(2), max: Some(1), ..spec() }, &["a"]);
    world.cancel("a");
    let first = world.effects.remove(0);
    let Effect::Release(first) = first else { panic!("{first:?}") };
    // More or less a quarter.
    later(&mut world, RELEASE_RESENT.0 * 2);
    world.deliver();
    world.put("a");
    world.deliver();
    assert_eq!(world.stage("a"), Some(MatchStage::Queued), "the first release would end the new reservation");
    let why = world.state.view(&"a".into()).unwrap().why;
    assert!(matches!(why, MatchWhy::GivingBack { .. }), "{why}");
    tick_at(&mut world, first.until);
    world.pass(1_000, &["a"]);
    assert_eq!(world.stage("a"), Some(MatchStage::Matched));
}

#[test]
fn after_a_crash_a_release_of_the_owner_before_may_be_on_its_way() {
    let mut world = with(single(), &["a"]);
    world.cancel("a");
    world.effects.clear();
    let crash = world.now;
    world.reload();
    world.deliver();
    world.put("a");
    world.deliver();
    assert_eq!(world.stage("a"), Some(MatchStage::Queued));
    tick_at(&mut world, crash.after(ASK_TIME));
    world.pass(1_000, &["a"]);
    assert_eq!(world.stage("a"), Some(MatchStage::Matched));
}

#[test]
fn a_look_that_crosses_a_cancel_queues_no_client() {
    let mut world = with(single(), &["a"]);
    later(&mut world, 2_000);
    let Answer::Verify(ask) = world.apply(Input::Look(asker("a"))) else { panic!() };
    world.cancel("a");
    world.deliver();
    assert_eq!(world.apply(ask.checked(Verdict::No)), Answer::NoMatch);
    assert_eq!(world.stage("a"), None);
}

#[test]
fn a_look_at_a_lost_match_says_so_and_queues_no_client() {
    let mut world = with(single(), &["a"]);
    later(&mut world, 2_000);
    world.runtime.containers.get_mut(&WorkerNo(1)).unwrap().held.clear();
    let Answer::Match(view) = world.look("a") else { panic!() };
    assert_eq!((view.stage, view.stage.name(), view.position), (MatchStage::Vacant, "vacant", None));
    assert!(view.why.to_string().contains("no longer held"), "{}", view.why);
    let Answer::Match(view) = world.put("a") else { panic!() };
    assert!(matches!(view.stage, MatchStage::Queued | MatchStage::Making), "{view:?}");
}

#[test]
fn a_cancel_of_an_earlier_match_does_not_end_the_present_one() {
    let mut world = with(single(), &["a"]);
    let token = |world: &World| world.state.view(&"a".into()).unwrap().matched.unwrap().token;
    let old = token(&world);
    let cancel = |token| Input::Cancel { asker: asker("a"), token };
    assert_eq!(world.apply(cancel(old)), Answer::Cancelled);
    assert_eq!(world.apply(cancel(old)), Answer::Cancelled, "it is being given back");
    world.deliver();
    world.put("a");
    world.deliver();
    assert!(matches!(world.apply(cancel(old)), Answer::Refused(_)));
    assert_eq!(world.stage("a"), Some(MatchStage::Matched));
    let present = token(&world);
    assert_eq!(world.apply(cancel(present)), Answer::Cancelled);
}

#[test]
fn clients_that_wait_for_an_earlier_slot_do_not_hold_up_those_behind_them() {
    let many = PoolSpec { slots: Some(400), max: Some(1), makers_max: Some(1_000), ..spec() };
    let mut world = world(many);
    world.values = 410;
    let names: Vec<String> = (0..300).map(|i| format!("c{i}")).collect();
    for name in &names {
        world.put(name);
    }
    world.deliver();
    world.runtime.containers.get_mut(&WorkerNo(1)).unwrap().mood = Mood::Mute;
    for name in &names {
        world.cancel(name);
    }
    for name in &names {
        world.put(name);
    }
    world.put("z");
    for _ in 0..3 {
        world.apply(Input::Tick);
    }
    assert_eq!(world.stage("z"), Some(MatchStage::Making), "{:?}", world.state.view(&"z".into()));
    assert!(world.last.as_ref().unwrap().wake_at.unwrap() > world.now, "it spins");
}
