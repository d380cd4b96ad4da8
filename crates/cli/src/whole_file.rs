//! A file that gets its name only when it is whole: until then it lies beside it as `NAME.part`.

use std::fs::{File, Metadata};
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::exit::Usage;

/// A file's name while it is written, and the one it gets then.
#[derive(Debug)]
pub struct Names {
    /// The name while it is written.
    pub part: PathBuf,
    name: PathBuf,
}

/// Makes the file to write to. Whatever is no regular file, such as a pipe or a device, is written to as it is: another one
/// must not take its place. A link stays a link, also to what is not there yet, and a file keeps the rights that it has.
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
    /// Removes what was written.
    pub fn give_up(self) {
        // Best effort: by its name nobody takes it for whole.
        _ = std::fs::remove_file(self.part);
    }

    /// Gives the file its name, once all of it is on the disk.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn finish(self) -> anyhow::Result<()> {
        let Self { part, name } = self;
        let cannot = || format!("cannot write {}", part.display());
        // Its content before its name: after a power cut a name must not stand for less.
        File::open(&part).and_then(|file| file.sync_all()).with_context(cannot)?;
        std::fs::rename(&part, &name).with_context(|| format!("cannot rename {}", part.display()))?;
        let folder = name.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).with_context(cannot)
    }
}
