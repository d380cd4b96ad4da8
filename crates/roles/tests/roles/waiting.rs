//! Long polls: woken at once by this process, soon by others, at the deadline by time; never with a stale primary.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use wayleave_core::ids::Epoch;
use wayleave_core::roles::{Refusal, RoleView};
use wayleave_core::time::Millis;
use wayleave_engine::Key;
use wayleave_engine::memory::{LostAnswer, Memory};
use wayleave_registry::Hints;
use wayleave_roles::{Config, Roles, Wait, WaitFor};

use crate::support::{Running, acquire, beat, pass, primary, role, ttl, two_nodes, vacancy};

const SOON: Duration = Duration::from_millis(251);

/// Begins to wait; returns when the wait has begun.
async fn waiting(roles: &Roles, wait: Wait) -> JoinHandle<Result<RoleView, Refusal>> {
    let before = roles.waiting();
    let handle = tokio::spawn({
        let roles = roles.clone();
        async move { roles.primary(&role(), wait).await }
    });
    while roles.waiting() == before {
        tokio::task::yield_now().await;
    }
    handle
}

/// A node, and its hints.
fn hinted(engine: Arc<Memory>) -> (Roles, Hints) {
    let registry = wayleave_registry::Config::default();
    let hints = registry.hints.clone();
    (Roles::with(engine, Config { registry }), hints)
}

fn role_key() -> Key {
    wayleave_engine::rows::role::key(&role())
}

fn uuid(view: &RoleView) -> Option<&str> {
    view.primary.as_ref().map(|primary| &*primary.uuid)
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_through_this_node_wakes_at_once_and_through_another_soon() {
    let (_, _, here, there) = two_nodes();
    let (mine, other) = (waiting(&here, primary(60_000)).await, waiting(&there, primary(60_000)).await);
    let start = Instant::now();
    acquire(&here, "a").await;
    assert_eq!(uuid(&mine.await.unwrap().unwrap()), Some("a"));
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(uuid(&other.await.unwrap().unwrap()), Some("a"));
    assert!(start.elapsed() <= SOON, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_hint_from_another_node_wakes_at_once() {
    let (engine, _, here, _) = two_nodes();
    let (there, hints) = hinted(engine);
    let other = waiting(&there, primary(60_000)).await;
    // Past the first poll of the watch.
    pass(Duration::from_millis(5)).await;
    let start = Instant::now();
    acquire(&here, "a").await;
    hints.wake(&role_key());
    assert_eq!(uuid(&other.await.unwrap().unwrap()), Some("a"));
    assert_eq!(start.elapsed(), Duration::ZERO);
}

/// A regression: the store carried out a release but its response was lost. The second look found it done, which is
/// no write, so no waiter was notified, and standbys on other nodes waited for their own next poll.
#[tokio::test(start_paused = true)]
async fn a_release_of_unknown_outcome_wakes_every_waiter_at_once() {
    let (engine, ..) = two_nodes();
    let ((here, way_out), (there, hints)) = (hinted(engine.clone()), hinted(engine.clone()));
    way_out.on_send(Arc::new(move |keys| keys.iter().for_each(|key| hints.wake(key))));
    let (token, _) = acquire(&here, "a").await;
    let mut standbys = Vec::new();
    for node in [&here, &there] {
        standbys.push(waiting(node, vacancy(60_000)).await);
    }
    // Past the first poll of each watch.
    pass(Duration::from_millis(5)).await;
    engine.lose_next_answer(LostAnswer::Applied);
    let start = Instant::now();
    here.release(role(), "a".into(), Some(token)).await.unwrap();
    for standby in standbys {
        assert_eq!(uuid(&standby.await.unwrap().unwrap()), None);
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn a9_a_release_wakes_those_who_wait_for_the_vacancy_at_once() {
    let (_, _, here, _) = two_nodes();
    let (token, _) = acquire(&here, "a").await;
    let standby = waiting(&here, vacancy(60_000)).await;
    let start = Instant::now();
    here.release(role(), "a".into(), Some(token)).await.unwrap();
    assert_eq!(uuid(&standby.await.unwrap().unwrap()), None);
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_term_that_runs_out_wakes_them_too_and_a_renewal_does_not() {
    let (_, clock, here, _) = two_nodes();
    let (token, _) = acquire(&here, "a").await;
    let standby = waiting(&here, vacancy(60_000)).await;
    clock.advance(Millis(14_000));
    beat(&here, "a", Some(token)).await.unwrap();
    clock.advance(Millis(14_999));
    pass(SOON).await;
    assert!(!standby.is_finished(), "woken while the term lives");
    clock.advance(Millis(1));
    assert_eq!(uuid(&standby.await.unwrap().unwrap()), None);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_term_wakes_waiters_before_the_next_poll() {
    let roles = Roles::new(Arc::new(Memory::new(Running(Instant::now()))));
    roles.set(role(), ttl(15_100)).await.unwrap();
    acquire(&roles, "a").await;
    let start = Instant::now();
    let view = roles.primary(&role(), vacancy(60_000)).await.unwrap();
    assert_eq!(uuid(&view), None);
    assert!(start.elapsed() <= Duration::from_millis(15_110), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_primary_of_a_lower_epoch_does_not_count() {
    let (_, _, here, there) = two_nodes();
    let (token, _) = acquire(&here, "a").await;
    let at_least_2 = Wait { what: WaitFor::Primary(Epoch(2)), time: Millis(1_000) };
    let none = here.primary(&role(), at_least_2).await.unwrap();
    assert_eq!(uuid(&none), None);
    assert!(none.reason.contains("lower than epoch 2"), "{}", none.reason);
    let second = waiting(&here, Wait { time: Millis(60_000), ..at_least_2 }).await;
    there.release(role(), "a".into(), Some(token)).await.unwrap();
    acquire(&there, "b").await;
    assert_eq!(uuid(&second.await.unwrap().unwrap()), Some("b"));
    let past = Wait { what: WaitFor::Vacancy(Some(Epoch(2))), time: Millis(60_000) };
    assert_eq!(uuid(&here.primary(&role(), past).await.unwrap()), Some("b"), "the first term is over");
}

#[tokio::test(start_paused = true)]
async fn the_wait_ends_with_its_time_and_says_why_there_is_none() {
    let (_, _, here, _) = two_nodes();
    let start = Instant::now();
    let view = here.primary(&role(), primary(3_000)).await.unwrap();
    assert_eq!((uuid(&view), start.elapsed()), (None, Duration::from_secs(3)));
    assert!(view.reason.contains("nobody has asked"), "{}", view.reason);
}

#[tokio::test(start_paused = true)]
async fn an_outage_ends_the_wait_with_a_refusal() {
    let (engine, _, here, _) = two_nodes();
    let waiter = waiting(&here, primary(60_000)).await;
    engine.begin_outage("the cable is out");
    assert!(matches!(waiter.await.unwrap(), Err(Refusal::Unavailable(_))));
}
