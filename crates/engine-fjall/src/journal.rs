//! The files of the journal: every batch lies here before it is answered, until its rows are in the database's tables.
//!
//! Files are numbered without gaps. Each but the newest ends with the mark that the next one goes on, so the loss of any
//! of them is noticed. The next one is made before the mark is written: one that is still empty may follow a file without
//! the mark. Behind the last record of the newest there is nothing, or zeros that were set aside.

use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::record::{self, Record};

const SUFFIX: &str = "journal";

/// Room that is filled with zeros ahead of small writes: a sync into room that was written before need not note where
/// the file lies, which makes it half as long.
const AHEAD_BYTES: usize = 256 << 10;
/// Writes from this size on need no such room; they would write everything twice.
const LARGE_BYTES: usize = 64 << 10;

/// Syncs that may be under way at once.
pub(crate) const SYNCS_MAX: usize = 8;

/// Bytes for one file.
#[derive(Debug, Default)]
pub(crate) struct Segment {
    pub(crate) file: u64,
    pub(crate) bytes: Vec<u8>,
}

/// The newest file, where records are added.
pub(crate) struct Journal {
    folder: PathBuf,
    number: u64,
    file: File,
    /// The same file, opened once for each sync that may be under way. The system tells of a write that failed once to each
    /// time that a file was opened, since that time: so every sync hears of every write before it.
    syncs: Vec<Arc<File>>,
    /// Where the next record begins.
    end: u64,
    /// Up to here the file has been written, with zeros behind the last record.
    filled: u64,
    zeros: Vec<u8>,
}

impl Journal {
    /// Makes the folder of a new journal with its first, empty file. What an earlier try has left is removed.
    ///
    /// # Errors
    /// If the disk fails.
    pub(crate) fn create(folder: &Path) -> Result<()> {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => fs::create_dir(folder)?,
        }
        File::create(path(folder, 1))?.sync_all()?;
        sync_folder(folder)
    }

    /// Reads all files after `done`, the newest of those whose rows are in tables, and gives every record to `apply`.
    /// Returns the journal ready for more. Files up to `done` are removed.
    ///
    /// # Errors
    /// If the disk fails, or with [`ErrorKind::InvalidData`] if something is missing or damaged.
    pub(crate) fn open(folder: &Path, done: u64, mut apply: impl FnMut(Record)) -> Result<Self> {
        let mut number = done + 1;
        loop {
            let file = OpenOptions::new().read(true).write(true).open(path(folder, number));
            let file = file.map_err(|error| missing(error, number))?;
            let bytes = fs::read(path(folder, number))?;
            let (end, goes_on) = replay(number, &bytes, &mut apply)?;
            if !goes_on {
                remove_unbegun(folder, number)?;
                drop_torn_end(&file, number, &bytes, end)?;
                remove_until(folder, done)?;
                let (end, filled) = (end as u64, end as u64);
                let (folder, syncs, zeros) = (folder.into(), open_syncs(folder, number)?, vec![0; AHEAD_BYTES]);
                return Ok(Self { folder, number, file, syncs, end, filled, zeros });
            }
            number += 1;
        }
    }

    /// The number of the newest file.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Adds bytes to their files. They are durable, and all that was added before, once what is returned has been synced.
    ///
    /// # Errors
    /// If the disk fails: then nobody knows what of it is there.
    pub(crate) fn write(&mut self, segments: &[Segment]) -> Result<Written> {
        let mut written = self.written()?;
        let mut segments = segments.iter().peekable();
        while let Some(segment) = segments.next() {
            let next = segments.peek().map(|next| self.make(next.file)).transpose()?;
            self.add(&segment.bytes)?;
            if let Some((number, file, syncs)) = next {
                written.sync()?;
                (self.number, self.file, self.syncs, self.end, self.filled) = (number, file, syncs, 0, 0);
                written = self.written()?;
            }
        }
        Ok(written)
    }

    /// What will sync the next write, taken before it: so it hears if that fails.
    fn written(&self) -> Result<Written> {
        let free = self.syncs.iter().find(|file| Arc::strong_count(file) == 1);
        free.cloned().map(Written).ok_or_else(|| Error::other("too many syncs at once"))
    }

    fn add(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.file.write_all_at(bytes, self.end)?;
        self.end += bytes.len() as u64;
        if self.end > self.filled {
            self.filled = self.end;
            if bytes.len() < LARGE_BYTES {
                self.file.write_all_at(&self.zeros, self.filled)?;
                self.filled += self.zeros.len() as u64;
            }
        }
        Ok(())
    }

    fn make(&self, number: u64) -> Result<(u64, File, Vec<Arc<File>>)> {
        let file = OpenOptions::new().write(true).create_new(true).open(path(&self.folder, number))?;
        sync_folder(&self.folder)?;
        Ok((number, file, open_syncs(&self.folder, number)?))
    }
}

/// What was written and is not yet durable.
#[must_use]
pub(crate) struct Written(Arc<File>);

impl Written {
    /// Makes it durable. Several may do so at once.
    ///
    /// # Errors
    /// If the disk fails: then nobody knows what of it is there.
    pub(crate) fn sync(self) -> Result<()> {
        self.0.sync_data()
    }
}

fn open_syncs(folder: &Path, number: u64) -> Result<Vec<Arc<File>>> {
    let open = |_| OpenOptions::new().write(true).open(path(folder, number)).map(Arc::new);
    (0..SYNCS_MAX).map(open).collect()
}

/// Removes the file after this one, which has no mark: a change of files that was cut off leaves it empty.
fn remove_unbegun(folder: &Path, number: u64) -> Result<()> {
    let next = path(folder, number + 1);
    match fs::metadata(&next) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(data) if data.len() > 0 || path(folder, number + 2).exists() => {
            Err(damaged(format!("journal {number} ends before its time")))
        }
        Ok(_) => fs::remove_file(next),
    }
}

/// Removes the files up to a number: their rows are in tables.
///
/// # Errors
/// If the disk fails.
pub(crate) fn remove_until(folder: &Path, done: u64) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let number = path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok());
        if path.extension().is_some_and(|suffix| suffix == SUFFIX) && number.is_some_and(|number| number <= done) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number}.{SUFFIX}"))
}

fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder)?.sync_all()
}

/// Gives every record of a file to `apply`; returns where they end, and whether the next file goes on.
fn replay(number: u64, bytes: &[u8], apply: &mut impl FnMut(Record)) -> Result<(usize, bool)> {
    let mut end = 0;
    while let Some((body, length)) = record::first(number, bytes.get(end..).unwrap_or_default()) {
        end += length;
        match record::decode(body) {
            Ok(Record::GoesOn) => return Ok((end, true)),
            Ok(record) => apply(record),
            Err(error) => return Err(damaged(format!("journal {number}: {error}"))),
        }
    }
    Ok((end, false))
}

/// Cuts off what lies behind the last whole record of the newest file.
fn drop_torn_end(file: &File, number: u64, bytes: &[u8], end: usize) -> Result<()> {
    let rest = bytes.get(end..).unwrap_or_default();
    let dropped = rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    if dropped > 0 {
        // After a power cut this is the batch that nobody was answered. It cannot be told from damage to the last journal.
        tracing::warn!(
            journal.number = number,
            journal.bytes_kept = end,
            journal.bytes_dropped = dropped,
            "the end of the journal could not be read and was dropped; after a clean stop this means damage: check the disk"
        );
    }
    if rest.is_empty() {
        return Ok(());
    }
    file.set_len(end as u64)?;
    file.sync_all()
}

fn missing(error: Error, number: u64) -> Error {
    if error.kind() == ErrorKind::NotFound { damaged(format!("journal {number} is missing")) } else { error }
}

fn damaged(what: String) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
