//! Temporary folders for WARC files and indexes that are being built. A builder that is killed cannot remove its own, so
//! every builder removes those of dead ones of its machine when it starts.
//!
//! A folder is locked (flock) by the process that uses it, and the kernel drops the lock when that process ends, however it
//! ends. So a folder that can be locked has no owner. Interleavings: a builder starts between the creation of a
//! folder and its lock, takes it for dead and removes it: the creator looks, once it has the lock, whether the folder
//! is still there, and makes another one if not. Two builders start at once: one has the lock and removes the folder,
//! the other leaves it.
//!
//! The parent folder may be shared by several machines (NFS). Some such file systems have no locks for folders, others keep
//! them to each machine. So the name of a folder has that of its machine, and no other machine touches it; and where folders
//! cannot be locked, they are used without a lock, and those of dead builders stay.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::folder_lock::is_not_supported;

const PREFIX: &str = "wayleave-build-";

/// What the folders of this machine begin with. No name of a machine has the underscore, so none is the beginning of another.
fn prefix(machine: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '.' };
    format!("{PREFIX}{}_", machine.chars().map(plain).collect::<String>())
}

fn this_machine() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A temporary folder of this process. It is removed when dropped.
#[derive(Debug)]
pub(super) struct Scratch {
    // Removed before the lock ends.
    folder: TempDir,
    _lock: Option<File>,
}

impl Scratch {
    /// A new folder below `parent`.
    pub fn create(parent: &Path) -> io::Result<Self> {
        Self::create_with(parent, File::try_lock)
    }

    fn create_with(parent: &Path, try_lock: TryLock) -> io::Result<Self> {
        const TRIES: usize = 10;
        let prefix = prefix(&this_machine());
        for _ in 0..TRIES {
            let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in(parent)?;
            match lock(folder.path(), try_lock)? {
                Lock::Held(lock) => return Ok(Self { folder, _lock: Some(lock) }),
                Lock::NotSupported => return Ok(Self { folder, _lock: None }),
                Lock::Taken => {}
            }
        }
        Err(io::Error::other(format!("other builders remove new folders in {}", parent.display())))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// How folders are locked.
type TryLock = fn(&File) -> Result<(), fs::TryLockError>;

/// What became of an attempt to lock a folder.
#[derive(Debug)]
enum Lock {
    Held(File),
    /// Another process has it, or it was removed.
    Taken,
    /// Folders of this file system cannot be locked.
    NotSupported,
}

fn lock(folder: &Path, try_lock: TryLock) -> io::Result<Lock> {
    let file = match File::open(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Lock::Taken),
        file => file?,
    };
    match try_lock(&file) {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => return Ok(Lock::Taken),
        Err(fs::TryLockError::Error(error)) if is_not_supported(&error) => return Ok(Lock::NotSupported),
        Err(fs::TryLockError::Error(error)) => return Err(error),
    }
    let still =
        fs::symlink_metadata(folder).is_ok_and(|found| file.metadata().is_ok_and(|own| own.ino() == found.ino()));
    Ok(if still { Lock::Held(file) } else { Lock::Taken })
}

/// Removes the folders of builders of this machine that have died. Returns how many. What cannot be locked or removed, such
/// as another user's, stays.
pub(super) fn remove_dead(parent: &Path) -> usize {
    remove_dead_of(&this_machine(), parent, File::try_lock)
}

fn remove_dead_of(machine: &str, parent: &Path, try_lock: TryLock) -> usize {
    let Ok(entries) = fs::read_dir(parent) else { return 0 };
    let prefix = prefix(machine);
    let ours = |entry: &fs::DirEntry| {
        let named = entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix));
        // A symbolic link is not followed.
        named && entry.file_type().is_ok_and(|kind| kind.is_dir())
    };
    let folders: Vec<PathBuf> = entries.flatten().filter(ours).map(|entry| entry.path()).collect();
    folders.iter().filter(|folder| remove_if_dead(folder, try_lock)).count()
}

fn remove_if_dead(folder: &Path, try_lock: TryLock) -> bool {
    match lock(folder, try_lock) {
        Ok(Lock::Held(_lock)) => fs::remove_dir_all(folder).is_ok(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn names(parent: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(parent).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The name of a folder of this machine.
    fn own(name: &str) -> String {
        prefix(&this_machine()) + name
    }

    /// A folder that several machines share, on a file system that keeps locks to each machine.
    #[test]
    fn folders_of_other_machines_stay() {
        let parent = tempfile::tempdir().unwrap();
        for name in ["crawl_1", "crawl-2_1", "crawl.example_1"] {
            fs::create_dir(parent.path().join(format!("{PREFIX}{name}"))).unwrap();
        }
        fs::create_dir(parent.path().join(format!("{PREFIX}nameless"))).unwrap();
        assert_eq!(remove_dead_of("crawl", parent.path(), File::try_lock), 1);
        assert_eq!(remove_dead_of("crawl_2", parent.path(), File::try_lock), 0);
        assert_eq!(remove_dead_of("crawl-2", parent.path(), File::try_lock), 1);
        assert_eq!(names(parent.path()), ["wayleave-build-crawl.example_1", "wayleave-build-nameless"]);
    }

    /// As on NFS.
    #[test]
    fn folders_that_cannot_be_locked_are_used_and_not_removed() {
        for errno in [rustix::io::Errno::BADF, rustix::io::Errno::NOLCK] {
            let refuse: TryLock = match errno {
                rustix::io::Errno::BADF => |_| Err(fs::TryLockError::Error(rustix::io::Errno::BADF.into())),
                _ => |_| Err(fs::TryLockError::Error(rustix::io::Errno::NOLCK.into())),
            };
            let parent = tempfile::tempdir().unwrap();
            let live = Scratch::create_with(parent.path(), refuse).unwrap();
            fs::write(live.path().join("input.warc.gz"), "x").unwrap();
            assert_eq!(remove_dead_of(&this_machine(), parent.path(), refuse), 0);
            assert!(live.path().join("input.warc.gz").exists());
            drop(live);
            assert!(names(parent.path()).is_empty(), "a builder removes its own");
        }
    }

    #[test]
    fn folders_of_dead_builders_go_and_those_of_live_ones_and_others_stay() {
        let parent = tempfile::tempdir().unwrap();
        let live = Scratch::create(parent.path()).unwrap();
        fs::write(live.path().join("input.warc.gz"), "x").unwrap();
        for dead in ["1", "2"].map(own) {
            fs::create_dir_all(parent.path().join(&dead).join("index")).unwrap();
            fs::write(parent.path().join(&dead).join("index/part"), "x").unwrap();
        }
        for other in ["wayleave-data", "build"] {
            fs::create_dir(parent.path().join(other)).unwrap();
        }
        let elsewhere = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), parent.path().join(own("link"))).unwrap();
        fs::write(parent.path().join(own("file")), "x").unwrap();
        assert_eq!(remove_dead(parent.path()), 2);
        assert!(live.path().join("input.warc.gz").exists() && elsewhere.path().exists());
        let mine = live.path().file_name().unwrap().to_str().unwrap().to_owned();
        let mut left = vec!["build".to_owned(), own("file"), own("link"), "wayleave-data".to_owned(), mine.clone()];
        left.sort_unstable();
        assert_eq!(names(parent.path()), left);
        assert_eq!(remove_dead(parent.path()), 0, "once");
        drop(live);
        assert!(!names(parent.path()).contains(&mine), "a builder removes its own");
    }

    /// The lock of another process, which is killed.
    #[test]
    fn a_folder_is_dead_once_its_process_is_killed_and_not_before() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join(own("x"));
        fs::create_dir(&folder).unwrap();
        // It ends with its input at the latest, so that a test that fails leaves no process behind.
        let script = "exec 9<\"$1\"; flock -x 9; echo locked; read -r _";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(&folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = [0; 6];
        io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        assert_eq!((&line, remove_dead(parent.path())), (b"locked", 0));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(remove_dead(parent.path()), 1);
        assert!(!folder.exists());
    }

    #[test]
    fn a_folder_that_was_removed_before_its_lock_is_not_used() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join(own("x"));
        fs::create_dir(&folder).unwrap();
        let look = || lock(&folder, File::try_lock).unwrap();
        let held = look();
        assert!(matches!(held, Lock::Held(_)));
        assert!(matches!(look(), Lock::Taken), "another has it");
        fs::remove_dir(&folder).unwrap();
        assert!(matches!(look(), Lock::Taken));
        fs::create_dir(&folder).unwrap();
        assert!(matches!(look(), Lock::Held(_)), "a new folder of this name has a lock of its own");
        drop(held);
    }
}
