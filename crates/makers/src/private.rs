//! Creates files and folders that no other user of the machine may read, whatever the umask: records hold the secrets of
//! workers, and logs may.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Result, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// A folder and its ancestors; those that exist stay as they are.
pub fn create_dir_all(path: &Path) -> Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The options of a file that may have to be created.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).mode(0o600);
    options
}

/// An empty file.
pub fn create(path: &Path) -> Result<File> {
    options().write(true).truncate(true).open(path)
}

/// A file with this content.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    create(path)?.write_all(content.as_ref())
}
