//! Keeps a second worker out of the folder of one that runs.
//!
//! Two crawlers or builders with one name would both report under it, with the same token, and each would end the other's
//! registration. Two index servers in one folder would delete each other's chunks. So a worker locks (flock) a file of the
//! folder, and the kernel drops the lock when its process ends, however it ends: a restart after `kill -9` is not refused.
//! Workers with different names may share a folder; index servers may not.
//!
//! The file is never removed. If it were, a worker could lock the file that has just been unlinked while a third one makes
//! and locks a new one. Interleaving: a worker that is refused between the lock of another and its note reads the note of an
//! earlier holder; it is refused anyway, with the wrong process id.
//!
//! Some network file systems have no locks, or have none that other machines see. Where a lock is not supported, the worker
//! warns and continues without one.

use std::fs::{self, File, TryLockError};
use std::io::{self, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use crate::digest::sha256;

/// A folder that no other worker may use in the same way. The lock ends when this is dropped.
#[derive(Debug)]
#[must_use = "the lock ends when it is dropped"]
pub struct FolderLock {
    file: Option<File>,
}

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Error {
    #[error(
        "worker '{id}' already runs with the folder {}{holder}: stop it, or give this one another --id or --store",
        folder.display()
    )]
    Id {
        folder: PathBuf,
        id: String,
        /// Which process has it, if that is known.
        holder: String,
    },
    #[error("an index server already runs with the folder {}{holder}: stop it, or give this one another --data", folder.display())]
    Folder {
        folder: PathBuf,
        /// Which process has it, if that is known.
        holder: String,
    },
    #[error("{}: {cause}", path.display())]
    File { path: PathBuf, cause: io::Error },
}

impl FolderLock {
    /// For a crawler or builder, which may share a folder with others that have other names. Fails if one with this
    /// name runs in the folder, or the folder cannot be used.
    pub fn of_id(folder: &Path, id: &str) -> Result<Self, Error> {
        let digest = sha256(id.as_bytes());
        let file = folder.join(format!(".lock-{}", digest.get(7..19).unwrap_or_default()));
        let taken = |holder| Error::Id { folder: folder.to_owned(), id: id.to_owned(), holder };
        lock(folder, &file, File::try_lock, taken)
    }

    /// For an index server, which shares its folder with no other. Fails if another one runs in the folder, or the
    /// folder cannot be used.
    pub fn of_folder(folder: &Path) -> Result<Self, Error> {
        let taken = |holder| Error::Folder { folder: folder.to_owned(), holder };
        lock(folder, &folder.join(".lock"), File::try_lock, taken)
    }

    /// Notes the name of the worker for the error of a second one: an index server reads its name from the folder, which it
    /// must lock before.
    pub fn note(&mut self, id: &str) {
        if let Some(file) = &mut self.file {
            note(file, Some(id));
        }
    }
}

fn lock(
    folder: &Path,
    path: &Path,
    try_lock: impl FnOnce(&File) -> Result<(), TryLockError>,
    taken: impl FnOnce(String) -> Error,
) -> Result<FolderLock, Error> {
    let wrong = |cause| Error::File { path: path.to_owned(), cause };
    fs::create_dir_all(folder).map_err(wrong)?;
    // NFS needs a file that is open for writing. It is not truncated: it may be another's.
    let mut file = File::options().write(true).create(true).truncate(false).open(path).map_err(wrong)?;
    match try_lock(&file) {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(taken(holder(path))),
        Err(TryLockError::Error(error)) if is_not_supported(&error) => {
            tracing::warn!(
                folder = %folder.display(), error = %error,
                "the folder cannot be locked: a second worker with the same name and folder would not be noticed"
            );
            return Ok(FolderLock { file: None });
        }
        Err(TryLockError::Error(error)) => return Err(wrong(error)),
    }
    note(&mut file, None);
    Ok(FolderLock { file: Some(file) })
}

/// Notes the holder of the lock. On a full disk it is held without a note: an index server can still serve what it
/// has.
fn note(file: &mut File, id: Option<&str>) {
    if let Err(error) = write_note(file, id) {
        tracing::warn!(error = %error, "the lock file of the folder cannot name its holder");
    }
}

fn write_note(file: &mut File, id: Option<&str>) -> io::Result<()> {
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let id = id.map(|id| format!("'{id}', ")).unwrap_or_default();
    file.set_len(0)?;
    file.seek(io::SeekFrom::Start(0))?;
    file.write_all(format!("{id}process {} on {machine}\n", std::process::id()).as_bytes())
}

/// What the holder of a lock has noted.
fn holder(path: &Path) -> String {
    let note = fs::read_to_string(path).unwrap_or_default();
    let note: String = note.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control()).take(100).collect();
    if note.is_empty() { note } else { format!(" ({note})") }
}

/// Whether this file system has no locks. NFS emulates flock by byte-range locks, which need a file that is open for
/// writing, and a lock daemon.
pub(crate) fn is_not_supported(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let none = [Errno::BADF, Errno::NOLCK, Errno::NOSYS, Errno::OPNOTSUPP, Errno::INVAL];
    none.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_worker_of_the_same_folder_is_refused_until_the_first_ended() {
        let folder = tempfile::tempdir().unwrap();
        let first = FolderLock::of_id(folder.path(), "crawler-1").unwrap();
        let refused = FolderLock::of_id(folder.path(), "crawler-1").unwrap_err().to_string();
        let process = format!("process {} on ", std::process::id());
        for part in ["'crawler-1'", folder.path().to_str().unwrap(), &process, "another --id or --store"] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        let _other = FolderLock::of_id(folder.path(), "crawler-2").unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let _elsewhere = FolderLock::of_id(elsewhere.path(), "crawler-1").unwrap();
        drop(first);
        let _again = FolderLock::of_id(folder.path(), "crawler-1").unwrap();
    }

    #[test]
    fn an_index_server_has_its_folder_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        let mut first = FolderLock::of_folder(&path).unwrap();
        let refused = FolderLock::of_folder(&path).unwrap_err().to_string();
        assert!(refused.contains(path.to_str().unwrap()) && refused.contains("--data"), "{refused}");
        first.note("index-1");
        let refused = FolderLock::of_folder(&path).unwrap_err().to_string();
        assert!(refused.contains(&format!("('index-1', process {} on ", std::process::id())), "{refused}");
    }

    /// As on NFS.
    #[test]
    fn a_folder_that_cannot_be_locked_is_used_without_a_lock() {
        let folder = tempfile::tempdir().unwrap();
        let try_lock = |_: &File| Err(TryLockError::Error(rustix::io::Errno::NOLCK.into()));
        let taken = |_| unreachable!("it is not taken");
        let locked = lock(folder.path(), &folder.path().join(".lock"), try_lock, taken).unwrap();
        assert!(locked.file.is_none());
    }
}
