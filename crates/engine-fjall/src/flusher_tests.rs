//! Whatever stops a flush must end in progress or in a failed store, because commits wait for it.

use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use futures::FutureExt;
use wayleave_engine::{Error, Health, Write};

use super::*;
use crate::disk::OsDisk;
use crate::folder::Folder;
use crate::loading::{self, Loading};
use crate::simulated::SimTables;
use crate::syncer::Drive;
use crate::watchdog::{self, Watched};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    /// This many compaction requests are dropped.
    Lazy(usize),
    /// A compaction thread has died.
    Dead,
    /// Writing a table panics.
    Panics,
}

/// Tables with injected faults.
struct Moody {
    rows: SimTables,
    mood: Mutex<Mood>,
    young: AtomicUsize,
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

    fn ask_for_merge(&self) -> Result<(), String> {
        let mut mood = self.mood.lock().unwrap();
        match &mut *mood {
            Mood::Lazy(0) => self.young.store(0, Ordering::SeqCst),
            Mood::Lazy(left) => *left -= 1,
            Mood::Dead | Mood::Panics => {}
        }
        Ok(())
    }

    fn merging(&self) -> bool {
        false
    }

    fn check(&self) -> Result<(), String> {
        if *self.mood.lock().unwrap() == Mood::Dead { Err("a compaction thread has died".into()) } else { Ok(()) }
    }
}

struct Bench {
    flusher: Option<Flusher<Moody>>,
    store: Arc<Store<Moody>>,
    _folder: Folder,
    above: tempfile::TempDir,
}

fn start(mood: Mood, young: usize, merge_wait_max: Duration) -> Bench {
    let above = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let folder = Folder::open(&disk, above.path(), 2, |_| Ok(())).unwrap();
    let tables = Moody { rows: SimTables::default(), mood: Mutex::new(mood), young: AtomicUsize::new(young) };
    let loading = Loading { freeze_bytes: 64 << 10, repair: false, drive: Drive::Threads, life: 1 };
    let mut store = loading::load(&folder, tables, loading).unwrap();
    store.merge_wait_max = merge_wait_max;
    let store = Arc::new(store);
    let journal = JournalFolder { disk, path: folder.journal() };
    let flusher = Flusher::start(Arc::clone(&store), journal).unwrap();
    Bench { flusher: Some(flusher), store, _folder: folder, above }
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
        let watched = Watched { disk: Arc::new(OsDisk), folder: self.above.path().into(), reserve_bytes: 0 };
        watchdog::look(&self.store, &watched, &Health::Ok)
    }
}

/// L0 is full, and the one compaction request that fjall makes by itself was dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn merges_are_asked_for_until_there_is_one() {
    let bench = start(Mood::Lazy(25), YOUNG_TABLES_MAX + 1, MERGE_WAIT_MAX);
    assert_eq!(bench.fill().await, Ok(()));
    assert_eq!(bench.health(), Health::Ok);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_are_never_merged_fail_the_store() {
    let bench = start(Mood::Lazy(usize::MAX), YOUNG_TABLES_MAX + 1, Duration::from_millis(50));
    let refused = bench.fill().await.unwrap_err();
    assert!(refused.to_string().contains("no compaction finished"), "{refused}");
    assert!(matches!(bench.health(), Health::Failed(why) if why.contains("no compaction finished")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_merging_thread_fails_the_store() {
    let bench = start(Mood::Dead, YOUNG_TABLES_MAX + 1, MERGE_WAIT_MAX);
    let refused = bench.fill().await.unwrap_err();
    assert!(refused.to_string().contains("a compaction thread has died"), "{refused}");
}

/// No commit is needed to notice it: the watchdog polls.
#[test]
fn a_dead_merging_thread_is_noticed_while_nothing_is_written() {
    let bench = start(Mood::Dead, 0, MERGE_WAIT_MAX);
    assert_eq!(bench.health(), Health::Failed("a compaction thread has died".into()));
    assert!(matches!(bench.store.get(&[vec![0]]), Err(Error::Unavailable(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_while_a_table_is_written_fails_the_store() {
    let bench = start(Mood::Panics, 0, MERGE_WAIT_MAX);
    let refused = bench.fill().await.unwrap_err();
    assert!(refused.to_string().contains("the thread that writes tables panicked"), "{refused}");
}

/// A disk that is nearly full refuses commits before they change anything, but allows reads and changes of ownership.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_nearly_full_refuses_commits_and_answers_reads() {
    let mut bench = start(Mood::Lazy(0), 0, MERGE_WAIT_MAX);
    let write = |value: u8| [Write { key: vec![0, 1, 9], value: Some(vec![value]) }];
    let commit = |bench: &Bench, value| bench.store.commit(&[], &[], &write(value), Time(1));
    commit(&bench, 1).unwrap().await.unwrap();
    let look = |bench: &Bench, reserve_bytes, before: &Health| {
        let watched = Watched { disk: Arc::new(OsDisk), folder: bench.above.path().into(), reserve_bytes };
        watchdog::look(&bench.store, &watched, before)
    };
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
fn the_note_reads_back_with_and_without_its_time() {
    let note = Done { file: 7, at: Time(9) };
    assert_eq!(Done::decode(&note.encode()), Some(note));
    assert_eq!(Done::decode(&7u64.to_be_bytes()), Some(Done { file: 7, at: Time::ZERO }));
    assert_eq!((Done::decode(&[1, 2]), Done::decode(&[0; 9])), (None, None));
}

/// A commit without a fence advances the store's time as well, also once its rows are in a table.
#[test]
fn the_time_of_a_commit_without_a_fence_is_kept() {
    let bench = start(Mood::Lazy(0), 0, MERGE_WAIT_MAX);
    let writes = [Write { key: vec![0xff, 0xfe, 9], value: Some(vec![1]) }];
    let commit = bench.store.commit(&[], &[], &writes, Time(77)).unwrap();
    let journal = JournalFolder { disk: Arc::new(OsDisk), path: bench.above.path().join("journal") };
    flush(&bench.store, &journal).unwrap();
    assert_eq!(commit.now_or_never(), Some(Ok(())));
    let note = bench.store.tables.snapshot().get(DONE_KEY.as_slice()).cloned().unwrap();
    assert_eq!(Done::decode(&note).map(|done| done.at), Some(Time(77)));
}
