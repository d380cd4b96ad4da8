//! Checks a data folder that is not in use: every file against its checksums, without changing anything.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lsm_tree::{InternalValue, Slice};

use crate::disk::{Disk, OsDisk};
use crate::flusher::{DONE_KEY, Done};
use crate::folder::{self, At};
use crate::journal;
use crate::manifest::{self, BadFile, ListedTable};
use crate::open_error::OpenError;
use crate::rebuilt_tables;
use crate::replay::Replay;

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

/// Checks every file of a data folder. `progress` is told the bytes of tables that are read and those of all tables.
///
/// # Errors
/// If the folder is in use or cannot be read at all. Damage is not an error but part of the report.
pub fn check(path: &Path, mut progress: impl FnMut(u64, u64)) -> Result<CheckReport, OpenError> {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let at = At { disk: &*disk, path };
    at.refuse_foreign()?;
    let _lock = at.lock_existing()?;
    let mut report = CheckReport::default();
    let format = match at.read_format() {
        Ok(_) => Ok(()),
        Err(OpenError::Damaged { what, .. }) => Err(what),
        Err(other) => return Err(other),
    };
    report.add(path.join(folder::FORMAT), format);
    let tables = check_tables(&path.join(folder::DB), &mut report, &mut progress);
    let journal = path.join(folder::JOURNAL);
    let first =
        || journal::numbers(&*disk, &journal).unwrap_or_default().first().map_or(0, |first| first.saturating_sub(1));
    let replay =
        Replay { disk: &disk, folder: &journal, done: tables.and_then(done).unwrap_or_else(first), repair: false };
    match replay.inspect() {
        Ok(files) => files.into_iter().for_each(|(file, verdict)| report.add(file, verdict)),
        Err(error) => report.add(journal, Err(format!("it cannot be read: {error}"))),
    }
    Ok(report)
}

/// Checks the manifest and the tables that it names, and returns these if it is sound.
fn check_tables(
    database: &Path,
    report: &mut CheckReport,
    progress: &mut impl FnMut(u64, u64),
) -> Option<Vec<ListedTable>> {
    let tables = match manifest::list(database) {
        Ok(tables) => tables,
        Err(BadFile { path, what, .. }) => {
            report.add(path, Err(what));
            return None;
        }
    };
    report.add(database.join(manifest::CURRENT), Ok(()));
    let total = tables.iter().filter_map(|table| table.path.metadata().ok()).map(|known| known.len()).sum();
    let mut done = 0;
    for table in &tables {
        let verdict = manifest::verify(&table.path, table.checksum, |bytes| {
            done += bytes;
            progress(done, total);
            true
        });
        let is_saved = verdict.is_ok() || rebuilt_tables::is_readable(&table.path);
        let (path, verdict) = (table.path.clone(), verdict.map_err(|bad| bad.what));
        report.files.push(CheckedFile { is_saved, ..CheckedFile::new(path, verdict) });
    }
    Some(tables)
}

/// The last journal file whose rows are all in these tables; `None` if they cannot tell.
fn done(tables: Vec<ListedTable>) -> Option<u64> {
    let mut newest: Option<InternalValue> = None;
    for table in tables {
        let key = Slice::from(DONE_KEY.as_slice());
        for row in table.open().ok()?.range(key.clone()..=key) {
            let row = row.ok()?;
            newest = newest.filter(|newest| newest.key.seqno > row.key.seqno).or(Some(row));
        }
    }
    newest.map_or(Some(0), |row| Some(Done::decode(&row.value)?.file))
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
            assert_eq!(bad.map(|bad| (bad.path, bad.is_saved)), Some((needed.clone(), false)));
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
