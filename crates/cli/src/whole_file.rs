//! Atomic file creation: a file has the name `NAME.part` until it is complete.
//!
//! Two processes may write a file of the same name at the same time:
//! - Both have begun: the temporary file is locked by the first, and the second is refused.
//! - The first is complete after the second has opened the temporary file and before it has locked it: what it has locked is
//!   the first one's file under its final name. So it compares what it has locked with what has the temporary name, before
//!   it writes to it, and begins anew.
//! - The first is complete before the second has begun, and after the second has looked for a file to replace: the final name
//!   is given with a hard link, which is refused if the name is taken. The file that came too late keeps its temporary name.
//! - The first crashes after it has given the final name and before it has removed the temporary one: both name one file,
//!   which is complete. So the second removes the temporary name of a file that has several, and begins anew, before it
//!   writes. The first cannot be alive in between: it would hold the lock. Where there are no locks it finds the temporary
//!   name removed, which is what it wants.

use std::fs::{File, Metadata, Permissions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::io::Errno;

use crate::exit::{Ended, REFUSED, Usage};

/// How often a file is opened anew that others complete or leave behind meanwhile.
const TRIES: usize = 8;

/// The permissions of every file: for its owner only.
const PRIVATE: u32 = 0o600;

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
/// be replaced. A symbolic link stays one: the file that it refers to is created or replaced, and has the temporary name
/// until it is complete. What is written contains tokens or credentials, so it is readable by its owner only from the
/// beginning, also where it replaces a file that others could read. With `replaces` a file of this name is replaced when this
/// one is complete; otherwise it is kept, and this one is given up. Fails if it is a folder, another process is writing
/// it, it cannot be written, or it is a symbolic link to a folder that does not exist or to itself.
pub fn create(path: &Path, replaces: bool) -> anyhow::Result<(File, Option<Names>)> {
    let found = path.metadata().ok();
    if found.as_ref().is_some_and(Metadata::is_dir) {
        return Err(Usage(format!("{} is a folder: name a file in it", path.display())).into());
    }
    if found.as_ref().is_some_and(|found| !found.is_file()) {
        return Ok((File::create(path).with_context(|| format!("cannot write {}", path.display()))?, None));
    }
    let name = match path.canonicalize() {
        Ok(name) => name,
        Err(_) => behind_links(path)?,
    };
    let mut part = name.clone().into_os_string();
    part.push(".part");
    let part = PathBuf::from(part);
    let cannot = || format!("cannot write {}", part.display());
    let file = open_part(&part)?;
    let lock = file.try_clone().with_context(cannot)?;
    Ok((file, Some(Names { part, name, replaces, file: lock })))
}

/// The name of the file that does not exist yet and that a symbolic link refers to, perhaps through others; any other name
/// stays as it is.
fn behind_links(path: &Path) -> anyhow::Result<PathBuf> {
    // As many as Linux follows.
    const LINKS_MAX: usize = 40;
    let mut name = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(target) = name.read_link() else {
            let folder = name.parent().filter(|folder| !folder.as_os_str().is_empty());
            if name != path && folder.is_some_and(|folder| !folder.is_dir()) {
                let (link, target) = (path.display(), name.display());
                let text = format!(
                    "{link} is a symbolic link to {target}, whose folder does not exist: create it, or name another file"
                );
                return Err(Usage(text).into());
            }
            return Ok(name);
        };
        // Relative to the folder of the link.
        name = name.parent().map_or_else(|| target.clone(), |folder| folder.join(&target));
    }
    Err(Usage(format!("{} is a symbolic link that leads to itself: name another file", path.display())).into())
}

/// Opens and locks an empty file of this name.
fn open_part(part: &Path) -> anyhow::Result<File> {
    let cannot = || format!("cannot write {}", part.display());
    let busy = || {
        let message = format!("another process is writing {}: wait for it, or name another file", part.display());
        anyhow::Error::from(Ended { code: REFUSED, message })
    };
    for _ in 0..TRIES {
        let mut options = File::options();
        options.write(true).create(true).truncate(false).mode(PRIVATE);
        let file = options.open(part).with_context(cannot)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(busy()),
            Err(TryLockError::Error(error)) if has_no_locks(&error) => {}
            Err(TryLockError::Error(error)) => return Err(error).with_context(cannot),
        }
        let locked = file.metadata().with_context(cannot)?;
        if !part.metadata().is_ok_and(|named| is_same(&named, &locked)) {
            continue;
        }
        if locked.nlink() > 1 {
            // Under its other name it is complete.
            std::fs::remove_file(part).with_context(cannot)?;
            continue;
        }
        file.set_len(0).with_context(cannot)?;
        // It may have been left behind with others.
        file.set_permissions(Permissions::from_mode(PRIVATE)).with_context(cannot)?;
        return Ok(file);
    }
    Err(busy())
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Whether a file system cannot lock files, or a network file system has no lock server.
fn has_no_locks(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::Unsupported || error.raw_os_error() == Some(Errno::NOLCK.raw_os_error())
}

/// Whether a file system has no hard links, or forbids this one.
fn has_no_hard_links(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::Unsupported || error.raw_os_error() == Some(Errno::PERM.raw_os_error())
}

impl Names {
    /// Removes the partial file.
    pub fn give_up(self) {
        // Best effort: its name marks it as incomplete.
        _ = std::fs::remove_file(self.part);
    }

    /// Renames the file once all of it is on disk. Fails if the disk fails, or another file got the final name
    /// meanwhile and is not to be replaced. Then this one, which is complete, keeps its temporary name.
    pub fn finish(self) -> anyhow::Result<()> {
        let Self { part, name, replaces, file } = self;
        let cannot = || format!("cannot write {}", part.display());
        // Sync the content before the rename: after a power cut the name must not refer to less.
        file.sync_all().with_context(cannot)?;
        let renamed = if replaces { std::fs::rename(&part, &name) } else { rename_new(&part, &name) };
        if renamed.as_ref().is_err_and(|error| error.kind() == ErrorKind::AlreadyExists) {
            let (kept, own) = (name.display(), part.display());
            let message = format!(
                "{kept} was written by another process meanwhile and is kept; what this one has written is complete, and is in {own}: \
                 rename it"
            );
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
        Ok(()) => match std::fs::remove_file(part) {
            // Another process has removed it, see above.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        },
        Err(error) if has_no_hard_links(&error) => rename_reserved(part, name),
        Err(error) => Err(error),
    }
}

/// The same without hard links: an empty file reserves the name. A crash in between leaves it; `import` and `restore` refuse
/// it.
fn rename_reserved(part: &Path, name: &Path) -> std::io::Result<()> {
    let reserved = File::create_new(name)?;
    let renamed = std::fs::rename(part, name);
    if renamed.is_err() {
        let own = reserved.metadata()?;
        // Another process may have replaced it.
        if name.symlink_metadata().is_ok_and(|named| is_same(&named, &own) && named.len() == 0) {
            // Best effort: the failure of the rename is what counts.
            _ = std::fs::remove_file(name);
        }
    }
    renamed
}

#[cfg(test)]
mod tests {
    use std::io::{Error, Read, Write};

    use super::*;

    fn read(path: &Path) -> String {
        let mut text = String::new();
        File::open(path).unwrap().read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn a_complete_file_survives_a_crash_before_its_temporary_name_was_removed() {
        for (moved, replaces) in [(false, true), (true, false), (true, true)] {
            let folder = tempfile::tempdir().unwrap();
            let (name, part) = (folder.path().join("all"), folder.path().join("all.part"));
            std::fs::write(&part, "complete").unwrap();
            std::fs::hard_link(&part, &name).unwrap();
            let kept = if moved { folder.path().join("kept") } else { folder.path().join("other") };
            if moved {
                std::fs::rename(&name, &kept).unwrap();
            } else {
                // It is to be replaced, and stays until the new one is complete.
                std::fs::hard_link(&name, &kept).unwrap();
            }
            let (mut file, names) = create(&name, replaces).unwrap();
            file.write_all(b"new").unwrap();
            assert_eq!(read(&kept), "complete");
            names.unwrap().finish().unwrap();
            assert_eq!((read(&kept), read(&name)), ("complete".to_owned(), "new".to_owned()));
            assert!(!part.exists());
        }
    }

    /// A regression: a file that was replaced kept permissions with which everybody could read it.
    #[test]
    fn a_file_is_private_also_if_it_replaces_one_that_all_can_read() {
        for before in [None, Some("all"), Some("all.part")] {
            let folder = tempfile::tempdir().unwrap();
            let at = |name: &str| folder.path().join(name);
            if let Some(before) = before {
                std::fs::write(at(before), "before").unwrap();
                std::fs::set_permissions(at(before), Permissions::from_mode(0o644)).unwrap();
            }
            let mode = |name: &str| at(name).metadata().unwrap().permissions().mode() & 0o777;
            let (_, names) = create(&at("all"), true).unwrap();
            assert_eq!(mode("all.part"), 0o600, "{before:?}");
            names.unwrap().finish().unwrap();
            assert_eq!(mode("all"), 0o600, "{before:?}");
        }
    }

    #[test]
    fn a_complete_file_whose_name_was_taken_meanwhile_is_kept_and_the_error_says_where() {
        let folder = tempfile::tempdir().unwrap();
        let (name, part) = (folder.path().join("all"), folder.path().join("all.part"));
        let (mut file, names) = create(&name, false).unwrap();
        file.write_all(b"second").unwrap();
        std::fs::write(&name, "first").unwrap();
        let refused = names.unwrap().finish().unwrap_err().to_string();
        assert!(refused.contains("all was written by another process"), "{refused}");
        assert!(refused.contains("is complete, and is in") && refused.contains("all.part: rename it"), "{refused}");
        assert_eq!((read(&name), read(&part)), ("first".to_owned(), "second".to_owned()));
    }

    #[test]
    fn a_file_behind_a_symbolic_link_is_created_whole_or_not_at_all() {
        use std::os::unix::fs::symlink;
        for replaces in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let at = |name: &str| folder.path().join(name);
            std::fs::create_dir(at("store")).unwrap();
            symlink("first", at("link")).unwrap();
            symlink("store/all", at("first")).unwrap();
            let (mut file, names) = create(&at("link"), replaces).unwrap();
            file.write_all(b"half").unwrap();
            assert!(!at("store/all").exists(), "it is not complete");
            let refused = create(&at("link"), replaces).unwrap_err().to_string();
            assert!(refused.contains("another process is writing") && refused.contains("store/all.part"), "{refused}");
            names.unwrap().give_up();
            assert_eq!(std::fs::read_dir(at("store")).unwrap().count(), 0, "nothing is left of it");
            let (mut file, names) = create(&at("link"), replaces).unwrap();
            file.write_all(b"all").unwrap();
            names.unwrap().finish().unwrap();
            assert_eq!(read(&at("store/all")), "all");
            assert!(at("link").is_symlink() && at("first").is_symlink());
            assert_eq!(std::fs::read_dir(at("store")).unwrap().count(), 1);
        }
    }

    #[test]
    fn a_symbolic_link_that_leads_nowhere_is_refused_and_the_error_says_why() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        symlink("missing/all", at("link")).unwrap();
        let refused = create(&at("link"), true).unwrap_err();
        assert!(refused.is::<Usage>());
        let refused = refused.to_string();
        assert!(refused.contains("link is a symbolic link to") && refused.contains("missing/all, whose"), "{refused}");
        symlink("there", at("here")).unwrap();
        symlink("here", at("there")).unwrap();
        let refused = create(&at("here"), true).unwrap_err().to_string();
        assert!(refused.contains("here is a symbolic link that leads to itself"), "{refused}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3, "nothing was created");
    }

    #[test]
    fn a_name_that_was_reserved_is_given_back_if_the_rename_fails() {
        let folder = tempfile::tempdir().unwrap();
        let (name, part) = (folder.path().join("all"), folder.path().join("all.part"));
        assert_eq!(rename_reserved(&part, &name).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(!name.exists());
        std::fs::write(&part, "complete").unwrap();
        rename_reserved(&part, &name).unwrap();
        assert_eq!(read(&name), "complete");
        std::fs::write(&part, "second").unwrap();
        assert_eq!(rename_reserved(&part, &name).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(read(&name), "complete");
    }

    #[test]
    fn only_file_systems_that_cannot_do_it_go_without_locks_or_hard_links() {
        let of = |errno: Errno| Error::from_raw_os_error(errno.raw_os_error());
        assert!(has_no_locks(&of(Errno::NOLCK)) && has_no_locks(&of(Errno::OPNOTSUPP)));
        assert!(has_no_hard_links(&of(Errno::PERM)) && has_no_hard_links(&of(Errno::OPNOTSUPP)));
        for errno in [Errno::IO, Errno::NOSPC, Errno::ACCESS, Errno::EXIST] {
            assert!(!has_no_locks(&of(errno)) && !has_no_hard_links(&of(errno)), "{errno}");
        }
    }
}
