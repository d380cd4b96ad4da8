//! Orphans: files that the manifest does not name, left by a kill during a flush or merge.
//!
//! The tree removes them when it is opened. But if it is the manifest that is old (a file system may go back to an earlier
//! state), they hold the newest rows. Only the journal decides: if it continues where the tables end, nothing is
//! missing. So they are set aside until it was replayed, and put back if the start is refused.

use std::fs;
use std::io::{ErrorKind, Result};
use std::path::{Path, PathBuf};

use crate::lsm::TABLES;
use crate::manifest::ListedTable;

/// Their folder, inside the database's.
const ASIDE: &str = "aside";

/// The files that are set aside. Dropping this puts them back.
#[derive(Debug)]
pub(crate) struct Orphans {
    database: PathBuf,
    /// Whether they are not needed any more.
    are_gone: bool,
}

impl Orphans {
    /// Puts back what a killed start has set aside.
    pub(crate) fn put_back(database: &Path) -> Result<Self> {
        let orphans = Self { database: database.into(), are_gone: false };
        orphans.restore()?;
        Ok(orphans)
    }

    /// Sets aside what the newest version does not name. Fails if the disk fails. Everything is where it was.
    pub(crate) fn set_aside(self, version: u64, listed: &[ListedTable]) -> Result<Self> {
        let current = self.database.join(format!("v{version}"));
        let is_version = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('v'));
        let versions = files(&self.database)?.into_iter().filter(|path| is_version(path) && *path != current);
        let is_listed = |path: &Path| listed.iter().any(|table| table.path == path);
        let tables = files(&self.database.join(TABLES))?.into_iter().filter(|path| !is_listed(path));
        for path in versions.chain(tables) {
            match fs::create_dir(self.database.join(ASIDE)) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            let name = path.file_name().unwrap_or_default();
            fs::rename(&path, self.database.join(ASIDE).join(name))?;
        }
        Ok(self)
    }

    /// Removes them.
    pub(crate) fn remove(mut self) {
        self.are_gone = true;
        match fs::remove_dir_all(self.database.join(ASIDE)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                tracing::warn!(%error, "cannot remove files of an unfinished flush or merge; the next start removes them");
            }
            _ => {}
        }
    }

    fn restore(&self) -> Result<()> {
        let aside = self.database.join(ASIDE);
        for path in files(&aside)? {
            let name = path.file_name().unwrap_or_default();
            let is_table = name.to_string_lossy().parse::<u64>().is_ok();
            let place = if is_table { self.database.join(TABLES) } else { self.database.clone() };
            let place = place.join(name);
            // A store that was in use since has another file of that name.
            if place.try_exists()? { fs::remove_file(&path)? } else { fs::rename(&path, place)? }
        }
        match fs::remove_dir(&aside) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for Orphans {
    fn drop(&mut self) {
        if !self.are_gone
            && let Err(error) = self.restore()
        {
            tracing::warn!(%error, "cannot put back files of an unfinished flush or merge; the next start does");
        }
    }
}

/// The files in a folder, which may be missing.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}
