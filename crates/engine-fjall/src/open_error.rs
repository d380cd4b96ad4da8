//! Why a data folder cannot be opened, and the remedy.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use wayleave_engine::Error;

use crate::manifest::BadFile;
use crate::replay::{Damage, Failure};
use crate::trouble;

/// Why a data folder cannot be opened. Every message names the folder and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has the folder open.
    #[error(
        "data folder {} is in use by another process: stop that one, or choose another folder",
        path.display()
    )]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The folder was written by a newer program.
    #[error(
        "data folder {} has format {found}, this program reads formats up to {known}: use a newer wayleave",
        path.display()
    )]
    Newer {
        /// The folder.
        path: PathBuf,
        /// Its format version.
        found: u32,
        /// The newest format version that this program reads.
        known: u32,
    },
    /// The folder is a data folder but its content is invalid.
    #[error(
        "data folder {} is damaged ({what}): nothing was changed. `wayleave check` lists every damaged file; restore it from \
         a backup, or save what can be read with `wayleave salvage`",
        path.display()
    )]
    Damaged {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Part of the journal that was durable is missing.
    #[error(
        "data folder {} is damaged ({} at byte {offset}: {what}): restore it from a backup{}",
        path.display(),
        file.display(),
        remedy(repair.as_ref())
    )]
    JournalDamaged {
        /// The folder.
        path: PathBuf,
        /// The damaged file.
        file: PathBuf,
        /// The offset of the damage.
        offset: u64,
        /// What is wrong there.
        what: String,
        /// What a repair would do; `None` if a repair cannot help.
        repair: Option<String>,
    },
    /// The folder contains something else.
    #[error(
        "folder {} is not empty and not a data folder of wayleave ({found} is in it): choose an empty or a new folder",
        path.display()
    )]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// An entry found in it.
        found: String,
    },
    /// The path is not a folder.
    #[error("{} is not a folder: choose a folder; it is created if it does not exist", path.display())]
    NotAFolder {
        /// The path.
        path: PathBuf,
    },
    /// The process lacks permission.
    #[error(
        "no permission for {}: let the user that runs wayleave read and write the data folder, or choose another",
        path.display()
    )]
    Denied {
        /// The file or folder.
        path: PathBuf,
    },
    /// The disk is full.
    #[error("no space left for {}: free some space, then restart", path.display())]
    Full {
        /// The file or folder.
        path: PathBuf,
    },
    /// An option is invalid.
    #[error("{0}")]
    Options(String),
    /// Any other I/O error.
    #[error("cannot open {}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
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
            Failure::Damaged(Damage { file, offset, what, repair }) => {
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
            Error::Corrupt(what) => Self::Damaged { path: path.into(), what },
            other => Self::io(path, std::io::Error::other(other)),
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
