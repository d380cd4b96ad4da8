//! A damaged folder is refused untouched: every file is removed, truncated and flipped in turn, after a clean stop and
//! after a kill. What opens must contain every row or say which cannot be read.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use wayleave_core::ids::ShardId;
use wayleave_engine::suite::harness::{batch, fenced, put};
use wayleave_engine::{Engine, Error, Scan};

use crate::{Fjall, OpenError, Options};

pub const ROWS: usize = 600;

pub fn options() -> Options {
    Options { shards: 4, memtable_bytes: 64 << 10, ..Options::default() }
}

/// A store with several tables and rows in the journal; `clean` stops it in good order.
pub async fn make(folder: &Path, clean: bool) {
    let engine = Fjall::open(folder, options()).unwrap();
    for n in 0..ROWS / 20 {
        engine.commit(batch((0..20).map(|i| put(1, &name(n * 20 + i), &"v".repeat(500))))).await.unwrap();
    }
    if clean {
        drop(engine);
    } else {
        // As after a kill: no thread gets to finish anything. The copy is taken while the store is idle.
        let copy = folder.with_extension("copy");
        while copy_idle(folder, &copy).is_err() {
            let _ = fs::remove_dir_all(&copy);
        }
        drop(engine);
        fs::remove_dir_all(folder).unwrap();
        fs::rename(&copy, folder).unwrap();
    }
}

pub fn name(n: usize) -> String {
    format!("row{n:05}")
}

/// Copies a folder; an error if it changed meanwhile.
fn copy_idle(from: &Path, to: &Path) -> Result<(), String> {
    let before = files(from);
    for (path, bytes) in &before {
        let to = to.join(path);
        fs::create_dir_all(to.parent().unwrap()).map_err(|error| error.to_string())?;
        fs::write(to, bytes).map_err(|error| error.to_string())?;
    }
    if files(from) == before { Ok(()) } else { Err("it changed".into()) }
}

/// All files with their content, except locks.
pub fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    fn add(root: &Path, folder: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                add(root, &entry.path(), found);
            } else if entry.file_name() != "LOCK"
                && let Ok(bytes) = fs::read(entry.path())
            {
                found.insert(entry.path().strip_prefix(root).unwrap().into(), bytes);
            }
        }
    }
    let mut found = BTreeMap::new();
    add(folder, folder, &mut found);
    found
}

pub fn lay_out(folder: &Path, files: &BTreeMap<PathBuf, Vec<u8>>) {
    let _ = fs::remove_dir_all(folder);
    for (path, bytes) in files {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    fs::create_dir_all(folder.join("db/tables")).unwrap();
}

/// What became of a damaged store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// The start was refused, and every file is as it was.
    Refused,
    /// It opened; reads of some rows say that they cannot be read, all others are right.
    Unreadable,
    /// It opened, and every row is there.
    Whole,
    /// It opened without the end of the newest journal file, which looks like a write torn by a kill.
    Torn,
}

/// What became of a store with one damaged file: the outcome, and the refusal or the number of readable rows.
struct Judged {
    outcome: Outcome,
    text: String,
}

/// Opens a store with one damaged file.
async fn judge(folder: &Path, laid: &BTreeMap<PathBuf, Vec<u8>>, what: &str) -> Judged {
    let engine = match Fjall::open(folder, options()) {
        Ok(engine) => engine,
        Err(error) => {
            let damaged = matches!(
                error,
                OpenError::Damaged { .. }
                    | OpenError::Lost { .. }
                    | OpenError::JournalDamaged { .. }
                    | OpenError::Newer { .. }
            );
            assert!(damaged, "{what}: {error}");
            assert_eq!(
                files(folder).keys().collect::<Vec<_>>(),
                laid.keys().collect::<Vec<_>>(),
                "{what}: files are gone"
            );
            assert!(files(folder) == *laid, "{what}: files have changed");
            let text = error.to_string().replace(&folder.display().to_string(), "");
            let text = text.split_once('(').map_or(text.as_str(), |(_, text)| text);
            let text = text.split_once("):").map_or(text, |(text, _)| text).to_owned();
            return Judged { outcome: Outcome::Refused, text };
        }
    };
    assert_eq!(engine.shards(), 4, "{what}");
    let mut missing = Vec::new();
    let (mut unreadable, mut kept) = (false, 0);
    for n in 0..ROWS {
        match engine.get_many(&[put(1, &name(n), "").key]).await {
            Ok(found) => match found.into_iter().next().flatten() {
                Some(value) => {
                    assert_eq!(value, "v".repeat(500).into_bytes(), "{what}: another value");
                    kept += 1;
                }
                None => missing.push(n),
            },
            Err(Error::Corrupt(_)) => unreadable = true,
            Err(other) => panic!("{what}: {other}"),
        }
    }
    // A scan must not pass over damage in silence.
    let key = |n: usize| put(1, &name(n), "").key;
    let scanned = engine.scan_many(&[Scan { from: key(0), to: key(ROWS), limit: usize::MAX }]).await;
    match scanned {
        Ok(rows) => assert_eq!(rows[0].len(), ROWS - missing.len(), "{what}: rows are missing in silence"),
        Err(Error::Corrupt(_)) => unreadable = true,
        Err(other) => panic!("{what}: {other}"),
    }
    let judged = |outcome| Judged { outcome, text: format!("{kept} of {ROWS} rows are read") };
    if unreadable {
        assert!(missing.is_empty(), "{what}: {missing:?} are missing in silence");
        return judged(Outcome::Unreadable);
    }
    if missing.is_empty() {
        return judged(Outcome::Whole);
    }
    let first = missing[0];
    assert!(missing.iter().copied().eq(first..ROWS), "{what}: rows are missing in the middle: {missing:?}");
    judged(Outcome::Torn)
}

/// The places in a file that are flipped: every byte of a small file, samples of a large one.
fn places(len: usize, most: usize) -> impl Iterator<Item = usize> {
    (0..len).step_by(len.div_ceil(most).max(1))
}

/// How often each outcome was seen for a kind of file and of damage, with the text of the refusal, without digits.
type Seen = BTreeMap<(String, &'static str, Outcome), BTreeMap<String, usize>>;

fn without_numbers(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_ascii_digit() { 'N' } else { c }).collect();
    text.split("NN").collect::<String>()
}

async fn damage_everything(clean: bool, flips: usize) -> Seen {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("data");
    make(&folder, clean).await;
    let mut sound = files(&folder);
    // A kill during a flush leaves files that no version names; opening removes them.
    let (version, listed) = crate::manifest::read(&folder.join("db")).unwrap();
    let current = PathBuf::from(format!("db/v{version}"));
    sound.retain(|path, _| match path.parent() {
        Some(parent) if parent == Path::new("db/tables") => listed.iter().any(|table| table.path.ends_with(path)),
        Some(parent) if parent == Path::new("db") => *path == current || path.ends_with(crate::manifest::CURRENT),
        _ => true,
    });
    assert!(sound.keys().filter(|path| path.starts_with("db/tables")).count() > 1, "{:?}", sound.keys());
    let mut seen = Seen::new();
    for (path, bytes) in &sound {
        // A kill during a rotation leaves a file with nothing but its head behind it.
        let mut journals = sound.iter().filter(|(path, bytes)| path.starts_with("journal") && bytes.len() > 4_096);
        let newest_journal = journals.next_back().is_some_and(|(newest, _)| newest == path);
        let mut cases: Vec<(&'static str, Option<Vec<u8>>)> = vec![("removed", None)];
        cases.push(("emptied", Some(Vec::new())));
        cases.push(("cut", Some(bytes[..bytes.len() / 2].to_vec())));
        cases.push(("zeroed", Some(vec![0; bytes.len()])));
        for at in places(bytes.len(), flips) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            cases.push(("flipped", Some(flipped)));
        }
        for (number, (how, bytes)) in cases.into_iter().enumerate() {
            let mut laid = sound.clone();
            match bytes {
                Some(bytes) => laid.insert(path.clone(), bytes),
                None => laid.remove(path),
            };
            lay_out(&folder, &laid);
            let what = format!("{} {how} ({number})", path.display());
            let Judged { outcome, text } = judge(&folder, &laid, &what).await;
            assert!(outcome != Outcome::Torn || newest_journal, "{what}: acknowledged rows are gone");
            let kind = without_numbers(&path.display().to_string());
            let text = if outcome == Outcome::Refused { without_numbers(&text) } else { text };
            *seen.entry((kind, how, outcome)).or_default().entry(text).or_default() += 1;
        }
    }
    for ((file, how, outcome), text) in &seen {
        let (count, after) = (text.values().sum::<usize>(), if clean { "a clean stop" } else { "a kill" });
        // The most frequent refusal, or the smallest number of rows left.
        let text = match outcome {
            Outcome::Refused => text.iter().max_by_key(|(_, count)| **count).map(|(text, _)| text.as_str()),
            _ => text.keys().next().map(String::as_str),
        };
        println!("seen: after {after}, {file} {how}: {outcome:?} {count} times, {}", text.unwrap_or_default());
    }
    seen
}

fn check(seen: &Seen) {
    let outcomes = |file: &str, how: &str| -> Vec<Outcome> {
        seen.keys().filter(|(f, h, _)| f == file && *h == how).map(|(_, _, outcome)| *outcome).collect()
    };
    for file in ["FORMAT", "db/current", "db/vN"] {
        for how in ["removed", "emptied", "cut", "zeroed", "flipped"] {
            assert_eq!(outcomes(file, how), [Outcome::Refused], "{file} {how}");
        }
    }
    for how in ["removed", "emptied", "cut", "zeroed"] {
        assert_eq!(outcomes("db/tables/N", how), [Outcome::Refused], "table {how}");
    }
}

#[tokio::test]
async fn no_damaged_file_loses_rows_in_silence_or_is_healed_by_a_start() {
    for clean in [true, false] {
        check(&damage_everything(clean, 12).await);
    }
}

/// Many more places, for a long proof.
#[tokio::test]
#[ignore = "cargo xtask prove damage"]
async fn no_flipped_bit_loses_rows_in_silence() {
    for clean in [true, false] {
        check(&damage_everything(clean, 400).await);
    }
}

/// Every bit of the smallest file: another format, another number of shards.
#[tokio::test]
async fn no_flipped_bit_of_format_is_taken_for_another_number() {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("data");
    make(&folder, true).await;
    let sound = files(&folder);
    let format = sound[Path::new("FORMAT")].clone();
    for bit in 0..format.len() * 8 {
        let mut laid = sound.clone();
        laid.get_mut(Path::new("FORMAT")).unwrap()[bit / 8] ^= 1 << (bit % 8);
        lay_out(&folder, &laid);
        assert_eq!(judge(&folder, &laid, &format!("bit {bit}")).await.outcome, Outcome::Refused);
        // Not even for that of a newer program.
        let opened = Fjall::open(&folder, options());
        assert!(matches!(opened, Err(OpenError::Damaged { .. } | OpenError::Lost { .. })), "bit {bit}");
    }
    // A whole FORMAT of another store.
    let other = above.path().join("other");
    drop(Fjall::open(&other, Options { shards: 5, ..options() }).unwrap());
    let mut laid = sound;
    laid.insert("FORMAT".into(), fs::read(other.join("FORMAT")).unwrap());
    lay_out(&folder, &laid);
    let refused = Fjall::open(&folder, options()).err().unwrap().to_string();
    assert!(refused.contains("FORMAT says 5 shards, the tables have 4"), "{refused}");
}

/// A file system that goes back to an earlier state may name an older version of the manifest, whose checksum is right.
#[tokio::test]
async fn an_older_manifest_is_refused_and_newer_tables_are_kept() {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("data");
    let engine = Fjall::open(&folder, options()).unwrap();
    let put_all = async |rows: std::ops::Range<usize>| {
        engine.commit(batch(rows.map(|n| put(1, &name(n), &"v".repeat(500))))).await.unwrap();
        drop(engine.snapshot().await.unwrap());
    };
    put_all(0..ROWS / 2).await;
    let early = files(&folder);
    put_all(ROWS / 2..ROWS).await;
    drop(engine);
    let mut laid = files(&folder);
    for (path, bytes) in early.into_iter().filter(|(path, _)| path.starts_with("db")) {
        let is_current = path.ends_with(crate::manifest::CURRENT);
        if is_current || !laid.contains_key(&path) {
            laid.insert(path, bytes);
        }
    }
    lay_out(&folder, &laid);
    for _ in 0..2 {
        let judged = judge(&folder, &laid, "an older manifest").await;
        assert_eq!(judged.outcome, Outcome::Refused);
        println!("seen: db/current names an older version: Refused, {}", judged.text);
    }
    // A start that was killed before it has put back what it had set aside.
    fs::create_dir(folder.join("db/aside")).unwrap();
    let newest = laid.keys().filter(|path| path.starts_with("db/tables")).max().unwrap();
    fs::rename(folder.join(newest), folder.join("db/aside").join(newest.file_name().unwrap())).unwrap();
    assert_eq!(judge(&folder, &laid, "after a kill").await.outcome, Outcome::Refused);
    // With its own manifest the same folder opens, and what no version names is removed.
    let engine_of = |laid: &BTreeMap<PathBuf, Vec<u8>>| {
        lay_out(&folder, laid);
        Fjall::open(&folder, options())
    };
    let mut stray = laid.clone();
    stray.retain(|path, _| !path.starts_with("journal") && !path.starts_with("db"));
    assert!(engine_of(&stray).is_err());
}

/// A regression: a scan of just the rows before damage failed, and so the last of them could not be saved.
#[tokio::test]
async fn a_scan_that_ends_before_damage_does_not_meet_it() {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("data");
    make(&folder, true).await;
    let key = |n: usize| put(1, &name(n), "").key;
    let tables = files(&folder).into_iter().filter(|(path, _)| path.starts_with("db/tables"));
    let (path, mut bytes) = tables.max_by_key(|(_, bytes)| bytes.len()).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(folder.join(path), bytes).unwrap();
    let engine = Fjall::open(&folder, options()).unwrap();
    assert_eq!(engine.numbers().damaged_files, 0);
    let snapshot = engine.snapshot().await.unwrap();
    assert!(matches!(snapshot.page(&[], ROWS * 2), Err(Error::Corrupt(_))));
    assert_eq!(engine.numbers().damaged_files, 1, "it is reported before the scrub finds it");
    drop(snapshot);
    let mut first = 0;
    while first < ROWS && engine.get_many(&[key(first)]).await.is_ok() {
        first += 1;
    }
    assert!((10..ROWS).contains(&first), "{first}");
    let scan = async |from: usize, limit| {
        let scanned = engine.scan_many(&[Scan { from: key(from), to: key(ROWS), limit }]).await;
        scanned.map(|rows| rows[0].len())
    };
    // Also with newer rows in memory, before and in the damage.
    for newer in [None, Some(first - 3), Some(first)] {
        if let Some(newer) = newer {
            engine.commit(batch([put(1, &name(newer), "new")])).await.unwrap();
        }
        assert_eq!(scan(0, first).await, Ok(first));
        assert_eq!(scan(first - 1, 1).await, Ok(1));
        assert!(matches!(scan(0, first + 1).await, Err(Error::Corrupt(_))), "it goes on into the damage");
        assert!(matches!(scan(first - 1, usize::MAX).await, Err(Error::Corrupt(_))));
    }
    println!("seen: a block is damaged: scans return all {first} rows before it, and say that it cannot be read");
}

/// Flips a bit in every table whose content `finds` a place for, in its data blocks.
pub(super) fn flip(folder: &Path, finds: impl Fn(&[u8]) -> Option<usize>) -> usize {
    let tables = files(folder).into_iter().filter(|(path, _)| path.starts_with("db/tables"));
    let found = tables.filter_map(|(path, bytes)| finds(&bytes).map(|at| (path, bytes, at)));
    let flipped = found.map(|(path, mut bytes, at)| {
        bytes[at] ^= 1;
        fs::write(folder.join(path), bytes).unwrap();
    });
    flipped.count()
}

fn position(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

/// A regression: the start was refused, and so was `salvage`.
#[tokio::test]
async fn a_fence_that_cannot_be_read_closes_its_shard_only() {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("data");
    let engine = Fjall::open(&folder, options()).unwrap();
    let mut epochs = Vec::new();
    for shard in 0..4 {
        // Different ones, to find the row by its value.
        for _ in 0..5 * (shard + 1) {
            epochs.truncate(shard.into());
            epochs.push(engine.own(ShardId(shard), &[]).await.unwrap().0);
        }
        let rows = (0..20).map(|n| put(shard, &name(n), &"v".repeat(500)));
        engine.commit(fenced([(shard, epochs[usize::from(shard)], 1)], rows)).await.unwrap();
    }
    drop(engine.snapshot().await.unwrap());
    drop(engine);
    let fence = [&[1][..], &epochs[2].0.to_be_bytes(), &1u64.to_be_bytes()].concat();
    assert_eq!(flip(&folder, |bytes| position(bytes, &fence)), 1);
    let engine = Fjall::open(&folder, options()).unwrap();
    assert!(matches!(engine.own(ShardId(2), &[]).await, Err(Error::Corrupt(why)) if why.contains("shard 2")));
    for shard in [0, 1, 3] {
        let (epoch, seq) = engine.own(ShardId(shard), &[]).await.unwrap();
        assert_eq!((epoch.0, seq), (epochs[usize::from(shard)].0 + 1, 1));
        assert!(engine.get_many(&[put(shard, &name(7), "").key]).await.unwrap()[0].is_some());
    }
    // A copy continues above every number that the original can have used.
    let of_snapshot = engine.snapshot().await.unwrap().header().fences[&ShardId(2)];
    assert_eq!(engine.header().fences[&ShardId(2)], of_snapshot);
    assert!(of_snapshot.epoch > epochs[2] && of_snapshot.seq > 1_000_000, "{of_snapshot:?}");
    drop(engine);
    assert!(Fjall::open(&folder, options()).is_ok(), "a flush does not change it");
    println!("seen: the fence of one of 4 shards cannot be read: it opens, and 3 shards are served");
}

/// A regression: rows could not be saved if one of the engine itself was lost.
#[tokio::test]
async fn without_its_own_rows_a_store_is_refused_and_can_be_saved() {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("data");
    make(&folder, true).await;
    let engine = Fjall::open(&folder, options()).unwrap();
    // A table with nothing but the row that counts files of the journal.
    drop(engine.snapshot().await.unwrap());
    drop(engine.snapshot().await.unwrap());
    engine.commit(batch([put(2, "new", "v")])).await.unwrap();
    drop(engine);
    let own_rows = [crate::flusher::DONE_KEY, crate::own_rows::SHARDS_KEY];
    let finds = |bytes: &[u8]| own_rows.iter().find_map(|key| position(bytes, key)).filter(|_| bytes.len() < 4096);
    assert!(flip(&folder, finds) >= 2);
    let laid = files(&folder);
    let judged = judge(&folder, &laid, "rows of the engine").await;
    assert!(judged.outcome == Outcome::Refused && judged.text.contains("db/tables/"), "{}", judged.text);
    println!("seen: rows of the engine itself cannot be read: Refused, {}; salvage saves all others", judged.text);
    let engine = Fjall::salvage(&folder, &above.path().join("scratch"), &options()).unwrap();
    for n in 0..ROWS {
        assert!(engine.get_many(&[put(1, &name(n), "").key]).await.unwrap()[0].is_some(), "row {n}");
    }
    assert!(engine.get_many(&[put(2, "new", "").key]).await.unwrap()[0].is_some(), "from the journal");
}

/// Every place behind the rows of a table: index, filter, description and end mark.
#[tokio::test]
async fn a_table_that_cannot_be_opened_is_named_and_all_its_rows_are_saved() {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("data");
    make(&folder, true).await;
    let sound = files(&folder);
    let largest = |(path, bytes): &(&PathBuf, &Vec<u8>)| if path.starts_with("db/tables") { bytes.len() } else { 0 };
    let (path, bytes) = sound.iter().max_by_key(largest).unwrap();
    let archive = sfa::Reader::new(folder.join(path)).unwrap();
    let behind = archive.toc().section(b"index").unwrap().pos() as usize;
    let scratch = above.path().join("scratch");
    let (mut refused, mut whole) = (0, 0);
    for at in (behind..bytes.len()).step_by(307) {
        for second in [None, Some(bytes.len() / 3)] {
            let mut laid = sound.clone();
            let flipped = laid.get_mut(path).unwrap();
            [Some(at), second].into_iter().flatten().for_each(|at| flipped[at] ^= 0x10);
            lay_out(&folder, &laid);
            if let Err(error) = Fjall::open(&folder, options()) {
                let (error, name) = (error.to_string(), path.display().to_string());
                assert!(error.contains(&name), "{at}: {error}");
                refused += 1;
                assert!(files(&folder) == laid, "{at}: a refused start changes nothing");
            }
            lay_out(&folder, &laid);
            let engine = Fjall::salvage(&folder, &scratch, &options()).unwrap();
            let read = saved(&engine).await;
            assert!(read.windows(2).all(|two| two[0] < two[1]), "{at}: {read:?}");
            if second.is_none() {
                assert_eq!((read.len(), engine.rebuilt_tables().len()), (ROWS, 1), "{at}");
                whole += 1;
            }
            assert!(read.len() > ROWS - 30, "{at} and a block: {} of {ROWS}", read.len());
            drop(engine);
            assert!(files(&folder) == laid && !scratch.exists(), "{at}: the damaged folder stays as it was");
        }
    }
    assert!(refused > 2 && whole > 5, "{refused}, {whole}");
    // If nothing of it can be read, any row of any table may be out of date.
    let mut laid = sound.clone();
    laid.get_mut(path).unwrap().fill(0);
    lay_out(&folder, &laid);
    let refused = Fjall::salvage(&folder, &scratch, &options()).err().unwrap().to_string();
    assert!(refused.contains(&path.display().to_string()) && files(&folder) == laid, "{refused}");
    let bad = crate::check(&folder, |_, _| {}).unwrap().files.into_iter().find(|file| !file.is_saved);
    assert!(bad.is_some_and(|bad| bad.path.ends_with(path)), "salvage is not advised");
}

/// The numbers of the rows that a salvaged store has for certain.
pub async fn saved(engine: &Fjall) -> Vec<usize> {
    let (mut from, mut found) = (Vec::new(), Vec::new());
    while from.as_slice() < [0xff; 8].as_slice() {
        let scan = Scan { from: from.clone(), to: vec![0xff; 8], limit: 1 };
        let rows = match engine.scan_many(std::slice::from_ref(&scan)).await {
            Ok(mut rows) => {
                let rows = rows.remove(0);
                from = rows.last().map_or(vec![0xff; 8], |row| [&*row.key, &[0]].concat());
                rows
            }
            Err(Error::Corrupt(_)) => {
                let (end, rows) = engine.past_damage(&Scan { limit: 64, ..scan }).await.unwrap();
                from = end;
                rows
            }
            Err(other) => panic!("{other}"),
        };
        let number = |key: &[u8]| String::from_utf8_lossy(&key[key.len() - 5..]).parse::<usize>().ok();
        let whole = rows.iter().filter(|row| row.value == "v".repeat(500).as_bytes());
        found.extend(whole.filter_map(|row| number(&row.key)));
    }
    found
}
