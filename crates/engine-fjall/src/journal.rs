//! The newest journal file, synced by ourselves. The database would sync it under the lock that every batch needs; so it
//! only hands its buffer to the system, and the wait for the disk happens here, where no batch waits for it.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};

const SUFFIX: &str = "jnl";

/// The journal that batches go to now.
pub(crate) struct Journal {
    folder: PathBuf,
    id: u64,
    file: File,
}

impl Journal {
    /// The newest journal of a database.
    ///
    /// # Errors
    /// If there is none or it cannot be opened.
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        let mut newest = None;
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            let id = path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok());
            if path.extension().is_some_and(|suffix| suffix == SUFFIX) {
                newest = newest.max(id);
            }
        }
        let id = newest.ok_or_else(|| Error::new(ErrorKind::NotFound, "the database has no journal"))?;
        let file = File::open(folder.join(format!("{id}.{SUFFIX}")))?;
        Ok(Self { folder: folder.into(), id, file })
    }

    /// Makes durable what the database has handed to the system before this call.
    ///
    /// A journal is synced by the database before it begins the next one. So if there is a next one by now, all that the
    /// older ones hold is durable, and the newest is the only one that need be synced.
    ///
    /// # Errors
    /// If the disk fails.
    pub(crate) fn sync(&mut self) -> Result<()> {
        if self.folder.join(format!("{}.{SUFFIX}", self.id + 1)).exists() {
            *self = Self::open(&self.folder)?;
        }
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_journal_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Journal::open(folder.path()).is_err());
        for id in [2, 10, 9] {
            std::fs::write(folder.path().join(format!("{id}.jnl")), "x").unwrap();
        }
        std::fs::write(folder.path().join("11.tmp"), "x").unwrap();
        let mut journal = Journal::open(folder.path()).unwrap();
        assert_eq!(journal.id, 10);
        std::fs::write(folder.path().join("11.jnl"), "x").unwrap();
        journal.sync().unwrap();
        assert_eq!(journal.id, 11);
    }
}
