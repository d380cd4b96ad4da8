//! The operations on our own files, behind one small trait: everything that the folder and the journal ask of a file system.
//!
//! What the machine may lose is in the contract: bytes survive a power cut once their file was synced, and names (of new,
//! renamed and removed files) once their folder was. It knows nothing of what the files mean. fjall's own files are not
//! behind it.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Result};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::OFlags;

/// A file system.
pub trait Disk: Debug + Send + Sync {
    /// Whether there is a file or a folder, links followed.
    ///
    /// # Errors
    /// If the machine cannot say.
    fn exists(&self, path: &Path) -> Result<bool>;

    /// The names in a folder.
    ///
    /// # Errors
    /// If it cannot be listed.
    fn list(&self, folder: &Path) -> Result<Vec<String>>;

    /// Makes a folder.
    ///
    /// # Errors
    /// If it is there already or cannot be made.
    fn create_dir(&self, folder: &Path) -> Result<()>;

    /// Removes a folder with all that is in it.
    ///
    /// # Errors
    /// If it cannot be removed.
    fn remove_dir_all(&self, folder: &Path) -> Result<()>;

    /// Makes an empty file.
    ///
    /// # Errors
    /// If it is there already or cannot be made.
    fn create(&self, path: &Path) -> Result<()>;

    /// All bytes of a file.
    ///
    /// # Errors
    /// If it cannot be read.
    fn read(&self, path: &Path) -> Result<Vec<u8>>;

    /// Opens an existing file for writing. A `direct` one bypasses the page cache: it takes whole blocks only.
    ///
    /// # Errors
    /// If it cannot be opened.
    fn open(&self, path: &Path, direct: bool) -> Result<Arc<dyn DiskFile>>;

    /// Gives a file or a folder another name, replacing a file of that name.
    ///
    /// # Errors
    /// If it cannot be renamed.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// If it cannot be removed.
    fn remove(&self, path: &Path) -> Result<()>;

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// If the disk fails.
    fn sync_dir(&self, folder: &Path) -> Result<()>;

    /// Takes the lock of a file, making the file if needed; it is held until the answer is dropped or the process ends.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if another process has it.
    fn lock(&self, path: &Path) -> Result<Box<dyn Debug + Send + Sync>>;

    /// The bytes that may still be written below a folder.
    ///
    /// # Errors
    /// If the machine cannot say.
    fn free_bytes(&self, folder: &Path) -> Result<u64>;
}

/// A file that is open for writing.
pub trait DiskFile: Send + Sync {
    /// Writes all bytes at an offset.
    ///
    /// # Errors
    /// If the disk fails: then any part of them may have been written.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()>;

    /// Makes all that was written durable, with the file's length.
    ///
    /// # Errors
    /// If the disk fails. The kernel reports a lost write once per open file description, so a second sync that succeeds
    /// proves nothing.
    fn sync(&self) -> Result<()>;
}

/// The file system of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsDisk;

impl Disk for OsDisk {
    fn exists(&self, path: &Path) -> Result<bool> {
        path.try_exists()
    }

    fn list(&self, folder: &Path) -> Result<Vec<String>> {
        fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn create_dir(&self, folder: &Path) -> Result<()> {
        fs::create_dir(folder)
    }

    fn remove_dir_all(&self, folder: &Path) -> Result<()> {
        fs::remove_dir_all(folder)
    }

    fn create(&self, path: &Path) -> Result<()> {
        OpenOptions::new().write(true).create_new(true).open(path).map(drop)
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        fs::read(path)
    }

    fn open(&self, path: &Path, direct: bool) -> Result<Arc<dyn DiskFile>> {
        let flags = if direct { OFlags::DIRECT.bits() as i32 } else { 0 };
        let file = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
        Ok(Arc::new(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, folder: &Path) -> Result<()> {
        File::open(folder)?.sync_all()
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Debug + Send + Sync>> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(file)),
            Err(TryLockError::WouldBlock) => Err(ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn free_bytes(&self, folder: &Path) -> Result<u64> {
        let space = rustix::fs::statvfs(folder)?;
        Ok(space.f_bavail.saturating_mul(space.f_frsize))
    }
}

impl DiskFile for File {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        FileExt::write_all_at(self, bytes, offset)
    }

    fn sync(&self) -> Result<()> {
        self.sync_data()
    }
}
