//! The data folder: whose it is, which format it has, and that nobody else has it open.
//!
//! ```text
//! LOCK      held while the store is open
//! FORMAT    "wayleave 2" and "shards 16", written once
//! journal/  batches whose rows are not yet in the database
//! db/       the database; db.new/ while it is being made
//! ```
//!
//! Format 1 had no journal of its own: it is given an empty one, and is of format 2 from then on.
//!
//! Creation can be cut off anywhere: first `db.new/` appears, then FORMAT and `journal/`, then `db.new/` is filled and
//! renamed to `db/`. So a folder with `db.new/` and without `db/` is an unfinished creation and is begun again, while FORMAT
//! without either means that somebody has removed the data.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::journal::Journal;
use crate::open_error::OpenError;

/// The newest format that this program reads and the one that it writes.
const FORMAT_VERSION: u32 = 2;

const LOCK: &str = "LOCK";
const FORMAT: &str = "FORMAT";
const FORMAT_NEW: &str = "FORMAT.new";
const DB: &str = "db";
const DB_NEW: &str = "db.new";
const JOURNAL: &str = "journal";

/// A data folder that this process holds, until it is dropped.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    shards: u16,
    /// Keeps the lock; the machine lets go of it when the process ends, however it ends.
    _lock: File,
}

impl Folder {
    /// Takes hold of a data folder, making it if it is new: `fill` makes an empty database at the path it is given.
    ///
    /// # Errors
    /// If the folder cannot be used, with the remedy.
    pub(crate) fn open(
        path: &Path,
        shards: u16,
        fill: impl FnOnce(&Path) -> Result<(), OpenError>,
    ) -> Result<Self, OpenError> {
        match fs::metadata(path) {
            Ok(data) if !data.is_dir() => return Err(OpenError::NotAFolder { path: path.into() }),
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(OpenError::io(path, error)),
            _ => {}
        }
        // Before anything is written, so that somebody else's folder stays as it is.
        refuse_foreign(path)?;
        make_folder(path)?;
        let lock = lock(path)?;
        let shards = if is_unfinished(path)? { create(path, shards, fill)? } else { open(path)? };
        Ok(Self { path: path.into(), shards, _lock: lock })
    }

    /// Where the database lies.
    pub(crate) fn database(&self) -> PathBuf {
        self.path.join(DB)
    }

    /// Where the journal lies.
    pub(crate) fn journal(&self) -> PathBuf {
        self.path.join(JOURNAL)
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The number of shards that it was made with.
    pub(crate) fn shards(&self) -> u16 {
        self.shards
    }
}

fn refuse_foreign(path: &Path) -> Result<(), OpenError> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(OpenError::io(path, error)),
    };
    if exists(&path.join(FORMAT))? {
        return Ok(());
    }
    for entry in entries {
        let name = entry.map_err(|error| OpenError::io(path, error))?.file_name();
        if name == DB {
            return Err(OpenError::Damaged { path: path.into(), what: format!("the file {FORMAT} is missing") });
        }
        // `lost+found` lies in the root of a disk that is mounted for the purpose.
        if ![LOCK, FORMAT_NEW, DB_NEW, "lost+found"].iter().any(|ours| name == *ours) {
            return Err(OpenError::Foreign { path: path.into(), found: name.to_string_lossy().into_owned() });
        }
    }
    Ok(())
}

fn lock(path: &Path) -> Result<File, OpenError> {
    let file = path.join(LOCK);
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&file)
        .map_err(|error| OpenError::io(&file, error))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: path.into() }),
        Err(TryLockError::Error(error)) => Err(OpenError::io(&file, error)),
    }
}

fn is_unfinished(path: &Path) -> Result<bool, OpenError> {
    if exists(&path.join(DB))? {
        return Ok(false);
    }
    Ok(exists(&path.join(DB_NEW))? || !exists(&path.join(FORMAT))?)
}

fn create(path: &Path, shards: u16, fill: impl FnOnce(&Path) -> Result<(), OpenError>) -> Result<u16, OpenError> {
    let new = path.join(DB_NEW);
    if exists(&new)? {
        fs::remove_dir_all(&new).map_err(|error| OpenError::io(&new, error))?;
    }
    make_folder(&new)?;
    write_format(path, shards)?;
    make_journal(path)?;
    fill(&new)?;
    fs::rename(&new, path.join(DB)).map_err(|error| OpenError::io(&new, error))?;
    sync_folder(path)?;
    Ok(shards)
}

fn make_journal(path: &Path) -> Result<(), OpenError> {
    let journal = path.join(JOURNAL);
    Journal::create(&journal).map_err(|error| OpenError::io(&journal, error))?;
    sync_folder(path)
}

/// Reads what an existing folder is, and brings it to the newest format.
fn open(path: &Path) -> Result<u16, OpenError> {
    let (version, shards) = read_format(path)?;
    if version < FORMAT_VERSION {
        make_journal(path)?;
        write_format(path, shards)?;
    }
    Ok(shards)
}

fn write_format(path: &Path, shards: u16) -> Result<(), OpenError> {
    let (new, file) = (path.join(FORMAT_NEW), path.join(FORMAT));
    let write = || {
        let mut out = File::create(&new)?;
        out.write_all(format!("wayleave {FORMAT_VERSION}\nshards {shards}\n").as_bytes())?;
        out.sync_all()?;
        fs::rename(&new, &file)
    };
    write().map_err(|error| OpenError::io(&file, error))?;
    sync_folder(path)
}

fn read_format(path: &Path) -> Result<(u32, u16), OpenError> {
    let file = path.join(FORMAT);
    let bytes = fs::read(&file).map_err(|error| OpenError::io(&file, error))?;
    let damaged = |what: &str| OpenError::Damaged { path: path.into(), what: format!("{FORMAT} {what}") };
    let text = String::from_utf8(bytes).map_err(|_| damaged("is not text"))?;
    let mut lines = text.lines();
    let version = number(lines.next(), "wayleave").ok_or_else(|| damaged("names no version"))?;
    // Judged before the rest: a newer format may say more, or say it differently.
    if version > FORMAT_VERSION {
        return Err(OpenError::Newer { path: path.into(), found: version, known: FORMAT_VERSION });
    }
    let shards = number(lines.next(), "shards").and_then(|shards| u16::try_from(shards).ok());
    let shards = shards.filter(|shards| *shards > 0).ok_or_else(|| damaged("names no number of shards"))?;
    if !exists(&path.join(DB))? {
        return Err(OpenError::Damaged { path: path.into(), what: format!("the folder {DB} is missing") });
    }
    Ok((version, shards))
}

fn number(line: Option<&str>, word: &str) -> Option<u32> {
    line?.strip_prefix(word)?.strip_prefix(' ')?.parse().ok()
}

fn exists(path: &Path) -> Result<bool, OpenError> {
    path.try_exists().map_err(|error| OpenError::io(path, error))
}

/// Makes a folder, with those above it, that is still there after a power cut.
fn make_folder(path: &Path) -> Result<(), OpenError> {
    let absolute = std::path::absolute(path).map_err(|error| OpenError::io(path, error))?;
    let missing: Vec<&Path> = absolute.ancestors().take_while(|folder| !folder.exists()).collect();
    fs::create_dir_all(&absolute).map_err(|error| OpenError::io(path, error))?;
    missing.iter().filter_map(|folder| folder.parent()).try_for_each(sync_folder)
}

fn sync_folder(path: &Path) -> Result<(), OpenError> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(|error| OpenError::io(path, error))
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
