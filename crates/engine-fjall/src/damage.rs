//! The known damage: reads, merges and the scrub report it, and the store's health shows it. Reads fail on their own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::lsm::TableFile;
use crate::manifest::BadFile;

/// Damaged files that are remembered; more are counted only.
const FILES_MAX: usize = 100;

/// The damaged files of a store.
#[derive(Debug, Default)]
pub(crate) struct DamageLog(Mutex<BTreeMap<PathBuf, Found>>);

/// What was found in a file.
#[derive(Clone, Debug)]
struct Found {
    what: String,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Table,
    /// A table that no merge can read.
    UnmergedTable,
    /// A file that only a start reads.
    OfStart,
}

impl DamageLog {
    /// Notes a damaged file; true if it was not known.
    fn add(&self, path: &Path, what: &str, kind: Kind) -> bool {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !files.contains_key(path);
        let is_worse = files.get(path).is_some_and(|found| found.kind == Kind::Table && kind == Kind::UnmergedTable);
        if is_worse || is_new && files.len() < FILES_MAX {
            files.insert(path.into(), Found { what: what.into(), kind });
        }
        is_new
    }

    /// Notes a damaged table, and logs it once.
    pub(crate) fn on_read_failure(&self, table: &TableFile, what: &str) {
        if self.add(&table.path, what, Kind::Table) {
            tracing::error!(
                table.path = %table.path.display(), table.first_key = ?table.first, table.last_key = ?table.last, what,
                "a table is damaged: rows in it cannot be read; save the rest with `wayleave salvage`, or restore a backup"
            );
        }
    }

    /// Notes a table that a merge could not read: the next merges leave it out.
    pub(crate) fn on_merge_failure(&self, table: &TableFile, what: &str) {
        self.on_read_failure(table, what);
        self.add(&table.path, what, Kind::UnmergedTable);
        tracing::warn!(
            table.path = %table.path.display(),
            "merges go around the damaged table: what is deleted from now on stays in the files until it is mended"
        );
    }

    /// Notes a damaged file that only a start reads, and logs it once.
    pub(crate) fn on_start(&self, bad: &BadFile) {
        if self.add(&bad.path, &bad.what, Kind::OfStart) {
            tracing::error!(
                file.path = %bad.path.display(), what = bad.what,
                "a file is damaged that the next start needs: make a backup before you stop the server"
            );
        }
    }

    /// Whether merges leave a table out.
    pub(crate) fn stops_merges(&self, path: &Path) -> bool {
        let files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.get(path).is_some_and(|found| found.kind == Kind::UnmergedTable)
    }

    /// Forgets a file that was found sound.
    pub(crate) fn remove(&self, path: &Path) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(path);
    }

    /// Forgets tables that are not among those of the store any more.
    pub(crate) fn keep_tables(&self, is_current: impl Fn(&Path) -> bool) {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|path, found| found.kind == Kind::OfStart || is_current(path));
    }

    /// Keeps of the files that only a start reads those that are damaged now.
    pub(crate) fn set_of_start(&self, bad: &[BadFile]) {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|path, found| found.kind != Kind::OfStart || bad.iter().any(|bad| bad.path == *path));
        drop(files);
        bad.iter().for_each(|bad| self.on_start(bad));
    }

    /// The number of damaged files.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// One sentence for operators; `None` if nothing is damaged.
    pub(crate) fn summary(&self) -> Option<String> {
        let files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A start that will fail is the most urgent.
        let of_start = files.iter().find(|(_, found)| found.kind == Kind::OfStart);
        let (path, Found { what, kind }) = of_start.or_else(|| files.first_key_value())?;
        let more = if files.len() > 1 { format!(", and {} more files", files.len() - 1) } else { String::new() };
        let path = path.display();
        Some(match kind {
            Kind::OfStart => format!(
                "file {path} is damaged ({what}){more}: the next start would be refused; make a backup before you stop the server"
            ),
            Kind::Table | Kind::UnmergedTable => {
                let unmerged = files.values().any(|found| found.kind == Kind::UnmergedTable);
                let merges = if unmerged { "; merges go around it, so deleted rows stay in the files" } else { "" };
                format!(
                    "table {path} is damaged ({what}){more}: rows in it cannot be read, all else goes on{merges}; \
                     `wayleave salvage` saves the rest"
                )
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_files_are_named_until_they_are_gone() {
        let log = DamageLog::default();
        assert_eq!(log.summary(), None);
        let add = |path: &str| log.add(Path::new(path), "bad block", Kind::Table);
        assert!(add("/t/7") && !add("/t/7"));
        assert!(add("/t/8"));
        let text = log.summary().unwrap();
        assert!(text.contains("/t/7") && text.contains("and 1 more files"), "{text}");
        log.keep_tables(|path| path == Path::new("/t/8"));
        assert!(log.summary().unwrap().contains("/t/8"));
        log.keep_tables(|_| false);
        assert_eq!(log.summary(), None);
    }

    #[test]
    fn a_table_excluded_from_merges_is_reported_until_repaired() {
        let (log, path) = (DamageLog::default(), Path::new("/t/7"));
        log.add(path, "bad block", Kind::Table);
        assert!(!log.stops_merges(path));
        log.add(path, "bad block", Kind::UnmergedTable);
        assert!(log.stops_merges(path) && log.summary().unwrap().contains("merges go around it"));
        log.add(path, "bad block", Kind::Table);
        assert!(log.stops_merges(path), "a read that meets it changes nothing");
        log.remove(path);
        assert!(!log.stops_merges(path) && log.count() == 0);
    }

    #[test]
    fn a_file_that_the_next_start_needs_is_named_first_until_it_is_mended() {
        let log = DamageLog::default();
        let bad = BadFile::damaged(Path::new("/z"), "it is too short");
        log.add(Path::new("/t/7"), "bad block", Kind::Table);
        log.set_of_start(&[bad]);
        log.keep_tables(|_| true);
        let text = log.summary().unwrap();
        assert!(text.contains("file /z is damaged (it is too short), and 1 more files: the next start"), "{text}");
        log.set_of_start(&[]);
        assert!(log.summary().unwrap().contains("/t/7"));
    }
}
