//! A stopped flush must end in progress or in a failed store, because commits wait for it.

use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{Receiver, channel};

use futures::FutureExt;
use wayleave_engine::{Error, Health, Write};

use super::*;
use crate::disk::OsDisk;
use crate::folder::Folder;
use crate::loading::{self, Loading};
use crate::merger::{Merger, Room};
use crate::simulated::SimTables;
use crate::syncer::Drive;
use crate::tables::{MergeFailure, MergeKind, Sizes, Snapshot};
use crate::watchdog::{self, Watched};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Mood {
    /// This many merges fail before one succeeds.
    Fails(usize),
    /// Writing a table panics.
    Panics,
    /// A merge panics.
    MergePanics,
}

/// Tables with injected faults.
struct Moody {
    rows: SimTables,
    mood: Mutex<Mood>,
    young: AtomicUsize,
    /// Until when a search for damage lasts.
    search: Option<Mutex<Receiver<()>>>,
}

impl Tables for Moody {
    type Snapshot = <SimTables as Tables>::Snapshot;

    fn snapshot(&self) -> Self::Snapshot {
        self.rows.snapshot()
    }

    fn add(&self, rows: &[Arc<Memtable>]) -> Result<(), String> {
        assert_ne!(*self.mood.lock().unwrap(), Mood::Panics, "a panic on purpose");
        self.young.fetch_add(1, Ordering::SeqCst);
        self.rows.add(rows)
    }

    fn young(&self) -> usize {
        self.young.load(Ordering::SeqCst)
    }

    fn sizes(&self) -> Sizes {
        Sizes::default()
    }

    fn merge(&self, _: MergeKind, _: u64) -> Result<bool, MergeFailure> {
        let mut mood = self.mood.lock().unwrap();
        match &mut *mood {
            Mood::Fails(0) => Ok(self.young.swap(0, Ordering::SeqCst) > 0),
            Mood::Fails(left) => {
                *left -= 1;
                Err(MergeFailure::Damaged("a block".into()))
            }
            Mood::Panics | Mood::MergePanics => {
                drop(mood);
                panic!("a panic on purpose")
            }
        }
    }

    fn find_unreadable(&self) -> bool {
        self.search.iter().for_each(|until| _ = until.lock().unwrap().recv());
        false
    }

    fn stop_merging(&self, _: bool) {}
}

struct Bench {
    _merger: Merger<Moody>,
    flusher: Option<Flusher<Moody>>,
    store: Arc<Store<Moody>>,
    _folder: Folder,
    above: tempfile::TempDir,
}

fn start(mood: Mood, young: usize) -> Bench {
    start_searching(mood, young, None)
}

fn start_searching(mood: Mood, young: usize, search: Option<Receiver<()>>) -> Bench {
    let above = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let folder = Folder::open(&disk, above.path(), 2, |_| Ok(())).unwrap();
    let search = search.map(Mutex::new);
    let tables = Moody { rows: SimTables::default(), mood: Mutex::new(mood), young: AtomicUsize::new(young), search };
    let loading = Loading { freeze_bytes: 64 << 10, repair: false, drive: Drive::Threads, life: 1 };
    let store = Arc::new(loading::load(&folder, tables, loading, |_| Ok(())).unwrap());
    let journal = JournalFolder { disk: Arc::clone(&disk), path: folder.journal() };
    let flusher = Flusher::start(Arc::clone(&store), journal).unwrap();
    let room = Room { disk, folder: above.path().into(), floor_bytes: 0 };
    let merger = Merger::start(Arc::clone(&store), room).unwrap();
    Bench { _merger: merger, flusher: Some(flusher), store, _folder: folder, above }
}

impl Bench {
    /// Commits until memory was full several times over, or a commit is refused.
    async fn fill(&self) -> Result<(), Error> {
        for n in 0..40u8 {
            let writes = [Write { key: vec![0, 1, 9, n], value: Some(vec![n; 20_000]) }];
            self.store.commit(&[], &[], &writes, Time(u64::from(n)))?.await?;
        }
        Ok(())
    }

    fn health(&self) -> Health {
        watchdog::look(&self.store, &self.watched(0), &Health::Ok)
    }

    fn watched(&self, floor_bytes: u64) -> Watched {
        Watched { disk: Arc::new(OsDisk), folder: self.above.path().into(), damage: Arc::default(), floor_bytes }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_waits_for_merges_when_there_are_too_many_tables() {
    let bench = start(Mood::Fails(0), YOUNG_TABLES_MAX + 1);
    assert_eq!(bench.fill().await, Ok(()));
    assert_eq!(bench.health(), Health::Ok);
    assert!(bench.store.tables.young() <= YOUNG_TABLES_MAX);
}

/// Damage in a table must cost what it holds, not the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_cannot_be_merged_do_not_stop_commits() {
    let bench = start(Mood::Fails(usize::MAX), YOUNG_TABLES_MAX + 1);
    assert_eq!(bench.fill().await, Ok(()));
    assert!(
        matches!(bench.health(), Health::Impaired(why) if why.contains("merging of tables pauses: a table is damaged"))
    );
}

/// The merge thread looks for the damage that a merge has met, a flush waits for that thread, and commits wait for the flush.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_do_not_wait_while_damage_is_looked_for() {
    let (end, search) = channel();
    let bench = Arc::new(start_searching(Mood::Fails(usize::MAX), YOUNG_TABLES_MAX + 1, Some(search)));
    let (sender, hear) = channel();
    let theirs = Arc::clone(&bench);
    let filling = tokio::spawn(async move { sender.send(theirs.fill().await) });
    let filled = tokio::task::block_in_place(|| hear.recv_timeout(std::time::Duration::from_secs(60)));
    drop(end);
    assert_eq!(filled, Ok(Ok(())), "the search lasts until then");
    drop(filling.await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_of_the_merge_thread_fails_the_store() {
    let bench = start(Mood::MergePanics, YOUNG_TABLES_MAX + 1);
    let refused = bench.fill().await.unwrap_err();
    assert!(refused.to_string().contains("the thread that merges tables panicked"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_while_a_table_is_written_fails_the_store() {
    let bench = start(Mood::Panics, 0);
    let refused = bench.fill().await.unwrap_err();
    assert!(refused.to_string().contains("the thread that writes tables panicked"), "{refused}");
}

/// A disk that is nearly full refuses commits before they change anything, but allows reads and changes of ownership.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_nearly_full_refuses_commits_and_answers_reads() {
    let mut bench = start(Mood::Fails(0), 0);
    let write = |value: u8| [Write { key: vec![0, 1, 9], value: Some(vec![value]) }];
    let commit = |bench: &Bench, value| bench.store.commit(&[], &[], &write(value), Time(1));
    commit(&bench, 1).unwrap().await.unwrap();
    let look = |bench: &Bench, floor, before: &Health| watchdog::look(&bench.store, &bench.watched(floor), before);
    let full = look(&bench, u64::MAX / 2, &Health::Ok);
    assert!(matches!(&full, Health::Degraded(why) if why.contains("no space left")), "{full:?}");
    assert!(matches!(commit(&bench, 2), Err(Error::Unavailable(why)) if why.contains("free some space")));
    assert_eq!(bench.store.get(&[vec![0, 1, 9]]), Ok(vec![Some(vec![1])]));
    let (fence, owned) = bench.store.own(ShardId(1), &[], Time(1)).unwrap();
    owned.await.unwrap();
    assert_eq!(fence.epoch.0, 1);
    assert_eq!(look(&bench, 0, &full), Health::Ok);
    commit(&bench, 3).unwrap().await.unwrap();
    drop(bench.flusher.take());
}

#[test]
fn the_note_reads_back() {
    let note = Done { file: 7, at: Time(9) };
    assert_eq!(Done::decode(&note.encode()), Some(note));
    assert_eq!((Done::decode(&[1, 2]), Done::decode(&[0; 8]), Done::decode(&[0; 17])), (None, None, None));
}

/// A commit without a fence advances the store's time as well, also once its rows are in a table.
#[test]
fn the_time_of_a_commit_without_a_fence_is_kept() {
    let bench = start(Mood::Fails(0), 0);
    let writes = [Write { key: vec![0xff, 0xfe, 9], value: Some(vec![1]) }];
    let commit = bench.store.commit(&[], &[], &writes, Time(77)).unwrap();
    let journal = JournalFolder { disk: Arc::new(OsDisk), path: bench.above.path().join("journal") };
    flush(&bench.store, &journal).unwrap();
    assert_eq!(commit.now_or_never(), Some(Ok(())));
    let note = bench.store.tables.snapshot().get(DONE_KEY.as_slice()).unwrap().unwrap();
    assert_eq!(Done::decode(&note).map(|done| done.at), Some(Time(77)));
}
