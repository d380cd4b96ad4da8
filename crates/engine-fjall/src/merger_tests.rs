//! When merges start, when they pause, and when everything is merged to drop deleted rows.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;
use crate::disk::OsDisk;
use crate::folder::Folder;
use crate::loading::{self, Loading};
use crate::memtable::Memtable;
use crate::simulated::{SimDisk, SimTables};
use crate::syncer::Drive;

/// Tables of any size, whose merges end as scripted.
struct Scripted {
    rows: SimTables,
    sizes: Mutex<Sizes>,
    young: Mutex<usize>,
    results: Mutex<Vec<Result<bool, MergeFailure>>>,
    merges: Mutex<Vec<MergeKind>>,
    keeps_tombstones: AtomicBool,
    bytes_max: AtomicU64,
    oldest_snapshot: Mutex<Option<u64>>,
}

impl Tables for Scripted {
    type Snapshot = <SimTables as Tables>::Snapshot;

    fn snapshot(&self) -> Self::Snapshot {
        self.rows.snapshot()
    }

    fn add(&self, rows: &[Arc<Memtable>]) -> Result<(), String> {
        self.rows.add(rows)
    }

    fn young(&self) -> usize {
        *self.young.lock().unwrap()
    }

    fn sizes(&self) -> Sizes {
        *self.sizes.lock().unwrap()
    }

    fn merge(&self, kind: MergeKind, bytes_max: u64) -> Result<bool, MergeFailure> {
        self.merges.lock().unwrap().push(kind);
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
        if kind == MergeKind::All && !self.keeps_tombstones.load(Ordering::Relaxed) {
            self.sizes.lock().unwrap().tombstones = 0;
        }
        self.results.lock().unwrap().pop().unwrap_or(Ok(false))
    }

    fn oldest_snapshot(&self) -> Option<u64> {
        *self.oldest_snapshot.lock().unwrap()
    }

    fn stop_merging(&self, _: bool) {}
}

struct Stage {
    store: Store<Scripted>,
    room: Room,
    disk: SimDisk,
    rounds: Rounds,
    start: Instant,
    _folder: Folder,
    _above: tempfile::TempDir,
}

const FLOOR: u64 = 100;

impl Stage {
    fn new(sizes: Sizes, young: usize) -> Self {
        let above = tempfile::tempdir().unwrap();
        let os: Arc<dyn Disk> = Arc::new(OsDisk);
        let folder = Folder::open(&os, above.path(), 2, |_| Ok(())).unwrap();
        let tables = Scripted {
            rows: SimTables::default(),
            sizes: Mutex::new(sizes),
            young: Mutex::new(young),
            results: Mutex::default(),
            merges: Mutex::default(),
            keeps_tombstones: AtomicBool::new(false),
            bytes_max: AtomicU64::default(),
            oldest_snapshot: Mutex::default(),
        };
        let loading = Loading { freeze_bytes: 1 << 20, repair: false, drive: Drive::Threads, life: 1 };
        let store = loading::load(&folder, tables, loading, |_| Ok(())).unwrap();
        let disk = SimDisk::new(1);
        let room = Room { disk: Arc::new(disk.clone()), folder: "/".into(), floor_bytes: FLOOR };
        let (rounds, start) = (Rounds::default(), Instant::now());
        Self { store, room, disk, rounds, start, _folder: folder, _above: above }
    }

    /// Runs a round this long after the start; returns the merges that were begun.
    fn round(&mut self, after: Duration) -> Vec<MergeKind> {
        self.rounds.run(&self.store, &self.room, self.start + after);
        std::mem::take(&mut *self.store.tables.merges.lock().unwrap())
    }

    fn next_merges(&self, results: impl IntoIterator<Item = Result<bool, MergeFailure>>) {
        let mut results: Vec<_> = results.into_iter().collect();
        results.reverse();
        *self.store.tables.results.lock().unwrap() = results;
    }

    fn set_oldest_snapshot(&self, instant: Option<u64>) {
        *self.store.tables.oldest_snapshot.lock().unwrap() = instant;
    }

    fn paused(&self) -> Option<String> {
        self.store.merging.lock().unwrap().paused.clone()
    }
}

#[test]
fn merges_run_until_none_is_due() {
    let mut stage = Stage::new(Sizes::default(), 9);
    stage.next_merges([Ok(true), Ok(true)]);
    assert_eq!(stage.round(Duration::ZERO), [MergeKind::Due; 3]);
    assert_eq!(stage.paused(), None);
}

#[test]
fn no_merge_starts_without_room_for_all_that_it_may_write() {
    let mut stage = Stage::new(Sizes { next_merge: 1_000, ..Sizes::default() }, 9);
    let slack = FLOOR / 2;
    stage.disk.set_free_bytes(FLOOR + slack + 999);
    assert_eq!(stage.round(Duration::ZERO), []);
    assert!(stage.paused().unwrap().contains("needs"), "{:?}", stage.paused());
    stage.disk.set_free_bytes(FLOOR + slack + 1_000);
    assert_eq!(stage.round(Duration::from_secs(1)), [MergeKind::Due], "and it goes on by itself");
    assert_eq!(stage.paused(), None);
}

/// A regression: while there was no room, every flush changed the missing number and so wrote another line.
#[test]
fn a_pause_is_news_once_and_not_with_every_number() {
    let mut merging = Merging::default();
    let room = |mib: u32| Pause::Room(format!("a merge of tables needs {mib} MiB more"));
    let damage = || Pause::Failure("a table is damaged".into());
    let news: Vec<bool> = [room(5), room(6), damage(), damage(), room(7)].map(|why| merging.note_pause(why)).into();
    assert_eq!(news, [true, false, true, false, false]);
    assert!(merging.paused.unwrap().contains("7 MiB"), "health shows the present number");
}

#[test]
fn a_merge_that_meets_damage_is_retried_with_back_off() {
    let mut stage = Stage::new(Sizes::default(), 9);
    let damaged = || Err(MergeFailure::Damaged("a block".into()));
    stage.next_merges([damaged(), damaged(), Ok(false)]);
    assert_eq!(stage.round(Duration::ZERO), [MergeKind::Due]);
    assert!(stage.paused().unwrap().contains("a table is damaged (a block)"));
    assert_eq!(stage.round(PAUSE_MIN / 2), []);
    // The pause is counted from the end of the merge, which took a moment.
    assert_eq!(stage.round(PAUSE_MIN * 2), [MergeKind::Due]);
    assert_eq!(stage.round(PAUSE_MIN * 3), [], "the pause has doubled");
    assert_eq!(stage.round(PAUSE_MIN * 5), [MergeKind::Due]);
    assert_eq!(stage.paused(), None);
}

#[test]
fn many_tombstones_are_dropped_at_once_and_few_within_a_day() {
    let many = Sizes { items: 300_000, tombstones: 150_000, all: 1_000, ..Sizes::default() };
    let mut stage = Stage::new(many, 1);
    assert_eq!(stage.round(Duration::ZERO), [MergeKind::All, MergeKind::Due]);
    let few = Sizes { items: 300_000, tombstones: 5, all: 1_000, ..Sizes::default() };
    let mut stage = Stage::new(few, 1);
    assert_eq!(stage.round(Duration::ZERO), [MergeKind::Due]);
    assert_eq!(stage.round(CLEAN_AFTER), [MergeKind::All, MergeKind::Due]);
    let old = Sizes { tombstone_age: CLEAN_AFTER, ..few };
    assert_eq!(Stage::new(old, 1).round(Duration::ZERO), [MergeKind::All, MergeKind::Due], "also after a restart");
}

/// What went wrong once: a few L0 tables, too few to be merged, kept all that was deleted for a day.
#[test]
fn many_tombstones_in_several_new_tables_are_dropped_once_no_more_come() {
    let many = Sizes { items: 300_000, tombstones: 150_000, all: 1_000, ..Sizes::default() };
    let mut stage = Stage::new(many, 6);
    assert_eq!(stage.round(Duration::ZERO), [MergeKind::Due]);
    assert_eq!(stage.round(CALM_AFTER / 2), [MergeKind::Due]);
    stage.store.tables.sizes.lock().unwrap().items += 10;
    assert_eq!(stage.round(CALM_AFTER), [MergeKind::Due], "another table has come");
    assert_eq!(stage.round(CALM_AFTER * 2), [MergeKind::All, MergeKind::Due]);
}

#[test]
fn a_merge_of_everything_that_was_stopped_is_not_begun_again_at_once() {
    let many = Sizes { items: 300_000, tombstones: 150_000, ..Sizes::default() };
    let mut stage = Stage::new(many, 1);
    stage.store.tables.keeps_tombstones.store(true, Ordering::Relaxed);
    stage.next_merges([Err(MergeFailure::Stopped), Ok(false)]);
    assert_eq!(stage.round(Duration::ZERO), [MergeKind::All, MergeKind::Due], "those that are due come first");
    assert_eq!(stage.round(Duration::from_secs(1)), [MergeKind::Due]);
    stage.next_merges([Err(MergeFailure::Stopped)]);
    assert_eq!(stage.round(Duration::from_secs(2)), [MergeKind::Due]);
    assert!(stage.paused().is_some(), "a disk that fills up pauses merging");
    assert_eq!(stage.round(Duration::from_secs(3)), []);
}

#[test]
fn a_manifest_that_is_unsure_fails_the_store() {
    let mut stage = Stage::new(Sizes::default(), 9);
    stage.next_merges([Err(MergeFailure::Unsure("it is newer on disk".into()))]);
    stage.round(Duration::ZERO);
    assert!(stage.store.syncer.check().is_err());
}

/// A row that was put and deleted between two flushes leaves its tombstone alone.
#[test]
fn merging_everything_needs_room_for_all_that_may_be_left() {
    let mut sizes = Sizes { items: 400_000, tombstones: 200_000, all: 1_000_000, ..Sizes::default() };
    let mut stage = Stage::new(sizes, 1);
    stage.disk.set_free_bytes(FLOOR * 3 / 2 + 500_000);
    assert_eq!(stage.round(Duration::ZERO), [MergeKind::All, MergeKind::Due]);
    sizes.tombstones = 100_000;
    let mut stage = Stage::new(sizes, 1);
    stage.disk.set_free_bytes(FLOOR * 3 / 2 + 749_999);
    assert_eq!(stage.round(Duration::ZERO), [MergeKind::Due], "three quarters of it may stay");
    assert_eq!(stage.round(Duration::from_secs(1)), [MergeKind::Due]);
}

/// A regression: on a full disk no merge was due that had room, and what was deleted never gave its space back.
#[test]
fn what_is_deleted_on_a_full_disk_gives_its_space_back() {
    // Too few tombstones, and too many tables, to merge everything at once.
    let sizes = Sizes { items: 80_000, tombstones: 39_000, all: 160_000, next_merge: 160_000, ..Sizes::default() };
    let mut stage = Stage::new(sizes, 20);
    stage.disk.set_free_bytes(FLOOR * 3 / 2 + 50_000);
    stage.next_merges([Err(MergeFailure::Full)]);
    stage.store.tables.keeps_tombstones.store(true, Ordering::Relaxed);
    assert_eq!(stage.round(Duration::ZERO), [MergeKind::All]);
    assert_eq!(stage.store.tables.bytes_max.load(Ordering::Relaxed), 50_000, "the rest is for flushes");
    assert!(stage.paused().unwrap().contains("needs"), "{:?}", stage.paused());
    assert_eq!(stage.round(Duration::from_secs(1)), [], "not again before there is much more to drop");
    stage.store.tables.sizes.lock().unwrap().items += 1_000;
    assert_eq!(stage.round(Duration::from_secs(2)), []);
    stage.store.tables.sizes.lock().unwrap().items += 5_000;
    assert_eq!(stage.round(Duration::from_secs(3)), [MergeKind::All]);
    // If at least this much stays, it has no chance.
    let sizes = Sizes { tombstones: 20_000, ..sizes };
    let mut stage = Stage::new(sizes, 20);
    stage.disk.set_free_bytes(FLOOR * 3 / 2 + 50_000);
    assert_eq!(stage.round(Duration::ZERO), []);
}

#[test]
fn everything_is_merged_once_while_an_open_snapshot_keeps_tombstones() {
    let many = Sizes { items: 300_000, tombstones: 150_000, ..Sizes::default() };
    let mut stage = Stage::new(many, 1);
    stage.store.tables.keeps_tombstones.store(true, Ordering::Relaxed);
    assert_eq!(stage.round(Duration::ZERO), [MergeKind::All, MergeKind::Due]);
    assert_eq!(stage.round(Duration::from_secs(1)), [MergeKind::Due], "nothing has changed since");
    stage.store.tables.sizes.lock().unwrap().items += 1;
    assert_eq!(stage.round(Duration::from_secs(2)), [MergeKind::All, MergeKind::Due]);
}

/// A regression: without another write, what a snapshot had kept stayed after it was closed.
#[test]
fn a_closed_snapshot_lets_everything_be_merged_again() {
    let many = Sizes { items: 300_000, tombstones: 150_000, ..Sizes::default() };
    let mut stage = Stage::new(many, 1);
    stage.store.tables.keeps_tombstones.store(true, Ordering::Relaxed);
    stage.set_oldest_snapshot(Some(5));
    assert_eq!(stage.round(Duration::ZERO), [MergeKind::All, MergeKind::Due]);
    assert_eq!(stage.round(Duration::from_secs(1)), [MergeKind::Due], "it is still open");
    // It is closed, and a later one is open, which keeps nothing.
    stage.set_oldest_snapshot(Some(9));
    stage.store.tables.keeps_tombstones.store(false, Ordering::Relaxed);
    assert_eq!(stage.round(Duration::from_secs(2)), [MergeKind::All, MergeKind::Due]);
    assert_eq!(stage.round(Duration::from_secs(3)), [MergeKind::Due]);
}

#[test]
fn what_a_snapshot_has_kept_for_a_day_goes_as_soon_as_it_is_closed() {
    let few = Sizes { items: 300_000, tombstones: 5, ..Sizes::default() };
    let mut stage = Stage::new(few, 1);
    stage.store.tables.keeps_tombstones.store(true, Ordering::Relaxed);
    stage.set_oldest_snapshot(Some(5));
    assert_eq!(stage.round(Duration::ZERO), [MergeKind::Due]);
    assert_eq!(stage.round(CLEAN_AFTER), [MergeKind::All, MergeKind::Due]);
    // Flushes come; everything is not merged with each, as long as that drops nothing.
    stage.store.tables.sizes.lock().unwrap().items += 1;
    assert_eq!(stage.round(CLEAN_AFTER + Duration::from_secs(1)), [MergeKind::Due]);
    stage.set_oldest_snapshot(None);
    assert_eq!(stage.round(CLEAN_AFTER + Duration::from_secs(2))[0], MergeKind::All);
}

#[test]
fn what_is_deleted_leaves_the_files_in_the_time_that_the_store_has_for_it() {
    /// What a merge of everything may take.
    const MERGE: Duration = Duration::from_secs(2 * 3600);
    let all = crate::flusher::FLUSH_AFTER + CLEAN_AFTER + MERGE;
    assert!(all <= Duration::from_millis(wayleave_core::limits::REMOVED_GONE.0), "{all:?}");
}

/// A regression: what was deleted never gave its space back once the floor was reached, because no merge might use any of it, and
/// every batch was refused, deletions included.
#[test]
fn below_the_floor_deletions_may_use_half_of_it() {
    let sizes = Sizes { items: 4_000, tombstones: 1_800, all: 400, next_merge: 200, ..Sizes::default() };
    let mut stage = Stage::new(sizes, 9);
    stage.disk.set_free_bytes(FLOOR - 5);
    assert_eq!(stage.round(Duration::ZERO), [], "flushes need the floor while batches are accepted");
    *stage.store.refuses.lock().unwrap() = Some("no space left".into());
    stage.store.tables.keeps_tombstones.store(true, Ordering::Relaxed);
    stage.next_merges([Err(MergeFailure::Full)]);
    assert_eq!(stage.round(Duration::from_secs(1)), [MergeKind::All]);
    assert_eq!(stage.store.tables.bytes_max.load(Ordering::Relaxed), FLOOR / 2 - 5);
    assert_eq!(stage.round(Duration::from_secs(2)), [], "it was tried with as much room");
    stage.disk.set_free_bytes(FLOOR + 20);
    assert_eq!(stage.round(Duration::from_secs(3)), [MergeKind::All], "there is more room");
}
