//! The file operations of the data folder and the journal, behind one small trait, so that tests can simulate the disk.
//!
//! The contract includes what a power cut may lose: bytes survive once their file is synced, and names (of new, renamed
//! and removed files) once their directory is. The trait knows nothing about the content of files. Table files
//! bypass it.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Result, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::OFlags;

use crate::private;

/// A file system.
pub trait Disk: Debug + Send + Sync {
    /// Whether a file or folder exists, following links.
    fn exists(&self, path: &Path) -> Result<bool>;

    /// The names in a folder.
    fn list(&self, folder: &Path) -> Result<Vec<String>>;

    /// Creates a folder. Fails if it exists already or cannot be created.
    fn create_dir(&self, folder: &Path) -> Result<()>;

    /// Removes a folder and its content.
    fn remove_dir_all(&self, folder: &Path) -> Result<()>;

    /// Creates an empty file. Fails if it exists already or cannot be created.
    fn create(&self, path: &Path) -> Result<()>;

    /// The content of a file.
    fn read(&self, path: &Path) -> Result<Vec<u8>>;

    /// The length of a file. Fails if it does not exist or cannot be read.
    fn len(&self, path: &Path) -> Result<u64>;

    /// Up to `bytes` bytes of a file from an offset on; fewer at its end.
    fn read_at(&self, path: &Path, offset: u64, bytes: usize) -> Result<Vec<u8>>;

    /// Opens an existing file for writing. With `direct` it uses `O_DIRECT`, which takes whole blocks only.
    fn open(&self, path: &Path, direct: bool) -> Result<Arc<dyn DiskFile>>;

    /// Renames a file or folder, replacing a file of that name.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> Result<()>;

    /// Makes the names in a folder durable.
    fn sync_dir(&self, folder: &Path) -> Result<()>;

    /// Locks a file, creating it if needed. The lock is held until the returned guard is dropped or the process ends.
    /// Fails with [`ErrorKind::WouldBlock`] if another process holds it.
    fn lock(&self, path: &Path) -> Result<Box<dyn Debug + Send + Sync>>;

    /// The free bytes of the file system that holds a folder.
    fn free_bytes(&self, folder: &Path) -> Result<u64>;
}

/// A file opened for writing.
pub trait DiskFile: Send + Sync {
    /// Writes all bytes at an offset. Fails if the disk fails. Any part of the bytes may then have been written.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()>;

    /// Makes all writes and the file's length durable. Fails if the disk fails. The kernel reports a lost write once
    /// per open file description, so a second sync that succeeds proves nothing.
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
        private::create_dir(folder)
    }

    fn remove_dir_all(&self, folder: &Path) -> Result<()> {
        fs::remove_dir_all(folder)
    }

    fn create(&self, path: &Path) -> Result<()> {
        private::options().create_new(true).open(path).map(drop)
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        fs::read(path)
    }

    fn len(&self, path: &Path) -> Result<u64> {
        fs::metadata(path).map(|known| known.len())
    }

    fn read_at(&self, path: &Path, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(offset))?;
        let mut read = Vec::with_capacity(bytes);
        file.take(bytes as u64).read_to_end(&mut read)?;
        Ok(read)
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
        try_lock(private::options().create(true).truncate(false).open(path)?)
    }

    fn free_bytes(&self, folder: &Path) -> Result<u64> {
        let space = rustix::fs::statvfs(folder)?;
        Ok(space.f_bavail.saturating_mul(space.f_frsize))
    }
}

fn try_lock(file: File) -> Result<Box<dyn Debug + Send + Sync>> {
    match file.try_lock() {
        Ok(()) => Ok(Box::new(file)),
        Err(TryLockError::WouldBlock) => Err(ErrorKind::WouldBlock.into()),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Locks a file of a folder that will only be read, and which the process need not be able to change. Fails with
/// [`ErrorKind::WouldBlock`] if another process holds it.
pub(crate) fn lock_to_read(path: &Path) -> Result<Box<dyn Debug + Send + Sync>> {
    let refused = match OsDisk.lock(path) {
        Err(error) if matches!(error.kind(), ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied) => error,
        locked => return locked,
    };
    match File::open(path) {
        Ok(file) => try_lock(file),
        // No server can run on it.
        Err(error) if error.kind() == ErrorKind::NotFound && refused.kind() == ErrorKind::ReadOnlyFilesystem => {
            Ok(Box::new(()))
        }
        Err(_) => Err(refused),
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
