//! What callers are shown: nothing that is another's secret, and estimates that are true.

use serde::Serialize;
use serde::de::DeserializeOwned;
use wayleave_core::matches::{PoolSummary, PoolView, WorkerView};

use super::*;

#[test]
fn lists_and_pools_show_neither_tokens_nor_values_of_the_environment() {
    let env = [("API_KEY".to_owned(), "hunter2".to_owned())].into();
    let mut world = with(PoolSpec { env, ..spec() }, &["a"]);
    let listed = world.state.matches(None, 10);
    assert_eq!(listed[0].1.matched.as_ref().unwrap().token, None);
    let Answer::Match(own) = world.put("a") else { panic!() };
    assert!(own.matched.unwrap().token.is_some(), "the client itself needs it");
    let pool = world.state.pool_view();
    assert_eq!(pool.env, ["API_KEY"]);
    let Answer::Pool(answer) = world.apply(Input::Delete) else { panic!() };
    for shown in [format!("{pool:?}"), format!("{answer:?}"), format!("{:?}", world.state.summary())] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    let summary = world.state.summary();
    assert_eq!((summary.matched, summary.workers, summary.closing), (1, 1, true));
}

#[test]
fn slots_that_are_coming_count_only_as_often_as_a_worker_may_be_used() {
    let mut world = world(PoolSpec { slots: Some(10), uses_max: Some(1), max: Some(3), ..spec() });
    for client in ["a", "b", "c"] {
        world.put(client);
    }
    assert_eq!(phases(&world).len(), 3);
    assert_eq!(world.state.pool_view().coming, 3);
}

#[test]
fn an_estimate_counts_from_when_the_worker_began_to_be_made() {
    let mut world = with(PoolSpec { idle_ms: Some(600_000), ..spec() }, &["a"]);
    exit(&mut world, 1, Exit::Clean);
    world.pass(100_000, &[]);
    world.put("a");
    let first = world.state.view(&"a".into()).unwrap().estimate;
    assert_eq!(first, Some(Millis(3_750)), "three quarters of the guess, as the first start took no time");
    world.deliver();
    assert_eq!(world.stage("a"), Some(MatchStage::Matched));
    exit(&mut world, 1, Exit::Clean);
    world.put("a");
    let second = world.state.view(&"a".into()).unwrap().estimate;
    assert!(second < first, "the restart took no time either: {second:?}");
}

#[test]
fn a_failed_client_must_not_retry_at_once() {
    let mut world = with(PoolSpec { slots: Some(1), max: Some(1), match_ms_max: Some(2_000), ..spec() }, &["a"]);
    world.put("b");
    later(&mut world, 2_000);
    let Answer::Match(view) = world.put("b") else { panic!() };
    assert_eq!(view.stage, MatchStage::Failed);
    assert!(view.retry_after >= Some(Millis(500)), "{:?}", view.retry_after);
}

#[test]
fn everything_that_travels_between_nodes_can_be_encoded() {
    fn travels<T: Serialize + DeserializeOwned>() {}
    travels::<Input>();
    travels::<Effect>();
    travels::<Answer>();
    travels::<Settings>();
    travels::<PoolView>();
    travels::<PoolSummary>();
    travels::<WorkerView>();
}

#[test]
fn debug_output_names_variables_of_the_environment_without_their_values() {
    let env = [("API_KEY".to_owned(), "hunter2".to_owned())].into();
    let spec = PoolSpec { env, ..spec() };
    let settings = spec.clone().check().unwrap();
    for shown in [format!("{spec:?}"), format!("{settings:?}"), format!("{:?}", Input::Set(Box::new(settings)))] {
        assert!(shown.contains("API_KEY") && !shown.contains("hunter2"), "{shown}");
    }
}
