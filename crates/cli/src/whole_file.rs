//! Atomic file creation: a file has the name `NAME.part` until it is complete.
//!
//! Two processes may write a file of the same name at the same time:
//! - Both have begun: the temporary file is locked by the first, and the second is refused.
//! - The first is complete after the second has opened the temporary file and before it has locked it: what it has locked is
//!   the first one's file under its final name. So it compares what it has locked with what has the temporary name, before
//!   it writes to it, and begins anew.
//! - The first is complete before the second has begun, and after the second has looked for a file to replace: the final name
//!   is given with a hard link, which is refused if the name is taken.

use std::fs::{File, Metadata, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::exit::{Ended, REFUSED, Usage};

/// A file's temporary name, and its final name.
#[derive(Debug)]
pub struct Names {
    /// The temporary name.
    pub part: PathBuf,
    name: PathBuf,
    /// Whether a file that has the final name is replaced.
    replaces: bool,
    /// The same file. It stays locked until this is dropped.
    file: File,
}

/// Creates the file to write. Anything but a regular file, such as a pipe or a device, is written in place: it must not
/// be replaced. A symbolic link stays one, even if its target does not exist yet, and an existing file keeps its
/// permissions. With `replaces` a file of this name is replaced when this one is complete; otherwise it is kept, and this one
/// is given up.
///
/// # Errors
/// If it is a folder, another process is writing it, or it cannot be written.
pub fn create(path: &Path, replaces: bool) -> anyhow::Result<(File, Option<Names>)> {
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
    let file = open_part(&part)?;
    if let Some(found) = found {
        file.set_permissions(found.permissions()).with_context(cannot)?;
    }
    let lock = file.try_clone().with_context(cannot)?;
    Ok((file, Some(Names { part, name, replaces, file: lock })))
}

/// Opens and locks an empty file of this name.
fn open_part(part: &Path) -> anyhow::Result<File> {
    let cannot = || format!("cannot write {}", part.display());
    loop {
        let file = File::options().write(true).create(true).truncate(false).open(part).with_context(cannot)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let message =
                    format!("another process is writing {}: wait for it, or name another file", part.display());
                return Err(Ended { code: REFUSED, message }.into());
            }
            // A file system without locks.
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(error).with_context(cannot),
        }
        let locked = file.metadata().with_context(cannot)?;
        if part.metadata().is_ok_and(|named| (named.dev(), named.ino()) == (locked.dev(), locked.ino())) {
            file.set_len(0).with_context(cannot)?;
            return Ok(file);
        }
    }
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
    /// If the disk fails, or another file got the final name meanwhile and is not to be replaced.
    pub fn finish(self) -> anyhow::Result<()> {
        let Self { part, name, replaces, file } = self;
        let cannot = || format!("cannot write {}", part.display());
        // Sync the content before the rename: after a power cut the name must not refer to less.
        file.sync_all().with_context(cannot)?;
        let renamed = if replaces { std::fs::rename(&part, &name) } else { rename_new(&part, &name) };
        if renamed.as_ref().is_err_and(|error| error.kind() == ErrorKind::AlreadyExists) {
            // Best effort: its name marks it as incomplete.
            _ = std::fs::remove_file(&part);
            let message = format!("{} was written by another process meanwhile and is kept", name.display());
            return Err(Ended { code: REFUSED, message }.into());
        }
        renamed.with_context(|| format!("cannot rename {}", part.display()))?;
        let folder = name.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).with_context(cannot)
    }
}

/// Renames a file to a name that no file has.
fn rename_new(part: &Path, name: &Path) -> std::io::Result<()> {
    match std::fs::hard_link(part, name) {
        Ok(()) => std::fs::remove_file(part),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(error),
        // A file system without hard links. A crash in between leaves an empty file, which no reader takes for a whole one.
        Err(_) => File::create_new(name).and_then(|_| std::fs::rename(part, name)),
    }
}
