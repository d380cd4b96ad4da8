//! What reads return, and in which order.

use super::harness::{Harness, all, batch, check, commit, key, names, put, scan};
use crate::{Engine, Error, Key, Row, Scan, Write};

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

/// With rows on both sides of it, at the end of a range, and with a row written since.
pub async fn a_damaged_block_costs_what_it_holds<H: Harness>() {
    // Large rows that cannot be compressed, so that a block holds few of them.
    let mut state = 1_u64;
    let mut value = || -> Vec<u8> {
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        };
        (0..1_500).map(|_| next()).collect()
    };
    let rows: Vec<Row> = (0..60).map(|n| Row { key: key(1, format!("host/{n:02}")), value: value() }).collect();
    let store = H::create().await;
    let writes = rows.iter().map(|row| Write { key: row.key.clone(), value: Some(row.value.clone()) });
    commit(&store, batch(writes)).await.unwrap();
    let store = store.damage(&rows[30].key).await;
    let mut readable = Vec::new();
    for row in &rows {
        match store.engine().get_many(std::slice::from_ref(&row.key)).await {
            Ok(found) => {
                assert_eq!(found, [Some(row.value.clone())]);
                readable.push(row.clone());
            }
            Err(Error::Corrupt(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    let damaged: Vec<&Row> = rows.iter().filter(|row| !readable.contains(row)).collect();
    assert!(damaged.contains(&&rows[30]) && readable.len() > 30, "{} of 60 can be read", readable.len());
    assert_eq!(walk(store.engine(), all(1)).await, readable);
    let in_damage = Scan { from: rows[30].key.clone(), to: [rows[30].key.as_slice(), &[0]].concat(), limit: 9 };
    assert_eq!(walk(store.engine(), in_damage).await, []);
    // What was written since is not concerned.
    let new = put(1, "host/29~new", "new");
    commit(&store, batch([new.clone()])).await.unwrap();
    readable.push(Row { key: new.key, value: b"new".to_vec() });
    readable.sort_by(|a, b| a.key.cmp(&b.key));
    assert_eq!(walk(store.engine(), all(1)).await, readable);
}

/// All rows of a range that can be read.
async fn walk(engine: &impl Engine, range: Scan) -> Vec<Row> {
    let (mut rows, mut from): (Vec<Row>, Key) = (Vec::new(), range.from.clone());
    while from < range.to {
        let scan = Scan { from: from.clone(), limit: 1, ..range.clone() };
        match engine.scan_many(std::slice::from_ref(&scan)).await {
            Ok(found) => {
                let Some(row) = found.into_iter().flatten().next() else { break };
                from = [row.key.as_slice(), &[0]].concat();
                rows.push(row);
            }
            Err(Error::Corrupt(_)) => {
                let (end, certain) = engine.past_damage(&Scan { limit: 7, ..scan.clone() }).await.unwrap();
                assert!(from < end && end <= range.to, "{from:?} {end:?}");
                assert!(certain.iter().all(|row| from <= row.key && row.key < end), "{certain:?}");
                rows.extend(certain);
                from = end;
            }
            Err(error) => panic!("{error}"),
        }
    }
    rows
}
