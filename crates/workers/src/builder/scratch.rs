//! Temporary folders for WARC files and indexes that are being built. A builder that is killed cannot remove its own, so
//! every builder removes those of dead ones when it starts.
//!
//! A folder is locked (flock) by the process that uses it, and the kernel drops the lock when that process ends, however it
//! ends. So a folder that can be locked belongs to nobody. Interleavings: a builder starts between the creation of a folder and
//! its lock, takes it for dead and removes it: the creator looks, once it has the lock, whether the folder is still there, and
//! makes another one if not. Two builders start at once: one has the lock and removes the folder, the other leaves it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

const PREFIX: &str = "wayleave-build-";

/// A temporary folder of this process. It is removed when dropped.
#[derive(Debug)]
pub(super) struct Scratch {
    // Removed before the lock ends.
    folder: TempDir,
    _lock: File,
}

impl Scratch {
    /// A new folder below `parent`.
    pub fn create(parent: &Path) -> io::Result<Self> {
        const TRIES: usize = 10;
        for _ in 0..TRIES {
            let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
            if let Some(lock) = lock(folder.path())? {
                return Ok(Self { folder, _lock: lock });
            }
        }
        Err(io::Error::other(format!("other builders remove new folders in {}", parent.display())))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Locks a folder; none if another process has it, or it was removed.
fn lock(folder: &Path) -> io::Result<Option<File>> {
    let file = match File::open(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => return Ok(None),
        Err(fs::TryLockError::Error(error)) => return Err(error),
    }
    let still =
        fs::symlink_metadata(folder).is_ok_and(|found| file.metadata().is_ok_and(|own| own.ino() == found.ino()));
    Ok(still.then_some(file))
}

/// Removes the folders of builders that have died. Returns how many. What cannot be removed, such as another user's, stays.
pub(super) fn remove_dead(parent: &Path) -> usize {
    let Ok(entries) = fs::read_dir(parent) else { return 0 };
    let ours = |entry: &fs::DirEntry| {
        let named = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        // A symbolic link is not followed.
        named && entry.file_type().is_ok_and(|kind| kind.is_dir())
    };
    let folders: Vec<PathBuf> = entries.flatten().filter(ours).map(|entry| entry.path()).collect();
    folders.iter().filter(|folder| remove_if_dead(folder)).count()
}

fn remove_if_dead(folder: &Path) -> bool {
    match lock(folder) {
        Ok(Some(_lock)) => fs::remove_dir_all(folder).is_ok(),
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

    #[test]
    fn folders_of_dead_builders_go_and_those_of_live_ones_and_others_stay() {
        let parent = tempfile::tempdir().unwrap();
        let live = Scratch::create(parent.path()).unwrap();
        fs::write(live.path().join("input.warc.gz"), "x").unwrap();
        for dead in ["wayleave-build-1", "wayleave-build-2"] {
            fs::create_dir_all(parent.path().join(dead).join("index")).unwrap();
            fs::write(parent.path().join(dead).join("index/part"), "x").unwrap();
        }
        for other in ["wayleave-data", "build"] {
            fs::create_dir(parent.path().join(other)).unwrap();
        }
        let elsewhere = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), parent.path().join("wayleave-build-link")).unwrap();
        fs::write(parent.path().join("wayleave-build-file"), "x").unwrap();
        assert_eq!(remove_dead(parent.path()), 2);
        assert!(live.path().join("input.warc.gz").exists() && elsewhere.path().exists());
        let own = live.path().file_name().unwrap().to_str().unwrap().to_owned();
        let mut left = vec!["build", "wayleave-build-file", "wayleave-build-link", "wayleave-data", &own];
        left.sort_unstable();
        assert_eq!(names(parent.path()), left);
        assert_eq!(remove_dead(parent.path()), 0, "once");
        drop(live);
        assert!(!names(parent.path()).contains(&own), "a builder removes its own");
    }

    /// The lock of another process, which is killed.
    #[test]
    fn a_folder_is_dead_once_its_process_is_killed_and_not_before() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("wayleave-build-x");
        fs::create_dir(&folder).unwrap();
        // It ends with its input at the latest, so that a test that fails leaves no process behind.
        let script = "exec 9<\"$1\"; flock -x 9; echo locked; read -r _";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(&folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut told = [0; 6];
        io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut told).unwrap();
        assert_eq!((&told, remove_dead(parent.path())), (b"locked", 0));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(remove_dead(parent.path()), 1);
        assert!(!folder.exists());
    }

    #[test]
    fn a_folder_that_was_removed_before_its_lock_is_not_used() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("wayleave-build-x");
        fs::create_dir(&folder).unwrap();
        let held = lock(&folder).unwrap().unwrap();
        assert!(lock(&folder).unwrap().is_none(), "another has it");
        fs::remove_dir(&folder).unwrap();
        assert!(lock(&folder).unwrap().is_none());
        fs::create_dir(&folder).unwrap();
        assert!(lock(&folder).unwrap().is_some(), "a new folder of this name has a lock of its own");
        drop(held);
    }
}
