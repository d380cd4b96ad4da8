//! Batches are atomic: applied whole or not at all.

use super::harness::{Harness, all, batch, check, commit, delete, key, names, put, scan};
use crate::{Batch, Engine, Error, Key, Value, Write};

fn expecting(
    expects: impl IntoIterator<Item = (Key, Option<Value>)>,
    writes: impl IntoIterator<Item = Write>,
) -> Batch {
    Batch { expects: expects.into_iter().collect(), ..batch(writes) }
}

/// To reads and to scans.
pub async fn a_deleted_row_is_gone<H: Harness>() {
    let store = H::create().await;
    commit(&store, batch([put(1, "a", "1"), put(1, "b", "1")])).await.unwrap();
    commit(&store, batch([delete(1, "a")])).await.unwrap();
    check(store.engine(), 1, [("a", None), ("b", Some("1"))]).await;
    assert_eq!(names(store.engine(), all(1)).await, ["b"]);
}

/// So that callers need not read first.
pub async fn deleting_an_absent_row_is_no_error<H: Harness>() {
    let store = H::create().await;
    commit(&store, batch([delete(1, "a"), put(1, "b", "1")])).await.unwrap();
    assert_eq!(names(store.engine(), all(1)).await, ["b"]);
}

/// Whichever of the two is the deletion, and with other keys between them.
pub async fn the_later_write_of_a_key_counts<H: Harness>() {
    let store = H::create().await;
    let writes = [
        put(1, "b", "first"),
        put(1, "a", "first"),
        delete(1, "c"),
        put(1, "d", "first"),
        put(1, "a", "second"),
        delete(1, "b"),
        put(1, "c", "second"),
        put(1, "a", "third"),
    ];
    commit(&store, batch(writes)).await.unwrap();
    check(store.engine(), 1, [("a", Some("third")), ("b", None), ("c", Some("second")), ("d", Some("first"))]).await;
    assert_eq!(names(store.engine(), all(1)).await, ["a", "c", "d"]);
}

/// An empty value is not an absent row.
pub async fn an_empty_value_is_a_value<H: Harness>() {
    let store = H::create().await;
    commit(&store, batch([put(1, "a", "")])).await.unwrap();
    check(store.engine(), 1, [("a", Some(""))]).await;
}

/// It resolves like any other.
pub async fn an_empty_batch_commits<H: Harness>() {
    let store = H::create().await;
    commit(&store, Batch::default()).await.unwrap();
    assert_eq!(names(store.engine(), all(1)).await, Vec::<String>::new());
}

/// Ten thousand rows and a large one among them.
pub async fn a_large_batch_commits_as_one<H: Harness>() {
    let store = H::create().await;
    let large = "x".repeat(1 << 20);
    let mut writes: Vec<_> = (0..10_000).rev().map(|i| put(1, &format!("{i:05}"), &i.to_string())).collect();
    writes.push(put(1, "large", &large));
    commit(&store, batch(writes)).await.unwrap();
    let rows = scan(store.engine(), all(1)).await;
    assert_eq!(rows.len(), 10_001);
    assert_eq!((&rows[77].key, rows[77].value.as_slice()), (&key(1, "00077"), b"77".as_slice()));
    check(store.engine(), 1, [("large", Some(&large)), ("09999", Some("9999"))]).await;
}

/// Present and absent rows alike.
pub async fn expected_rows_that_hold_let_the_batch_pass<H: Harness>() {
    let store = H::create().await;
    commit(&store, batch([put(1, "a", "1")])).await.unwrap();
    let expects = [(key(1, "a"), Some(b"1".to_vec())), (key(1, "b"), None)];
    commit(&store, expecting(expects, [put(1, "a", "2"), put(1, "b", "2")])).await.unwrap();
    check(store.engine(), 1, [("a", Some("2")), ("b", Some("2"))]).await;
}

/// A differing value, an absent row and a present one, each after a condition that holds.
pub async fn a_conflict_leaves_nothing<H: Harness>() {
    let store = H::create().await;
    commit(&store, batch([put(1, "a", "1"), put(1, "b", "1")])).await.unwrap();
    let wrong = [(key(1, "b"), Some(b"2".to_vec())), (key(1, "b"), None), (key(1, "c"), Some(b"1".to_vec()))];
    for expect in wrong {
        let expects = [(key(1, "a"), Some(b"1".to_vec())), expect.clone()];
        let answer = commit(&store, expecting(expects, [put(1, "a", "9"), put(1, "d", "9")])).await;
        assert_eq!(answer, Err(Error::Conflict), "{expect:?}");
        check(store.engine(), 1, [("a", Some("1")), ("b", Some("1")), ("c", None), ("d", None)]).await;
    }
}

/// A batch that is not durable yet counts, because it becomes durable before this one.
pub async fn an_expected_row_is_judged_by_what_is_visible<H: Harness>() {
    let store = H::create().await;
    let first = store.engine().commit(batch([put(1, "a", "1")]));
    let second = store.engine().commit(expecting([(key(1, "a"), None)], [put(1, "a", "2")]));
    let third = store.engine().commit(expecting([(key(1, "a"), Some(b"1".to_vec()))], [put(1, "a", "3")]));
    store.settle().await;
    assert_eq!((first.await, second.await, third.await), (Ok(()), Err(Error::Conflict), Ok(())));
    check(store.engine(), 1, [("a", Some("3"))]).await;
}
