use wayleave_core::frontier::row::{HostRow, HotRow, Pace};
use wayleave_core::ids::HostId;
use wayleave_core::settings::PaceSettings;
use wayleave_core::time::Millis;

use super::*;

const SHARD: ShardId = ShardId(2);

fn host(counter: u64) -> HostRow {
    HostRow {
        id: HostId::new(SHARD, counter),
        name: format!("h{counter}.example").as_str().into(),
        group: None,
        settings: PaceSettings::default(),
        robots_delay: Millis(0),
        queued_at: None,
        next_queue: 0,
        pace: Pace::default(),
        queues: Vec::new(),
    }
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
    assert_eq!(left_out, ["a host row has an unknown version", "a row is of an unknown kind"]);
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
