//! The files of the journal: every batch lies here before it is answered, until its rows are in the database's tables.
//!
//! Files are numbered without gaps. Each but the newest ends with the mark that the next one goes on, so the loss of any
//! of them is noticed. The next one is made before the mark is written: one that is still empty may follow a file without
//! the mark. Behind the last record of the newest there is nothing, or zeros that were set aside.
//!
//! Every write begins and ends with a block, and goes past the system's cache where that can be done: several writes then
//! reach the disk side by side, none waits for a page that another is writing, and what is never read again takes no memory.

use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;

use crate::blocks::{Blocks, Spare, padding_after};
use crate::record::{self, Record};

const SUFFIX: &str = "journal";

/// Room that is filled with zeros ahead of small writes: a sync into room that was written before need not note where
/// the file lies, which makes it half as long.
const AHEAD_BYTES: usize = 256 << 10;
/// Writes from this size on need no such room; they would write everything twice.
const LARGE_BYTES: usize = 64 << 10;

/// Writes that may be under way at once.
pub(crate) const WRITES_MAX: usize = 8;

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
    /// The file, opened once for each write that may be under way. The system tells of a write that failed once to each time
    /// that a file was opened, since that time: so every sync hears of every write before it.
    files: Vec<Arc<File>>,
    /// Whether it is written past the system's cache.
    direct: bool,
    /// Where the next write begins: with a block.
    end: u64,
    /// Up to here the file has been written, with zeros behind the last record.
    filled: u64,
    zeros: Blocks,
    spare: Arc<Spare>,
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
                return Self::go_on(folder, number, pad_end(&file, number, end)?);
            }
            number += 1;
        }
    }

    /// The journal at the end of its newest file. Whether the cache can be passed by is tried with the first zeros.
    fn go_on(folder: &Path, number: u64, end: u64) -> Result<Self> {
        let zeros = Blocks::zeros(AHEAD_BYTES);
        let open = |direct| {
            let files = open_files(folder, number, direct)?;
            let filled = files.first().map_or(Ok(()), |file| file.write_all_at(zeros.bytes(), end));
            Ok((files, filled))
        };
        let (direct, (files, filled)) = match open(true) {
            Err(error) | Ok((_, Err(error))) if error.kind() == ErrorKind::InvalidInput => (false, open(false)?),
            opened => (true, opened?),
        };
        // A disk that is full is told to whoever writes: until then there is all to read.
        let filled = if filled.is_ok() { end + zeros.bytes().len() as u64 } else { end };
        Ok(Self { folder: folder.into(), number, files, direct, end, filled, zeros, spare: Arc::default() })
    }

    /// The number of the newest file.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// How much of the newest file is written.
    pub(crate) fn bytes(&self) -> usize {
        usize::try_from(self.end).unwrap_or(usize::MAX)
    }

    /// Gives bytes their place in their files, after all that had theirs before.
    ///
    /// # Errors
    /// If the disk fails: then nobody knows what of it is there.
    pub(crate) fn place(&mut self, segments: &[Segment]) -> Result<Placed> {
        let mut segments = segments.iter().peekable();
        loop {
            let bytes = segments.next().map_or(&[][..], |segment| &segment.bytes);
            let next = segments.peek().map(|next| self.make(next.file)).transpose()?;
            let placed = self.add(bytes)?;
            let Some((number, files)) = next else { return Ok(placed) };
            placed.write()?;
            (self.number, self.files, self.end, self.filled) = (number, files, 0, 0);
        }
    }

    fn add(&mut self, bytes: &[u8]) -> Result<Placed> {
        let free = self.files.iter().find(|file| Arc::strong_count(file) == 1).cloned();
        let file = free.ok_or_else(|| Error::other("too many writes at once"))?;
        let blocks = self.spare.fill(self.number, bytes);
        let at = self.end;
        self.end += blocks.bytes().len() as u64;
        if self.end > self.filled && bytes.len() < LARGE_BYTES {
            // Before anybody else is given a place there.
            file.write_all_at(self.zeros.bytes(), self.filled)?;
            self.filled += self.zeros.bytes().len() as u64;
        }
        self.filled = self.filled.max(self.end);
        Ok(Placed { file, blocks, at, spare: self.spare.clone() })
    }

    fn make(&self, number: u64) -> Result<(u64, Vec<Arc<File>>)> {
        OpenOptions::new().write(true).create_new(true).open(path(&self.folder, number))?;
        sync_folder(&self.folder)?;
        Ok((number, open_files(&self.folder, number, self.direct)?))
    }
}

/// What has its place in the journal and is yet to be written there.
#[must_use]
pub(crate) struct Placed {
    file: Arc<File>,
    blocks: Blocks,
    at: u64,
    spare: Arc<Spare>,
}

impl Placed {
    /// Makes it durable. Several may do so at once; whoever is told of one waits for those before it.
    ///
    /// # Errors
    /// If the disk fails: then nobody knows what of it is there.
    pub(crate) fn write(self) -> Result<()> {
        let Self { file, blocks, at, spare } = self;
        file.write_all_at(blocks.bytes(), at)?;
        spare.put_back(blocks);
        file.sync_data()
    }
}

fn open_files(folder: &Path, number: u64, direct: bool) -> Result<Vec<Arc<File>>> {
    let flags = if direct { OFlags::DIRECT.bits() as i32 } else { 0 };
    let open = |_| OpenOptions::new().write(true).custom_flags(flags).open(path(folder, number)).map(Arc::new);
    (0..WRITES_MAX).map(open).collect()
}

/// Fills the last block of a file, whose records end here; says where the next begins.
fn pad_end(file: &File, number: u64, end: usize) -> Result<u64> {
    let mut padding = vec![0; padding_after(end)];
    record::pad(number, &mut padding);
    if !padding.is_empty() {
        file.write_all_at(&padding, end as u64)?;
        file.sync_all()?;
    }
    Ok((end + padding.len()) as u64)
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
            Ok(Record::Padding) => {}
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
