//! Checks a data folder that is not in use: every file against its checksums, without changing anything.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, OsDisk};
use crate::flusher::{DONE_KEY, Done};
use crate::folder::{self, At};
use crate::journal;
use crate::manifest::{self, BadFile, ListedTable};
use crate::open_error::OpenError;
use crate::own_rows::{self, SHARDS_KEY};
use crate::rebuilt_tables;
use crate::replay::{Failure, Replay};
use crate::versions;

/// What is wrong with a data folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Every file that was checked.
    pub files: Vec<CheckedFile>,
}

impl CheckReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.files.iter().all(|file| file.verdict.is_ok())
    }

    fn add(&mut self, path: PathBuf, verdict: Result<(), String>) {
        self.files.push(CheckedFile::new(path, verdict));
    }
}

/// A file and what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedFile {
    /// Its path.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// What is wrong with it, if anything.
    pub verdict: Result<(), String>,
    /// Whether a store can be salvaged without what is damaged of it.
    pub is_saved: bool,
}

impl CheckedFile {
    fn new(path: PathBuf, verdict: Result<(), String>) -> Self {
        let bytes = path.metadata().map_or(0, |known| known.len());
        Self { path, bytes, is_saved: verdict.is_ok(), verdict }
    }
}

/// Checks every file of a data folder. `progress` gets the bytes of the tables read so far and those of all tables.
/// Fails if the folder is in use or cannot be read at all. Damage is not an error but part of the report.
pub fn check(path: &Path, mut progress: impl FnMut(u64, u64)) -> Result<CheckReport, OpenError> {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let at = At { disk: &*disk, path };
    let _lock = at.lock_to_read()?;
    let mut report = CheckReport::default();
    let format = match at.read_format() {
        Err(OpenError::Damaged { what, .. }) => Err(what),
        read => Ok(read?.1),
    };
    let journal = path.join(folder::JOURNAL);
    let mut tables = CheckReport::default();
    let found = check_tables(&path.join(folder::DB), &journal, &mut tables, &mut progress);
    let found = found.map_err(|bad| OpenError::bad_file(path, &bad))?;
    let stored = own_rows::newest(&found, SHARDS_KEY).and_then(own_rows::decode_shards);
    let verdict = match (&format, &stored) {
        (Ok(format), Ok(stored)) if format != stored => Err(own_rows::unlike(*format, *stored)),
        _ => format.map(drop),
    };
    let is_saved = verdict.is_ok() || stored.is_ok();
    report.files.push(CheckedFile { is_saved, ..CheckedFile::new(path.join(folder::FORMAT), verdict) });
    report.files.extend(tables.files);
    let first =
        || journal::numbers(&*disk, &journal).unwrap_or_default().first().map_or(0, |first| first.saturating_sub(1));
    let done = match own_rows::newest(&found, DONE_KEY) {
        Ok(Some(value)) => Done::decode(&value).map(|done| done.file),
        Ok(None) if !found.is_empty() => Some(0),
        _ => None,
    };
    let replay = Replay { disk: &disk, folder: &journal, done: done.unwrap_or_else(first), repair: false };
    let checked = match replay.inspect() {
        Err(Failure::Io(error, _)) if error.kind() == ErrorKind::NotFound => {
            vec![(journal, Err("it is missing".into()))]
        }
        checked => checked.map_err(|failure| OpenError::journal(path, failure))?,
    };
    // A salvage takes what comes before the damage.
    report.files.extend(
        checked.into_iter().map(|(file, verdict)| CheckedFile { is_saved: true, ..CheckedFile::new(file, verdict) }),
    );
    Ok(report)
}

/// Checks the manifest and the tables that it names. Returns those that a start would read, or else a salvage. The
/// error is the first file that cannot be read at the moment.
fn check_tables(
    database: &Path,
    journal: &Path,
    report: &mut CheckReport,
    progress: &mut impl FnMut(u64, u64),
) -> Result<Vec<ListedTable>, BadFile> {
    let mut is_other_whole = false;
    let tables = match manifest::list(database) {
        Ok(tables) => {
            report.add(database.join(manifest::CURRENT), Ok(()));
            let version = manifest::newest(database)?;
            report.add(database.join(format!("v{version}")), Ok(()));
            tables
        }
        Err(bad) if !bad.is_damage => return Err(bad),
        Err(bad) => {
            let chosen = versions::choose(database, journal).ok().map(|chosen| chosen.version);
            is_other_whole = chosen.is_some();
            let others = chosen.iter().map(|chosen| chosen.path.clone()).filter(|path| *path != bad.path);
            let others: Vec<PathBuf> = others.collect();
            // A flipped bit in its number is likelier than a lost file.
            let name = bad.path.file_name().unwrap_or_default().display();
            let bad = match bad.io {
                Some(ErrorKind::NotFound) if is_other_whole && !bad.path.ends_with(manifest::CURRENT) => {
                    let what = format!("it names {name}, which is not there, but another version is whole");
                    BadFile::damaged(&database.join(manifest::CURRENT), &what)
                }
                _ => bad,
            };
            report.files.push(CheckedFile { is_saved: is_other_whole, ..CheckedFile::new(bad.path, Err(bad.what)) });
            others.into_iter().for_each(|path| report.add(path, Ok(())));
            chosen.map(|chosen| chosen.tables).unwrap_or_default()
        }
    };
    let total = tables.iter().filter_map(|table| table.path.metadata().ok()).map(|known| known.len()).sum();
    let mut done = 0;
    for table in &tables {
        let verdict = manifest::verify(&table.path, table.checksum, |bytes| {
            done += bytes;
            progress(done, total);
            true
        });
        if let Err(bad) = &verdict
            && !bad.is_damage
        {
            return Err(bad.clone());
        }
        let is_saved = verdict.is_ok() || rebuilt_tables::is_readable(&table.path) || {
            is_other_whole |= versions::choose(database, journal).is_ok_and(|chosen| chosen.version.tables != tables);
            is_other_whole
        };
        let (path, verdict) = (table.path.clone(), verdict.map_err(|bad| bad.what));
        report.files.push(CheckedFile { is_saved, ..CheckedFile::new(path, verdict) });
    }
    Ok(tables)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fjall, Options};
    use wayleave_engine::Engine;
    use wayleave_engine::suite::harness::{batch, put};

    #[tokio::test]
    async fn a_sound_folder_is_found_sound_and_each_damaged_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { memtable_bytes: 64 << 10, ..Options::default() };
        let engine = Fjall::open(folder.path(), options).unwrap();
        assert!(matches!(check(folder.path(), |_, _| {}), Err(OpenError::InUse { .. })));
        for n in 0..20 {
            engine.commit(batch([put(1, &n.to_string(), &"v".repeat(20_000))])).await.unwrap();
        }
        drop(engine);
        let mut seen = (0, 0);
        let report = check(folder.path(), |done, total| seen = (done, total)).unwrap();
        assert!(report.is_sound(), "{report:?}");
        assert!(report.files.len() >= 4 && seen.0 == seen.1 && seen.0 > 0, "{seen:?}");
        for file in report.files {
            let whole = std::fs::read(&file.path).unwrap();
            let mut flipped = whole.clone();
            flipped[10] ^= 4;
            std::fs::write(&file.path, flipped).unwrap();
            let bad: Vec<_> = check(folder.path(), |_, _| {}).unwrap().files;
            let bad: Vec<_> = bad.into_iter().filter(|file| file.verdict.is_err()).collect();
            // A damaged `current` names a version file that does not exist, or has another checksum.
            let named = bad.iter().any(|bad| bad.path == file.path) || file.path.ends_with(manifest::CURRENT);
            assert!(bad.len() == 1 && named, "{}: {bad:?}", file.path.display());
            std::fs::write(&file.path, whole).unwrap();
        }
    }

    /// A regression: the check began with the first file that was there, and without any with the first of all.
    #[tokio::test]
    async fn the_journal_file_that_a_start_needs_is_named_if_it_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let engine = Fjall::open(folder.path(), Options::default()).unwrap();
        for n in 0..3 {
            engine.commit(batch([put(1, &n.to_string(), "v")])).await.unwrap();
            drop(engine.snapshot().await.unwrap());
        }
        drop(engine);
        let journal = folder.path().join("journal");
        let numbers = journal::numbers(&OsDisk, &journal).unwrap();
        let needed = journal::path(&journal, *numbers.last().unwrap());
        let later = journal::path(&journal, numbers.last().unwrap() + 1);
        std::fs::rename(&needed, &later).unwrap();
        for remains in [true, false] {
            if !remains {
                numbers.iter().for_each(|number| _ = std::fs::remove_file(journal::path(&journal, *number)));
                std::fs::remove_file(&later).unwrap();
            }
            let bad = check(folder.path(), |_, _| {}).unwrap().files.into_iter().find(|file| file.verdict.is_err());
            assert_eq!(bad.map(|bad| (bad.path, bad.is_saved)), Some((needed.clone(), true)));
            let refused = Fjall::open(folder.path(), Options::default()).err().unwrap().to_string();
            assert!(refused.contains(needed.file_name().unwrap().to_str().unwrap()), "{refused}");
        }
    }

    #[test]
    fn a_folder_that_does_not_exist_is_not_created() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("none");
        assert!(check(&path, |_, _| {}).is_err());
        assert!(!path.exists());
    }
}
