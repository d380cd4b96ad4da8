//! The merge thread: keeps the number of tables small, drops deleted rows, and yields to a disk that fills up.
//!
//! A merge never starts without room for all that it may write. One that fails leaves its input unchanged: merging pauses,
//! the store says why and continues, and the merge is tried again later.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::background;
use crate::disk::Disk;
use crate::store::Store;
use crate::tables::{MergeFailure, MergeKind, Sizes, Tables, YOUNG_TABLES_DUE};

/// How often the thread looks for work by itself.
const LOOK: Duration = Duration::from_secs(1);
/// The pause after a failed merge; it doubles up to the maximum.
const PAUSE_MIN: Duration = Duration::from_secs(5);
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// Deleted rows leave the files within a day: all tables are merged this long after the first of them was seen.
const CLEAN_AFTER: Duration = Duration::from_secs(14 * 3600);
/// Above this number of tombstones, and this share of all rows (one in …), they are dropped without waiting.
const TOMBSTONES_MANY: u64 = 100_000;
const TOMBSTONES_SHARE: u64 = 8;
/// On a full disk everything is merged again once the rows and tombstones, or the room for them, have changed by this share (one in …).
const CHANGE_SHARE: u64 = 16;
/// With more L0 tables than this, flushes may be coming in quick succession: dropping tombstones waits until none has come for a while.
const YOUNG_TABLES_CALM: usize = 2;
const CALM_AFTER: Duration = Duration::from_secs(10);

/// What the merge thread shares with flushes and the watchdog.
#[derive(Debug, Default)]
pub(crate) struct Merging {
    pub(crate) closing: bool,
    /// Whether there may be something to merge.
    pub(crate) asked: bool,
    /// Why merging pauses: no room, damage, or a failed disk.
    pub(crate) paused: Option<String>,
    /// Whether everything is being merged, which may take long.
    pub(crate) all: bool,
}

impl Merging {
    /// Notes why merging pauses; true if that is news. How much room is missing changes with every flush, and is none.
    fn note_pause(&mut self, why: Pause) -> bool {
        let (Pause::Room(text) | Pause::Failure(text)) = &why;
        let is_news = match why {
            Pause::Room(_) => self.paused.is_none(),
            Pause::Failure(_) => self.paused.as_ref() != Some(text),
        };
        self.paused = Some(text.clone());
        is_news
    }
}

/// Why merging pauses.
#[derive(Clone, Debug)]
enum Pause {
    /// There is no room for the next merge.
    Room(String),
    /// A merge has failed.
    Failure(String),
}

/// The space that merges must leave free.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) folder: PathBuf,
    /// The part of the disk that merges must not use.
    pub(crate) floor_bytes: u64,
}

impl Room {
    /// The free space that a merge of this many bytes needs. More is written meanwhile: what is in memory, and what
    /// continues while callers should add nothing.
    pub(crate) const fn needed(floor_bytes: u64, merge_bytes: u64) -> u64 {
        floor_bytes.saturating_add(floor_bytes / 2).saturating_add(merge_bytes)
    }

    /// How much a merge may write. While every batch is refused nothing else is written but what is in memory, so it may take half
    /// of the floor: deletions that are on the disk already must be able to give their space back.
    const fn usable(&self, free_bytes: u64, refuses: bool) -> u64 {
        free_bytes.saturating_sub(if refuses { self.floor_bytes / 2 } else { Self::needed(self.floor_bytes, 0) })
    }

    fn free(&self) -> u64 {
        // A disk that does not answer is the watchdog's concern.
        self.disk.free_bytes(&self.folder).unwrap_or(u64::MAX)
    }
}

/// The merge thread. Dropping this stops a running merge and ends the thread.
pub(crate) struct Merger<T: Tables> {
    store: Arc<Store<T>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Tables> Merger<T> {
    /// Starts the merge thread of a store.
    pub(crate) fn start(store: Arc<Store<T>>, room: Room) -> std::io::Result<Self> {
        let theirs = Arc::clone(&store);
        let run = move || {
            if catch_unwind(AssertUnwindSafe(|| run(&theirs, &room))).is_err() {
                theirs.syncer.fail("the thread that merges tables panicked: see the log, then restart".into());
                theirs.notify_flush();
            }
        };
        let thread = std::thread::Builder::new().name("wayleave-merge".into()).spawn(run)?;
        Ok(Self { store, thread: Some(thread) })
    }
}

impl<T: Tables> Drop for Merger<T> {
    fn drop(&mut self) {
        self.store.merging.lock().unwrap_or_else(PoisonError::into_inner).closing = true;
        self.store.tables.stop_merging(true);
        self.store.merging_changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // An unfinished merge has changed nothing.
            let _ = thread.join();
        }
    }
}

fn run<T: Tables>(store: &Store<T>, room: &Room) {
    background::give_way();
    let mut rounds = Rounds::default();
    while wait(store) {
        let now = Instant::now();
        rounds.run(store, room, now);
        store.notify_flush();
    }
}

/// Waits until there may be something to merge; false when the store is closing.
fn wait<T: Tables>(store: &Store<T>) -> bool {
    let merging = store.merging.lock().unwrap_or_else(PoisonError::into_inner);
    let idle = |merging: &mut Merging| !merging.closing && !merging.asked;
    let waited = store.merging_changed.wait_timeout_while(merging, LOOK, idle);
    let mut merging = waited.unwrap_or_else(PoisonError::into_inner).0;
    merging.asked = false;
    !merging.closing
}

/// What the thread remembers between its rounds.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// No merge before then, after this pause.
    paused_until: Option<(Instant, Duration)>,
    /// Since when tables contain tombstones, as far as this process knows.
    deleted_since: Option<Instant>,
    /// The number of rows and tombstones at the last attempt to merge everything, and what it might write: another one waits for a
    /// change.
    clean_tried: Option<(u64, u64)>,
    /// The oldest snapshot that was open when everything was merged, if tombstones were left: until it is closed they stay.
    kept_by: Option<u64>,
    /// The number of rows and tombstones, and since when it is the same.
    unchanged: Option<(u64, Instant)>,
}

/// Whether the table that a merge could not read is known now, so that merges go around it.
fn find_unreadable<T: Tables>(store: &Store<T>, why: &str) -> bool {
    // The search may take long, and no flush waits for a merge that pauses.
    pause(store, Pause::Failure(damaged(why)));
    let found = store.tables.find_unreadable();
    if found {
        resume(store);
    }
    found
}

impl Rounds {
    /// Merges while something is due and there is room.
    pub(crate) fn run<T: Tables>(&mut self, store: &Store<T>, room: &Room, now: Instant) {
        if self.paused_until.is_some_and(|(until, _)| now < until) {
            return;
        }
        let begun = Instant::now();
        loop {
            let sizes = store.tables.sizes();
            let free = room.free();
            let missing = |merge_bytes| Room::needed(room.floor_bytes, merge_bytes).saturating_sub(free);
            let refuses = store.refuses.lock().unwrap_or_else(PoisonError::into_inner).is_some();
            let bytes_max = room.usable(free, refuses);
            let mut kind = self.next(sizes, store, now);
            if kind == MergeKind::All && missing(remaining_bytes(sizes)) > 0 {
                kind = MergeKind::Due;
            }
            if kind == MergeKind::Due && missing(sizes.next_merge) > 0 {
                if self.may_make_room(sizes, bytes_max) {
                    kind = MergeKind::All;
                } else {
                    // A merge that is not due needs no room; whether one is due is known only by trying.
                    if store.tables.young() >= usize::from(YOUNG_TABLES_DUE) {
                        let mib = mib(missing(sizes.next_merge));
                        pause(store, Pause::Room(format!("a merge of tables needs {mib} MiB more")));
                    }
                    return;
                }
            }
            set_all(store, kind == MergeKind::All);
            let oldest = store.tables.oldest_snapshot();
            let mut merged = store.tables.merge(kind, bytes_max);
            set_all(store, false);
            if matches!(&merged, Err(MergeFailure::Damaged(why)) if find_unreadable(store, why)) {
                merged = Ok(true);
            }
            match merged {
                Ok(true) => store.notify_flush(),
                Ok(false) => {
                    resume(store);
                    self.paused_until = None;
                    if kind == MergeKind::Due {
                        return;
                    }
                    let left = store.tables.sizes();
                    self.kept_by = oldest.filter(|_| left.tombstones > 0);
                    if self.kept_by.is_none() {
                        self.deleted_since = None;
                    }
                    self.on_clean(kind, left, u64::MAX);
                }
                Err(MergeFailure::Stopped) if is_closing(store) => return,
                Err(MergeFailure::Full | MergeFailure::Stopped) if kind == MergeKind::All => {
                    // It gave way to new tables, or more is left than there is room for: others come first.
                    self.on_clean(kind, sizes, bytes_max);
                    store.tables.stop_merging(false);
                    if is_closing(store) {
                        // The closing thread may have stopped merges just before.
                        return store.tables.stop_merging(true);
                    }
                }
                Err(failure) => {
                    self.on_clean(kind, sizes, u64::MAX);
                    return self.on_failure(store, failure, now + begun.elapsed());
                }
            }
        }
    }

    /// Whether to merge everything although there is no room for the next merge: what is deleted may give back more than that
    /// takes. The merge ends where its room does, so it is enough that there is a chance.
    fn may_make_room(&self, sizes: Sizes, bytes_max: u64) -> bool {
        let unchanged = |now: u64, then: u64| now.abs_diff(then) <= then / CHANGE_SHARE;
        let tried = self.clean_tried.is_some_and(|(items, bytes)| {
            unchanged(sizes.items, items) && (bytes_max <= bytes || unchanged(bytes_max, bytes))
        });
        // At best each tombstone drops a row besides itself.
        let dropped = sizes.tombstones.saturating_mul(2);
        sizes.tombstones > 0 && !tried && share_of(sizes, sizes.items.saturating_sub(dropped)) < bytes_max
    }

    fn on_clean(&mut self, kind: MergeKind, sizes: Sizes, bytes_max: u64) {
        if kind == MergeKind::All {
            self.clean_tried = Some((sizes.items, bytes_max));
        }
    }

    fn next<T: Tables>(&mut self, sizes: Sizes, store: &Store<T>, now: Instant) -> MergeKind {
        if sizes.tombstones == 0 {
            (self.deleted_since, self.clean_tried, self.kept_by) = (None, None, None);
            return MergeKind::Due;
        }
        let oldest = store.tables.oldest_snapshot();
        if self.kept_by.is_some_and(|kept_by| oldest.is_none_or(|oldest| oldest > kept_by)) {
            (self.kept_by, self.clean_tried) = (None, None);
        }
        let since = self.unchanged.filter(|(items, _)| *items == sizes.items).map_or(now, |(_, since)| since);
        self.unchanged = Some((sizes.items, since));
        let age = now.duration_since(*self.deleted_since.get_or_insert(now)).max(sizes.tombstone_age);
        let many = sizes.tombstones >= TOMBSTONES_MANY && sizes.tombstones >= sizes.items / TOMBSTONES_SHARE;
        let tried = self.clean_tried.is_some_and(|(items, _)| items == sizes.items);
        // Not while flushes come in quick succession: what they add would be merged again.
        let calm = store.tables.young() <= YOUNG_TABLES_CALM || now.duration_since(since) >= CALM_AFTER;
        let is_due = many && calm || age >= CLEAN_AFTER && self.kept_by.is_none();
        if is_due && !tried { MergeKind::All } else { MergeKind::Due }
    }

    fn on_failure<T: Tables>(&mut self, store: &Store<T>, failure: MergeFailure, now: Instant) {
        let before = self.paused_until.map_or(Duration::ZERO, |(_, pause)| pause);
        let span = (before * 2).clamp(PAUSE_MIN, PAUSE_MAX);
        self.paused_until = Some((now + span, span));
        let why = match failure {
            MergeFailure::Stopped | MergeFailure::Full => "the disk is full".to_owned(),
            MergeFailure::Unsure(why) => {
                store.syncer.fail(format!("{why}: restart"));
                store.notify_flush();
                why
            }
            MergeFailure::Damaged(why) => damaged(&why),
            MergeFailure::Failed(why) => why,
        };
        pause(store, Pause::Failure(why));
    }
}

fn damaged(why: &str) -> String {
    format!("a table is damaged ({why}): `wayleave check` names it, `wayleave salvage` saves the rest")
}

/// The most that is left of all tables once tombstones are gone. They may delete nothing: a row that was put and deleted between
/// two flushes leaves its tombstone alone.
fn remaining_bytes(sizes: Sizes) -> u64 {
    share_of(sizes, sizes.items.saturating_sub(sizes.tombstones))
}

/// The bytes of this many rows.
fn share_of(sizes: Sizes, rows: u64) -> u64 {
    let share = u128::from(sizes.all) * u128::from(rows) / u128::from(sizes.items.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

const fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

fn set_all<T: Tables>(store: &Store<T>, all: bool) {
    store.merging.lock().unwrap_or_else(PoisonError::into_inner).all = all;
}

fn is_closing<T: Tables>(store: &Store<T>) -> bool {
    store.merging.lock().unwrap_or_else(PoisonError::into_inner).closing
}

fn pause<T: Tables>(store: &Store<T>, why: Pause) {
    let mut merging = store.merging.lock().unwrap_or_else(PoisonError::into_inner);
    if merging.note_pause(why) {
        let reason = merging.paused.as_deref();
        tracing::warn!(reason, "merging of tables pauses; the store continues, and reads get slower with time");
    }
    drop(merging);
    // A flush may be waiting for fewer tables.
    store.notify_flush();
}

fn resume<T: Tables>(store: &Store<T>) {
    let mut merging = store.merging.lock().unwrap_or_else(PoisonError::into_inner);
    if merging.paused.take().is_some() {
        tracing::info!("merging of tables resumes");
    }
}

#[cfg(test)]
#[path = "merger_tests.rs"]
mod tests;
