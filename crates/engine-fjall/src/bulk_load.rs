//! Fills a new data folder with sorted rows, for copies, restored snapshots and salvaged stores.
//!
//! Everything is created in `load.part/` inside the folder and moved up when it is complete, `FORMAT` last. If this is
//! interrupted anywhere, the folder is refused as foreign or damaged, and never opened as a new, empty one; the next load
//! into it removes the remains and begins anew, `load.part/` last: it marks them as remains through any number of
//! interruptions.

use std::fs;
use std::io::{self, ErrorKind};
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

pub(crate) const PART: &str = "load.part";

/// The empty file in a folder that was made from another store, until [`settle`].
const COPIED: &str = "COPIED";

/// Pages of rows that may wait for the disk.
const PAGES_WAITING: usize = 4;

/// Why a folder cannot be filled.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum LoadError {
    #[error(transparent)]
    Folder(#[from] OpenError),
    #[error(
        "folder {} is not empty ({found} is in it): name a new or empty folder, then start the server with it",
        path.display()
    )]
    NotEmpty { path: PathBuf, found: String },
    #[error("another process is filling folder {}: wait for it, or name another folder", path.display())]
    Busy { path: PathBuf },
}

/// Whether a folder was made from another store, and is not [settled](settle) yet.
pub fn is_copied(path: &Path) -> io::Result<bool> {
    path.join(COPIED).try_exists()
}

/// Takes a folder that was made from another store for one of its own: [`is_copied`] is false from then on.
pub fn settle(path: &Path) -> io::Result<()> {
    fs::remove_file(path.join(COPIED))?;
    OsDisk.sync_dir(path)
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
    thread: Option<JoinHandle<Result<Folder, OpenError>>>,
    /// `load.part/`, which stays locked until nothing is left of it: the next load may remove what nobody has locked.
    filled: Option<Folder>,
    /// Whether `load.part/` stays when this is dropped: it is another load's, or it is being moved up. What is left in between is
    /// recognised by the next load, and must not be removed in part.
    keep: bool,
}

impl BulkLoad {
    /// Begins to fill a folder. What an interrupted load has left in it is removed. Fails if the folder is not empty,
    /// or cannot be written.
    pub fn create(path: impl AsRef<Path>, header: &SnapshotHeader) -> Result<Self, LoadError> {
        let path = path.as_ref().to_owned();
        let existed = refuse_used(&path)?;
        folder::make_folder(&OsDisk, &path)?;
        let (rows, messages) = sync_channel(PAGES_WAITING);
        let (part, header) = (path.join(PART), header.clone());
        let thread = std::thread::Builder::new().name("wayleave-load".into());
        let thread = thread.spawn(move || fill(&part, &header, &messages));
        let thread = thread.map_err(|error| OpenError::io(&path, error))?;
        Ok(Self { path, existed, rows: Some(rows), thread: Some(thread), filled: None, keep: false })
    }

    /// Adds rows, each with a greater key than the one before. Blocks while the disk cannot keep up.
    pub fn write(&mut self, rows: Vec<Row>) -> Result<(), LoadError> {
        self.send(Message::Rows(rows))
    }

    /// Completes the folder: from now on it can be opened.
    pub fn finish(mut self) -> Result<(), LoadError> {
        self.send(Message::Finish)?;
        self.join()?;
        self.keep = true;
        move_up(&self.path)?;
        private::keep_and_log(&self.path);
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
            Some(Ok(Ok(filled))) => self.filled = Some(filled),
            Some(Ok(Err(error))) => {
                self.keep = matches!(error, OpenError::InUse { .. });
                return Err(error.into());
            }
            _ => return Err(ended().into()),
        }
        Ok(())
    }
}

impl Drop for BulkLoad {
    fn drop(&mut self) {
        _ = if self.thread.is_some() { self.join() } else { Ok(()) };
        if self.keep {
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
    // Journal and database are moved up before FORMAT. A check of them leaves LOCK, and so does a removal below that is interrupted.
    // The root of a mounted file system contains `lost+found`.
    let known: &[&str] = if !interrupted {
        &["lost+found"]
    } else if is_moving_up(&OsDisk, path).map_err(io)? {
        &[PART, COPIED, folder::LOCK, folder::JOURNAL, folder::DB, "lost+found"]
    } else {
        &[PART, COPIED, folder::LOCK, "lost+found"]
    };
    if let Some(found) = names.iter().find(|name| !known.iter().any(|known| name == known)) {
        return Err(LoadError::NotEmpty { path: path.into(), found: found.to_string_lossy().into_owned() });
    }
    if interrupted {
        let alone = |inside: &Path| match OsDisk.lock(&inside.join(folder::LOCK)) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(LoadError::Busy { path: path.into() }),
            locked => Ok(locked.map_err(|error| OpenError::io(inside, error))?),
        };
        let _loads = alone(&path.join(PART))?;
        if path.join(folder::FORMAT).exists() {
            // The other load has just finished.
            return Err(LoadError::NotEmpty { path: path.into(), found: folder::FORMAT.into() });
        }
        let _reads = alone(path)?;
        for name in [folder::JOURNAL, folder::DB, COPIED, folder::LOCK, PART] {
            let path = path.join(name);
            let is_file = [COPIED, folder::LOCK].contains(&name);
            match if is_file { fs::remove_file(path) } else { fs::remove_dir_all(path) } {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(io(error).into()),
                _ => {}
            }
        }
    }
    Ok(true)
}

/// Whether a load was interrupted when all was complete but FORMAT, so that the database in the folder may be its own. If it was
/// only `load.part/` that could not be removed, the database has been in use since.
pub(crate) fn is_moving_up(disk: &dyn Disk, path: &Path) -> io::Result<bool> {
    disk.exists(&path.join(PART).join(folder::FORMAT))
}

fn fill(part: &Path, header: &SnapshotHeader, messages: &Receiver<Message>) -> Result<Folder, OpenError> {
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
    Ok(made)
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
    let mark = private::options().write(true).create(true).truncate(true).open(path.join(COPIED));
    mark.map_err(|error| OpenError::io(path, error))?;
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
