//! Outages, lost responses, and writes that are not durable yet.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use wayleave_core::ids::Epoch;
use wayleave_core::roles::{Outcome, Refusal, Was};
use wayleave_core::time::Time;
use wayleave_engine::clock::ManualClock;
use wayleave_engine::memory::{LostAnswer, Memory};
use wayleave_roles::Roles;

use crate::support::{acquire, ask, beat, holder, role, two_nodes};

#[tokio::test]
async fn an_outage_is_reported_and_changes_nothing() {
    let (engine, _, roles, _) = two_nodes();
    let (token, _) = acquire(&roles, "a").await;
    engine.begin_outage("the cable is out");
    let refusal = beat(&roles, "a", Some(token)).await.unwrap_err();
    assert!(matches!(&refusal, Refusal::Unavailable(why) if why.contains("cable")), "{refusal}");
    assert!(matches!(roles.now(&role()).await, Err(Refusal::Unavailable(_))));
    assert!(matches!(roles.list(None, 10).await, Err(Refusal::Unavailable(_))));
    engine.end_outage();
    assert_eq!(beat(&roles, "a", Some(token)).await.unwrap().outcome, Outcome::Renewed);
    assert_eq!(roles.counters().failed.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_lost_answer_of_the_store_is_resolved_by_the_token() {
    for truth in [LostAnswer::Applied, LostAnswer::Dropped] {
        let (engine, _, roles, _) = two_nodes();
        engine.lose_next_answer(truth);
        let reply = beat(&roles, "a", None).await.unwrap();
        assert_eq!((reply.outcome, reply.epoch), (Outcome::Acquired, Epoch(1)), "{truth:?}");
        engine.lose_next_answer(truth);
        let renewed = beat(&roles, "a", reply.token).await.unwrap();
        assert_eq!((renewed.outcome, renewed.token), (Outcome::Renewed, reply.token), "{truth:?}");
        engine.lose_next_answer(truth);
        let released = roles.release(role(), "a".into(), reply.token).await.unwrap();
        assert_eq!((released.was, holder(&roles).await), (Was::Primary, None), "{truth:?}");
        engine.lose_next_answer(truth);
        roles.delete(role()).await.unwrap();
    }
}

#[tokio::test]
async fn an_outcome_that_stays_unknown_is_reported_as_such() {
    let (engine, _, roles, _) = two_nodes();
    let (token, _) = acquire(&roles, "a").await;
    for _ in 0..wayleave_core::limits::UPDATE_TRIES_MAX {
        engine.lose_next_answer(LostAnswer::Dropped);
    }
    let refusal = beat(&roles, "a", Some(token)).await.unwrap_err();
    assert!(matches!(refusal, Refusal::OutcomeUnknown(_)), "{refusal}");
    assert_eq!(beat(&roles, "a", Some(token)).await.unwrap().outcome, Outcome::Renewed);
}

#[tokio::test]
async fn law_7_a_primary_is_durable_before_any_answer_names_it() {
    let engine = Arc::new(Memory::stepped(ManualClock::new(Time(1_000))));
    let roles = Roles::new(engine.clone());
    let asking = tokio::spawn({
        let roles = roles.clone();
        async move { beat(&roles, "a", None).await }
    });
    while engine.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    // Its caller disconnects; the write continues.
    asking.abort();
    let reading = tokio::spawn({
        let roles = roles.clone();
        async move { roles.now(&role()).await }
    });
    let listing = tokio::spawn({
        let roles = roles.clone();
        async move { roles.list(None, 10).await }
    });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!reading.is_finished() && !listing.is_finished(), "answered before it was durable");
    assert_eq!(engine.make_durable(1), 1);
    assert_eq!(&*reading.await.unwrap().unwrap().primary.unwrap().uuid, "a");
    assert_eq!(listing.await.unwrap().unwrap().roles.len(), 1);
}

#[tokio::test]
async fn a_damaged_row_is_reported_and_not_overwritten() {
    use wayleave_engine::rows::role as rows;
    use wayleave_engine::{Batch, Engine, Write};
    let (engine, _, roles, _) = two_nodes();
    let write = Write { key: rows::key(&role()), value: Some(vec![99]) };
    engine.commit(Batch { writes: vec![write], ..Batch::default() }).await.unwrap();
    let refusal = roles.heartbeat(role(), ask("a", None)).await.unwrap_err();
    assert!(matches!(&refusal, Refusal::Corrupt(what) if what.contains("indexer")), "{refusal}");
}
