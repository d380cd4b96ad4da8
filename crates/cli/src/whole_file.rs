//! Atomic file creation: a file has the name `NAME.part` until it is complete.

use std::fs::{File, Metadata};
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::exit::Usage;

/// A file's temporary name, and its final name.
#[derive(Debug)]
pub struct Names {
    /// The temporary name.
    pub part: PathBuf,
    name: PathBuf,
}

/// Creates the file to write. Anything but a regular file, such as a pipe or a device, is written in place: it must not
/// be replaced. A symbolic link stays one, even if its target does not exist yet, and an existing file keeps its
/// permissions.
///
/// # Errors
/// If it is a folder or cannot be written.
pub fn create(path: &Path) -> anyhow::Result<(File, Option<Names>)> {
    let found = path.metadata().ok();
    if found.as_ref().is_some_and(Metadata::is_dir) {
        return Err(Usage(format!("{} is a folder: name a file in it", path.display())).into());
    }
    if found.as_ref().map_or(path.is_symlink(), |found| !found.is_file()) {
        return Ok((File::create(path).with_context(|| format!("cannot write {}", path.display()))?, None));
    }
    let name = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut part = name.clone().into_os_string();
    part.push(".part");
    let part = PathBuf::from(part);
    let cannot = || format!("cannot write {}", part.display());
    let file = File::create(&part).with_context(cannot)?;
    if let Some(found) = found {
        file.set_permissions(found.permissions()).with_context(cannot)?;
    }
    Ok((file, Some(Names { part, name })))
}

impl Names {
    /// Removes the partial file.
    pub fn give_up(self) {
        // Best effort: its name marks it as incomplete.
        _ = std::fs::remove_file(self.part);
    }

    /// Renames the file once all of it is on disk.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn finish(self) -> anyhow::Result<()> {
        let Self { part, name } = self;
        let cannot = || format!("cannot write {}", part.display());
        // Sync the content before the rename: after a power cut the name must not refer to less.
        File::open(&part).and_then(|file| file.sync_all()).with_context(cannot)?;
        std::fs::rename(&part, &name).with_context(|| format!("cannot rename {}", part.display()))?;
        let folder = name.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).with_context(cannot)
    }
}
