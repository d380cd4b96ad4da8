//! Updates: races, decisions made again, answers that were lost.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use futures::future::join_all;
use wayleave_core::limits::UPDATE_TRIES_MAX;
use wayleave_core::time::Time;
use wayleave_engine::clock::ManualClock;
use wayleave_engine::memory::{LostAnswer, Memory};
use wayleave_engine::{Engine, Error, Look};
use wayleave_registry::{Decision, News, Registry};
use wayleave_testbed::{Cluster, Fault, Proxy};

use crate::support::{Meanwhile, add, memory, number, only, open, put, read, record, two_in_memory, two_over_postgres};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_updates_to_one_row_through_two_nodes_none_is_lost() {
    none_is_lost(two_in_memory()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_updates_to_one_row_through_two_nodes_are_never_lost() {
    none_is_lost(two_over_postgres().await).await;
}

async fn none_is_lost(engines: [Arc<dyn Engine>; 2]) {
    let nodes = engines.map(Registry::new);
    let updates = (0..60).map(|n| {
        let node = nodes[n % 2].clone();
        tokio::spawn(async move { node.update(record("n"), add("n")).await })
    });
    let mut sums = BTreeSet::new();
    let mut refused = 0;
    for answer in join_all(updates).await.into_iter().map(Result::unwrap) {
        match answer {
            Ok(sum) => assert!(sums.insert(sum), "two updates were decided on the same row: {sum}"),
            Err(Error::Unavailable(why)) => {
                assert!(why.contains("too many concurrent updates to this record"), "{why}");
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(!sums.is_empty() && sums.len() + refused == 60);
    assert_eq!(read(&nodes[0], "n").await, sums.len() as u64, "a refused update has changed nothing");
}

#[tokio::test]
async fn a_decision_is_made_again_on_the_rows_that_another_node_has_written() {
    decided_again(two_in_memory()).await;
}

#[tokio::test]
async fn a_decision_is_repeated_on_the_rows_that_another_node_has_written() {
    decided_again(two_over_postgres().await).await;
}

/// First the written row changes meanwhile, then a row that the decision only hangs on.
async fn decided_again(engines: [Arc<dyn Engine>; 2]) {
    let registry = Registry::new(Meanwhile::new(engines.clone(), vec![only(put("n", 7))]));
    assert_eq!(registry.update(record("n"), add("n")).await, Ok(8));
    assert_eq!(registry.conflicts(), 1);
    let registry = Registry::new(Meanwhile::new(engines, vec![only(put("limit", 8))]));
    let mut subject = record("n");
    subject.scans.extend(record("limit").scans);
    let below_the_limit = |look: &Look, _: bool| {
        let sum = number(look, "n") + 1;
        if number(look, "limit") > 0 && sum > number(look, "limit") {
            return Decision::keep(None);
        }
        let depends_on = vec![record("limit").key];
        Decision { writes: vec![put("n", sum)], depends_on, news: News::NOBODY, answer: Some(sum) }
    };
    assert_eq!(registry.update(subject, below_the_limit).await, Ok(None), "the limit came before the write");
    assert_eq!((read(&registry, "n").await, registry.conflicts()), (8, 1));
}

#[tokio::test(start_paused = true)]
async fn one_who_is_always_overtaken_is_refused_and_has_changed_nothing() {
    let others = (0..100).map(|n| only(put("n", 1_000 - n))).collect();
    let registry = Registry::new(Meanwhile::new(two_in_memory(), others));
    let refused = registry.update(record("n"), add("n")).await;
    assert_eq!(refused, Err(Error::Unavailable("too many concurrent updates to this record".into())));
    assert_eq!(registry.conflicts(), UPDATE_TRIES_MAX as u64);
    assert_eq!(read(&registry, "n").await, 900 + UPDATE_TRIES_MAX as u64);
}

/// Writes 7 once: only the row shows whether an earlier attempt was applied. The answer is what each call saw.
fn write_once(calls: Arc<Mutex<Vec<(u64, bool)>>>) -> impl FnMut(&Look, bool) -> Decision<()> + Send + 'static {
    move |look, in_doubt| {
        calls.lock().unwrap().push((number(look, "n"), in_doubt));
        match number(look, "n") {
            7 if in_doubt => Decision::keep(()),
            _ => Decision::write(vec![put("n", 7)], News::NOBODY, ()),
        }
    }
}

#[tokio::test]
async fn after_a_lost_answer_the_decision_sees_the_rows_and_the_uncertainty() {
    for (truth, second) in [(LostAnswer::Applied, 7), (LostAnswer::Dropped, 0)] {
        let (engine, calls) = (memory(), Arc::default());
        let registry = Registry::new(engine.clone());
        engine.lose_next_answer(truth);
        assert_eq!(registry.update(record("n"), write_once(Arc::clone(&calls))).await, Ok(()));
        assert_eq!(*calls.lock().unwrap(), [(0, false), (second, true)], "{truth:?}");
        assert_eq!(read(&registry, "n").await, 7);
    }
}

/// The connection is cut around COMMIT: the database has applied the write, or has not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_lost_answer_of_the_database_the_reply_is_still_true() {
    let cluster = Cluster::shared().await;
    let direct = cluster.fresh_database().await;
    let proxy = Proxy::start(cluster.address()).await;
    let (registry, witness) = (Registry::new(open(&proxy.url(&direct)).await), Registry::new(open(&direct).await));
    registry.update(record("n"), add("n")).await.unwrap();
    let commit = proxy.steps() - 1;
    for (fault, applied) in [(Fault::CutAnswer, true), (Fault::CutBefore, false)] {
        witness.write(only(put("n", 1)), News::NOBODY).await.unwrap();
        let calls = Arc::default();
        proxy.arm(commit, fault);
        let answer = registry.update(record("n"), write_once(Arc::clone(&calls))).await;
        assert!(proxy.has_struck(), "{fault:?}");
        assert_eq!((answer, read(&witness, "n").await), (Ok(()), 7), "{fault:?}");
        let calls = calls.lock().unwrap();
        assert_eq!(calls.len(), 2, "{fault:?}: {calls:?}");
        assert!(calls[1].1, "the decision must know of the doubt");
        assert_eq!(calls[1].0 == 7, applied, "{fault:?}: {calls:?}");
    }
}

#[tokio::test]
async fn a_failure_after_a_lost_answer_does_not_claim_that_nothing_was_changed() {
    for truth in [LostAnswer::Applied, LostAnswer::Dropped] {
        let engine = memory();
        let registry = Registry::new(engine.clone());
        let store = engine.clone();
        let decide = move |_: &Look, in_doubt: bool| {
            if in_doubt {
                store.begin_outage("the cable is out");
            } else {
                store.lose_next_answer(truth);
            }
            Decision::write(vec![put("n", 7)], News::NOBODY, ())
        };
        let answer = registry.update(record("n"), decide).await;
        assert!(matches!(&answer, Err(Error::OutcomeUnknown(why)) if why.contains("cable")), "{answer:?}");
    }
}

#[tokio::test]
async fn an_update_outlives_its_caller_and_is_durable_before_it_is_read() {
    let engine = Arc::new(Memory::stepped(ManualClock::new(Time(1_000))));
    let registry = Registry::new(engine.clone());
    let updating = tokio::spawn({
        let registry = registry.clone();
        async move { registry.update(record("n"), add("n")).await }
    });
    while engine.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    updating.abort();
    let reading = tokio::spawn(async move { read(&registry, "n").await });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!reading.is_finished(), "answered before it was durable");
    assert_eq!(engine.make_durable(1), 1);
    assert_eq!(reading.await.unwrap(), 1);
}

#[tokio::test]
async fn a_row_that_was_not_read_is_not_written() {
    let registry = Registry::new(memory());
    let blind = |_: &Look, _: bool| Decision::write(vec![put("other", 7)], News::NOBODY, ());
    let refused = registry.update(record("n"), blind).await;
    assert!(matches!(&refused, Err(Error::Corrupt(why)) if why.contains("this record")), "{refused:?}");
    assert_eq!(read(&registry, "other").await, 0);
}
