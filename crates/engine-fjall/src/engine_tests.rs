//! The conformance suite over a real folder, and what only a folder can show: reopening, crashes, damage.

use std::fs;
use std::path::PathBuf;

use wayleave_engine::suite::harness::{Harness, all, batch, check, commit, fenced, names, own, put};
use wayleave_engine::{Error, Write};

use super::*;
use crate::fence_row;
use crate::flusher;

struct InFolder {
    engine: Fjall,
    folder: tempfile::TempDir,
}

fn open(path: &Path) -> Fjall {
    Fjall::open(path, Options::default()).unwrap()
}

impl Harness for InFolder {
    type Engine = Fjall;
    async fn create() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { engine: open(folder.path()), folder }
    }
    fn engine(&self) -> &Fjall {
        &self.engine
    }
    async fn damage(self, row: &[u8]) -> Self {
        let value = self.engine.get_many(&[row.to_vec()]).await.unwrap().remove(0).unwrap();
        drop(self.engine.snapshot().await.unwrap());
        drop(self.engine);
        let flipped = super::damage_tests::flip(self.folder.path(), |bytes| {
            bytes.windows(value.len()).position(|window| window == value)
        });
        assert_eq!(flipped, 1);
        Self { engine: open(self.folder.path()), folder: self.folder }
    }
    async fn reopen(self) -> Self {
        drop(self.engine);
        Self { engine: open(self.folder.path()), folder: self.folder }
    }
}

mod suite {
    wayleave_engine::conformance!(super::InFolder);
}

/// What a killed process leaves: the files as they are now, without closing the store.
fn killed(engine: &Fjall) -> tempfile::TempDir {
    // The store may replace files meanwhile; such a copy would be of no moment.
    loop {
        let copy = tempfile::tempdir().unwrap();
        let before = files(engine.path());
        let copied = before.is_ok() && copy_folder(engine.path(), copy.path()).is_ok();
        if copied && files(engine.path()).ok() == before.ok() {
            return copy;
        }
    }
}

/// Names, lengths and times of all files.
fn files(folder: &Path) -> std::io::Result<Vec<(PathBuf, u64, std::time::SystemTime)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let known = entry.metadata()?;
        if known.is_dir() {
            all.extend(files(&entry.path())?);
        } else {
            all.push((entry.path(), known.len(), known.modified()?));
        }
    }
    all.sort();
    Ok(all)
}

fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy_folder(&from, &to)?;
        } else {
            fs::copy(&from, &to)?;
        }
    }
    Ok(())
}

fn journal(store: &InFolder) -> JournalFolder {
    JournalFolder { disk: Arc::new(OsDisk), path: store.folder.path().join("journal") }
}

/// Every journal of a store.
fn journals(path: &Path) -> Vec<PathBuf> {
    fs::read_dir(path.join("journal")).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[tokio::test]
async fn what_was_answered_is_there_after_a_kill() {
    let store = InFolder::create().await;
    let (epoch, _) = own(&store, 1).await.unwrap();
    for seq in 1..=20 {
        commit(&store, fenced([(1, epoch, seq)], [put(1, &format!("{seq:02}"), "1")])).await.unwrap();
        if seq % 10 == 0 {
            let after = killed(&store.engine);
            let engine = open(after.path());
            assert_eq!(names(&engine, all(1)).await.len() as u64, seq);
            assert_eq!(engine.own(ShardId(1), &[]).await, Ok((Epoch(epoch.0 + 1), seq)));
        }
    }
}

#[tokio::test]
async fn a_batch_cut_off_in_the_journal_is_left_out_as_a_whole() {
    let store = InFolder::create().await;
    let (epoch, _) = own(&store, 1).await.unwrap();
    commit(&store, fenced([(1, epoch, 1)], [put(1, "a", "1")])).await.unwrap();
    let before = written(&journals(store.engine.path())[0]);
    commit(&store, fenced([(1, epoch, 2)], [put(1, "a", "2"), put(1, "b", "2")])).await.unwrap();
    let after = killed(&store.engine);
    let journal = &journals(after.path())[0];
    let end = written(journal);
    assert!(end > before);
    let end_of_batch = end - crate::record::PADDING_BYTES_MIN as u64;
    fs::OpenOptions::new().write(true).open(journal).unwrap().set_len(end_of_batch - 3).unwrap();
    let engine = open(after.path());
    check(&engine, 1, [("a", Some("1")), ("b", None)]).await;
    assert_eq!(engine.own(ShardId(1), &[]).await, Ok((Epoch(epoch.0 + 1), 1)));
}

/// The offset at which a journal's preallocated zeros begin.
fn written(journal: &Path) -> u64 {
    let bytes = fs::read(journal).unwrap();
    bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64 + 1
}

#[tokio::test]
async fn batches_that_change_next_to_nothing_do_not_let_the_journal_grow() {
    // In one run, and in runs that always end before they have much in memory.
    for (opens, batches) in [(1, 400), (20, 20)] {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { memtable_bytes: 128 << 10, ..Options::default() };
        for _ in 0..opens {
            let engine = Fjall::open(folder.path(), options.clone()).unwrap();
            for n in 0..batches {
                engine.commit(batch([put(1, "row", &n.to_string())])).await.unwrap();
            }
        }
        let written = |journal| fs::read(journal).unwrap().iter().rposition(|byte| *byte != 0).unwrap_or(0);
        let bytes: usize = journals(folder.path()).into_iter().map(written).sum();
        assert!(bytes < 5 * options.memtable_bytes, "{bytes} bytes for one row");
    }
}

#[tokio::test]
async fn rows_outlive_many_tables_and_reopens() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { memtable_bytes: 1 << 20, ..Options::default() };
    let value = "v".repeat(1_000);
    for round in 0..3 {
        let engine = Fjall::open(folder.path(), options.clone()).unwrap();
        for part in 0..5 {
            let writes = (0..1_000).map(|i| put(1, &format!("{round}.{part}.{i:03}"), &value));
            engine.commit(batch(writes)).await.unwrap();
        }
    }
    assert_eq!(names(&open(folder.path()), all(1)).await.len(), 15_000);
}

/// A flush, step by step. After each step a batch is committed, and what a kill leaves is checked.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_at_any_step_of_a_flush_loses_nothing() {
    let store = InFolder::create().await;
    let inner = &store.engine.store;
    let journal = journal(&store);
    let (epoch, _) = own(&store, 1).await.unwrap();
    // An idle shard: after a flush its state is in tables alone.
    let (resting, _) = own(&store, 2).await.unwrap();
    commit(&store, fenced([(2, resting, 1)], [put(2, "rests", "1")])).await.unwrap();
    let mut seq = 0;
    for round in 0..3 {
        let mut frozen = None;
        for step in 0..5 {
            match step {
                1 => frozen = Some(flusher::freeze(inner)),
                2 => tokio::task::block_in_place(|| flusher::settle(inner).unwrap()),
                3 => flusher::write_table(inner, frozen.as_ref().unwrap()).unwrap(),
                4 => flusher::forget(inner, frozen.as_ref().unwrap(), &journal).unwrap(),
                _ => {}
            }
            let before = killed(&store.engine);
            check_all(&open(before.path()), seq).await;
            seq += 1;
            let gone = Write { key: put(1, &format!("gone{}", seq - 1), "").key, value: None };
            let writes = [put(1, &format!("{seq:02}"), "1"), put(1, &format!("gone{seq}"), "1"), gone];
            commit(&store, fenced([(1, epoch, seq)], writes)).await.unwrap();
            check_all(&store.engine, seq).await;
            let after = killed(&store.engine);
            let engine = open(after.path());
            check_all(&engine, seq).await;
            assert_eq!(engine.own(ShardId(1), &[]).await, Ok((Epoch(epoch.0 + 1), seq)), "round {round}, step {step}");
            assert_eq!(engine.own(ShardId(2), &[]).await, Ok((Epoch(resting.0 + 1), 1)), "round {round}, step {step}");
        }
        assert_eq!(journals(store.folder.path()).len(), 1, "what is in tables is no longer in the journal");
    }
}

/// The continuation mark would outlive the file that it refers to.
#[tokio::test(flavor = "multi_thread")]
async fn a_flush_whose_journal_fails_leaves_no_note_behind() {
    let store = InFolder::create().await;
    commit(&store, batch([put(1, "a", "1")])).await.unwrap();
    store.engine.store.syncer.fail("the disk is gone".into());
    let journal = journal(&store);
    let flushed = tokio::task::block_in_place(|| flusher::flush(&store.engine.store, &journal));
    assert_eq!(flushed, Err("the disk is gone".to_owned()));
    let store = store.reopen().await;
    check(store.engine(), 1, [("a", Some("1"))]).await;
}

async fn check_all(engine: &Fjall, seq: u64) {
    let mut expected: Vec<String> = (1..=seq).map(|seq| format!("{seq:02}")).collect();
    expected.extend((seq > 0).then(|| format!("gone{seq}")));
    assert_eq!(names(engine, all(1)).await, expected);
    // The same, one by one, including deleted rows.
    for no in 1..=seq {
        let gone = format!("gone{no}");
        check(engine, 1, [(format!("{no:02}").as_str(), Some("1")), (gone.as_str(), (no == seq).then_some("1"))]).await;
    }
    check(engine, 2, [("rests", Some("1"))]).await;
}

#[tokio::test]
async fn a_store_in_use_is_refused_and_free_once_closed() {
    let store = InFolder::create().await;
    let refused = Fjall::open(store.folder.path(), Options::default()).err().unwrap();
    assert!(matches!(&refused, OpenError::InUse { path } if path == store.folder.path()), "{refused}");
    let InFolder { engine, folder } = store;
    drop(engine);
    drop(open(folder.path()));
}

#[tokio::test]
async fn the_number_of_shards_is_that_of_the_creation() {
    let folder = tempfile::tempdir().unwrap();
    let made = Fjall::open(folder.path(), Options { shards: 4, ..Options::default() }).unwrap();
    assert_eq!(made.shards(), 4);
    drop(made);
    assert_eq!(open(folder.path()).shards(), 4);
    let none = Fjall::open(folder.path(), Options { shards: 0, ..Options::default() }).err().unwrap();
    assert_eq!(none.to_string(), "the number of shards is 0: choose at least 1");
}

#[tokio::test]
async fn a_fence_row_that_does_not_decode_closes_its_shard() {
    let store = InFolder::create().await;
    own(&store, 3).await.unwrap();
    // Otherwise the journal has a newer one.
    drop(store.engine.snapshot().await.unwrap());
    store.engine.store.tables.load::<_, lsm_tree::Error>(|write| write(&fence_row::key(ShardId(3)), &[9])).unwrap();
    let InFolder { engine, folder } = store;
    drop(engine);
    let store = InFolder { engine: Fjall::open(folder.path(), Options::default()).unwrap(), folder };
    assert!(matches!(own(&store, 3).await, Err(Error::Corrupt(why)) if why.contains("the fence of shard 3")));
    own(&store, 2).await.unwrap();
}

#[tokio::test]
async fn a_store_that_has_failed_refuses_every_call() {
    let store = InFolder::create().await;
    commit(&store, batch([put(1, "a", "1")])).await.unwrap();
    store.engine.store.syncer.fail("the disk is gone".into());
    let refused = Error::Unavailable("the disk is gone".into());
    assert_eq!(commit(&store, batch([put(1, "a", "2")])).await, Err(refused.clone()));
    assert_eq!(own(&store, 1).await, Err(refused.clone()));
    assert_eq!(store.engine.get_many(&[vec![1]]).await, Err(refused.clone()));
    assert_eq!(store.engine.scan_many(&[all(1)]).await, Err(refused));
    let store = store.reopen().await;
    check(store.engine(), 1, [("a", Some("1"))]).await;
}

#[tokio::test]
async fn time_continues_from_the_last_commit_if_the_clock_is_behind() {
    let store = InFolder::create().await;
    let ahead = store.engine.now().after(wayleave_core::time::Millis(3_600_000));
    store.engine.store.own(ShardId(5), &[], ahead).unwrap().1.await.unwrap();
    let store = store.reopen().await;
    assert!(store.engine.now() >= ahead);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_sees_each_batch_wholly_or_not_at_all() {
    let engine = std::sync::Arc::new(InFolder::create().await);
    let writer = std::sync::Arc::clone(&engine);
    let writes = tokio::task::spawn_blocking(move || {
        for i in 0..300 {
            let value = i.to_string();
            drop(writer.engine.commit(batch((0..50).map(|row| put(1, &format!("{row:02}"), &value)))));
        }
    });
    while !writes.is_finished() {
        let rows = engine.engine.scan_many(&[all(1)]).await.unwrap().remove(0);
        assert!(rows.windows(2).all(|pair| pair[0].value == pair[1].value), "a torn batch was seen");
        assert!(rows.is_empty() || rows.len() == 50, "a torn batch was seen");
    }
    writes.await.unwrap();
}
