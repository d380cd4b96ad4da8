use wayleave_core::ids::Token;
use wayleave_core::matches::PoolSpec;
use wayleave_core::roles::{self, Facts, Origin, RoleChanges, RoleRow, RoleSettings, Runs};
use wayleave_core::settings::Change;
use wayleave_core::time::{Millis, Time};

use super::*;
use crate::rows::{cluster, join, machine, node, seat};

const SHARD: ShardId = ShardId(3);

fn row(key: Key, value: Vec<u8>) -> Row {
    Row { key, value }
}

fn of_kind(shard: ShardId, kind: Kind) -> Key {
    keys::of(shard, kind, &[])
}

fn moved(row: Row) -> Row {
    as_new_store(row).unwrap().expect("the row is part of the new store")
}

#[test]
fn what_concerns_nodes_and_grants_of_pages_is_no_part_of_a_copy() {
    for kind in [Kind::Fence, Kind::Node, Kind::Seat, Kind::Cluster, Kind::Join, Kind::PageLedger] {
        assert_eq!(as_new_store(row(of_kind(keys::OUTSIDE, kind), vec![1])), Ok(None), "{kind:?}");
    }
    let dropped = [seat::key(SHARD), cluster::key(), join::key(), node::key(wayleave_core::ids::NodeId(7))];
    for key in dropped {
        assert_eq!(as_new_store(row(key, Vec::new())), Ok(None));
    }
}

#[test]
fn every_other_kind_is_kept_and_most_rows_as_they_are() {
    let changed = [Kind::Role, Kind::Pipeline, Kind::MapLedger, Kind::Pool];
    let dropped = [Kind::Fence, Kind::Node, Kind::Seat, Kind::Cluster, Kind::Join, Kind::PageLedger];
    for kind in Kind::ALL.into_iter().filter(|kind| !changed.contains(kind) && !dropped.contains(kind)) {
        let before = row(of_kind(SHARD, kind), vec![9, 9]);
        assert_eq!(as_new_store(before.clone()), Ok(Some(before)), "{kind:?}");
    }
    for kind in changed {
        assert!(as_new_store(row([of_kind(SHARD, kind), vec![b'a']].concat(), vec![99])).is_err(), "{kind:?}");
    }
    for bad in [&[][..], &[0, 0], &[0, 0, 200]] {
        assert!(as_new_store(row(bad.into(), Vec::new())).is_err(), "{bad:?}");
    }
}

#[test]
fn roles_name_no_store_so_every_store_notices_the_change() {
    let before = RoleRow {
        version: 5,
        settings: RoleSettings::default(),
        epoch: Epoch(8),
        term: None,
        vacant_since: Time(1),
        released: Some(Token([1; 16])),
        avoided: None,
        incarnation: 1,
        quiet_until: Time(0),
        quiet_for: Millis(0),
        runs: Runs::default(),
    };
    let mut after = role::decode(&moved(row(role::key("r"), role::encode(&before))).value).unwrap();
    assert_eq!(after, RoleRow { incarnation: NO_STORE, ..before });
    // A database has its timeline as incarnation, and an embedded store that was never restored 0.
    after.notice(1, Time(100));
    assert!(after.epoch >= Epoch(8 + SKIPPED) && after.quiet_until > Time(100));
    let origin = Origin { epoch: Epoch(4), roles: 2, incarnation: 0, noticed_at: Time(0) };
    let after = role::decode_origin(&moved(row(role::origin_key(), role::encode_origin(&origin))).value).unwrap();
    assert_eq!(after, Origin { incarnation: NO_STORE, epoch: Epoch(4 + SKIPPED), ..origin });
}

#[test]
fn pools_are_paused() {
    let settings = PoolSpec { command: vec!["w".into()], ..PoolSpec::default() }.check().unwrap();
    let state = wayleave_core::matches::State::create(SHARD, "p".into(), "o".into(), settings, 7, Time(1));
    let decided = { state }.apply(wayleave_core::matches::Input::Tick, Time(2), &[1; 8]);
    let written = decided.writes.iter().find(|write| matches!(write, wayleave_core::matches::Write::Pool(_))).unwrap();
    let Write { key, value } = pool::encode_write(SHARD, &"p".into(), written);
    let before = pool::decode(&key, value.as_ref().unwrap()).unwrap();
    assert!(!before.paused);
    let after = moved(row(key.clone(), value.unwrap()));
    assert!(pool::decode(&key, &after.value) == Ok(wayleave_core::matches::PoolRow { paused: true, ..before }));
}

#[test]
fn chunk_ids_and_the_version_of_the_map_go_on_well_above() {
    let pipeline = PipelineRow { next_chunk: 12 };
    let before = stored(chunk::encode_write(SHARD, &PipelineWrite::Pipeline(pipeline)).remove(0)).unwrap();
    let after = moved(before.clone());
    assert_eq!(after.key, before.key);
    let expected = PipelineRow { next_chunk: 12 + SKIPPED };
    assert_eq!(chunk::decode_pipeline(&after.value), Ok(expected));
    let ledger = LedgerRow { version: 7, moves: 3, ..LedgerRow::default() };
    let before = stored(placement::encode_write(CONTROL_SHARD, &PlacementWrite::Ledger(ledger))).unwrap();
    let after = placement::decode_ledger(&moved(before).value).unwrap();
    assert_eq!(after, LedgerRow { version: 7 + SKIPPED, ..ledger });
}

#[test]
fn epochs_are_raised_and_commits_go_on_counting() {
    let fence = fence_in_new_store(FenceState { epoch: Epoch(5), seq: 77 });
    assert_eq!(fence, FenceState { epoch: Epoch(5 + SKIPPED), seq: 77 });
}

fn transplant(rows: &[Row], after: Option<Key>) -> Vec<Row> {
    let (mut transplant, mut out) = (Transplant::new(4, after), Vec::new());
    for row in rows {
        transplant.take(row.clone(), |row| out.push(row)).unwrap();
    }
    transplant.finish(|row| out.push(row));
    out
}

/// The original may have begun its first chunk since the snapshot.
#[test]
fn numbers_not_counted_yet_are_raised_too_and_rows_stay_in_order() {
    let pipeline =
        stored(chunk::encode_write(SHARD, &PipelineWrite::Pipeline(PipelineRow::default())).remove(0)).unwrap();
    let rows = vec![
        row(of_kind(ShardId(0), Kind::Shard), vec![1]),
        row(of_kind(ShardId(1), Kind::Log), vec![2]),
        pipeline,
        row(machine::key(SHARD, &"m".into()), vec![3]),
    ];
    let all = transplant(&rows, None);
    assert_eq!(all.len(), 3 + 4 + 2, "three rows, a pipeline of each shard, one ledger, and where roles begin");
    assert!(all.is_sorted_by(|a, b| a.key < b.key));
    let next = all.iter().filter(|row| row.key.get(2) == Some(&(Kind::Pipeline as u8)));
    assert!(next.map(|row| chunk::decode_pipeline(&row.value).unwrap().next_chunk).all(|next| next == 1 + SKIPPED));
    // An interrupted copy continues after any row, and nothing is missing or there twice.
    for (at, last) in all.iter().enumerate() {
        let source: Vec<Row> = rows.iter().filter(|row| row.key > last.key).cloned().collect();
        assert_eq!(transplant(&source, Some(last.key.clone())), all[at + 1..], "after {at}");
    }
}

/// Law 6. A regression: the first role of a store whose snapshot had none began with the epoch that it already had in the original,
/// while its primary there still relied on it.
#[test]
fn roles_that_the_original_has_made_since_begin_above_their_epochs_and_wait() {
    let all = transplant(&[row(of_kind(ShardId(0), Kind::Shard), vec![1])], None);
    let origin =
        all.iter().find(|row| row.key == role::origin_key()).map(|row| role::decode_origin(&row.value).unwrap());
    let (role, now, steady_since) = ("r".into(), Time(1_000_000), Time(0));
    let facts = Facts { role, row: None, standbys: Vec::new(), origin, now, incarnation: 3, steady_since };
    let made = roles::set(&facts, &RoleChanges::default()).unwrap();
    let Change::Set(row) = &made.writes.row else { panic!("no role: {made:?}") };
    assert!(row.epoch.0 > SKIPPED && row.quiet_until == now.after(row.settings.ttl), "{row:?}");
}

/// A regression: a store that was copied before has chunks far above the first ones, and new ones would have replaced them.
#[test]
fn chunks_are_counted_above_existing_ones_if_the_counter_row_is_lost() {
    let id = wayleave_core::ids::ChunkId::new(SHARD, 2 * SKIPPED);
    let key = chunk::key(SHARD, id, true);
    let mut transplant = Transplant::new(4, None);
    let mut rows = Vec::new();
    transplant.take(Row { key, value: vec![1] }, |row| rows.push(row)).unwrap();
    transplant.finish(|row| rows.push(row));
    let counted = rows.iter().find(|row| row.key == chunk::pipeline_key(SHARD)).unwrap();
    assert!(chunk::decode_pipeline(&counted.value).unwrap().next_chunk > 2 * SKIPPED);
    let other = rows.iter().find(|row| row.key == chunk::pipeline_key(ShardId(0))).unwrap();
    assert!(chunk::decode_pipeline(&other.value).unwrap().next_chunk < 2 * SKIPPED);
}
