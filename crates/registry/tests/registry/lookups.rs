//! Reads of several records beside a write in flight.

use std::sync::Arc;

use wayleave_core::time::Time;
use wayleave_engine::clock::ManualClock;
use wayleave_engine::memory::Memory;
use wayleave_engine::{Engine, Key, Scan};
use wayleave_registry::Registry;

use crate::support::{add, key, number, only, put, record};

fn all(limit: usize) -> Scan {
    Scan { from: key(""), to: key("z"), limit }
}

fn keys<const N: usize>(names: [&str; N]) -> Vec<Key> {
    names.map(key).to_vec()
}

/// A store with the records a, c and e, in which a write of the record b is in flight.
async fn with_a_write_in_flight() -> (Arc<Memory>, Registry) {
    let engine = Arc::new(Memory::stepped(ManualClock::new(Time(1_000))));
    for (number, name) in (1..).zip(["a", "c", "e"]) {
        let durable = engine.commit(only(put(name, number)));
        engine.make_durable(1);
        durable.await.unwrap();
    }
    let registry = Registry::new(engine.clone());
    tokio::spawn({
        let registry = registry.clone();
        async move { registry.update(record("b"), add("b")).await }
    });
    while engine.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    (engine, registry)
}

#[tokio::test]
async fn keys_include_those_being_written_within_the_page_alone() {
    let (_engine, registry) = with_a_write_in_flight().await;
    assert_eq!(registry.keys(all(10)).await, Ok((keys(["a", "b", "c", "e"]), false)));
    assert_eq!(registry.keys(all(2)).await, Ok((keys(["a", "b", "c"]), true)));
    assert_eq!(registry.keys(all(1)).await, Ok((keys(["a"]), true)));
    let after_b = Scan { from: key("b0"), ..all(10) };
    assert_eq!(registry.keys(after_b).await, Ok((keys(["c", "e"]), false)));
}

#[tokio::test]
async fn several_records_are_read_in_order_and_after_a_write_in_flight() {
    let (engine, registry) = with_a_write_in_flight().await;
    let names = ["e", "b", "missing", "a"];
    let reading = tokio::spawn({
        let registry = registry.clone();
        async move { registry.look_at_each(&names.map(record)).await }
    });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!reading.is_finished(), "what it says could still be lost");
    // The records that are read together are not locked while it waits.
    let other = tokio::spawn({
        let registry = registry.clone();
        async move { registry.update(record("a"), add("a")).await }
    });
    while engine.waiting() < 2 {
        tokio::task::yield_now().await;
    }
    engine.make_durable(2);
    assert_eq!(other.await.unwrap(), Ok(2));
    let looks = reading.await.unwrap().unwrap();
    let numbers: Vec<u64> = looks.iter().zip(names).map(|(look, name)| number(look, name)).collect();
    assert_eq!(numbers, [3, 1, 0, 1]);
    assert!(registry.look_at_each(&[]).await.unwrap().is_empty());
}
