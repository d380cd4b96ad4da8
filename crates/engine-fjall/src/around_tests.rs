//! Which merges continue beside damage, and that they change no row.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lsm_tree::AbstractTree;
use lsm_tree::compaction::PullDown;
use proptest::prelude::*;
use wayleave_engine::suite::harness::{batch, put};
use wayleave_engine::{Engine, Error};

use super::*;
use crate::lsm::tests::flip;
use crate::lsm::{AFTER_ALL, FjallTables, TABLES, TableOptions};
use crate::memtable::Memtable;
use crate::tables::{MergeFailure, MergeKind, Snapshot, Tables, YOUNG_TABLES_LIMIT};
use crate::{Fjall, Options};

fn open(folder: &Path) -> FjallTables {
    FjallTables::open(folder, TableOptions { cache_bytes: 1 << 20, files_max: 100 }).unwrap()
}

fn add(tables: &FjallTables, rows: impl IntoIterator<Item = (u32, Option<u8>)>) {
    let mut table = Memtable::default();
    rows.into_iter().for_each(|(row, value)| {
        table.put(&row.to_be_bytes(), value.map(|value| [value; 50]).as_ref().map(|v| &v[..]))
    });
    tables.add(&[Arc::new(table)]).unwrap();
}

fn merge_due(tables: &FjallTables) {
    while tables.merge_around(MergeKind::Due).unwrap() {}
}

/// Flips a bit of a file while the tables are closed.
fn flipped(tables: FjallTables, folder: &Path, path: &Path) -> FjallTables {
    drop(tables);
    flip(path, 500_000);
    open(folder)
}

/// One table that was merged, in which a block is then damaged, and its path.
fn with_bad_block(folder: &Path) -> (FjallTables, PathBuf) {
    let tables = open(folder);
    add(&tables, (0..20_000).map(|row| (row, Some(7))));
    merge_due(&tables);
    let damaged = tables.files().remove(0).path;
    (flipped(tables, folder, &damaged), damaged)
}

/// A regression: it read all tables from their beginning on, while merges paused.
#[test]
fn damage_in_the_first_block_of_a_merge_is_found_at_the_beginning_of_tables() {
    let folder = tempfile::tempdir().unwrap();
    let tables = open(folder.path());
    add(&tables, (0..20_000).map(|row| (row, Some(7))));
    let first = tables.files().remove(0).path;
    add(&tables, (1..20_000).map(|row| (row, Some(8))));
    // What would be read first, and is damaged further on.
    let newer = tables.files().into_iter().map(|file| file.path).find(|path| *path != first).unwrap();
    drop(tables);
    flip(&first, 100);
    flip(&newer, 500_000);
    let tables = open(folder.path());
    assert!(matches!(tables.merge(MergeKind::All, u64::MAX), Err(MergeFailure::Damaged(_))));
    assert!(tables.find_unreadable());
    assert_eq!([&first, &newer].map(|path| tables.damage.stops_merges(path)), [true, false]);
}

fn levels(runs: [usize; 7], mib: [u64; 7], damaged: usize) -> Vec<Level> {
    let level = |at: usize| Level { runs: runs[at], bytes: mib[at] << 20, is_damaged: at == damaged };
    (0..7).map(level).collect()
}

#[test]
fn new_tables_are_merged_level_by_level_above_the_damage() {
    let check = |runs, mib, damaged, expected| assert_eq!(next_step(&levels(runs, mib, damaged)), expected, "{runs:?}");
    let merge = |from| Some(Step::Merge { from, to: from + 1 });
    check([9, 0, 0, 0, 0, 0, 1], [1; 7], 7, None);
    check([7, 0, 0, 0, 0, 0, 1], [1; 7], 6, Some(Step::Nothing));
    check([8, 0, 0, 0, 0, 0, 1], [1; 7], 6, merge(0));
    check([8, 1, 0, 0, 0, 0, 1], [1, 600, 0, 0, 0, 0, 1], 6, merge(1));
    check([8, 1, 1, 0, 0, 0, 1], [1, 600, 6_000, 0, 0, 0, 1], 6, merge(2));
    // The level above the stuck one grows, as there is none below it.
    check([8, 1, 0, 1, 1, 1, 1], [1, 600, 0, 1, 1, 1, 1], 2, merge(0));
    check([8, 0, 0, 0, 0, 0, 2], [1; 7], 7, merge(0));
}

#[test]
fn damage_in_a_new_table_moves_its_level_down_with_all_that_is_newer() {
    let step = |runs, damaged| next_step(&levels(runs, [1; 7], damaged));
    assert_eq!(step([9, 0, 0, 0, 1, 0, 1], 0), Some(Step::Move { from: 0, to: 4 }));
    assert_eq!(step([9, 1, 0, 0, 1, 0, 1], 1), Some(Step::Move { from: 1, to: 4 }));
    assert_eq!(step([1, 0, 0, 0, 0, 0, 0], 0), Some(Step::Move { from: 0, to: 6 }));
    // The tree would put tables that overlap into one run.
    assert_eq!(step([2, 0, 0, 0, 0, 0, 0], 0), Some(Step::Stuck));
    assert_eq!(step([100, 0, 0, 0, 0, 0, 101], 0), Some(Step::Stuck), "it counts runs in one byte");
}

/// A regression: every merge met the damage, tables piled up, and at last every batch was refused.
#[test]
fn one_bad_block_does_not_stop_merges() {
    let folder = tempfile::tempdir().unwrap();
    let (tables, _) = with_bad_block(folder.path());
    let unreadable = |tables: &FjallTables| {
        let snapshot = tables.snapshot();
        (0..20_000u32).filter(|row| snapshot.get(&row.to_be_bytes()).is_err()).collect::<Vec<_>>()
    };
    let lost = unreadable(&tables);
    assert!((10..200).contains(&lost.len()), "{lost:?}");
    let (mut most_young, mut most_files) = (0, 0);
    for round in 0..100u32 {
        // The rows of the bad block but for the first are written anew; of the others one in ten, and each third is deleted.
        let anew = lost.iter().copied().chain((round..20_000).step_by(10)).filter(|row| *row != lost[0]);
        let rows: BTreeMap<u32, Option<u8>> = anew.map(|row| (row, (row % 3 > 0).then_some(9))).collect();
        add(&tables, rows);
        merge_due(&tables);
        most_young = most_young.max(tables.young());
        most_files = most_files.max(tables.files().len());
    }
    assert!(most_young <= usize::from(YOUNG_TABLES_DUE) && most_files <= 12, "{most_young} in L0, {most_files} in all");
    assert!(tables.damage.summary().unwrap().contains("merges go around it"), "{:?}", tables.damage.summary());
    assert_eq!(tables.merge_around(MergeKind::All), Ok(false), "it does not even begin");
    drop(tables);
    for _ in 0..2 {
        let tables = open(folder.path());
        assert_eq!(unreadable(&tables), lost[..1], "only what was not written since");
        let snapshot = tables.snapshot();
        for row in (0..20_000u32).filter(|row| *row != lost[0]) {
            let expected = (row % 3 > 0).then(|| vec![9; 50]);
            assert_eq!(snapshot.get(&row.to_be_bytes()).unwrap(), expected, "row {row}");
        }
        // Merges continue after a reopen too.
        for _ in 0..30 {
            add(&tables, (0..1_000).filter(|row| *row != lost[0]).map(|row| (row, (row % 3 > 0).then_some(9))));
            merge_due(&tables);
        }
        assert!(tables.files().len() <= 12);
    }
}

#[test]
fn a_bad_block_of_a_new_table_does_not_stop_merges_either() {
    let folder = tempfile::tempdir().unwrap();
    let tables = open(folder.path());
    add(&tables, (0..20_000).map(|row| (row, Some(1))));
    merge_due(&tables);
    for value in 2..6 {
        add(&tables, (0..20_000).map(|row| (row, Some(value))));
    }
    let newest = tables.files().into_iter().max_by_key(|file| file.path.clone()).unwrap().path;
    let tables = flipped(tables, folder.path(), &newest);
    for value in 6..60 {
        add(&tables, (0..100).chain(19_000..19_100).map(|row| (row, Some(value))));
        merge_due(&tables);
        assert!(tables.young() <= usize::from(YOUNG_TABLES_DUE));
    }
    assert!(tables.files().len() < 20, "{}", tables.files().len());
    let snapshot = tables.snapshot();
    let of = |row: u32| snapshot.get(&row.to_be_bytes());
    assert_eq!((of(50), of(19_050), of(500)), (Ok(Some(vec![59; 50])), Ok(Some(vec![59; 50])), Ok(Some(vec![5; 50]))));
    assert!((0..20_000).any(|row| matches!(of(row), Err(Error::Corrupt(_)))), "and never the older version");
}

#[test]
fn a_mended_table_is_merged_again() {
    let folder = tempfile::tempdir().unwrap();
    let (tables, damaged) = with_bad_block(folder.path());
    add(&tables, (0..19_000).map(|row| (row, None)));
    assert_eq!(tables.merge_around(MergeKind::All), Ok(true), "it has found the damage");
    assert_eq!(tables.merge_around(MergeKind::All), Ok(false));
    assert_eq!((tables.sizes().items, tables.sizes().tombstones), (39_000, 19_000));
    flip(&damaged, 500_000);
    // As the scrub does.
    tables.damage.remove(&damaged);
    assert_eq!(tables.merge_around(MergeKind::All), Ok(false));
    assert_eq!((tables.sizes().items, tables.sizes().tombstones), (1_000, 0));
}

/// Before the first merge there is no level onto which the damaged table could be moved.
#[test]
fn damage_that_no_merge_can_avoid_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let tables = open(folder.path());
    for value in 0..10 {
        add(&tables, (0..20_000).map(|row| (row, Some(value))));
    }
    let files = fs::read_dir(folder.path().join(TABLES)).unwrap().count();
    let path = tables.files().remove(3).path;
    let tables = flipped(tables, folder.path(), &path);
    assert_eq!(tables.merge_around(MergeKind::Due), Ok(true), "the damage is found");
    let failed = tables.merge_around(MergeKind::Due);
    assert!(matches!(&failed, Err(MergeFailure::Damaged(why)) if why.contains("go around")), "{failed:?}");
    assert_eq!(fs::read_dir(folder.path().join(TABLES)).unwrap().count(), files);
}

/// What went wrong once: at 65 tables new URLs were refused, at 160 everything.
#[tokio::test]
async fn a_store_with_a_bad_block_keeps_accepting_writes() {
    let folder = tempfile::tempdir().unwrap();
    let options = || Options { shards: 4, memtable_bytes: 64 << 10, ..Options::default() };
    let row = |n: usize, value: &str| put(1, &format!("row{n:05}"), value);
    let engine = Fjall::open(folder.path(), options()).unwrap();
    for round in 0..20 {
        engine.commit(batch((0..100).map(|n| row(round * 100 + n, &"v".repeat(200))))).await.unwrap();
        drop(engine.snapshot().await.unwrap());
    }
    while engine.numbers().tables_unmerged >= u64::from(YOUNG_TABLES_DUE) {
        tokio::task::yield_now().await;
    }
    drop(engine);
    let tables = folder.path().join("db").join(TABLES);
    let files = || fs::read_dir(&tables).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    flip(&files().into_iter().max_by_key(|path| path.metadata().unwrap().len()).unwrap(), 100_000);
    let engine = Fjall::open(folder.path(), options()).unwrap();
    let value = |round: usize| format!("round {round}");
    for round in 0..YOUNG_TABLES_LIMIT + 40 {
        // A row at either end, so that each table overlaps all others.
        engine.commit(batch([row(0, &value(round)), row(1_999, &value(round))])).await.unwrap();
        drop(engine.snapshot().await.unwrap());
        assert_eq!(engine.refuses_growth(), None, "after {round} flushes");
    }
    assert!(files().len() < 50, "{}", files().len());
    let text = format!("{:?}", engine.health());
    assert!(text.starts_with("Impaired") && text.contains("merges go around it"), "{text}");
    drop(engine);
    let engine = Fjall::open(folder.path(), options()).unwrap();
    let found = engine.get_many(&[row(0, "").key, row(1_999, "").key]).await.unwrap();
    assert_eq!(found, vec![Some(value(YOUNG_TABLES_LIMIT + 39).into_bytes()); 2]);
    let mut unreadable = 0;
    for n in 1..1_999 {
        match engine.get_many(&[row(n, "").key]).await {
            Ok(found) => assert_eq!(found, [Some("v".repeat(200).into_bytes())]),
            Err(error) => unreadable += usize::from(matches!(error, Error::Corrupt(_))),
        }
    }
    assert!((1..100).contains(&unreadable), "{unreadable}");
}

#[derive(Clone, Debug)]
enum Op {
    Add(Vec<(u8, bool)>),
    MergeDue,
    MergeAll,
    /// A level that is over its size.
    MergeDown(u8),
    /// A merge meets damage in a table.
    Damage(prop::sample::Index),
    Mend,
    OpenSnapshot,
    CloseSnapshot,
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let rows = prop::collection::vec((0..60u8, any::<bool>()), 1..40);
    prop_oneof![
        12 => rows.prop_map(Op::Add),
        8 => Just(Op::MergeDue),
        1 => Just(Op::MergeAll),
        3 => (1..6u8).prop_map(Op::MergeDown),
        2 => any::<prop::sample::Index>().prop_map(Op::Damage),
        1 => Just(Op::Mend),
        1 => Just(Op::OpenSnapshot),
        1 => Just(Op::CloseSnapshot),
        1 => Just(Op::Reopen),
    ]
}

type Model = BTreeMap<u8, u8>;

fn check(snapshot: &impl Snapshot, model: &Model) {
    let value = |value: u8| vec![value; 50];
    for row in 0..60u8 {
        assert_eq!(
            snapshot.get(&u32::from(row).to_be_bytes()).unwrap(),
            model.get(&row).copied().map(value),
            "row {row}"
        );
    }
    let rows: Vec<_> = snapshot.range(&[0], &AFTER_ALL).map(Result::unwrap).collect();
    let expected: Vec<_> = model.iter().map(|(row, v)| (u32::from(*row).to_be_bytes().to_vec(), value(*v))).collect();
    assert_eq!(rows, expected);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Newer rows stay above older ones and deleted ones stay deleted, whichever tables merges leave out.
    #[test]
    fn rows_are_right_whichever_tables_merges_leave_out(ops in prop::collection::vec(op(), 1..60)) {
        let folder = tempfile::tempdir().unwrap();
        let mut tables = open(folder.path());
        let (mut model, mut snapshots) = (Model::new(), Vec::new());
        for (at, op) in ops.into_iter().enumerate() {
            let now = at as u8;
            match op {
                Op::Add(rows) => {
                    for (row, stays) in &rows {
                        _ = if *stays { model.insert(*row, now) } else { model.remove(row) };
                    }
                    let rows: BTreeMap<u32, Option<u8>> =
                        rows.into_iter().map(|(row, _)| (u32::from(row), model.get(&row).copied())).collect();
                    add(&tables, rows);
                }
                Op::MergeDue => while tables.merge_around(MergeKind::Due) == Ok(true) {},
                Op::MergeAll => drop(tables.merge_around(MergeKind::All).unwrap()),
                Op::MergeDown(from) => {
                    let levels = tables.levels();
                    let is_stuck = |(at, level): (usize, &Level)| level.is_damaged || at > 0 && level.runs > 1;
                    if levels.iter().enumerate().position(is_stuck).is_some_and(|stuck| stuck > usize::from(from) + 1) {
                        let oldest = tables.oldest_snapshot().unwrap_or(u64::MAX);
                        tables.tree.compact(Arc::new(PullDown(from, from + 1)), oldest).unwrap();
                    }
                }
                Op::Damage(index) => {
                    let files = tables.files();
                    if !files.is_empty() {
                        tables.damage.on_merge_failure(index.get(&files), "on purpose");
                    }
                }
                Op::Mend => tables.files().iter().for_each(|file| tables.damage.remove(&file.path)),
                Op::OpenSnapshot => snapshots.push((tables.snapshot(), model.clone())),
                Op::CloseSnapshot => drop((!snapshots.is_empty()).then(|| snapshots.remove(0))),
                Op::Reopen => {
                    snapshots.clear();
                    drop(tables);
                    tables = open(folder.path());
                }
            }
            check(&tables.snapshot(), &model);
            snapshots.iter().for_each(|(snapshot, model)| check(snapshot, model));
        }
    }
}
