//! A folder on this machine.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use url::Url;

use super::{Artifact, Error, Name, name_under};
use crate::digest::Digesting;
use crate::limits::ARTIFACT_BYTES_MAX;

/// How temporary files begin. No [`Name`] begins with a dot.
pub(crate) const TEMPORARY: &str = ".part-";

/// A temporary file that was last written so long ago is of a worker that was killed.
const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);

/// A folder of artifacts and the URL under which they are known.
#[derive(Debug, Clone)]
pub(super) struct Folder {
    path: PathBuf,
    base: Url,
}

impl Folder {
    pub fn open(path: &Path, base: &Url) -> Result<Self, Error> {
        fs::create_dir_all(path).map_err(Error::file(path))?;
        if let Some(before) = SystemTime::now().checked_sub(ABANDONED) {
            sweep(path, before).map_err(Error::file(path))?;
        }
        Ok(Self { path: path.to_owned(), base: base.clone() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name of an artifact in this folder.
    pub fn name(&self, location: &Url) -> Option<Name> {
        name_under(&self.base, location)
    }

    pub fn put(&self, name: &Name, file: &Path) -> Result<Artifact, Error> {
        let location = self.base.join(name.as_ref()).map_err(|_| Error::Location(self.base.clone()))?;
        let from = File::open(file).map_err(Error::file(file))?;
        let target = self.path.join(name.as_ref());
        let (bytes, checksum) = publish(from, &target, |_, _| Ok(())).map_err(Error::file(&target))?;
        Ok(Artifact { location, bytes, checksum })
    }

    pub fn get(&self, artifact: &Artifact, into: &Path) -> Result<(), Error> {
        let location = &artifact.location;
        let name = self.name(location).ok_or_else(|| Error::Location(location.clone()))?;
        let path = self.path.join(name.as_ref());
        let from = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::Gone { location: location.clone() });
            }
            opened => opened.map_err(Error::file(&path))?,
        };
        keep(from, artifact, into)
    }

    pub fn remove(&self, location: &Url) -> Result<(), Error> {
        let name = self.name(location).ok_or_else(|| Error::Location(location.clone()))?;
        let path = self.path.join(name.as_ref());
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(Error::file(&path)),
        }
    }
}

/// Removes temporary files that were last written before a time. Younger ones may be another worker's, at work now.
fn sweep(folder: &Path, before: SystemTime) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let temporary = entry.file_name().to_str().is_some_and(|name| name.starts_with(TEMPORARY));
        if temporary && entry.metadata().and_then(|file| file.modified()).is_ok_and(|written| written < before) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Writes an artifact to a file if it is the one that is described.
pub(super) fn keep(from: impl Read, artifact: &Artifact, into: &Path) -> Result<(), Error> {
    let mut differs = false;
    // One byte more than there should be shows that there are more.
    let kept = publish(from.take(artifact.bytes + 1), into, |bytes, checksum| {
        differs = bytes != artifact.bytes || checksum != artifact.checksum;
        if differs { Err(io::Error::from(io::ErrorKind::InvalidData)) } else { Ok(()) }
    });
    if differs {
        return Err(Error::Differs { location: artifact.location.clone() });
    }
    kept.map(|_| ()).map_err(Error::file(into))
}

/// Writes a file under a temporary name in the target's folder, asks whether it is good, makes it durable and renames
/// it. A crash at any point leaves the target as it was, or complete.
pub(super) fn publish(
    mut from: impl Read,
    target: &Path,
    good: impl FnOnce(u64, &str) -> io::Result<()>,
) -> io::Result<(u64, String)> {
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The file removes itself if anything fails.
    let temporary = tempfile::Builder::new().prefix(TEMPORARY).tempfile_in(folder)?;
    let mut to = Digesting::new(temporary);
    io::copy(&mut from.by_ref().take(ARTIFACT_BYTES_MAX + 1), &mut to)?;
    let (temporary, bytes, checksum) = to.finish();
    if bytes > ARTIFACT_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "longer than an artifact may be"));
    }
    good(bytes, &checksum)?;
    readable(temporary.as_file())?;
    temporary.as_file().sync_all()?;
    temporary.persist(target).map_err(|error| error.error)?;
    // The rename is durable when the folder is.
    File::open(folder)?.sync_all()?;
    Ok((bytes, checksum))
}

/// Temporary files can be read by their owner only; artifacts may be read by all, as far as the folder lets them.
#[cfg(unix)]
fn readable(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    file.set_permissions(fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn readable(_: &File) -> io::Result<()> {
    Ok(())
}
