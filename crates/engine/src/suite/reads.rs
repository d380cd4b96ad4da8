//! What reads return, and in which order.

use super::harness::{Harness, all, batch, check, commit, key, names, put, scan};
use crate::{Engine, Scan, Write};

/// Pipelining depends on this: the next batch is decided before this one is durable.
pub async fn a_batch_is_seen_as_soon_as_commit_returns<H: Harness>() {
    let store = H::create().await;
    let answer = store.engine().commit(batch([put(1, "a", "1")]));
    check(store.engine(), 1, [("a", Some("1"))]).await;
    assert_eq!(names(store.engine(), all(1)).await, ["a"]);
    store.settle().await;
    answer.await.unwrap();
}

/// Absent keys, repeated keys and unsorted keys included.
pub async fn values_come_in_the_order_of_their_keys<H: Harness>() {
    let store = H::create().await;
    commit(&store, batch([put(1, "a", "1"), put(1, "c", "3"), put(2, "a", "other")])).await.unwrap();
    check(store.engine(), 1, [("c", Some("3")), ("b", None), ("a", Some("1")), ("c", Some("3"))]).await;
    check(store.engine(), 2, [("a", Some("other")), ("c", None)]).await;
}

/// An empty request gets an empty result.
pub async fn no_keys_and_no_scans_give_empty_answers<H: Harness>() {
    let store = H::create().await;
    assert_eq!(store.engine().get_many(&[]).await.unwrap(), []);
    assert_eq!(store.engine().scan_many(&[]).await.unwrap(), Vec::<Vec<crate::Row>>::new());
}

/// The start is inclusive, the end exclusive.
pub async fn a_scan_gives_rows_in_key_order_within_its_bounds<H: Harness>() {
    let store = H::create().await;
    let writes = ["d", "b", "a", "c", "bb"].map(|name| put(1, name, name));
    commit(&store, batch(writes)).await.unwrap();
    let rows = scan(store.engine(), Scan { from: key(1, "b"), to: key(1, "d"), limit: 100 }).await;
    let rows: Vec<_> = rows.into_iter().map(|row| (row.key, String::from_utf8(row.value).unwrap())).collect();
    assert_eq!(rows, ["b", "bb", "c"].map(|name| (key(1, name), name.to_owned())));
}

/// Also with a limit of zero.
pub async fn a_scan_stops_at_its_limit<H: Harness>() {
    let store = H::create().await;
    commit(&store, batch(["a", "b", "c"].map(|name| put(1, name, name)))).await.unwrap();
    for (limit, expected) in [(0, vec![]), (2, vec!["a", "b"]), (3, vec!["a", "b", "c"]), (4, vec!["a", "b", "c"])] {
        assert_eq!(names(store.engine(), Scan { limit, ..all(1) }).await, expected, "limit {limit}");
    }
}

/// An empty or inverted range is a valid way to ask for nothing.
pub async fn a_scan_that_ends_before_it_begins_is_empty<H: Harness>() {
    let store = H::create().await;
    commit(&store, batch(["a", "b", "c"].map(|name| put(1, name, name)))).await.unwrap();
    for (from, to) in [("c", "a"), ("b", "b")] {
        let odd = Scan { from: key(1, from), to: key(1, to), limit: 9 };
        assert_eq!(scan(store.engine(), odd).await, [], "{from}..{to}");
    }
}

/// Each with its own bounds and limit.
pub async fn several_scans_are_answered_in_their_order<H: Harness>() {
    let store = H::create().await;
    commit(&store, batch([put(2, "x", "1"), put(1, "a", "1"), put(1, "b", "1")])).await.unwrap();
    let scans = [all(2), Scan { limit: 1, ..all(1) }, all(9), all(1)];
    let found = store.engine().scan_many(&scans).await.unwrap();
    let keys: Vec<Vec<_>> = found.into_iter().map(|rows| rows.into_iter().map(|row| row.key).collect()).collect();
    let expected = [vec![key(2, "x")], vec![key(1, "a")], vec![], vec![key(1, "a"), key(1, "b")]];
    assert_eq!(keys, expected);
}

/// Zero bytes, high bytes, and a key that is a prefix of another.
pub async fn keys_of_any_bytes_keep_their_order<H: Harness>() {
    let store = H::create().await;
    let sorted: [&[u8]; 7] = [b"", b"\0", b"\0\0", b"\0\xff", b"a\0b", b"\xff", b"\xff\xff"];
    let writes = sorted.iter().rev().map(|name| Write { key: key(0x00ff, name), value: Some(name.to_vec()) });
    commit(&store, batch(writes)).await.unwrap();
    let rows = scan(store.engine(), all(0x00ff)).await;
    let found: Vec<_> = rows.iter().map(|row| row.key[3..].to_vec()).collect();
    assert_eq!(found, sorted);
    assert!(rows.iter().all(|row| row.key[3..] == row.value));
    let middle = Scan { from: key(0x00ff, b"\0\0"), to: key(0x00ff, b"\xff"), limit: 9 };
    assert_eq!(scan(store.engine(), middle).await.len(), 3);
}

/// An engine's own rows, such as fences, are never returned.
pub async fn a_whole_shard_holds_only_what_was_written<H: Harness>() {
    let store = H::create().await;
    let (epoch, seq) = super::harness::own(&store, 1).await.unwrap();
    let fenced = super::harness::fenced([(1, epoch, seq + 1)], [put(1, "a", "1")]);
    commit(&store, fenced).await.unwrap();
    let whole = Scan { from: vec![0, 0], to: vec![0xff, 0xff, 0xff], limit: usize::MAX };
    assert_eq!(names(store.engine(), whole).await, ["a"]);
    let first = Scan { from: vec![0, 0], to: vec![0xff, 0xff, 0xff], limit: 1 };
    assert_eq!(names(store.engine(), first).await, ["a"], "hidden rows must not count towards the limit");
}

/// Time and rows come from one consistent read, and the time is not ahead of [`Engine::now`].
pub async fn a_look_gives_durable_rows_and_the_time<H: Harness>() {
    let store = H::create().await;
    commit(&store, batch([put(1, "a", "1"), put(1, "b", "2"), put(2, "c", "3")])).await.unwrap();
    let before = store.engine().now();
    let first = store.engine().look(&[all(2), all(1)]).await.expect("a look must answer");
    let names: Vec<Vec<&[u8]>> = first.rows.iter().map(|rows| rows.iter().map(|row| &row.key[3..]).collect()).collect();
    assert_eq!(names, [vec![b"c" as &[u8]], vec![b"a", b"b"]]);
    let second = store.engine().look(&[]).await.expect("a look must answer");
    assert!(second.rows.is_empty());
    assert!(before <= first.now && first.now <= second.now, "{before:?} {first:?} {second:?}");
    assert_eq!(first.incarnation, second.incarnation);
}
