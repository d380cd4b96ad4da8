//! Restores a snapshot file into a new data folder.
//!
//! Everything is created in `restore.part/` inside the folder and moved up when it is complete, `FORMAT` last. If this
//! is interrupted anywhere, the folder is refused as foreign or damaged, and never opened as a new, empty one.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::disk::{Disk, OsDisk};
use crate::engine::{self, Options};
use crate::flusher::{DONE_KEY, Done};
use crate::folder::{self, Folder};
use crate::open_error::OpenError;
use crate::own_rows::{INCARNATION_KEY, SHARDS_KEY};
use crate::snapshot_file::{SnapshotCounts, SnapshotError, SnapshotHeader, SnapshotReader};

const PART: &str = "restore.part";

/// Why a snapshot cannot be restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The file cannot be used.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The folder cannot be used.
    #[error(transparent)]
    Folder(#[from] OpenError),
    /// The folder is not empty.
    #[error(
        "folder {} is not empty ({found} is in it): restore into a new or empty folder, then start the server with it",
        path.display()
    )]
    NotEmpty {
        /// The folder.
        path: PathBuf,
        /// An entry found in it.
        found: String,
    },
}

/// Creates a data folder from a snapshot. After an error its content is never taken for a data folder.
///
/// # Errors
/// If the folder is not empty, the snapshot is damaged, truncated or of a newer format, or the disk fails.
pub fn restore(path: impl AsRef<Path>, snapshot: impl Read) -> Result<(SnapshotHeader, SnapshotCounts), RestoreError> {
    let path = path.as_ref();
    // Read the header first: nothing is created for an unusable file.
    let reader = SnapshotReader::begin(snapshot)?;
    let header = reader.header();
    let existed = refuse_used(path)?;
    folder::make_folder(&OsDisk, path)?;
    let filled = fill(&path.join(PART), reader).and_then(|counts| move_up(path).map(|()| counts).map_err(Into::into));
    if filled.is_err() {
        // Best effort: a later open refuses the remains by name.
        _ = fs::remove_dir_all(path.join(PART));
        _ = if existed { Ok(()) } else { fs::remove_dir(path) };
    }
    Ok((header, filled?))
}

/// Whether the folder exists; an error if it is not empty.
fn refuse_used(path: &Path) -> Result<bool, RestoreError> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(OpenError::io(path, error).into()),
    };
    for entry in entries {
        let name = entry.map_err(|error| OpenError::io(path, error))?.file_name();
        // The root of a mounted file system contains it.
        if name != "lost+found" {
            let found = name.to_string_lossy().into_owned();
            return Err(RestoreError::NotEmpty { path: path.into(), found });
        }
    }
    Ok(true)
}

fn fill<R: Read>(part: &Path, reader: SnapshotReader<R>) -> Result<SnapshotCounts, RestoreError> {
    let options = Options { shards: reader.header().shards, ..Options::default() };
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let made = Folder::open(&disk, part, options.shards, |db| engine::make_tables(db, options.shards))?;
    let tables = engine::open_tables(&made, &options)?;
    // The original store may have granted more since the snapshot: epochs and other growing numbers must not be granted
    // twice. So the restored store gets a new incarnation. Its time continues from the snapshot's.
    let own = [
        (DONE_KEY, Done { file: 0, at: reader.header().at }.encode()),
        (INCARNATION_KEY, incarnation().to_be_bytes().to_vec()),
        (SHARDS_KEY, options.shards.to_be_bytes().to_vec()),
    ];
    let is_own = |key: &[u8]| own.iter().any(|(own, _)| own == key);
    let mut next = own.iter().peekable();
    let loaded = tables.load(|write| {
        let counts = reader.rows(|key, value| {
            while let Some((own, value)) = next.next_if(|(own, _)| own.as_slice() <= key) {
                write(own, value)?;
            }
            if is_own(key) { Ok(()) } else { write(key, value) }
        })?;
        next.try_for_each(|(own, value)| write(own, value)).map(|()| counts)
    });
    drop(tables);
    loaded.map_err(|error: LoadError| error.into_restore(part))
}

/// Why loading rows failed: the snapshot or the tables.
enum LoadError {
    Snapshot(SnapshotError),
    Tables(lsm_tree::Error),
}

impl LoadError {
    fn into_restore(self, part: &Path) -> RestoreError {
        match self {
            Self::Snapshot(error) => error.into(),
            Self::Tables(error) => OpenError::tables(part, error).into(),
        }
    }
}

impl From<SnapshotError> for LoadError {
    fn from(error: SnapshotError) -> Self {
        Self::Snapshot(error)
    }
}

impl From<lsm_tree::Error> for LoadError {
    fn from(error: lsm_tree::Error) -> Self {
        Self::Tables(error)
    }
}

/// An incarnation that no store has had: the time in milliseconds.
pub(crate) fn incarnation() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

fn move_up(path: &Path) -> Result<(), OpenError> {
    let part = path.join(PART);
    sync(&part)?;
    for name in [folder::JOURNAL, folder::DB, folder::FORMAT] {
        fs::rename(part.join(name), path.join(name)).map_err(|error| OpenError::io(path, error))?;
        sync(path)?;
    }
    // Only the lock file is left; the next open creates its own.
    fs::remove_dir_all(&part).map_err(|error| OpenError::io(&part, error))?;
    sync(path)
}

fn sync(folder: &Path) -> Result<(), OpenError> {
    OsDisk.sync_dir(folder).map_err(|error| OpenError::io(folder, error))
}

#[cfg(test)]
#[path = "restore_tests.rs"]
mod tests;
