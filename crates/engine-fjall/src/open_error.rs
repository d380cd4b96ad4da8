//! Why a data folder cannot be opened, and the remedy.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use wayleave_engine::Error;

use crate::journal_damage::Damage;
use crate::manifest::BadFile;
use crate::replay::Failure;
use crate::trouble;

/// Why a data folder cannot be opened. Every message names the folder and the remedy.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum OpenError {
    #[error(
        "data folder {} is in use by another process: stop that one, or choose another folder",
        path.display()
    )]
    InUse { path: PathBuf },
    #[error(
        "data folder {} has format {found}, this program reads formats up to {known}: use a newer wayleave",
        path.display()
    )]
    Newer {
        path: PathBuf,
        found: u32,
        /// The newest format version that this program reads.
        known: u32,
    },
    #[error(
        "data folder {} is damaged ({what}): nothing was changed. `wayleave check` lists every damaged file; restore it from \
         a backup, or save what can be read with `wayleave salvage`",
        path.display()
    )]
    Damaged { path: PathBuf, what: String },
    #[error(
        "data folder {} is damaged ({what}): nothing was changed. Too little can be read to salvage the rest: restore it from a \
         backup. `wayleave check` lists every damaged file",
        path.display()
    )]
    Lost { path: PathBuf, what: String },
    #[error(
        "data folder {} is damaged ({} at byte {offset}: {what}): nothing was changed. Restore it from a backup, or save what \
         comes before the damage with `wayleave salvage`{}",
        path.display(),
        file.display(),
        remedy(repair.as_ref())
    )]
    JournalDamaged {
        path: PathBuf,
        file: PathBuf,
        offset: u64,
        what: String,
        /// What a repair would do; `None` if a repair cannot help.
        repair: Option<String>,
    },
    #[error(
        "folder {} is not empty and not a data folder of wayleave ({found} is in it): choose an empty or a new folder",
        path.display()
    )]
    Foreign { path: PathBuf, found: String },
    #[error(
        "a copy, restore or salvage into folder {} was interrupted, so there is no store: run the same command again, or remove the folder",
        path.display()
    )]
    Unfinished { path: PathBuf },
    #[error("{} is not a folder: choose a folder; it is created if it does not exist", path.display())]
    NotAFolder { path: PathBuf },
    #[error(
        "no permission for {}: let the user that runs wayleave read and write the data folder, or choose another",
        path.display()
    )]
    Denied { path: PathBuf },
    #[error("no space left for {}: free some space, then restart", path.display())]
    Full { path: PathBuf },
    #[error("{0}")]
    Options(String),
    #[error("cannot open {}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
}

fn remedy(repair: Option<&String>) -> String {
    repair.map_or_else(String::new, |does| format!(", or start once with --repair, {does}"))
}

impl OpenError {
    /// Classifies an I/O error about a path.
    pub(crate) fn io(path: &Path, source: std::io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Self::Denied { path },
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::Full { path },
            ErrorKind::NotADirectory => Self::NotAFolder { path },
            _ => Self::Io { path, source },
        }
    }

    /// Classifies an error of the journal.
    pub(crate) fn journal(path: &Path, failure: Failure) -> Self {
        match failure {
            Failure::Io(error, file) => Self::io(file.as_deref().unwrap_or(path), error),
            Failure::Damaged(Damage { file, offset, what, repair, .. }) => {
                let file = file.strip_prefix(path).unwrap_or(&file).to_path_buf();
                let repair = repair.map(|dropped| dropped.to_string());
                Self::JournalDamaged { path: path.into(), file, offset, what, repair }
            }
        }
    }

    /// Classifies an error of the tables.
    pub(crate) fn tables(path: &Path, error: lsm_tree::Error) -> Self {
        match error {
            error if trouble::is_damage(&error) => Self::Damaged { path: path.into(), what: trouble::describe(&error) },
            lsm_tree::Error::Io(io) => Self::io(path, io),
            other => Self::Damaged { path: path.into(), what: trouble::describe(&other) },
        }
    }

    /// Classifies an error of one table.
    pub(crate) fn table(folder: &Path, table: &Path, error: lsm_tree::Error) -> Self {
        match error {
            lsm_tree::Error::Io(io) if !trouble::is_damage_io(&io) => Self::io(table, io),
            error => Self::file(folder, table, &trouble::describe(&error)),
        }
    }

    /// Classifies an error of the opened store.
    pub(crate) fn engine(path: &Path, error: Error) -> Self {
        match error {
            Error::Corrupt(_) => Self::Damaged { path: path.into(), what: trouble::cause(&error) },
            other => Self::io(path, std::io::Error::other(other)),
        }
    }

    /// What a salvage cannot get past: it must not be advised again.
    pub(crate) fn past_salvage(self) -> Self {
        match self {
            Self::Damaged { path, what } => Self::Lost { path, what },
            other => other,
        }
    }

    /// A file that the manifest names, or the manifest itself.
    pub(crate) fn bad_file(folder: &Path, bad: &BadFile) -> Self {
        match bad.io {
            Some(kind) if !bad.is_damage => Self::io(&bad.path, kind.into()),
            _ => Self::file(folder, &bad.path, &bad.what),
        }
    }

    /// A damaged or missing file of a data folder.
    pub(crate) fn file(folder: &Path, file: &Path, what: &str) -> Self {
        let name = file.strip_prefix(folder).unwrap_or(file).display();
        Self::Damaged { path: folder.into(), what: format!("{name}: {what}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_machine_reports_becomes_a_remedy() {
        // The numbers are EACCES, EROFS, ENOSPC and ENOTDIR.
        for (errno, remedy) in [
            (13, "no permission for /x"),
            (30, "no permission for /x"),
            (28, "free some space"),
            (20, "choose a folder"),
        ] {
            let text = OpenError::io(Path::new("/x"), std::io::Error::from_raw_os_error(errno)).to_string();
            assert!(text.contains(remedy), "{errno}: {text}");
        }
    }

    #[test]
    fn a_damaged_file_is_named_within_its_folder() {
        let text = OpenError::file(Path::new("/x"), Path::new("/x/db/current"), "it is missing").to_string();
        assert!(text.contains("data folder /x is damaged (db/current: it is missing)"), "{text}");
    }
}
