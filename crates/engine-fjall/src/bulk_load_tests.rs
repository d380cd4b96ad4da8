use std::io::Write as _;

use wayleave_core::ids::{Epoch, ShardId};
use wayleave_engine::snapshot_file::{SnapshotCounts, SnapshotReader, SnapshotWriter};
use wayleave_engine::suite::harness::{self, all, fenced, names};
use wayleave_engine::{Engine, Scan};

use super::*;
use crate::Fjall;

fn open(path: &Path) -> Fjall {
    // A small memtable, so that some rows are in tables already.
    Fjall::open(path, Options { shards: 4, memtable_bytes: 64 << 10, ..Options::default() }).unwrap()
}

async fn put(engine: &Fjall, shard: u16, epoch: Epoch, seq: u64) {
    let row = harness::put(shard, &format!("{seq:05}"), &"x".repeat(300));
    engine.commit(fenced([(shard, epoch, seq)], [row])).await.unwrap();
}

async fn snapshot(engine: &Fjall) -> Vec<u8> {
    let (snapshot, mut file, mut from) = (engine.snapshot().await.unwrap(), Vec::new(), Vec::new());
    let mut writer = SnapshotWriter::begin(&mut file, snapshot.header()).unwrap();
    loop {
        let page = snapshot.page(&from, 100).unwrap();
        let Some(last) = page.last() else { break };
        from = [last.key.as_slice(), &[0]].concat();
        page.iter().for_each(|row| writer.row(&row.key, &row.value).unwrap());
    }
    writer.finish(&[]).unwrap();
    file
}

/// Fills a folder from a snapshot file.
fn restore(path: &Path, file: &[u8]) -> Result<(SnapshotHeader, SnapshotCounts), String> {
    let mut reader = SnapshotReader::begin(file).map_err(|error| error.to_string())?;
    let mut load = BulkLoad::create(path, reader.header()).map_err(|error| error.to_string())?;
    while let Some(rows) = reader.next_rows().map_err(|error| error.to_string())? {
        load.write(rows).unwrap();
    }
    load.finish().map_err(|error| error.to_string())?;
    Ok((reader.header().clone(), reader.counts()))
}

#[tokio::test]
async fn a_restored_store_has_the_rows_and_epochs_of_its_snapshot_and_continues() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = open(from.path());
    let (epoch, _) = engine.own(ShardId(1), &[]).await.unwrap();
    let (other, _) = engine.own(ShardId(2), &[]).await.unwrap();
    for seq in 1..=600 {
        put(&engine, 1, epoch, seq).await;
    }
    put(&engine, 2, other, 1).await;
    let file = snapshot(&engine).await;
    // It is from that moment: later writes are not in it.
    put(&engine, 1, epoch, 601).await;
    let (header, counts) = restore(to.path(), &file[..]).unwrap();
    assert_eq!((header.shards, counts.rows > 600), (4, true));

    let restored = open(to.path());
    assert_eq!(restored.shards(), 4);
    assert_eq!(names(&restored, all(1)).await.len(), 600);
    assert_eq!(names(&restored, all(2)).await.len(), 1);
    assert!(restored.now() >= header.at);
    let (next, seq) = restored.own(ShardId(1), &[]).await.unwrap();
    assert_eq!((next, seq), (Epoch(epoch.0 + 1), 600));
    put(&restored, 1, next, 601).await;
    drop(restored);
    assert_eq!(names(&open(to.path()), all(1)).await.len(), 601, "it is a store like any other");
}

/// Law 6: the original store may have granted epochs since, which the restored one does not know. It must have a new
/// incarnation, also when it is a copy of a copy.
#[tokio::test]
async fn a_restored_store_differs_from_its_original() {
    let folders: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let mut seen = Vec::new();
    for pair in folders.windows(2) {
        let engine = open(pair[0].path());
        seen.push(engine.look(&[] as &[Scan]).await.unwrap().incarnation);
        let file = snapshot(&engine).await;
        // The incarnation is the clock in milliseconds.
        std::thread::sleep(std::time::Duration::from_millis(2));
        restore(pair[1].path(), &file[..]).unwrap();
    }
    seen.push(open(folders[2].path()).look(&[]).await.unwrap().incarnation);
    assert_eq!([0, 1, 2].map(|n| is_copied(folders[n].path()).unwrap()), [false, true, true]);
    settle(folders[2].path()).unwrap();
    assert!(!is_copied(folders[2].path()).unwrap());
    assert_eq!(seen[0], 0);
    assert!(seen[0] < seen[1] && seen[1] < seen[2], "{seen:?}");
}

/// The snapshot is requested while batches are in flight: (1) a batch is appended and its sync is running, (2) the
/// snapshot is requested, (3) the flush thread freezes and settles. Everything acknowledged before (2) must be in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_snapshot_under_load_contains_every_earlier_acknowledged_write() {
    let folder = tempfile::tempdir().unwrap();
    let engine = std::sync::Arc::new(open(folder.path()));
    let answered: std::sync::Arc<Vec<_>> =
        std::sync::Arc::new((0..4).map(|_| std::sync::atomic::AtomicU64::new(0)).collect());
    let mut writers = Vec::new();
    for shard in 0..4_u16 {
        let (engine, answered) = (engine.clone(), answered.clone());
        writers.push(tokio::spawn(async move {
            let (epoch, _) = engine.own(ShardId(shard), &[]).await.unwrap();
            for seq in 1..=1_500 {
                put(&engine, shard, epoch, seq).await;
                answered[usize::from(shard)].store(seq, std::sync::atomic::Ordering::SeqCst);
            }
        }));
    }
    while !writers.iter().all(tokio::task::JoinHandle::is_finished) {
        let before: Vec<u64> = answered.iter().map(|seq| seq.load(std::sync::atomic::Ordering::SeqCst)).collect();
        let file = snapshot(&engine).await;
        let to = tempfile::tempdir().unwrap();
        restore(to.path(), &file[..]).unwrap();
        let restored = open(to.path());
        for (shard, before) in (0_u16..).zip(before) {
            let found = names(&restored, all(shard)).await.len() as u64;
            assert!(found >= before, "shard {shard}: {found} of {before}");
            let (_, seq) = restored.own(ShardId(shard), &[]).await.unwrap();
            assert_eq!(seq, found, "the fence is of the same moment as the rows");
        }
    }
    for writer in writers {
        writer.await.unwrap();
    }
}

#[tokio::test]
async fn a_snapshot_that_waits_while_the_store_closes_hears_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path());
    let asked = engine.snapshot();
    drop(engine);
    assert!(asked.await.is_err());
}

#[test]
fn a_folder_with_anything_in_it_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(&folder.path().join("data")));
    for (path, found) in [(folder.path().to_owned(), "data"), (folder.path().join("data"), "")] {
        let error = restore(&path, &empty()[..]).unwrap_err();
        assert!(error.contains("is not empty") && error.contains(found), "{error}");
        assert!(error.contains(path.to_str().unwrap()), "{error}");
    }
    drop(open(&folder.path().join("data")));
}

#[test]
fn a_folder_that_another_process_fills_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let header = SnapshotHeader { shards: 4, ..SnapshotHeader::default() };
    let mut first = BulkLoad::create(folder.path(), &header).unwrap();
    // Once more rows than may wait have gone through, the thread has its lock.
    (0..=PAGES_WAITING + 1).for_each(|_| first.write(Vec::new()).unwrap());
    let second = BulkLoad::create(folder.path(), &header).err().map(|error| error.to_string());
    assert!(second.as_ref().is_some_and(|error| error.contains("another process is filling")), "{second:?}");
    first.finish().unwrap();
    drop(open(folder.path()));
}

/// A regression: another load removed what was being moved up, and both said that they were complete. It also removed the first one's
/// `load.part/` when it was refused.
#[test]
fn a_folder_whose_load_is_being_moved_up_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let header = SnapshotHeader { shards: 4, ..SnapshotHeader::default() };
    let mut first = BulkLoad::create(folder.path(), &header).unwrap();
    first.send(Message::Finish).unwrap();
    first.join().unwrap();
    let second = BulkLoad::create(folder.path(), &header).err().map(|error| error.to_string());
    assert!(second.as_ref().is_some_and(|error| error.contains("another process is filling")), "{second:?}");
    // One that began when the folder was still empty.
    let (rows, messages) = sync_channel(1);
    let part = folder.path().join(PART);
    let thread = std::thread::spawn(move || fill(&part, &header, &messages));
    let path = folder.path().to_owned();
    let third = BulkLoad { path, existed: true, rows: Some(rows), thread: Some(thread), filled: None, keep: false };
    assert!(third.finish().is_err());
    assert!(folder.path().join(PART).join("db").exists());
    move_up(folder.path()).unwrap();
    first.keep = true;
    drop(first);
    drop(open(folder.path()));
}

/// A regression: a load that was killed while it was moved up could not be repeated after a look at what it had left.
#[test]
fn a_check_of_what_a_killed_load_leaves_does_not_stop_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let (path, file) = (folder.path().join("store"), empty());
    restore(&path, &file[..]).unwrap();
    let part = path.join(PART);
    fs::create_dir(&part).unwrap();
    fs::rename(path.join("FORMAT"), part.join("FORMAT")).unwrap();
    drop(crate::check(&path, |_, _| {}));
    assert!(path.join("LOCK").exists());
    let read = OsDisk.lock(&path.join("LOCK")).unwrap();
    let busy = restore(&path, &file[..]).unwrap_err();
    assert!(busy.contains("another process") && path.join("db").exists(), "{busy}");
    drop(read);
    restore(&path, &file[..]).unwrap();
    drop(open(&path));
}

fn empty() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path());
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(snapshot(&engine))
}

#[test]
fn a_damaged_or_cut_off_file_leaves_no_folder_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new");
    let file = empty();
    let mut damaged = file.clone();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    for (bad, want) in
        [(&file[..file.len() - 3], "truncated"), (&damaged[..], "damaged at byte"), (b"PK\x03\x04", "not a snapshot")]
    {
        let error = restore(&path, bad).unwrap_err();
        assert!(error.contains(want), "{error}");
        assert!(!path.exists(), "{want}");
    }
    restore(&path, &file[..]).unwrap();
}

/// A load that was interrupted by a kill must not be opened as a new, empty store, and can be run again. A
/// regression: its remains blocked every later load.
#[test]
fn a_killed_load_is_refused_by_open_and_replaced_by_the_next_load() {
    let folder = tempfile::tempdir().unwrap();
    let file = empty();
    for (names, gone) in
        [(&[][..], false), (&["journal"], false), (&["journal", "db"], false), (&["journal", "db", "FORMAT"], true)]
    {
        let path = folder.path().join(format!("after-{}", names.len()));
        restore(&path, &file[..]).unwrap();
        // Back to the state after these had been moved up.
        let part = path.join(PART);
        fs::create_dir(&part).unwrap();
        fs::File::create(part.join("LOCK")).unwrap().write_all(b"").unwrap();
        for name in ["journal", "db", "FORMAT"].iter().filter(|name| !names.contains(name)) {
            fs::rename(path.join(name), part.join(name)).unwrap();
        }
        let opened = Fjall::open(&path, Options::default());
        match &opened {
            Ok(_) => assert!(gone, "{names:?}"),
            Err(error) => assert!(!gone && matches!(error, OpenError::Unfinished { .. }), "{names:?}: {error}"),
        }
        drop(opened);
        // The next load is given up before it is complete.
        let given_up = BulkLoad::create(&path, SnapshotReader::begin(&file[..]).unwrap().header()).map(drop);
        assert_eq!(given_up.is_err(), gone, "{names:?}");
        let again = restore(&path, &file[..]);
        assert_eq!(again.is_err(), gone, "a complete store is kept: {names:?}, {again:?}");
        drop(Fjall::open(&path, Options::default()).unwrap());
        assert_eq!(path.join(PART).exists(), gone);
    }
}

/// The load was complete but for its own remains, the store was used, and then its FORMAT was lost.
#[test]
fn a_store_that_has_lost_its_format_is_not_taken_for_an_interrupted_load() {
    let folder = tempfile::tempdir().unwrap();
    let (path, file) = (folder.path().join("store"), empty());
    restore(&path, &file[..]).unwrap();
    fs::create_dir(path.join(PART)).unwrap();
    fs::File::create(path.join(PART).join("LOCK")).unwrap();
    fs::remove_file(path.join("FORMAT")).unwrap();
    let opened = Fjall::open(&path, Options::default()).err().unwrap();
    assert!(matches!(opened, OpenError::Damaged { .. }), "{opened}");
    assert!(restore(&path, &file[..]).unwrap_err().contains("is not empty"));
    assert!(path.join("db").exists());
}
