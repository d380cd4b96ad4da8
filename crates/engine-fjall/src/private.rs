//! Keeps a folder from other users of the machine: folders are 0700, files 0600, whatever the umask. Rows contain lease
//! tokens and the secrets of pools.
//!
//! What this crate creates is private from the beginning; the tree below creates files as the umask says, inside a
//! private folder.

use std::fs::{self, DirBuilder, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

const FOLDER: u32 = 0o700;
const FILE: u32 = 0o600;
/// What group and others may do.
const OTHERS: u32 = 0o077;

/// Takes all rights of other users from a folder and everything in it, without following symbolic links. Returns whether
/// they had any on the folder itself. Fails if the folder belongs to another user.
pub fn keep(folder: &Path) -> io::Result<bool> {
    let was_open = close(folder, &fs::metadata(folder)?)?;
    keep_inside(folder);
    Ok(was_open)
}

/// [`keep`], logged once: from the next start on there is nothing to close.
pub fn keep_and_log(folder: &Path) {
    let path = folder.display();
    match keep(folder) {
        Ok(true) => tracing::warn!(
            folder.path = %path,
            "other users of this machine had rights on the folder, which holds lease tokens and secrets of pools: now only its \
             owner has any (0700, files 0600)"
        ),
        Ok(false) => {}
        Err(error) => tracing::warn!(
            folder.path = %path, %error,
            "other users of this machine have rights on the folder, which holds lease tokens and secrets of pools, and they \
             cannot be taken from them: let the folder belong to the user of this process, with mode 0700"
        ),
    }
}

/// The same for what is in a folder. Files come and go meanwhile, and the folder itself is closed: what fails is not missed.
pub(crate) fn keep_inside(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        // Of the entry itself, not of what a symbolic link refers to.
        let Ok(found) = entry.metadata() else { continue };
        if found.is_symlink() {
            continue;
        }
        _ = close(&entry.path(), &found);
        if found.is_dir() {
            keep_inside(&entry.path());
        }
    }
}

fn close(path: &Path, found: &Metadata) -> io::Result<bool> {
    let mode = found.permissions().mode();
    if mode & OTHERS == 0 {
        return Ok(false);
    }
    fs::set_permissions(path, Permissions::from_mode(mode & !OTHERS))?;
    Ok(true)
}

/// Creates a folder.
pub(crate) fn create_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(FOLDER).create(path)
}

/// The options of a file that may have to be created.
pub(crate) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(FILE);
    options
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_world_readable_folder_is_closed_with_its_content_and_nothing_else() {
        let outside = tempfile::tempdir().unwrap();
        let other = outside.path().join("other");
        fs::write(&other, "").unwrap();
        fs::set_permissions(&other, Permissions::from_mode(0o644)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("db/tables")).unwrap();
        for (name, bits) in [("FORMAT", 0o644), ("db/tables/1", 0o664), ("db/script", 0o755)] {
            fs::write(at(name), "").unwrap();
            fs::set_permissions(at(name), Permissions::from_mode(bits)).unwrap();
        }
        for name in ["", "db", "db/tables"] {
            fs::set_permissions(at(name), Permissions::from_mode(0o755)).unwrap();
        }
        symlink(&other, at("db/link")).unwrap();
        assert!(keep(folder.path()).unwrap(), "it was open");
        let modes = ["", "db", "db/tables", "FORMAT", "db/tables/1", "db/script"].map(|name| mode(&at(name)));
        assert_eq!(modes, [0o700, 0o700, 0o700, 0o600, 0o600, 0o700]);
        assert_eq!(mode(&other), 0o644);
        assert!(!keep(folder.path()).unwrap(), "reported once");
    }
}
