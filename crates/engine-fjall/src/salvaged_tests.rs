//! What is saved of folders that have lost small files, part of the journal, or the result of the last merge, or that may only
//! be read; and that nothing is changed in them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use futures::FutureExt;
use wayleave_core::ids::ShardId;
use wayleave_core::time::Time;
use wayleave_engine::snapshot_file::SnapshotHeader;
use wayleave_engine::suite::harness::{all, batch, delete, key, names, put};
use wayleave_engine::{Engine, Row};

use super::damage_tests::{ROWS, files, lay_out, make, name, options, saved};
use crate::lsm::FjallTables;
use crate::manifest::{self, CURRENT};
use crate::tables::{MergeKind, Tables};
use crate::{BulkLoad, Fjall, OpenError, blocks::BLOCK_BYTES, flusher, journal, versions};

type Files = BTreeMap<PathBuf, Vec<u8>>;

/// A folder for tests, and another one for what a salvage makes.
struct Place {
    folder: PathBuf,
    scratch: PathBuf,
    above: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let above = tempfile::tempdir().unwrap();
        let at = |name: &str| above.path().join(name);
        Self { folder: at("data"), scratch: at("scratch"), above }
    }

    /// Salvages these files, which stay as they are.
    #[track_caller]
    fn salvage<T>(&self, laid: &Files, read: impl FnOnce(&Fjall) -> T) -> Result<T, OpenError> {
        lay_out(&self.folder, laid);
        let saved = Fjall::salvage(&self.folder, &self.scratch, &options()).map(|engine| read(&engine));
        assert!(files(&self.folder) == *laid, "the damaged folder is as it was");
        assert!(!self.scratch.exists(), "and nothing is left beside it");
        saved
    }

    /// What is refused, and why.
    #[track_caller]
    fn refused(&self, laid: &Files) -> String {
        self.salvage(laid, |_| ()).unwrap_err().to_string()
    }
}

/// What this engine returns is always ready.
fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().unwrap()
}

/// The files without one of them, with an empty one, and with one in which a bit is flipped.
fn spoilt(sound: &Files, path: &str, at: impl Fn(usize) -> usize) -> Vec<(&'static str, Files)> {
    let path = Path::new(path);
    let with = |bytes: Option<Vec<u8>>| {
        let mut laid = sound.clone();
        _ = match bytes {
            Some(bytes) => laid.insert(path.into(), bytes),
            None => laid.remove(path),
        };
        laid
    };
    let mut flipped = sound[path].clone();
    let place = at(flipped.len());
    flipped[place] ^= 4;
    vec![("removed", with(None)), ("emptied", with(Some(Vec::new()))), ("flipped", with(Some(flipped)))]
}

fn without(mut laid: Files, path: &str) -> Files {
    laid.remove(Path::new(path)).unwrap();
    laid
}

/// Whether `check` advises a salvage.
fn is_advised(place: &Place, laid: &Files) -> bool {
    lay_out(&place.folder, laid);
    let report = crate::check(&place.folder, |_, _| {}).unwrap();
    assert!(!report.is_sound());
    report.files.iter().all(|file| file.is_saved)
}

#[tokio::test]
async fn a_store_without_one_of_its_small_files_is_saved_whole() {
    let place = Place::new();
    make(&place.folder, true).await;
    let sound = files(&place.folder);
    let version = format!("db/v{}", manifest::newest(&place.folder.join("db")).unwrap());
    let whole = |engine: &Fjall| {
        assert_eq!((engine.shards(), engine.losses()), (4, &[][..]));
        now(saved(engine)).into_iter().eq(0..ROWS)
    };
    for path in ["FORMAT", "db/current"] {
        for (how, laid) in spoilt(&sound, path, |len| len / 2) {
            assert!(place.salvage(&laid, whole).unwrap(), "{path} {how}");
            assert!(is_advised(&place, &laid), "{path} {how}");
        }
    }
    let neither = without(without(sound.clone(), "FORMAT"), "db/current");
    assert!(place.salvage(&neither, whole).unwrap() && is_advised(&place, &neither));
    for (how, laid) in spoilt(&sound, &version, |len| len / 2) {
        let refused = place.refused(&laid);
        assert!(
            refused.contains(&version) && refused.contains("no version of the manifest is whole"),
            "{how}: {refused}"
        );
        assert!(!is_advised(&place, &laid), "{how}");
    }
    println!("seen: without FORMAT, db/current or both: all {ROWS} rows saved; without {version}: Refused");
}

/// Its checksum is only in `current`.
#[tokio::test]
async fn no_flipped_bit_of_a_version_file_without_current_is_believed() {
    let place = Place::new();
    make(&place.folder, true).await;
    // Tables of several levels.
    let engine = Fjall::open(&place.folder, options()).unwrap();
    let rows = |from: usize| (from..ROWS).step_by(3).map(|n| put(1, &name(n), &"v".repeat(500)));
    engine.store.tables.merge(MergeKind::All, u64::MAX).unwrap();
    for from in 0..2 {
        engine.commit(batch(rows(from))).await.unwrap();
        drop(engine.snapshot().await.unwrap());
    }
    drop(engine);
    let database = place.folder.join("db");
    let (number, tables) = manifest::read(&database).unwrap();
    assert!(tables.len() > 2 && tables.iter().filter(|table| table.seqno == 0).count() > 0, "{tables:?}");
    let mut laid = without(files(&place.folder), "db/current");
    laid.retain(|path, _| !path.starts_with("db/v") || path.ends_with(format!("v{number}")));
    let path = PathBuf::from(format!("db/v{number}"));
    let bytes = laid[&path].clone();
    let (mut refused, mut same, mut others) = (0, 0, 0);
    lay_out(&place.folder, &laid);
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        fs::write(place.folder.join(&path), &flipped).unwrap();
        match versions::choose(&database, &place.folder.join("journal")) {
            Err(_) => refused += 1,
            Ok(chosen) if chosen.version.tables == tables => same += 1,
            // Another number for the rows of a table that changes no order.
            Ok(_) => {
                let laid = laid.iter().map(|(path, bytes)| (path.clone(), bytes.clone()));
                let laid = laid.chain([(path.clone(), flipped)]).collect();
                let saved = place.salvage(&laid, |engine| now(saved(engine))).unwrap();
                assert!(saved.into_iter().eq(0..ROWS), "bit {bit}");
                others += 1;
            }
        }
    }
    assert!(refused > same + others, "{refused}, {same}, {others}");
    println!(
        "seen: without db/current, every bit of the version flipped: {refused} refused, {} saved whole",
        same + others
    );
}

/// Three journal files whose rows are in no table.
async fn with_journals(place: &Place) -> Files {
    let engine = Fjall::open(&place.folder, options()).unwrap();
    for (file, rows) in [["a", "b"], ["c", "d"], ["e", "f"]].into_iter().enumerate() {
        if file > 0 {
            // A flush that does not get to its table.
            drop(flusher::freeze(&engine.store));
            tokio::task::block_in_place(|| flusher::settle(&engine.store).unwrap());
        }
        for name in rows {
            engine.commit(batch([put(1, name, "1")])).await.unwrap();
        }
    }
    drop(engine);
    files(&place.folder)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_journal_is_saved_up_to_its_damage_and_losses_are_listed() {
    let place = Place::new();
    let sound = with_journals(&place).await;
    let newer = |engine: &Fjall| engine.lost_writes().iter().map(|write| write.key[3..].to_vec()).collect::<Vec<_>>();
    let read = |engine: &Fjall| {
        let mut newer = newer(engine);
        newer.sort();
        let lost = format!("{} {}", engine.losses().join(" "), String::from_utf8(newer.concat()).unwrap());
        (now(names(engine, all(1))).concat(), lost.trim_end().to_owned())
    };
    assert_eq!(place.salvage(&sound, read).unwrap(), ("abcdef".to_owned(), String::new()));
    // The block of the second batch: head and first batch come before it.
    let second = |_: usize| BLOCK_BYTES * 2 + 40;
    for (file, damage, kept) in [(1, "flipped", "a"), (2, "flipped", "abc"), (3, "flipped", "abcde")] {
        let path = format!("journal/{file}.journal");
        let before = &"abcdef"[..(file - 1) * 2];
        for (how, laid) in spoilt(&sound, &path, second) {
            let expected = if how == damage { kept } else { before };
            let (found, lost) = place.salvage(&laid, read).unwrap();
            assert!(found == expected && lost.contains(&format!("{file}.journal")), "{path} {how}: {found}, {lost}");
            assert!(lost.ends_with(&"abcdef"[file * 2..]), "what is behind it may be newer: {path} {how}: {lost}");
            assert!(is_advised(&place, &laid), "{path} {how}");
        }
    }
    // What has no batch costs none.
    let mut laid = sound.clone();
    for number in [2, 3] {
        laid.get_mut(Path::new(&format!("journal/{number}.journal"))).unwrap()[8] ^= 1;
    }
    assert_eq!(place.salvage(&laid, read).unwrap(), ("abcdef".to_owned(), String::new()));
    let none: Files = sound.into_iter().filter(|(path, _)| !path.starts_with("journal")).collect();
    let (found, lost) = place.salvage(&none, read).unwrap();
    assert!(found.is_empty() && lost.contains("1.journal (the file is missing)"), "{lost}");
    println!("seen: the second of 3 journal files is missing: the rows of the first are saved; {lost}");
}

/// What was replayed would be older than what is in the tables.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_journal_of_unknown_start_brings_back_no_older_rows() {
    let place = Place::new();
    let engine = Fjall::open(&place.folder, options()).unwrap();
    engine.commit(batch([put(1, "a", "old")])).await.unwrap();
    let frozen = flusher::freeze(&engine.store);
    tokio::task::block_in_place(|| flusher::settle(&engine.store).unwrap());
    let first = Path::new("journal/1.journal");
    let bytes = files(&place.folder)[first].clone();
    flusher::write_table(&engine.store, &frozen).unwrap();
    engine
        .commit(batch((0..40).map(|n| put(2, &name(n), &"v".repeat(500))).chain([put(1, "a", "new")])))
        .await
        .unwrap();
    drop(engine.snapshot().await.unwrap());
    drop(engine);
    // A file that a kill has left, the next one is lost, and so is the row that says that both are in tables.
    let mut laid = files(&place.folder);
    laid.retain(|path, _| !path.starts_with("journal"));
    laid.insert(first.into(), bytes);
    let is_newest = |(path, bytes): &(&PathBuf, &mut Vec<u8>)| path.starts_with("db/tables") && bytes.len() > 10_000;
    let (_, table) = laid.iter_mut().find(is_newest).unwrap();
    let at = position(table, &flusher::DONE_KEY).unwrap();
    table[at] ^= 1;
    let value = |engine: &Fjall| now(engine.get_many(&[key(1, "a")])).unwrap().remove(0);
    let (value, losses) = place.salvage(&laid, |engine| (value(engine), engine.losses().join(" "))).unwrap();
    assert!(value == Some(b"new".into()) && losses.contains("all of the journal"), "{value:?}, {losses}");
}

fn position(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|found| found == part)
}

fn flip(laid: &mut Files, path: &Path, at: usize) {
    laid.get_mut(path).unwrap()[at] ^= 0x10;
}

/// A kill before the inputs of a merge were removed, then damage in its result.
#[tokio::test]
async fn the_inputs_of_a_merge_are_kept_and_read_if_its_result_is_damaged() {
    let place = Place::new();
    let engine = Fjall::open(&place.folder, options()).unwrap();
    for half in [0..ROWS / 2, ROWS / 2..ROWS] {
        engine.commit(batch(half.map(|n| put(1, &name(n), &"v".repeat(500))))).await.unwrap();
        drop(engine.snapshot().await.unwrap());
    }
    let before = files(&place.folder);
    engine.store.tables.merge(MergeKind::All, u64::MAX).unwrap();
    drop(engine);
    let mut laid = files(&place.folder);
    let new: Vec<PathBuf> =
        laid.keys().filter(|path| path.starts_with("db") && !before.contains_key(*path)).cloned().collect();
    for (path, bytes) in before.iter().filter(|(path, _)| path.starts_with("db")) {
        laid.entry(path.clone()).or_insert_with(|| bytes.clone());
    }
    let merged = new.iter().find(|path| path.starts_with("db/tables")).unwrap();
    let middle = laid[merged].len() / 2;
    flip(&mut laid, merged, middle);
    let whole = place.salvage(&laid, |engine| now(saved(engine))).unwrap();
    assert!(whole.into_iter().eq(0..ROWS), "the inputs have all rows");
    // Without one of the inputs, what is whole of the result.
    let input = before.keys().find(|path| path.starts_with("db/tables") && laid[*path].len() > 10_000).unwrap().clone();
    let most = place.salvage(&without(laid, input.to_str().unwrap()), |engine| now(saved(engine)).len()).unwrap();
    assert!((ROWS - 30..ROWS).contains(&most), "{most}");
    println!("seen: the result of a merge is damaged, its inputs were not removed yet: all {ROWS} rows saved");
}

/// Its rows were deleted since: the journal that says so is gone.
#[tokio::test]
async fn an_older_version_is_not_read_if_the_journal_does_not_continue_it() {
    let place = Place::new();
    let engine = Fjall::open(&place.folder, options()).unwrap();
    engine.commit(batch((0..ROWS).map(|n| put(1, &name(n), &"v".repeat(500))))).await.unwrap();
    drop(engine.snapshot().await.unwrap());
    let before = files(&place.folder);
    engine.commit(batch((0..ROWS).map(|n| delete(1, &name(n))))).await.unwrap();
    drop(engine.snapshot().await.unwrap());
    drop(engine);
    let mut laid = files(&place.folder);
    let young = laid.keys().find(|path| path.starts_with("db/tables") && !before.contains_key(*path)).unwrap().clone();
    for (path, bytes) in before.iter().filter(|(path, _)| path.starts_with("db/v")) {
        laid.entry(path.clone()).or_insert_with(|| bytes.clone());
    }
    flip(&mut laid, &young, 100);
    let left = place.salvage(&laid, |engine| now(saved(engine)).len()).unwrap();
    assert_eq!(left, 0, "deleted rows do not come back");
}

/// A regression: all that was committed since was lost, for one damaged block.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_version_is_not_read_if_the_journal_is_damaged_where_it_continues_it() {
    let place = Place::new();
    let engine = Fjall::open(&place.folder, options()).unwrap();
    // Too few for a flush of their own.
    const HALF: usize = 60;
    let rows = |rows: std::ops::Range<usize>| batch(rows.map(|n| put(1, &name(n), &"v".repeat(500))));
    engine.commit(rows(0..HALF)).await.unwrap();
    drop(engine.snapshot().await.unwrap());
    engine.commit(rows(HALF..2 * HALF)).await.unwrap();
    let frozen = flusher::freeze(&engine.store);
    tokio::task::block_in_place(|| flusher::settle(&engine.store).unwrap());
    let before = files(&place.folder);
    flusher::write_table(&engine.store, &frozen).unwrap();
    drop(engine);
    // A kill before the flush has removed what it replaces.
    let mut laid = files(&place.folder);
    let is_of_tables = |path: &Path| path.starts_with("db/tables");
    let young = laid.keys().find(|path| is_of_tables(path) && !before.contains_key(*path)).unwrap().clone();
    for (path, bytes) in before.iter().filter(|(path, _)| !is_of_tables(path)) {
        laid.entry(path.clone()).or_insert_with(|| bytes.clone());
    }
    flip(&mut laid, &young, 10_000);
    let whole = place.salvage(&laid, |engine| now(saved(engine))).unwrap();
    assert!(whole.into_iter().eq(0..2 * HALF), "the journal has what the older version lacks");
    let in_journal = |(path, bytes): (&PathBuf, &Vec<u8>)| {
        let at = position(bytes, name(HALF).as_bytes()).filter(|_| path.starts_with("journal"))?;
        Some((path.clone(), at))
    };
    let (journal, at) = laid.iter().find_map(in_journal).unwrap();
    flip(&mut laid, &journal, at);
    let most = place.salvage(&laid, |engine| now(saved(engine)).len()).unwrap();
    assert!((2 * HALF - 30..2 * HALF).contains(&most), "{most}");
    // Where the newest version is lost, there is no better one.
    let less = place.salvage(&without(laid, "db/current"), |engine| now(saved(engine)).len()).unwrap();
    assert_eq!(less, HALF);
}

/// Rows that were not written through a journal.
#[tokio::test]
async fn the_empty_version_before_the_rows_of_a_copied_store_is_not_read() {
    let place = Place::new();
    let mut load =
        BulkLoad::create(&place.folder, &SnapshotHeader { shards: 4, at: Time(1), ..SnapshotHeader::default() })
            .unwrap();
    let row = |n| Row { key: put(1, &name(n), "").key, value: "v".repeat(500).into() };
    load.write((0..ROWS).map(row).collect()).unwrap();
    load.finish().unwrap();
    let empty = tempfile::tempdir().unwrap();
    drop(FjallTables::open(empty.path(), options().tables()).unwrap());
    let mut laid = files(&place.folder);
    laid.insert("db/v0".into(), fs::read(empty.path().join("v0")).unwrap());
    let table = laid.keys().find(|path| path.starts_with("db/tables")).unwrap().clone();
    flip(&mut laid, &table, 20_000);
    let most = place.salvage(&laid, |engine| now(saved(engine)).len()).unwrap();
    assert!((ROWS - 30..ROWS).contains(&most), "{most}");
    let refused = place.refused(&without(laid, &format!("db/{CURRENT}")));
    assert!(refused.contains("db/current"), "{refused}");
}

const NOBODY: u32 = 65_534;

/// Runs as another user, if this is root, who may read and write everything.
fn as_another<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    let other = || {
        if rustix::process::geteuid().is_root() {
            rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(NOBODY)).unwrap();
        }
        run()
    };
    std::thread::scope(|scope| scope.spawn(other).join().unwrap())
}

/// Lets another user read everything, or own it.
fn hand_over(folder: &Path, owned: bool) {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    if owned && rustix::process::geteuid().is_root() {
        chown(folder, Some(NOBODY), None).unwrap();
    }
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            hand_over(&path, owned);
            continue;
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        if owned && rustix::process::geteuid().is_root() {
            chown(&path, Some(NOBODY), None).unwrap();
        }
    }
}

#[tokio::test]
async fn a_folder_that_may_only_be_read_is_checked_and_salvaged() {
    let place = Place::new();
    make(&place.folder, true).await;
    let modes = || fs::metadata(place.folder.join("db")).unwrap().permissions().mode();
    hand_over(place.above.path(), false);
    fs::create_dir(&place.scratch).unwrap();
    fs::set_permissions(&place.scratch, fs::Permissions::from_mode(0o777)).unwrap();
    let (before, mode) = (files(&place.folder), modes());
    as_another(|| {
        assert!(crate::check(&place.folder, |_, _| {}).unwrap().is_sound());
        let engine = Fjall::salvage(&place.folder, &place.scratch, &options()).unwrap();
        assert!(matches!(crate::check(&place.folder, |_, _| {}), Err(OpenError::InUse { .. })));
        assert!(now(saved(&engine)).into_iter().eq(0..ROWS));
    });
    assert!(files(&place.folder) == before && modes() == mode);
}

/// A regression: it was called damaged, to be restored from a backup.
#[tokio::test]
async fn a_file_that_may_not_be_read_is_not_called_damaged() {
    let place = Place::new();
    make(&place.folder, true).await;
    hand_over(place.above.path(), true);
    let database = place.folder.join("db");
    let (version, tables) = manifest::read(&database).unwrap();
    let journals = journal::numbers(&crate::disk::OsDisk, &place.folder.join("journal")).unwrap();
    let files = [place.folder.join("FORMAT"), database.join(CURRENT), database.join(format!("v{version}"))];
    let journal = journal::path(&place.folder.join("journal"), *journals.last().unwrap());
    for file in files.into_iter().chain([tables[0].path.clone(), journal]) {
        fs::set_permissions(&file, fs::Permissions::from_mode(0o0)).unwrap();
        let refusals = as_another(|| {
            let opened = Fjall::open(&place.folder, options()).map(drop).map_err(|error| error.to_string());
            let opened = opened.expect_err(&file.display().to_string());
            let checked = crate::check(&place.folder, |_, _| {}).unwrap_err().to_string();
            let salvaged = Fjall::salvage(&place.folder, &place.scratch, &options()).err().unwrap().to_string();
            [opened, checked, salvaged]
        });
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        for refusal in refusals {
            assert!(
                refusal.contains(&format!("no permission for {}", file.display())) && !refusal.contains("damaged"),
                "{refusal}"
            );
        }
    }
}

#[tokio::test]
async fn what_a_killed_salvage_has_left_is_removed_and_nothing_else() {
    let place = Place::new();
    make(&place.folder, true).await;
    let sound = files(&place.folder);
    fs::create_dir_all(place.scratch.join("salvage.part/db/tables")).unwrap();
    fs::write(place.scratch.join("LOCK"), "").unwrap();
    assert!(place.salvage(&sound, |_| ()).is_ok());
    fs::create_dir(&place.scratch).unwrap();
    fs::write(place.scratch.join("thesis.txt"), "").unwrap();
    let refused = Fjall::salvage(&place.folder, &place.scratch, &options()).err().unwrap().to_string();
    assert!(refused.contains("thesis.txt is in it") && place.scratch.join("thesis.txt").exists(), "{refused}");
}

#[tokio::test]
async fn the_shard_count_of_the_tables_counts_and_is_compared_with_format() {
    let place = Place::new();
    let engine = Fjall::open(&place.folder, options()).unwrap();
    engine.commit(batch([put(1, "a", "1")])).await.unwrap();
    drop(engine);
    let other = tempfile::tempdir().unwrap();
    drop(Fjall::open(other.path(), crate::Options { shards: 5, ..options() }).unwrap());
    let mut laid = files(&place.folder);
    laid.insert("FORMAT".into(), fs::read(other.path().join("FORMAT")).unwrap());
    // The tables' own number is right.
    assert_eq!(place.salvage(&laid, Fjall::shards).unwrap(), 4);
    let report = crate::check(&place.folder, |_, _| {}).unwrap();
    let bad: Vec<_> = report.files.iter().filter(|file| file.verdict.is_err()).collect();
    let what = bad[0].verdict.clone().unwrap_err();
    assert!(bad.len() == 1 && what.contains("FORMAT says 5 shards, the tables have 4"), "{bad:?}");
}

/// A regression: behind a hole of unknown end every shard that there can be was one whose fence is lost, and each read passed all.
#[tokio::test]
async fn a_table_that_is_cut_off_has_no_more_shards_than_before() {
    let place = Place::new();
    make(&place.folder, true).await;
    let sound = files(&place.folder);
    let largest = sound.iter().filter(|(path, _)| path.starts_with("db/tables")).max_by_key(|(_, bytes)| bytes.len());
    let (table, bytes) = largest.map(|(path, bytes)| (path.clone(), bytes.clone())).unwrap();
    let damage = |at: usize, cut: bool| {
        let mut bytes = bytes.clone();
        if cut {
            bytes.truncate(at)
        } else {
            bytes[at..].fill(0)
        }
        let mut laid = sound.clone();
        laid.insert(table.clone(), bytes);
        laid
    };
    let mut saved_rows = Vec::new();
    for part in 1..20 {
        for cut in [true, false] {
            let read = |engine: &Fjall| {
                let known = engine.store.partitions.between(ShardId(0), ShardId(u16::MAX)).len();
                assert!(known <= 5, "4 shards, and what belongs to none: {known}");
                now(saved(engine)).len()
            };
            saved_rows.push(place.salvage(&damage(bytes.len() * part / 20, cut), read).unwrap());
        }
    }
    assert!(saved_rows.is_sorted(), "the more there is of it, the more is saved: {saved_rows:?}");
    assert!(saved_rows[0] < ROWS && *saved_rows.last().unwrap() > ROWS / 2, "{saved_rows:?}");
}
