//! Orders that never reached a worker, or whose outcome was lost: they are no evidence against the worker, and do not
//! count against the client. A Maker that works reports an unanswered call before the call's deadline; so silence
//! until then means only that the order or its outcome was lost.
//!
//! Interleavings: (ask)(the order is lost)(deadline), again and again; (check)(the order is lost)(the owner's own
//! unknown); (ask)(no answer)(the Maker's unknown), which counts.

use wayleave_core::limits::MATCH_ATTEMPTS_MAX;

use super::*;

#[test]
fn a_worker_is_not_given_up_because_its_maker_was_away() {
    let mut world = with(PoolSpec { slots: Some(20), max: Some(1), idle_ms: Some(600_000), ..spec() }, &["x"]);
    let clients: Vec<String> = (0..3 * WORKER_CALL_FAILURES_MAX).map(|n| format!("c{n}")).collect();
    for client in &clients {
        world.put(client);
        assert_eq!(world.stage(client), Some(MatchStage::Making), "{:#?}", world.store);
        world.effects.clear();
        later(&mut world, 6_500);
        assert_eq!(phases(&world), [Phase::Running], "it was never asked");
        assert_eq!(world.store.matches[client.as_str()].attempts, 0);
    }
    // The Maker is back. A slot that was asked for stays booked until the worker says that it has nothing.
    let names: Vec<&str> = clients.iter().map(String::as_str).collect();
    world.announce();
    world.pass(30_000, &names);
    for client in names {
        assert_eq!(world.stage(client), Some(MatchStage::Matched), "{client}: {:#?}", world.store);
    }
    assert_eq!(world.runtime.created, 1);
}

#[test]
fn a_client_does_not_fail_because_orders_were_lost() {
    let two = PoolSpec { slots: Some(20), min: Some(2), max: Some(2), match_ms_max: Some(3_600_000), ..spec() };
    let mut world = with(two, &[]);
    world.put("a");
    let mut asked = 0;
    for _ in 0..40 * MATCH_ATTEMPTS_MAX {
        asked += take_asks(&mut world).len();
        // Everything but reservations arrives.
        world.deliver();
        world.announce();
        later(&mut world, 1_000);
    }
    assert!(asked > MATCH_ATTEMPTS_MAX as usize, "{asked}");
    world.pass(10_000, &["a"]);
    assert_eq!(world.stage("a"), Some(MatchStage::Matched), "{:#?}", world.store);
}

#[test]
fn a_lost_check_is_no_evidence_and_an_unanswered_one_is() {
    for lost in [true, false] {
        let mut world = with(PoolSpec { reservation_ms: Some(60_000), ..spec() }, &["a"]);
        for _ in 0..WORKER_CALL_FAILURES_MAX {
            later(&mut world, 2_000);
            let Answer::Verify(ask) = world.apply(Input::Put(asker("a"))) else { panic!() };
            world.effects.clear();
            world.announce();
            let end = if lost { ask.until } else { ask.until.before(wayleave_core::time::Millis(500)) };
            tick_at(&mut world, end);
            let answer = world.apply(ask.checked(Verdict::Unknown("no answer".into())));
            assert!(matches!(answer, Answer::Match(view) if !view.verified), "it keeps its worker, unverified");
        }
        let want = if lost { Phase::Running } else { Phase::Draining };
        assert_eq!(phases(&world), [want], "lost: {lost}");
    }
}
