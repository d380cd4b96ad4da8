//! The write-ahead journal: contains every batch from before it is acknowledged until its rows are in tables.
//!
//! Files are numbered without gaps. Each but the newest ends with a continuation mark, so a missing file is detected.
//! The next file is created, with its head, before the mark is written: a file with nothing but its head may follow one
//! without a mark. The head says where the mark is to be, so a damaged mark is distinguished from lost batches. After the last record, the newest file ends or contains preallocated zeros.
//!
//! Writes are block-aligned and use `O_DIRECT` where the file system supports it: several writes can proceed
//! concurrently, none waits for a page that another is writing back, and data that is never read again takes no page
//! cache. Every write begins with the offset below which the file was durable when the write was placed, so that damage
//! can be distinguished from a torn write, and with an id of its writer (see [`crate::replay`]).

use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use crate::blocks::{BLOCK_BYTES, Blocks, Spare};
use crate::disk::{Disk, DiskFile};
use crate::record::{self, WriteMark};

const SUFFIX: &str = "journal";

/// Zeros are preallocated in steps of this size ahead of small writes: a sync into allocated space needs no metadata
/// update, which halves its latency.
const AHEAD_BYTES: usize = 256 << 10;
/// Writes of at least this size are not preallocated; it would write everything twice.
const LARGE_BYTES: usize = 64 << 10;

/// The length of a file's head.
pub(crate) const HEAD_BYTES: u64 = BLOCK_BYTES as u64;

/// The maximum number of concurrent writes.
pub(crate) const WRITES_MAX: usize = 8;

/// The position at which a replayed journal continues.
pub(crate) struct Tail {
    /// The newest file.
    pub(crate) number: u64,
    /// The block-aligned offset of its next write. Everything below is durable.
    pub(crate) end: u64,
    /// The end of the allocated part, zeros after the last record included.
    pub(crate) filled: u64,
    /// Whether the file system supports `O_DIRECT`.
    pub(crate) direct: bool,
    /// The life that last wrote to it.
    pub(crate) before: u64,
    /// The bytes of all files that were replayed.
    pub(crate) bytes: u64,
}

/// The newest file, to which records are appended.
pub(crate) struct Journal {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    number: u64,
    /// One open file description per concurrent write: the kernel reports a write error once per open file description,
    /// so two syncs through one of them could not both see it.
    files: Vec<Arc<dyn DiskFile>>,
    direct: bool,
    end: u64,
    filled: u64,
    /// This life, and the previous one that wrote to this file.
    lives: (u64, u64),
    zeros: Blocks,
    spare: Arc<Spare>,
}

impl Journal {
    /// Creates a new journal folder with its first file. Remains of an interrupted creation are removed.
    pub(crate) fn create(disk: &dyn Disk, folder: &Path) -> Result<()> {
        if disk.exists(folder)? {
            disk.remove_dir_all(folder)?;
        }
        disk.create_dir(folder)?;
        begin(disk, folder, 1, 0)
    }

    /// Continues where replay ended, under a new life. Fails if the newest file cannot be opened.
    pub(crate) fn resume(disk: Arc<dyn Disk>, folder: &Path, tail: &Tail, life: u64) -> Result<Self> {
        let &Tail { number, end, filled, direct, before, bytes: _ } = tail;
        let files = open_files(&*disk, folder, number, direct)?;
        let (zeros, spare) = (Blocks::zeros(AHEAD_BYTES), Arc::default());
        let lives = (life, before);
        Ok(Self { disk, folder: folder.into(), number, files, direct, end, filled, lives, zeros, spare })
    }

    /// The number of the newest file.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The length of the written part of the newest file.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Allocates a place in the newest file, after all earlier ones. `durable` is the offset below which the file is
    /// known to be durable. Fails if the disk fails, or too many writes are in flight.
    pub(crate) fn place(&mut self, records: &[u8], durable: u64) -> Result<UnwrittenRecords> {
        let free = self.files.iter().find(|file| Arc::strong_count(file) == 1).cloned();
        let file = free.ok_or_else(|| Error::other("too many concurrent journal writes"))?;
        let (life, before) = self.lives;
        let mark = record::write_mark(self.number, WriteMark { durable, life, before });
        let blocks = self.spare.fill(self.number, &mark, records);
        let at = self.end;
        let end = at + blocks.bytes().len() as u64;
        if end > self.filled && records.len() < LARGE_BYTES {
            // Before anything else is placed there.
            match file.write_all_at(self.zeros.bytes(), self.filled) {
                Ok(()) => self.filled += self.zeros.bytes().len() as u64,
                // Preallocation is an optimisation: the write of the records itself reports a full disk.
                Err(error) if is_full(&error) => {}
                Err(error) => return Err(error),
            }
        }
        self.end = end;
        self.filled = self.filled.max(end);
        Ok(UnwrittenRecords { file, blocks, at, spare: self.spare.clone() })
    }

    /// Rotates to the next file. Nothing may be in flight, because the continuation mark states that the old file is
    /// complete. Fails if the disk fails. The next file then has at most its head, or the old one has its continuation
    /// mark.
    pub(crate) fn rotate(&mut self) -> Result<()> {
        let next = self.number + 1;
        begin(&*self.disk, &self.folder, next, self.end)?;
        let files = open_files(&*self.disk, &self.folder, next, self.direct)?;
        let mark = record::encode_continuation();
        let records = [&record::frame(self.number, &mark)[..], &mark].concat();
        self.place(&records, self.end)?.write()?;
        (self.number, self.files, self.end, self.filled, self.lives.1) = (next, files, HEAD_BYTES, HEAD_BYTES, 0);
        Ok(())
    }

    /// Records that everything is durable, so that anything missing at the next open is known to be damage. Nothing may
    /// be in flight. Fails if the disk fails. Nothing is lost.
    pub(crate) fn seal(&mut self) -> Result<()> {
        self.place(&[], self.end)?.write()
    }
}

/// Records that have a place in the journal but are not yet written.
#[must_use]
pub(crate) struct UnwrittenRecords {
    file: Arc<dyn DiskFile>,
    blocks: Blocks,
    at: u64,
    spare: Arc<Spare>,
}

impl UnwrittenRecords {
    /// The offset of the next write.
    pub(crate) fn end(&self) -> u64 {
        self.at + self.blocks.bytes().len() as u64
    }

    /// Writes and syncs the records. Several writes may run concurrently; acknowledgements wait for all earlier ones.
    /// Fails if the disk fails. Any part of the records may then have been written.
    pub(crate) fn write(self) -> Result<()> {
        let Self { file, blocks, at, spare } = self;
        file.write_all_at(blocks.bytes(), at)?;
        spare.put_back(blocks);
        file.sync()
    }
}

/// Creates a file with its head, which is durable before anything refers to the file. A file without it has lost its
/// content.
fn begin(disk: &dyn Disk, folder: &Path, number: u64, continues_at: u64) -> Result<()> {
    let path = path(folder, number);
    disk.create(&path)?;
    write_head(&*disk.open(&path, false)?, number, continues_at)?;
    disk.sync_dir(folder)
}

/// Writes the head of a file and syncs it: one block, which says where the mark of the file before begins.
pub(crate) fn write_head(file: &dyn DiskFile, number: u64, continues_at: u64) -> Result<()> {
    file.write_all_at(&record::head(number, continues_at), 0)?;
    file.sync()
}

fn open_files(disk: &dyn Disk, folder: &Path, number: u64, direct: bool) -> Result<Vec<Arc<dyn DiskFile>>> {
    (0..WRITES_MAX).map(|_| disk.open(&path(folder, number), direct)).collect()
}

/// Tests whether the file system supports `O_DIRECT`, with the write sizes used later, as zeros after the records. Also
/// returns the new end of the allocated part.
pub(crate) fn probe_direct(disk: &dyn Disk, path: &Path, end: u64, filled: u64) -> Result<(bool, u64)> {
    let zeros = Blocks::zeros(AHEAD_BYTES);
    let block = zeros.bytes().get(..BLOCK_BYTES).unwrap_or_default();
    let tried = disk.open(path, true).and_then(|file| {
        file.write_all_at(block, end)?;
        file.write_all_at(zeros.bytes(), end)
    });
    let after = filled.max(end + zeros.bytes().len() as u64);
    match tried {
        Ok(()) => Ok((true, after)),
        // A full disk is reported by later writes; opening still allows reads.
        Err(error) if is_full(&error) => Ok((true, filled)),
        Err(error) if refuses_direct(&error) => Ok((false, filled)),
        Err(error) => Err(error),
    }
}

fn is_full(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// The errors of file systems that do not support `O_DIRECT`, or not with our block size.
fn refuses_direct(error: &Error) -> bool {
    let refusals = [Errno::INVAL, Errno::OPNOTSUPP, Errno::NOTSUP, Errno::NOSYS];
    error.raw_os_error().is_some_and(|raw| refusals.iter().any(|errno| errno.raw_os_error() == raw))
}

/// Removes files up to a number, whose rows are in tables.
pub(crate) fn remove_until(disk: &dyn Disk, folder: &Path, done: u64) -> Result<()> {
    // In order: a kill in between leaves no gap in what is left.
    numbers(disk, folder)?
        .into_iter()
        .filter(|number| *number <= done)
        .try_for_each(|number| disk.remove(&path(folder, number)))
}

/// The numbers of all files, in order.
pub(crate) fn numbers(disk: &dyn Disk, folder: &Path) -> Result<Vec<u64>> {
    let mut numbers: Vec<u64> = disk.list(folder)?.iter().filter_map(|name| number(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Parses the file number from its name.
fn number(name: &str) -> Option<u64> {
    name.strip_suffix(SUFFIX)?.strip_suffix('.')?.parse().ok()
}

/// The path of a journal file.
pub(crate) fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number}.{SUFFIX}"))
}
