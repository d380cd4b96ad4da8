//! A damaged folder is refused untouched: every file is removed, truncated and flipped in turn, after a clean stop and
//! after a kill. What opens must contain every row or say which cannot be read.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use wayleave_engine::suite::harness::{batch, put};
use wayleave_engine::{Engine, Error, Scan};

use crate::{Fjall, OpenError, Options};

const ROWS: usize = 600;

fn options() -> Options {
    Options { shards: 4, memtable_bytes: 64 << 10, ..Options::default() }
}

/// A store with several tables and rows in the journal; `clean` stops it in good order.
async fn make(folder: &Path, clean: bool) {
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

fn name(n: usize) -> String {
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
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
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

fn lay_out(folder: &Path, files: &BTreeMap<PathBuf, Vec<u8>>) {
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
    /// It opened without the end of the newest journal file, which cannot be told from a write torn by a kill.
    Torn,
}

/// Opens a store with one damaged file.
async fn judge(folder: &Path, laid: &BTreeMap<PathBuf, Vec<u8>>, what: &str) -> Outcome {
    let engine = match Fjall::open(folder, options()) {
        Ok(engine) => engine,
        Err(error) => {
            let damaged =
                matches!(error, OpenError::Damaged { .. } | OpenError::JournalDamaged { .. } | OpenError::Newer { .. });
            assert!(damaged, "{what}: {error}");
            assert_eq!(
                files(folder).keys().collect::<Vec<_>>(),
                laid.keys().collect::<Vec<_>>(),
                "{what}: files are gone"
            );
            assert!(files(folder) == *laid, "{what}: files have changed");
            return Outcome::Refused;
        }
    };
    assert_eq!(engine.shards(), 4, "{what}");
    let mut missing = Vec::new();
    let mut unreadable = false;
    for n in 0..ROWS {
        match engine.get_many(&[put(1, &name(n), "").key]).await {
            Ok(found) => match found.into_iter().next().flatten() {
                Some(value) => assert_eq!(value, "v".repeat(500).into_bytes(), "{what}: another value"),
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
    if unreadable {
        assert!(missing.is_empty(), "{what}: {missing:?} are missing in silence");
        return Outcome::Unreadable;
    }
    if missing.is_empty() {
        return Outcome::Whole;
    }
    let first = missing[0];
    assert!(missing.iter().copied().eq(first..ROWS), "{what}: rows are missing in the middle: {missing:?}");
    Outcome::Torn
}

/// The places in a file that are flipped: every byte of a small file, samples of a large one.
fn places(len: usize, most: usize) -> impl Iterator<Item = usize> {
    (0..len).step_by(len.div_ceil(most).max(1))
}

async fn damage_everything(clean: bool, flips: usize) -> BTreeMap<(String, &'static str, Outcome), usize> {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("data");
    make(&folder, clean).await;
    let mut sound = files(&folder);
    // A kill during a flush leaves a table that no version names; opening removes it.
    let listed = crate::manifest::read(&folder.join("db")).unwrap();
    sound.retain(|path, _| !path.starts_with("db/tables") || listed.iter().any(|table| table.path.ends_with(path)));
    assert!(sound.keys().filter(|path| path.starts_with("db/tables")).count() > 1, "{:?}", sound.keys());
    let mut seen = BTreeMap::new();
    for (path, bytes) in &sound {
        let newest_journal = sound.keys().filter(|path| path.starts_with("journal")).max() == Some(path);
        let mut cases: Vec<(&'static str, Option<Vec<u8>>)> = vec![("removed", None)];
        cases.push(("emptied", Some(Vec::new())));
        cases.push(("cut", Some(bytes[..bytes.len() / 2].to_vec())));
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
            let outcome = judge(&folder, &laid, &what).await;
            assert!(outcome != Outcome::Torn || newest_journal, "{what}: acknowledged rows are gone");
            let kind: String =
                path.display().to_string().chars().map(|c| if c.is_ascii_digit() { 'N' } else { c }).collect();
            *seen.entry((kind, how, outcome)).or_default() += 1;
        }
    }
    for ((file, how, outcome), count) in &seen {
        println!("{file:<24} {how:<8} {outcome:?}: {count}");
    }
    seen
}

fn check(seen: &BTreeMap<(String, &'static str, Outcome), usize>) {
    let outcomes = |file: &str, how: &str| -> Vec<Outcome> {
        seen.keys().filter(|(f, h, _)| f == file && *h == how).map(|(_, _, outcome)| *outcome).collect()
    };
    for file in ["FORMAT", "db/current", "db/vN"] {
        for how in ["removed", "emptied", "cut", "flipped"] {
            assert_eq!(outcomes(file, how), [Outcome::Refused], "{file} {how}");
        }
    }
    for how in ["removed", "emptied", "cut"] {
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
        assert_eq!(judge(&folder, &laid, &format!("bit {bit}")).await, Outcome::Refused);
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
