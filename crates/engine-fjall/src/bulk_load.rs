//! Fills a new data folder with sorted rows, for copies, restored snapshots and salvaged stores.
//!
//! Everything is created in `load.part/` inside the folder and moved up when it is complete, `FORMAT` last. If this is
//! interrupted anywhere, the folder is refused as foreign or damaged, and never opened as a new, empty one; the next load
//! into it removes the remains and begins anew.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use wayleave_engine::Row;
use wayleave_engine::snapshot_file::SnapshotHeader;

use crate::disk::{Disk, OsDisk};
use crate::engine::Options;
use crate::fence_row::FenceRow;
use crate::flusher::{DONE_KEY, Done};
use crate::folder::{self, Folder};
use crate::lsm::FjallTables;
use crate::open_error::OpenError;
use crate::own_rows::{INCARNATION_KEY, SHARDS_KEY};
use crate::private;
use crate::tables::{MergeKind, Tables};

const PART: &str = "load.part";

/// Pages of rows that may wait for the disk.
const PAGES_WAITING: usize = 4;

/// Why a folder cannot be filled.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The folder cannot be used.
    #[error(transparent)]
    Folder(#[from] OpenError),
    /// The folder is not empty.
    #[error(
        "folder {} is not empty ({found} is in it): name a new or empty folder, then start the server with it",
        path.display()
    )]
    NotEmpty {
        /// The folder.
        path: PathBuf,
        /// An entry found in it.
        found: String,
    },
    /// Another process is filling it.
    #[error("another process is filling folder {}: wait for it, or name another folder", path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
    },
}

enum Message {
    Rows(Vec<Row>),
    Finish,
}

/// A data folder that is being filled. Dropping it before [`BulkLoad::finish`] removes what was written.
pub struct BulkLoad {
    path: PathBuf,
    existed: bool,
    /// The thread that writes: a table borrows its database, so both live there.
    rows: Option<SyncSender<Message>>,
    thread: Option<JoinHandle<Result<(), OpenError>>>,
    /// Whether it is being moved up: what is left in between is recognised by the next load, and must not be removed in part.
    moving: bool,
}

impl BulkLoad {
    /// Begins to fill a folder. What an interrupted load has left in it is removed.
    ///
    /// # Errors
    /// If the folder is not empty, or cannot be written.
    pub fn create(path: impl AsRef<Path>, header: &SnapshotHeader) -> Result<Self, LoadError> {
        let path = path.as_ref().to_owned();
        let existed = refuse_used(&path)?;
        folder::make_folder(&OsDisk, &path)?;
        let (rows, messages) = sync_channel(PAGES_WAITING);
        let (part, header) = (path.join(PART), header.clone());
        let thread = std::thread::Builder::new().name("wayleave-load".into());
        let thread = thread.spawn(move || fill(&part, &header, &messages));
        let thread = thread.map_err(|error| OpenError::io(&path, error))?;
        Ok(Self { path, existed, rows: Some(rows), thread: Some(thread), moving: false })
    }

    /// Adds rows, each with a greater key than the one before. Blocks while the disk cannot keep up.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn write(&mut self, rows: Vec<Row>) -> Result<(), LoadError> {
        self.send(Message::Rows(rows))
    }

    /// Completes the folder: from now on it can be opened.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn finish(mut self) -> Result<(), LoadError> {
        self.send(Message::Finish)?;
        self.join()?;
        self.moving = true;
        move_up(&self.path)?;
        private::keep_and_tell(&self.path);
        Ok(())
    }

    fn send(&mut self, message: Message) -> Result<(), LoadError> {
        match self.rows.as_ref().map(|rows| rows.send(message)) {
            Some(Ok(())) => Ok(()),
            // The thread has ended, and knows why.
            _ => self.join(),
        }
    }

    fn join(&mut self) -> Result<(), LoadError> {
        self.rows = None;
        let ended =
            || OpenError::Damaged { path: self.path.clone(), what: "it could not be filled, see the log".into() };
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(filled)) => Ok(filled?),
            _ => Err(ended().into()),
        }
    }
}

impl Drop for BulkLoad {
    fn drop(&mut self) {
        self.rows = None;
        self.thread.take().into_iter().for_each(|thread| _ = thread.join());
        if self.moving {
            return;
        }
        // Best effort: an open refuses the remains by name, and the next load removes them.
        _ = fs::remove_dir_all(self.path.join(PART));
        _ = if self.existed { Ok(()) } else { fs::remove_dir(&self.path) };
    }
}

/// Whether the folder exists; an error if there is more in it than the remains of an interrupted load, which are removed.
fn refuse_used(path: &Path) -> Result<bool, LoadError> {
    let io = |error| OpenError::io(path, error);
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(io(error).into()),
    };
    let names: Result<Vec<_>, _> = entries.map(|entry| entry.map(|entry| entry.file_name())).collect();
    let names = names.map_err(io)?;
    let interrupted = names.iter().any(|name| name == PART) && !names.iter().any(|name| name == folder::FORMAT);
    // These are moved up before FORMAT. The root of a mounted file system contains `lost+found`.
    let known: &[&str] = if interrupted { &[PART, folder::JOURNAL, folder::DB, "lost+found"] } else { &["lost+found"] };
    if let Some(found) = names.iter().find(|name| !known.iter().any(|known| name == known)) {
        return Err(LoadError::NotEmpty { path: path.into(), found: found.to_string_lossy().into_owned() });
    }
    if interrupted {
        let part = path.join(PART);
        let _alone = match OsDisk.lock(&part.join(folder::LOCK)) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(LoadError::Busy { path: path.into() }),
            locked => locked.map_err(|error| OpenError::io(&part, error))?,
        };
        if path.join(folder::FORMAT).exists() {
            // The other load has just finished.
            return Err(LoadError::NotEmpty { path: path.into(), found: folder::FORMAT.into() });
        }
        for name in [folder::JOURNAL, folder::DB, PART] {
            match fs::remove_dir_all(path.join(name)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(io(error).into()),
                _ => {}
            }
        }
    }
    Ok(true)
}

fn fill(part: &Path, header: &SnapshotHeader, messages: &Receiver<Message>) -> Result<(), OpenError> {
    let options = Options { shards: header.shards, ..Options::default() };
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let broken = |error| OpenError::tables(part, error);
    let open = |db: &Path| FjallTables::open(db, options.tables()).map_err(broken);
    // Without the row of the shards, which is among the rows below: a second table would make the first merge rewrite both.
    let made = Folder::open(&disk, part, options.shards, |db| open(db).map(drop))?;
    let tables = open(&made.database())?;
    let mut own = own_rows(header).into_iter().peekable();
    let filled = tables.load(|write| {
        for message in messages {
            let Message::Rows(rows) = message else {
                return own.try_for_each(|Row { key, value }| write(&key, &value));
            };
            for Row { key, value } in rows {
                while let Some(own) = own.next_if(|own| own.key < key) {
                    write(&own.key, &own.value)?;
                }
                write(&key, &value)?;
            }
        }
        // Given up before its end.
        Ok(())
    });
    filled.map_err(broken)?;
    // Moves the new tables below, where merges need not read them. Without it they would be merged at the next start.
    _ = tables.merge(MergeKind::Due, u64::MAX);
    Ok(())
}

/// The rows that this engine keeps for itself, in key order. The copy gets a new incarnation; its time continues from the
/// original's.
fn own_rows(header: &SnapshotHeader) -> Vec<Row> {
    let done = Done { file: 0, at: header.at }.encode();
    let mut own = vec![
        Row { key: DONE_KEY.into(), value: done },
        Row { key: INCARNATION_KEY.into(), value: incarnation().to_be_bytes().into() },
        Row { key: SHARDS_KEY.into(), value: header.shards.to_be_bytes().into() },
    ];
    for (shard, fence) in &header.fences {
        let write = FenceRow { fence: *fence, at: header.at }.write(*shard);
        own.extend(write.value.map(|value| Row { key: write.key, value }));
    }
    own.sort_by(|a, b| a.key.cmp(&b.key));
    own
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
#[path = "bulk_load_tests.rs"]
mod tests;
