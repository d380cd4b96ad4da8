//! Durability across a reopen, and monotonic time.

use wayleave_core::ids::Epoch;

use super::harness::{Harness, all, batch, check, commit, delete, fenced, names, own, put};
use crate::{Engine, Error};

/// Rows, later values and deletions.
pub async fn committed_rows_survive_a_reopen<H: Harness>() {
    let store = H::create().await;
    commit(&store, batch([put(1, "a", "1"), put(1, "b", "1"), put(1, "c", "1")])).await.unwrap();
    commit(&store, batch([put(1, "a", "2"), delete(1, "b")])).await.unwrap();
    let store = store.reopen().await;
    check(store.engine(), 1, [("a", Some("2")), ("b", None), ("c", Some("1"))]).await;
    assert_eq!(names(store.engine(), all(1)).await, ["a", "c"]);
    commit(&store, batch([put(1, "a", "3")])).await.unwrap();
    let store = store.reopen().await;
    check(store.engine(), 1, [("a", Some("3")), ("c", Some("1"))]).await;
}

/// A restart must not let an old owner back in, nor repeat a sequence number.
pub async fn turns_survive_a_reopen<H: Harness>() {
    let store = H::create().await;
    let (old, _) = own(&store, 1).await.unwrap();
    let (epoch, _) = own(&store, 1).await.unwrap();
    commit(&store, fenced([(1, epoch, 1)], [put(1, "a", "1")])).await.unwrap();
    commit(&store, fenced([(1, epoch, 2)], [])).await.unwrap();
    let store = store.reopen().await;
    let fenced_out = Err(Error::Fenced { shard: 1, epoch: epoch.0, seq: 2 });
    assert_eq!(commit(&store, fenced([(1, old, 3)], [put(1, "a", "late")])).await, fenced_out);
    assert_eq!(commit(&store, fenced([(1, epoch, 2)], [put(1, "a", "late")])).await, fenced_out);
    assert_eq!(own(&store, 1).await, Ok((Epoch(epoch.0 + 1), 2)));
    check(store.engine(), 1, [("a", Some("1"))]).await;
}

/// A caller may wait for the last commit first, or drop its future: the batches become durable anyway.
pub async fn commits_in_flight_resolve_in_any_order_of_waiting<H: Harness>() {
    let store = H::create().await;
    let mut answers: Vec<_> =
        (0..50).map(|i| store.engine().commit(batch([put(1, &format!("{i:02}"), "1")]))).collect();
    store.settle().await;
    let last = answers.pop().unwrap();
    drop(answers.split_off(25));
    last.await.unwrap();
    for answer in answers.into_iter().rev() {
        answer.await.unwrap();
    }
    let store = store.reopen().await;
    assert_eq!(names(store.engine(), all(1)).await.len(), 50);
}

/// Read after read.
pub async fn time_never_goes_back<H: Harness>() {
    let store = H::create().await;
    let mut last = store.engine().now();
    assert!(last.0 > 0, "an engine knows what time it is");
    for _ in 0..1_000 {
        let now = store.engine().now();
        assert!(now >= last, "{now:?} after {last:?}");
        last = now;
    }
}

/// The time of a committed batch stays in the past.
pub async fn time_does_not_go_back_over_a_reopen<H: Harness>() {
    let store = H::create().await;
    let (epoch, _) = own(&store, 1).await.unwrap();
    let before = store.engine().now();
    commit(&store, fenced([(1, epoch, 1)], [put(1, "a", "1")])).await.unwrap();
    let store = store.reopen().await;
    assert!(store.engine().now() >= before);
}
