//! Concurrent loads, and copies of a damaged database.

use std::collections::BTreeMap;

use wayleave_core::ids::{Epoch, ShardId};
use wayleave_engine::fences::FenceState;
use wayleave_engine::snapshot_file::SnapshotHeader;
use wayleave_engine::suite::harness::{all, batch, key, put, scan};
use wayleave_engine::{Engine, Error, Row};
use wayleave_engine_postgres::{BulkLoad, OpenError, Reader};
use wayleave_testbed::Cluster;

use crate::open;

fn row(name: &str, of: &str) -> Row {
    Row { key: key(1, name), value: of.as_bytes().to_vec() }
}

fn header(epoch: u64) -> SnapshotHeader {
    let fences = BTreeMap::from([(ShardId(1), FenceState { epoch: Epoch(epoch), seq: 1 })]);
    SnapshotHeader { shards: 4, fences, ..SnapshotHeader::default() }
}

/// A regression: the rows of both were mixed.
#[tokio::test]
async fn a_later_load_replaces_an_earlier_one() {
    for later in ["x", "y"] {
        let url = Cluster::shared().await.fresh_database().await;
        let mut first = BulkLoad::create(&url, &header(3), "x").await.unwrap();
        first.write(&[row("a", "x"), row("b", "x")]).await.unwrap();
        let mut second = BulkLoad::create(&url, &header(4), later).await.unwrap();
        let goes_on = later == "x";
        assert_eq!(second.after().cloned(), goes_on.then(|| key(1, "b")));
        let refused = first.write(&[row("c", "x")]).await;
        assert!(matches!(refused, Err(OpenError::Superseded { .. })), "{refused:?}");
        second.write(&[row("m", later)]).await.unwrap();
        let refused = first.finish().await;
        assert!(matches!(refused, Err(OpenError::Superseded { .. })), "{refused:?}");
        second.write(&[row("n", later)]).await.unwrap();
        second.finish().await.unwrap();
        assert!(open(&url).await.is_elsewhere(), "it was made from another store");
        wayleave_engine_postgres::settle(&url).await.unwrap();
        let engine = open(&url).await;
        assert!(!engine.is_elsewhere());
        let found = scan(&engine, all(1)).await;
        let names = if goes_on { vec!["a", "b", "m", "n"] } else { vec!["m", "n"] };
        assert_eq!(found, names.iter().map(|name| row(name, later)).collect::<Vec<_>>());
        assert_eq!(engine.own(ShardId(1), &[]).await.unwrap().0, Epoch(5), "and the fences of the second");
    }
}

/// A regression: after the first damaged page the transaction was over, and nothing more could be read.
#[tokio::test]
async fn a_copy_reads_on_past_damaged_pages() {
    let cluster = Cluster::shared().await;
    let url = cluster.fresh_database().await;
    let engine = open(&url).await;
    let text = "v".repeat(300);
    for part in 0..10 {
        let writes = (0..100).map(|n| put(1, &format!("host/{:04}", (n * 7_919 + part) % 1_000), &text));
        engine.commit(batch(writes)).await.unwrap();
    }
    let rows = scan(&engine, all(1)).await;
    drop(engine);
    let database = url.rsplit('/').next().unwrap();
    let name = |n: usize| rows[n].key.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let condition = format!("key in ('\\x{}', '\\x{}', '\\x{}')", name(0), name(300), name(rows.len() - 1));
    let of_pages = format!(
        "select encode(key, 'hex') from wayleave_rows where (ctid::text::point)[0] in \
         (select (ctid::text::point)[0] from wayleave_rows where {condition})"
    );
    let lost = cluster.sql_in(database, &of_pages).await;
    let lost: Vec<&str> = lost.lines().collect();
    let copy = cluster.damaged_copy(database, "wayleave_rows", &condition).await;
    let reader = Reader::open(&copy).await.unwrap();
    let (mut from, end, mut found, mut gaps) = (Vec::new(), vec![0xff; 3], Vec::new(), 0);
    while from < end {
        match reader.page(&from, 1).await {
            Ok(page) => {
                let Some(last) = page.last() else { break };
                from = [last.key.as_slice(), &[0]].concat();
                found.extend(page);
            }
            Err(Error::Corrupt(why)) => {
                assert!(why.contains("invalid page"), "{why}");
                let next = reader.past_damage(&from, &end).await.unwrap();
                assert!(from < next);
                (from, gaps) = (next, gaps + 1);
            }
            Err(error) => panic!("{error}"),
        }
    }
    let hex = |row: &Row| row.key.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let readable: Vec<Row> = rows.iter().filter(|row| !lost.contains(&&*hex(row))).cloned().collect();
    assert!(found == readable, "{} of {} rows, {} are on damaged pages", found.len(), rows.len(), lost.len());
    println!("seen: {gaps} gaps of {} rows are passed, and all {} others read", lost.len(), found.len());
}
