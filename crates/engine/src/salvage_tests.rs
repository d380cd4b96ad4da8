use wayleave_core::frontier::changes::ChangedHost;
use wayleave_core::frontier::row::{HostRow, Pace};
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

/// A log row that changes part of some hosts, creates some and removes some.
fn log_row(seq: u64, parts: &[u64], whole: &[u64], gone: &[u64]) -> Row {
    let mut pack = log::Pack::default();
    let (parts, whole): (Vec<_>, Vec<_>) =
        (parts.iter().map(|n| host(*n)).collect(), whole.iter().map(|n| host(*n)).collect());
    whole.iter().for_each(|host| pack.add_host(SHARD, ChangedHost::Whole(host.by_ref())));
    parts.iter().for_each(|host| pack.add_host(SHARD, ChangedHost::Part(host.by_ref())));
    gone.iter().for_each(|n| pack.add(&hot::encode(SHARD, &HotRow::HostGone(HostId::new(SHARD, *n)))));
    Row { key: log::key(SHARD, seq), value: pack.into_value() }
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
fn changes_of_a_lost_host_are_dropped_from_the_log_and_the_others_stay() {
    let rows = vec![
        host_row(1),
        log_row(5, &[1, 2, 3], &[3], &[]),
        log_row(6, &[1, 3], &[], &[3]),
        log_row(7, &[3], &[], &[]),
    ];
    let (kept, left_out) = pass(rows);
    assert_eq!(kept.len(), 4);
    assert_eq!(kept[1], log_row(5, &[1, 3], &[3], &[]));
    assert_eq!(kept[2], log_row(6, &[1, 3], &[], &[3]), "nothing was lost there");
    assert_eq!(kept[3], log_row(7, &[], &[], &[]), "it was removed before");
    assert_eq!(left_out.len(), 2, "{left_out:?}");
    // Another shard has other hosts.
    let elsewhere = Row { key: [&[0, 3], &log_row(1, &[], &[], &[]).key[2..]].concat(), ..log_row(1, &[1], &[], &[]) };
    assert_eq!(pass(vec![host_row(1), elsewhere]).1.len(), 1);
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

#[test]
fn a_shard_whose_row_is_lost_gives_out_no_number_again() {
    let key = |shard| keys::start(ShardId(shard), Kind::Shard, 0);
    let filled = Salvage::fill(&key(1), &key(3), 8);
    assert_eq!(filled.iter().map(|row| row.key.clone()).collect::<Vec<_>>(), [key(1), key(2)]);
    let HotRow::Shard(row) = hot::decode(&filled[0].key, Some(&filled[0].value)).unwrap() else { panic!("a shard") };
    assert!(row.next_host >= 1 << 40);
    assert_eq!(Salvage::fill(&host_row(1).key, &host_row(2).key, 8), []);
}
