//! What is known to be damaged: told by reads and the scrub, shown by the store's health. Reads fail by themselves.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::lsm::TableFile;

/// Damaged files that are remembered; more are counted only.
const FILES_MAX: usize = 100;

/// The damaged files of a store.
#[derive(Debug, Default)]
pub(crate) struct DamageLog(Mutex<BTreeMap<PathBuf, String>>);

impl DamageLog {
    /// Notes a damaged file; true if it was not known.
    fn add(&self, path: &Path, what: &str) -> bool {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = !files.contains_key(path) && files.len() < FILES_MAX;
        if new {
            files.insert(path.into(), what.into());
        }
        new
    }

    /// Notes a damaged table, and logs it once.
    pub(crate) fn tell(&self, table: &TableFile, what: &str) {
        if self.add(&table.path, what) {
            tracing::error!(
                table.path = %table.path.display(), table.first_key = ?table.first, table.last_key = ?table.last, what,
                "a table is damaged: rows in it cannot be read; save the rest with `wayleave salvage`, or restore a backup"
            );
        }
    }

    /// Forgets a file that was found sound.
    pub(crate) fn remove(&self, path: &Path) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(path);
    }

    /// Forgets files that are not among those of the store any more.
    pub(crate) fn keep(&self, is_current: impl Fn(&Path) -> bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|path, _| is_current(path));
    }

    /// The number of damaged files.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// One sentence for operators; `None` if nothing is damaged.
    pub(crate) fn summary(&self) -> Option<String> {
        let files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (path, what) = files.first_key_value()?;
        let more = if files.len() > 1 { format!(", and {} more files", files.len() - 1) } else { String::new() };
        Some(format!(
            "table {} is damaged ({what}){more}: rows in it cannot be read, all else goes on; `wayleave salvage` saves the rest",
            path.display()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_files_are_named_until_they_are_gone() {
        let log = DamageLog::default();
        assert_eq!(log.summary(), None);
        assert!(log.add(Path::new("/t/7"), "bad block") && !log.add(Path::new("/t/7"), "bad block"));
        assert!(log.add(Path::new("/t/8"), "bad block"));
        let told = log.summary().unwrap();
        assert!(told.contains("/t/7") && told.contains("and 1 more files"), "{told}");
        log.keep(|path| path == Path::new("/t/8"));
        assert!(log.summary().unwrap().contains("/t/8"));
        log.keep(|_| false);
        assert_eq!(log.summary(), None);
    }
}
