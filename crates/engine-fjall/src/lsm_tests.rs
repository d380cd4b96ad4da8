//! What merges leave on disk: after success, a stop, damage, and with open snapshots.

use std::fs;

use super::*;

struct Stage {
    tables: FjallTables,
    folder: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tables = open(folder.path());
        Self { tables, folder }
    }

    /// Adds a table with the rows of a range, or with their tombstones.
    fn add(&self, rows: std::ops::Range<u32>, value: Option<&[u8]>) {
        let mut table = Memtable::default();
        rows.for_each(|row| table.put(&row.to_be_bytes(), value));
        self.tables.add(&[Arc::new(table)]).unwrap();
    }

    /// The table files on disk, and those that are in use.
    fn files(&self) -> (usize, usize) {
        (fs::read_dir(self.folder.path().join(TABLES)).unwrap().count(), self.tables.files().len())
    }

    /// The path of the table that begins with a row.
    fn table_from(&self, row: u32) -> PathBuf {
        self.tables.files().into_iter().find(|file| file.first == row.to_be_bytes()).unwrap().path
    }

    /// Flips bits of files that are closed, and opens the tables again.
    fn damaged(self, places: &[(&Path, usize)]) -> Self {
        let Self { tables, folder } = self;
        drop(tables);
        places.iter().for_each(|(path, at)| flip(path, *at));
        Self { tables: open(folder.path()), folder }
    }

    fn rows(&self) -> Result<usize, Error> {
        self.tables.snapshot().all().try_fold(0, |sum, row| row.map(|_| sum + 1))
    }
}

fn open(folder: &Path) -> FjallTables {
    FjallTables::open(folder, TableOptions { cache_bytes: 1 << 20, files_max: 100 }).unwrap()
}

/// Flips a bit of a file.
pub(crate) fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

fn merge_all(tables: &FjallTables) {
    while tables.merge(MergeKind::Due, u64::MAX).unwrap() {}
}

/// A regression: the watchdog waited for the manifest, and never reported that the disk hangs.
#[test]
fn sizes_are_readable_while_a_manifest_is_written() {
    let stage = Stage::new();
    stage.add(0..10, Some(&[7; 50]));
    let tables = Arc::new(stage.tables);
    let writing = tables.tree.get_version_history_lock();
    let (sender, hear) = std::sync::mpsc::channel();
    let theirs = Arc::clone(&tables);
    std::thread::spawn(move || sender.send((theirs.young(), theirs.sizes().items)));
    assert_eq!(hear.recv_timeout(Duration::from_secs(20)), Ok((1, 10)));
    drop(writing);
}

#[test]
fn merged_tables_are_removed_at_once() {
    let stage = Stage::new();
    for round in 0..u32::from(YOUNG_TABLES_DUE) + 1 {
        stage.add(round..round + 1_000, Some(&[7; 50]));
    }
    assert_eq!(stage.files(), (9, 9));
    merge_all(&stage.tables);
    let (on_disk, used) = stage.files();
    assert!(on_disk == used && used < 3, "{on_disk} files, {used} in use");
    assert_eq!(stage.rows().unwrap(), 1_008);
    let versions = fs::read_dir(stage.folder.path()).unwrap().flatten();
    let versions = versions.filter(|entry| entry.file_name().to_string_lossy().starts_with('v')).count();
    assert_eq!(versions, 1, "and so are old versions of the manifest");
}

#[test]
fn an_open_snapshot_keeps_its_tables_until_it_is_closed() {
    let stage = Stage::new();
    for round in 0..10 {
        stage.add(0..1_000, Some(&[round; 50]));
    }
    let snapshot = stage.tables.snapshot();
    stage.add(0..1_000, None);
    merge_all(&stage.tables);
    stage.tables.merge(MergeKind::All, u64::MAX).unwrap();
    assert_eq!(snapshot.all().filter(Result::is_ok).count(), 1_000);
    assert_eq!(snapshot.get(&7u32.to_be_bytes()).unwrap(), Some(vec![9; 50]));
    assert!(stage.files().0 >= 10, "{:?}", stage.files());
    drop(snapshot);
    stage.add(5_000..5_001, Some(&[1]));
    let (on_disk, used) = stage.files();
    assert_eq!(on_disk, used, "the next flush removes them");
    assert_eq!(stage.rows().unwrap(), 1);
}

#[test]
fn tombstones_that_a_snapshot_keeps_can_be_dropped_once_it_is_closed() {
    let stage = Stage::new();
    stage.add(5_000..5_001, Some(&[7; 50]));
    let snapshot = stage.tables.snapshot();
    assert!(stage.tables.oldest_snapshot().is_some());
    // Both are later than what it sees.
    stage.add(0..1_000, Some(&[7; 50]));
    let later = stage.tables.snapshot();
    stage.add(0..1_000, None);
    stage.tables.merge(MergeKind::All, u64::MAX).unwrap();
    assert_eq!(stage.tables.sizes().tombstones, 1_000);
    drop(later);
    assert!(stage.tables.oldest_snapshot().is_some(), "the same one");
    drop(snapshot);
    assert_eq!(stage.tables.oldest_snapshot(), None);
    stage.tables.merge(MergeKind::All, u64::MAX).unwrap();
    assert_eq!((stage.tables.sizes().items, stage.files()), (1, (1, 1)));
}

#[test]
fn merging_everything_drops_what_is_deleted() {
    let stage = Stage::new();
    stage.add(0..50_000, Some(&[7; 50]));
    stage.add(0..49_000, None);
    let before = stage.tables.sizes();
    assert_eq!((before.items, before.tombstones), (99_000, 49_000));
    stage.tables.merge(MergeKind::All, u64::MAX).unwrap();
    let after = stage.tables.sizes();
    assert_eq!((after.items, after.tombstones), (1_000, 0));
    assert!(after.all < before.all / 10, "{before:?}, {after:?}");
    assert_eq!(stage.rows().unwrap(), 1_000);
    let empty = Stage::new();
    empty.tables.merge(MergeKind::All, u64::MAX).unwrap();
}

#[test]
fn a_merge_writes_no_more_than_it_may() {
    let stage = Stage::new();
    stage.add(0..10_000, Some(&[7; 100]));
    stage.add(0..9_000, None);
    let before = stage.files();
    assert_eq!(stage.tables.merge(MergeKind::All, 100_000), Err(MergeFailure::Full));
    assert_eq!(stage.files(), before, "nothing is left behind");
    stage.tables.merge(MergeKind::All, 104_000).unwrap();
    assert_eq!((stage.rows().unwrap(), stage.tables.sizes().tombstones), (1_000, 0), "what is deleted costs nothing");
}

#[test]
fn a_merge_that_is_stopped_changes_nothing_and_leaves_no_files() {
    let stage = Stage::new();
    for _ in 0..10 {
        stage.add(0..1_000, Some(&[7; 50]));
    }
    stage.tables.stop_merging(true);
    let before = stage.files();
    assert_eq!(stage.tables.merge(MergeKind::Due, u64::MAX), Err(MergeFailure::Stopped));
    assert_eq!(stage.files(), before);
    stage.tables.stop_merging(false);
    merge_all(&stage.tables);
    assert_eq!(stage.rows().unwrap(), 1_000);
}

#[test]
fn a_merge_that_meets_damage_changes_nothing_and_reads_around_it_go_on() {
    let stage = Stage::new();
    for round in 0..10 {
        stage.add(round * 1_000..(round + 1) * 1_000, Some(&[7; 50]));
    }
    // Overlapping tables: otherwise they are moved and not read.
    stage.add(0..10_000, Some(&[8; 50]));
    let path = stage.table_from(3_000);
    let stage = stage.damaged(&[(&path, 2_000)]);
    let before = stage.files();
    assert_eq!(stage.tables.merge_around(MergeKind::Due), Ok(true), "it finds the damage");
    for _ in 0..2 {
        assert!(matches!(stage.tables.merge_around(MergeKind::Due), Err(MergeFailure::Damaged(_))));
        assert_eq!(stage.files(), before, "and nothing is left behind");
    }
    let snapshot = stage.tables.snapshot();
    assert_eq!(snapshot.get(&9_999u32.to_be_bytes()).unwrap(), Some(vec![8; 50]));
    assert!(matches!(stage.rows(), Err(Error::Corrupt(_))), "a scan over the damage says so");
    let (from, to) = (4_000u32.to_be_bytes(), 9_000u32.to_be_bytes());
    assert_eq!(snapshot.range(&from, &to).filter(Result::is_ok).count(), 5_000);
}

/// From the top, the other one would be found: its table is newer.
#[test]
fn damage_that_a_merge_met_is_searched_for_where_the_merge_ended() {
    let stage = Stage::new();
    for round in 0..10 {
        stage.add(round * 1_000..(round + 1) * 1_000, Some(&[7; 50]));
    }
    stage.add(0..10_000, Some(&[8; 50]));
    let of = |first: u32, last: u32| {
        let (first, last) = (first.to_be_bytes(), last.to_be_bytes());
        let file = stage.tables.files().into_iter().find(|file| file.first == first && file.last == last).unwrap();
        let bytes = file.path.metadata().unwrap().len() as usize;
        (file.path, bytes * 8 / 10)
    };
    let (met, other) = (of(3_000, 3_999), of(0, 9_999));
    let stage = stage.damaged(&[(&met.0, met.1), (&other.0, other.1)]);
    assert_eq!(stage.tables.merge_around(MergeKind::Due), Ok(true));
    let damage = &stage.tables.damage;
    assert!(damage.stops_merges(&met.0) && !damage.stops_merges(&other.0));
}

/// The tree's own iterator loses the last of them.
#[test]
fn every_row_before_damage_is_read() {
    let stage = Stage::new();
    stage.add(0..10_000, Some(&[7; 50]));
    // Newer rows and deletions over it, and a table that begins behind the damage.
    stage.add(100..200, Some(&[8; 50]));
    stage.add(300..400, None);
    stage.add(9_000..20_000, Some(&[9; 50]));
    let largest = stage.table_from(0);
    let Stage { tables, folder } = stage;
    drop(tables);
    for at in [40_000, 200_000, 400_000] {
        flip(&largest, at);
        let tables = open(folder.path());
        let snapshot = tables.snapshot();
        let is_damaged = |row: &u32| snapshot.get(&row.to_be_bytes()).is_err();
        let first = (0..10_000).find(is_damaged).unwrap();
        assert!(!(100..=400).contains(&first), "it would be read from another table: {first}");
        let from = |from: u32| {
            let from = from.to_be_bytes();
            let mut rows = snapshot.range(&from, &[0xff]);
            let read: Vec<TableRow> = rows.by_ref().map_while(Result::ok).collect();
            assert!(rows.next().is_none(), "nothing follows the error");
            read
        };
        let expected = (0..first).filter(|row| !(300..400).contains(row));
        let expected: Vec<TableRow> = expected
            .map(|row| (row.to_be_bytes().to_vec(), vec![if (100..200).contains(&row) { 8 } else { 7 }; 50]))
            .collect();
        assert_eq!(from(0), expected);
        assert_eq!(from(first - 1), expected[expected.len() - 1..]);
        assert_eq!(from(first), []);
        flip(&largest, at);
    }
}

#[test]
fn damage_at_the_beginning_of_a_table_costs_no_row_before_it() {
    let stage = Stage::new();
    stage.add(0..1_000, Some(&[7; 50]));
    stage.add(2_000..3_000, Some(&[7; 50]));
    let later = stage.table_from(2_000);
    let stage = stage.damaged(&[(&later, 100)]);
    let snapshot = stage.tables.snapshot();
    let rows: Vec<_> = snapshot.range(&[0], &[0xff]).collect();
    assert_eq!(rows.iter().filter(|row| row.is_ok()).count(), 1_000);
    assert!(matches!(rows.last(), Some(Err(Error::Corrupt(_)))));
}

#[test]
fn numbers_of_versions_go_on_after_a_reopen() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..5u8 {
        let stage = Stage { tables: open(folder.path()), folder: tempfile::tempdir().unwrap() };
        stage.add(0..10, Some(&[round]));
        assert_eq!(stage.tables.snapshot().get(&3u32.to_be_bytes()).unwrap(), Some(vec![round]));
    }
    let tables = open(folder.path());
    tables.merge(MergeKind::All, u64::MAX).unwrap();
    assert_eq!(tables.snapshot().get(&3u32.to_be_bytes()).unwrap(), Some(vec![4]));
}

/// A young table with few rows reaches over all others: a damaged block of it must not cost theirs.
#[test]
fn a_damaged_block_of_a_sparse_table_costs_what_it_holds() {
    let stage = Stage::new();
    stage.add(0..20_000, Some(&[7; 50]));
    let mut sparse = Memtable::default();
    (0..20_000u32).step_by(50).for_each(|row| sparse.put(&row.to_be_bytes(), Some(&[8; 100])));
    stage.tables.add(&[Arc::new(sparse)]).unwrap();
    let files = stage.tables.files().into_iter();
    let young = files.min_by_key(|file| file.path.metadata().unwrap().len()).unwrap().path;
    // Two blocks that do not follow each other.
    let stage = stage.damaged(&[(&young, 10_000), (&young, 30_000)]);
    let snapshot = stage.tables.snapshot();
    let held: Vec<u32> = (0..20_000u32).filter(|row| snapshot.get(&row.to_be_bytes()).is_err()).collect();
    let of_young = held.iter().filter(|row| *row % 50 == 0).count();
    assert!(of_young > 40 && held.len() < of_young + 40, "the filter rules out most others: {of_young} of {held:?}");
    let is_met = |row: u32| snapshot.range(&row.to_be_bytes(), &AFTER_ALL).next().unwrap().is_err();
    // From the last row before each block on, and up to its own last row.
    let met: Vec<u32> = (0..20_000).filter(|row| is_met(*row)).collect();
    assert!(met.len() < (of_young + 2) * 50, "{} of 20000 cannot be scanned", met.len());
    let (mut from, mut rows, mut gaps) = (0u32.to_be_bytes().to_vec(), Vec::new(), 0);
    while from < AFTER_ALL.to_vec() {
        let ahead = snapshot.range(&from, &AFTER_ALL).map_while(Result::ok);
        rows.extend(ahead);
        if let Some((last, _)) = rows.last() {
            from = from.max([last.as_slice(), &[0]].concat());
        }
        if rows.last().is_some_and(|(last, _)| *last == 19_999u32.to_be_bytes()) {
            break;
        }
        let (end, certain) = snapshot.past_damage((&from, &AFTER_ALL), 100).unwrap();
        gaps += usize::from(certain.len() < 100);
        rows.extend(certain);
        from = end;
    }
    let value = |row: u32| if row.is_multiple_of(50) { vec![8; 100] } else { vec![7; 50] };
    let certain = (0..20_000).filter(|row| !held.contains(row));
    let certain: Vec<TableRow> = certain.map(|row| (row.to_be_bytes().to_vec(), value(row))).collect();
    assert_eq!((rows.len(), gaps), (certain.len(), 2));
    assert!(rows == certain, "all that is certain is read, and nothing that may be older");
}

/// A merge keeps of a row only the newest version, which an older snapshot does not see.
#[test]
fn a_snapshot_that_meets_damage_still_sees_what_was_merged_since() {
    let stage = Stage::new();
    stage.add(0..10_000, Some(&[7; 50]));
    stage.add(9_000..20_000, Some(&[7; 50]));
    let second = stage.table_from(9_000);
    let stage = stage.damaged(&[]);
    let snapshot = stage.tables.snapshot();
    stage.add(0..10_000, Some(&[8; 50]));
    stage.tables.merge(MergeKind::All, u64::MAX).unwrap();
    flip(&second, 100);
    let read: Vec<TableRow> = snapshot.range(&[0], &AFTER_ALL).map_while(Result::ok).collect();
    assert!(read.len() == 9_000 && read.iter().all(|(_, value)| *value == [7; 50]), "{} rows", read.len());
}

#[test]
fn a_damaged_filter_costs_no_rows() {
    let stage = Stage::new();
    stage.add(0..2_000, Some(&[7; 50]));
    let path = stage.table_from(0);
    let filter = sfa::Reader::new(&path).unwrap().toc().section(b"filter").unwrap().pos() as usize;
    let stage = stage.damaged(&[(&path, filter + 100)]);
    let snapshot = stage.tables.snapshot();
    assert!((0..2_000u32).all(|row| snapshot.get(&row.to_be_bytes()) == Ok(Some(vec![7; 50]))));
    assert_eq!(snapshot.get(&3_000u32.to_be_bytes()), Ok(None));
}

/// A regression: a read past damage ended where it began, again and again. (1) A snapshot is open, (2) a row is written
/// twice, (3) a merge writes both versions, each into its own block, (4) the block of the newer one is damaged.
#[test]
fn damage_between_two_versions_of_a_row_is_passed() {
    let stage = Stage::new();
    let snapshot = stage.tables.snapshot();
    // Such as cannot be compressed.
    let mut noise = 1u32;
    let mut value = || -> Vec<u8> {
        let next = || {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            noise.to_be_bytes()[0]
        };
        std::iter::repeat_with(next).take(9_000).collect()
    };
    let (older, newer) = (value(), value());
    stage.add(0..3, Some(&older));
    stage.add(1..2, Some(&newer));
    let oldest = stage.tables.snapshots.oldest(&stage.tables.visible);
    stage.tables.tree.compact(Arc::new(PullDown(0, 1)), oldest).unwrap();
    stage.tables.tidy();
    assert_eq!((stage.tables.sizes().items, stage.files().1), (4, 1), "both versions are kept");
    drop(snapshot);
    let Stage { tables, folder } = stage;
    let path = tables.files().remove(0).path;
    drop(tables);
    let mut bytes = fs::read(&path).unwrap();
    let place = bytes.windows(16).position(|bytes| *bytes == newer[4_000..4_016]).unwrap();
    bytes[place] ^= 1;
    fs::write(&path, bytes).unwrap();
    let snapshot = open(folder.path()).snapshot();
    let (mut from, mut rows) = (0u32.to_be_bytes().to_vec(), Vec::new());
    while from < AFTER_ALL.to_vec() {
        let (end, certain) = snapshot.past_damage((&from, &AFTER_ALL), 100).unwrap();
        assert!(end > from, "{end:?}");
        rows.extend(certain.into_iter().map(|(key, _)| key));
        from = end;
    }
    assert_eq!(rows, [0u32, 2].map(u32::to_be_bytes));
}
