use wayleave_core::frontier::row::{HostRow, HotRow};
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::ids::{CrawlNo, HostId, QueueId, Token};
use wayleave_core::pipeline::row::{ChunkRow, ChunkState, LinkRow, LinkState, Write as PipelineWrite};
use wayleave_core::time::Time;

use super::*;
use crate::rows::chunk_links::SLICE_LINKS;
use crate::rows::hot;

const SHARD: ShardId = ShardId(2);

fn host(counter: u64) -> HostRow {
    HostRow::new(HostId::new(SHARD, counter), format!("h{counter}.example").as_str().into())
}

fn stored(write: crate::Write) -> Row {
    Row { key: write.key, value: write.value.unwrap() }
}

fn host_row(counter: u64) -> Row {
    stored(hot::encode(SHARD, &HotRow::Host(host(counter))))
}

fn pass(rows: Vec<Row>) -> (Vec<Row>, Vec<String>) {
    let (mut salvage, mut left_out) = (Salvage::default(), Vec::new());
    let kept = rows.into_iter().filter_map(|row| salvage.take(row, &mut left_out)).collect();
    (kept, left_out.into_iter().map(|left| left.why).collect())
}

#[test]
fn a_row_that_does_not_decode_is_left_out_and_named() {
    let bad = Row { key: host_row(2).key, value: vec![200] };
    let (kept, left_out) = pass(vec![host_row(1), bad, Row { key: vec![0, 1, 250], value: Vec::new() }]);
    assert_eq!(kept, [host_row(1)]);
    assert_eq!(left_out, ["its format is unknown", "a row is of an unknown kind"]);
}

#[test]
fn workers_and_matches_of_a_lost_pool_are_left_out() {
    let worker = worker::key(SHARD, &"p".into(), wayleave_core::matches::WorkerNo(1));
    let mut salvage = Salvage::default();
    let row = Row { key: worker, value: Vec::new() };
    assert_eq!(salvage.refers(&row), Ok(Some("pool 'p' is lost".into())));
    salvage.pools.insert("p".into());
    assert_eq!(salvage.refers(&row), Ok(None));
}

/// A regression: nothing ended it, so its group stayed busy for good.
#[test]
fn a_reservation_of_a_lost_chunk_expires() {
    let lease = |no: u128, visiting: bool| {
        let row = LeaseRow {
            token: Token::new(SHARD, no),
            host: HostId::new(SHARD, 1),
            holder: "w".into(),
            granted_at: Time(5),
            expires_at: Time(6),
            crawl: CrawlNo(1),
            queued_at: None,
            urls: Vec::new(),
            taken_away: 0,
            request: None,
            link: Some(Link { chunk: ChunkId::new(SHARD, 5), visiting }),
            ended_chunk: None,
        };
        Row { key: lease::key(SHARD, row.token), value: lease::encode(&row) }
    };
    let taken = |salvage: &mut Salvage| {
        let rows = [lease(1, true), lease(2, false)].map(|row| salvage.take(row, &mut Vec::new()).unwrap());
        rows.map(|row| lease::decode(&row.value).unwrap())
    };
    let chunk = long_chunk();
    let links = chunk.iter().filter(|row| keys::kind(&row.key) == Ok(Kind::ChunkLinks)).cloned();
    let of = |row: &&Row| keys::kind(&row.key) == Ok(Kind::Chunk);
    for (links, noted, kept) in [
        (links.clone().collect(), true, true),
        (links.clone().collect(), false, false),
        (links.take(1).collect(), true, false),
    ] {
        let mut salvage = Salvage::new(&[], links, Time(100));
        chunk.iter().filter(of).filter(|_| noted).for_each(|row| salvage.note_chunk(row));
        let [visiting, idle] = taken(&mut salvage);
        assert_eq!((visiting.link.is_some(), idle.link.is_some()), (kept, kept));
        let ends = if kept { (Time(6), Time(6)) } else { (Time(3_600_100), Time(100)) };
        assert_eq!((visiting.expires_at, idle.expires_at), ends);
    }
}

/// A chunk in progress of three rows.
fn long_chunk() -> Vec<Row> {
    let link = LinkRow {
        lease: None,
        host: "h1.example".into(),
        url: (QueueId { host: HostId::new(SHARD, 1), no: 0 }, UrlKey(b"/".to_vec().into())),
        state: LinkState::Crawling,
        replaced_by: None,
    };
    let row = ChunkRow {
        id: ChunkId::new(SHARD, 5),
        crawl: "c".into(),
        host: None,
        visit: None,
        state: ChunkState::Crawling,
        lease: None,
        attempts: 0,
        inputs_lost: 0,
        created_at: Time(1),
        since: Time(2),
        links: vec![link; 2 * SLICE_LINKS + 1],
        crawled: None,
        built: None,
        placed: false,
        index: 0,
        indexes_lost: 0,
        last_error: None,
        ended: [None; 2],
    };
    let changes = row.changes_since(None);
    let write = PipelineWrite::Chunk { row: Box::new(row), moved: false, changes };
    chunk::encode_write(SHARD, &write).into_iter().map(stored).collect()
}

#[test]
fn a_chunk_that_has_lost_links_is_left_out_with_those_that_it_has() {
    let all = long_chunk();
    assert_eq!(all.len(), 3);
    for lost in 0..4 {
        let rows: Vec<Row> = all.iter().enumerate().filter(|(at, _)| *at != lost).map(|(_, row)| row.clone()).collect();
        let is_link = |row: &&Row| keys::kind(&row.key) == Ok(Kind::ChunkLinks);
        let links = rows.iter().filter(is_link).cloned().collect();
        let (mut salvage, mut left_out) = (Salvage::new(&[], links, Time(9)), Vec::new());
        let kept: Vec<Row> = rows.iter().cloned().filter_map(|row| salvage.take(row, &mut left_out)).collect();
        let whole = if lost == 3 { 3 } else { 0 };
        assert_eq!((kept.len(), left_out.len()), (whole, rows.len() - whole), "{left_out:?}");
    }
}
