//! Who syncs, who shares a sync, and the state after a failure, with real threads on a disk whose syncs can be held up.

use std::fmt::Debug;
use std::io::Result as IoResult;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use super::*;
use crate::disk::{Disk, DiskFile, OsDisk};
use crate::record::Record;
use crate::replay::Replay;

/// What the gate lets a sync do: continue or fail.
type Word = std::result::Result<(), &'static str>;
type Gate = Arc<Mutex<mpsc::Receiver<Word>>>;

/// The real disk, whose syncs optionally wait at a gate and report their thread.
#[derive(Clone, Default)]
struct Gated {
    gate: Option<Gate>,
    begun: Option<mpsc::Sender<Option<String>>>,
    fail_writes: Arc<AtomicBool>,
    writes: Arc<AtomicUsize>,
}

impl Debug for Gated {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Gated")
    }
}

struct GatedFile(Gated, Arc<dyn DiskFile>);

impl DiskFile for GatedFile {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> IoResult<()> {
        self.0.writes.fetch_add(1, Ordering::SeqCst);
        if self.0.fail_writes.load(Ordering::SeqCst) {
            return Err(std::io::Error::other("no room"));
        }
        self.1.write_all_at(bytes, offset)
    }

    fn sync(&self) -> IoResult<()> {
        if let Some(begun) = &self.0.begun {
            begun.send(std::thread::current().name().map(str::to_owned)).unwrap();
        }
        let verdict = self.0.gate.as_ref().map(|gate| gate.lock().unwrap().recv());
        match verdict {
            Some(Ok(Err(why))) => Err(std::io::Error::other(why)),
            _ => self.1.sync(),
        }
    }
}

macro_rules! pass_on {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        $(fn $name(&self, $($arg: $type),*) -> IoResult<$out> { OsDisk.$name($($arg),*) })*
    };
}

impl Disk for Gated {
    pass_on! {
        exists(path: &Path) -> bool;
        list(folder: &Path) -> Vec<String>;
        create_dir(folder: &Path) -> ();
        remove_dir_all(folder: &Path) -> ();
        create(path: &Path) -> ();
        read(path: &Path) -> Vec<u8>;
        len(path: &Path) -> u64;
        read_at(path: &Path, offset: u64, bytes: usize) -> Vec<u8>;
        rename(from: &Path, to: &Path) -> ();
        remove(path: &Path) -> ();
        sync_dir(folder: &Path) -> ();
        lock(path: &Path) -> Box<dyn Debug + Send + Sync>;
        free_bytes(folder: &Path) -> u64;
    }

    fn open(&self, path: &Path, direct: bool) -> IoResult<Arc<dyn DiskFile>> {
        Ok(Arc::new(GatedFile(self.clone(), OsDisk.open(path, direct)?)))
    }
}

struct Bench {
    syncer: Syncer,
    folder: tempfile::TempDir,
}

impl Bench {
    fn new(disk: &Gated) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = journal(&folder);
        Journal::create(&OsDisk, &path).unwrap();
        let plain: Arc<dyn Disk> = Arc::new(OsDisk);
        let tail = Replay { disk: &plain, folder: &path, done: 0, repair: false }.run(|_| {}).unwrap();
        let journal = Journal::resume(Arc::new(disk.clone()), &path, &tail, 1).unwrap();
        Self { syncer: Syncer::start(journal, Drive::Threads).unwrap(), folder }
    }

    fn append(&self, at: u64) -> Commit {
        self.syncer.append(&body(at)).unwrap()
    }

    /// Closes it cleanly and reads the journal.
    fn read(self) -> Vec<u64> {
        drop(self.syncer);
        let (disk, mut found): (Arc<dyn Disk>, _) = (Arc::new(OsDisk), Vec::new());
        let replay = Replay { disk: &disk, folder: &journal(&self.folder), done: 0, repair: false };
        replay
            .run(|record| {
                if let Record::Batch { at, .. } = record {
                    found.push(at.0)
                }
            })
            .unwrap();
        found
    }
}

fn journal(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("journal")
}

fn body(at: u64) -> Vec<u8> {
    crate::record::encode_batch(wayleave_core::time::Time(at), &[], &[])
}

/// A disk whose syncs report that they have begun and wait for permission.
fn gated() -> (Gated, mpsc::Receiver<Option<String>>, mpsc::Sender<Word>) {
    let ((begun, syncs), (go, gate)) = (mpsc::channel(), mpsc::channel());
    (Gated { gate: Some(Arc::new(Mutex::new(gate))), begun: Some(begun), ..Gated::default() }, syncs, go)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn batches_that_wait_share_one_sync_and_syncs_overlap() {
    let (disk, syncs, go) = gated();
    let bench = Bench::new(&disk);
    let first = tokio::spawn(bench.append(0));
    syncs.recv().unwrap();
    let rest = tokio::spawn(futures::future::join_all((1..=100).map(|at| bench.append(at)).collect::<Vec<_>>()));
    syncs.recv().unwrap();
    assert!(!first.is_finished() && !rest.is_finished(), "nothing is durable before its sync has ended");
    go.send(Ok(())).unwrap();
    go.send(Ok(())).unwrap();
    first.await.unwrap().unwrap();
    assert!(rest.await.unwrap().iter().all(Result::is_ok));
    assert!(syncs.try_recv().is_err(), "two syncs for all of them");
    drop(go);
    assert_eq!(bench.read(), (0..=100).collect::<Vec<_>>());
}

/// With threads: a write is held up, the journal rotates, more batches arrive, and everything is shut down cleanly.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_rotation_behind_a_write_in_flight_loses_nothing() {
    let (disk, syncs, go) = gated();
    let bench = Bench::new(&disk);
    let first = tokio::spawn(bench.append(1));
    syncs.recv().unwrap();
    assert_eq!(bench.syncer.rotate(), 1);
    let second = tokio::spawn(bench.append(2));
    let third = tokio::spawn(bench.append(3));
    assert!(!first.is_finished());
    // The first write, the continuation mark of its file, and at most two more.
    drop(go);
    for answer in [first, second, third] {
        assert_eq!(answer.await.unwrap(), Ok(()));
    }
    let mut found = bench.read();
    found.sort_unstable();
    assert_eq!(found, [1, 2, 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn nothing_is_written_after_a_write_that_failed() {
    let disk = Gated::default();
    let bench = Bench::new(&disk);
    disk.fail_writes.store(true, Ordering::SeqCst);
    let failed = "the data folder failed (no room): check the disk, then restart";
    assert_eq!(bench.append(1).await, Err(Error::OutcomeUnknown(failed.into())));
    let writes = disk.writes.load(Ordering::SeqCst);
    disk.fail_writes.store(false, Ordering::SeqCst);
    assert_eq!(bench.syncer.append(b"more").err(), Some(Error::Unavailable(failed.into())));
    assert_eq!(bench.syncer.check(), Err(Error::Unavailable(failed.into())));
    bench.syncer.rotate();
    assert_eq!(bench.syncer.settled().err(), Some(failed.to_owned()));
    assert_eq!(bench.read(), [] as [u64; 0], "and the folder opens");
    assert_eq!(disk.writes.load(Ordering::SeqCst), writes, "a clean stop does not write either");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_sync_that_ends_after_a_failed_one_acknowledges_nothing() {
    let (disk, syncs, go) = gated();
    let bench = Bench::new(&disk);
    let first = tokio::spawn(bench.append(1));
    syncs.recv().unwrap();
    let second = tokio::spawn(bench.append(2));
    syncs.recv().unwrap();
    go.send(Err("the disk is gone")).unwrap();
    go.send(Ok(())).unwrap();
    let failed = "the data folder failed (the disk is gone): check the disk, then restart";
    // Whichever of the two failed, one of them reports it, and the other is not acknowledged after that.
    let outcomes = [first.await.unwrap(), second.await.unwrap()];
    assert!(outcomes.contains(&Err(Error::OutcomeUnknown(failed.into()))), "{outcomes:?}");
    assert!(outcomes != [Err(Error::OutcomeUnknown(failed.into())), Ok(())], "it is behind one that may be missing");
}

#[tokio::test]
async fn a_batch_is_synced_without_a_waiter() {
    let (begun, syncs) = mpsc::channel();
    let disk = Gated { begun: Some(begun), ..Gated::default() };
    let bench = Bench::new(&disk);
    bench.append(1).await.unwrap();
    assert_ne!(syncs.recv().unwrap().as_deref(), Some("wayleave-sync"), "the waiting caller syncs what is small");
    bench.syncer.append(&vec![3; LEAD_BYTES]).unwrap().await.unwrap();
    assert_eq!(syncs.recv().unwrap().as_deref(), Some("wayleave-sync"), "what is large is left to the thread");
    drop(bench.append(2));
    assert_eq!(syncs.recv().unwrap().as_deref(), Some("wayleave-sync"));
}

/// A call that finds nothing to do must not make the thread miss the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spurious_wake_up_does_not_swallow_the_next() {
    let bench = Bench::new(&Gated::default());
    for at in 0..50 {
        bench.append(at).await.unwrap();
        // Everything is durable: the thread is called and finds nothing.
        bench.syncer.settled().unwrap().await.unwrap().unwrap();
        drop(bench.append(100 + at));
        bench.syncer.settled().unwrap().await.unwrap().unwrap();
    }
    assert_eq!(bench.read().len(), 100);
}

#[tokio::test]
async fn the_first_failure_is_the_one_reported() {
    let bench = Bench::new(&Gated::default());
    bench.syncer.fail("first".into());
    bench.syncer.fail("second".into());
    assert_eq!(bench.syncer.check(), Err(Error::Unavailable("first".into())));
}

#[tokio::test]
async fn closing_writes_what_is_left() {
    let bench = Bench::new(&Gated::default());
    let answers: Vec<_> = (0..10).map(|at| bench.append(at)).collect();
    assert_eq!(bench.read(), (0..10).collect::<Vec<_>>());
    for answer in answers {
        assert_eq!(answer.await, Ok(()));
    }
}

/// Records whose futures were dropped are written anyway.
#[tokio::test]
async fn closing_right_after_a_rotation_writes_what_is_left() {
    let bench = Bench::new(&Gated::default());
    drop(bench.append(1));
    bench.syncer.rotate();
    drop(bench.append(2));
    assert_eq!(bench.read(), [1, 2]);
}

/// A flight that is dropped was carried by a thread that panicked.
#[tokio::test]
async fn a_panic_while_writing_fails_the_store_and_its_waiters() {
    let bench = Bench::new(&Gated::default());
    let answer = bench.append(1);
    drop(bench.syncer.begin());
    assert!(matches!(answer.await, Err(Error::OutcomeUnknown(why)) if why.contains("panicked")));
    assert!(bench.syncer.check().is_err());
}
