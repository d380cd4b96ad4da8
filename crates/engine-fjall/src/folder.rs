//! The data folder: its ownership, its format and its lock.
//!
//! ```text
//! LOCK      held while the store is open
//! FORMAT    "wayleave 1", "shards 16" and a checksum of these lines; replaced only by a newer program, once it has opened all
//! journal/  batches whose rows are not yet in the database
//! db/       the database; db.new/ while it is being made
//! ```
//!
//! Creation may be interrupted at any point: first `db.new/` appears, then FORMAT and `journal/`, then `db.new/` is
//! filled and renamed to `db/`. So a folder with `db.new/` but no `db/` is an unfinished creation and is restarted,
//! while FORMAT without either means that the data was removed.
//!
//! A killed process leaves directory entries that may exist only in the page cache. So every open syncs them before
//! anything depends on them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::bulk_load;
use crate::disk::{self, Disk, OsDisk};
use crate::journal::Journal;
use crate::open_error::OpenError;
use crate::trouble;

use wayleave_engine::format;

pub(crate) const LOCK: &str = "LOCK";
pub(crate) const FORMAT: &str = "FORMAT";
const FORMAT_NEW: &str = "FORMAT.new";
pub(crate) const DB: &str = "db";
const DB_NEW: &str = "db.new";
pub(crate) const JOURNAL: &str = "journal";

/// A data folder that this process has locked, until it is dropped.
#[derive(Debug)]
pub(crate) struct Folder {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// Where database and journal are: in the folder itself, unless it is salvaged.
    inside: PathBuf,
    /// The number of its format when it was opened.
    format: u32,
    shards: u16,
    /// The lock; the operating system releases it when the process ends, however it ends.
    _lock: Lock,
}

/// Holds a folder until it is dropped.
pub(crate) type Lock = Box<dyn std::fmt::Debug + Send + Sync>;

impl Folder {
    /// Opens and locks a data folder, creating it if needed: `fill` creates an empty database at the given path. Fails
    /// if the folder cannot be used. The message names the remedy.
    pub(crate) fn open(
        disk: &Arc<dyn Disk>,
        path: &Path,
        shards: u16,
        fill: impl FnOnce(&Path) -> Result<(), OpenError>,
    ) -> Result<Self, OpenError> {
        let at = At { disk: &**disk, path };
        // Before anything is written, so that a foreign folder stays untouched.
        at.refuse_foreign()?;
        make_folder(at.disk, path)?;
        let lock = at.lock()?;
        at.sync()?;
        let (format, shards) =
            if at.is_unfinished()? { (format::VERSION, at.create(shards, fill)?) } else { at.read_format_of_all()? };
        Ok(Self { disk: Arc::clone(disk), path: path.into(), inside: path.into(), format, shards, _lock: lock })
    }

    /// Raises an older format to this program's, before anything is written in it. Older programs refuse the folder from then on.
    pub(crate) fn raise_format(&self) -> Result<(), OpenError> {
        if self.format < format::VERSION {
            At { disk: &*self.disk, path: &self.path }.write_format(self.shards)?;
        }
        Ok(())
    }

    /// A damaged folder whose database and journal were rebuilt in another one.
    pub(crate) fn salvaged(path: &Path, inside: &Path, shards: u16, lock: Lock) -> Self {
        let format = format::VERSION;
        Self { disk: Arc::new(OsDisk), path: path.into(), inside: inside.into(), format, shards, _lock: lock }
    }

    /// The disk of its files.
    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// The path of the database.
    pub(crate) fn database(&self) -> PathBuf {
        self.inside.join(DB)
    }

    /// The path of the journal.
    pub(crate) fn journal(&self) -> PathBuf {
        self.inside.join(JOURNAL)
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The number of shards that it was created with.
    pub(crate) fn shards(&self) -> u16 {
        self.shards
    }
}

/// A data folder that is being opened.
pub(crate) struct At<'a> {
    pub(crate) disk: &'a dyn Disk,
    pub(crate) path: &'a Path,
}

impl At<'_> {
    fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn exists(&self, name: &str) -> Result<bool, OpenError> {
        let path = self.join(name);
        self.disk.exists(&path).map_err(|error| OpenError::io(&path, error))
    }

    fn sync(&self) -> Result<(), OpenError> {
        self.disk.sync_dir(self.path).map_err(|error| OpenError::io(self.path, error))
    }

    pub(crate) fn refuse_foreign(&self) -> Result<(), OpenError> {
        let names = match self.disk.list(self.path) {
            Ok(names) => names,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(OpenError::io(self.path, error)),
        };
        if names.iter().any(|name| name == FORMAT) {
            return Ok(());
        }
        let is_loaded = || bulk_load::is_moving_up(self.disk, self.path);
        if names.iter().any(|name| name == DB) && !is_loaded().map_err(|error| OpenError::io(self.path, error))? {
            return Err(self.damaged(format!("the file {FORMAT} is missing")));
        }
        if names.iter().any(|name| name == bulk_load::PART) {
            return Err(OpenError::Unfinished { path: self.path.into() });
        }
        for name in names {
            // The root of a mounted file system contains `lost+found`.
            if ![LOCK, FORMAT_NEW, DB_NEW, "lost+found"].contains(&name.as_str()) {
                return Err(OpenError::Foreign { path: self.path.into(), found: name });
            }
        }
        Ok(())
    }

    /// Locks a data folder that must exist, perhaps without its FORMAT, for reading only.
    pub(crate) fn lock_to_read(&self) -> Result<Lock, OpenError> {
        if !self.exists(FORMAT)? && !self.exists(DB)? {
            self.refuse_foreign()?;
            return Err(OpenError::io(self.path, ErrorKind::NotFound.into()));
        }
        self.locked(disk::lock_to_read(&self.join(LOCK)))
    }

    fn lock(&self) -> Result<Lock, OpenError> {
        self.locked(self.disk.lock(&self.join(LOCK)))
    }

    fn locked(&self, locked: std::io::Result<Lock>) -> Result<Lock, OpenError> {
        locked.map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => OpenError::InUse { path: self.path.into() },
            _ => OpenError::io(&self.join(LOCK), error),
        })
    }

    /// Syncs the directory entries of the folder and of its ancestors, whichever process created them.
    fn sync_above(&self) -> Result<(), OpenError> {
        let absolute = std::path::absolute(self.path).map_err(|error| OpenError::io(self.path, error))?;
        for above in absolute.ancestors().skip(1) {
            match self.disk.sync_dir(above) {
                // A directory that we may not open is one in which we created nothing.
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
                synced => synced.map_err(|error| OpenError::io(above, error))?,
            }
        }
        Ok(())
    }

    fn is_unfinished(&self) -> Result<bool, OpenError> {
        if self.exists(DB)? {
            return Ok(false);
        }
        Ok(self.exists(DB_NEW)? || !self.exists(FORMAT)?)
    }

    fn create(&self, shards: u16, fill: impl FnOnce(&Path) -> Result<(), OpenError>) -> Result<u16, OpenError> {
        self.sync_above()?;
        let new = self.join(DB_NEW);
        let failed = |error| OpenError::io(&new, error);
        // Cleared instead of recreated: while its name is missing, FORMAT alone would look like removed data.
        if self.exists(DB_NEW)? { self.clear(&new) } else { self.disk.create_dir(&new) }.map_err(failed)?;
        // Before FORMAT, which alone would look like removed data.
        self.sync()?;
        self.write_format(shards)?;
        self.make_journal()?;
        fill(&new)?;
        self.disk.rename(&new, &self.join(DB)).map_err(failed)?;
        self.sync()?;
        Ok(shards)
    }

    fn clear(&self, folder: &Path) -> std::io::Result<()> {
        for name in self.disk.list(folder)? {
            let path = folder.join(name);
            match self.disk.remove(&path) {
                Err(error) if error.kind() == ErrorKind::IsADirectory => self.disk.remove_dir_all(&path)?,
                removed => removed?,
            }
        }
        Ok(())
    }

    fn make_journal(&self) -> Result<(), OpenError> {
        let journal = self.join(JOURNAL);
        Journal::create(self.disk, &journal).map_err(|error| OpenError::io(&journal, error))?;
        self.sync()
    }

    fn write_format(&self, shards: u16) -> Result<(), OpenError> {
        let (new, file) = (self.join(FORMAT_NEW), self.join(FORMAT));
        let write = || {
            if self.disk.exists(&new)? {
                self.disk.remove(&new)?;
            }
            self.disk.create(&new)?;
            let out = self.disk.open(&new, false)?;
            out.write_all_at(format_text(format::VERSION, shards).as_bytes(), 0)?;
            out.sync()?;
            self.disk.rename(&new, &file)
        };
        write().map_err(|error| OpenError::io(&file, error))?;
        self.sync()
    }

    /// Reads the file FORMAT of an existing folder: the number of its format, and that of shards.
    pub(crate) fn read_format(&self) -> Result<(u32, u16), OpenError> {
        let file = self.join(FORMAT);
        let damaged = |what: &str| self.damaged(format!("{FORMAT} {what}"));
        let bytes = self.disk.read(&file).map_err(|error| match error.kind() {
            ErrorKind::NotFound => damaged("is missing"),
            _ if trouble::is_damage_io(&error) => damaged(&format!("cannot be read: {error}")),
            _ => OpenError::io(&file, error),
        })?;
        let text = String::from_utf8(bytes).map_err(|_| damaged("is not text"))?;
        let mut lines = text.lines();
        let version = number(lines.next(), "wayleave").ok_or_else(|| damaged("names no version"))?;
        // Checked before the rest: the rest of a newer format may differ.
        if version > format::VERSION {
            if !ends_with_its_checksum(&text) {
                return Err(damaged("does not match its checksum"));
            }
            return Err(OpenError::Newer { path: self.path.into(), found: version, known: format::VERSION });
        }
        let shards = number(lines.next(), "shards").and_then(|shards| u16::try_from(shards).ok());
        let shards = shards.filter(|shards| *shards > 0).ok_or_else(|| damaged("names no number of shards"))?;
        if text != format_text(version, shards) {
            return Err(damaged("does not match its checksum"));
        }
        Ok((version, shards))
    }

    /// The same, if nothing else is missing.
    fn read_format_of_all(&self) -> Result<(u32, u16), OpenError> {
        let format = self.read_format()?;
        for name in [DB, JOURNAL] {
            if !self.exists(name)? {
                return Err(self.damaged(format!("the folder {name} is missing")));
            }
        }
        Ok(format)
    }

    fn damaged(&self, what: String) -> OpenError {
        OpenError::Damaged { path: self.path.into(), what }
    }
}

/// The content of FORMAT. The checksum keeps a flipped bit from turning one number into another. In every version the first
/// line names the version, and the last one is a checksum of all others.
fn format_text(version: u32, shards: u16) -> String {
    let lines = format!("wayleave {version}\nshards {shards}\n");
    format!("{lines}{}", checksum_of(&lines))
}

fn checksum_of(lines: &str) -> String {
    format!("checksum {:016x}\n", xxhash_rust::xxh3::xxh3_64(lines.as_bytes()))
}

fn ends_with_its_checksum(text: &str) -> bool {
    let lines = text.rfind("checksum ").and_then(|at| text.get(..at));
    lines.is_some_and(|lines| text.strip_prefix(lines) == Some(&*checksum_of(lines)))
}

fn number(line: Option<&str>, word: &str) -> Option<u32> {
    line?.strip_prefix(word)?.strip_prefix(' ')?.parse().ok()
}

/// Creates a folder and its ancestors.
pub(crate) fn make_folder(disk: &dyn Disk, path: &Path) -> Result<(), OpenError> {
    let failed = |error| OpenError::io(path, error);
    if disk.exists(path).map_err(failed)? {
        return Ok(());
    }
    let absolute = std::path::absolute(path).map_err(failed)?;
    if let Some(above) = absolute.parent() {
        make_folder(disk, above)?;
    }
    disk.create_dir(path).map_err(failed)
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
