//! The files of the journal: every batch lies here before it is answered, until its rows are in the database's tables.
//!
//! Files are numbered without gaps. Each but the newest ends with the mark that the next one goes on, so the loss of any
//! of them is noticed. The next one is made before the mark is written: one that is still empty may follow a file without
//! the mark. Behind the last record of the newest there is nothing, or zeros that were set aside.
//!
//! Every write begins and ends with a block and bypasses the page cache where the file system allows it: several writes then
//! reach the disk side by side, none waits for a page that another is writing, and what is never read again takes no memory.
//! Every write begins with the offset below which the file was durable when the write was placed, so that damage can be told
//! from a write that a power cut has torn, and with who wrote it (see [`crate::replay`]).

use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use crate::blocks::{BLOCK_BYTES, Blocks, Spare};
use crate::disk::{Disk, DiskFile};
use crate::record::{self, WriteMark};

const SUFFIX: &str = "journal";

/// Room that is filled with zeros ahead of small writes: a sync into room that was written before need not note where
/// the file lies, which makes it half as long.
const AHEAD_BYTES: usize = 256 << 10;
/// Writes from this size on need no such room; they would write everything twice.
const LARGE_BYTES: usize = 64 << 10;

/// Writes that may be in flight at once.
pub(crate) const WRITES_MAX: usize = 8;

/// Where a journal that was read goes on.
pub(crate) struct Tail {
    /// The newest file.
    pub(crate) number: u64,
    /// Where its next write begins: with a block. Everything below is durable.
    pub(crate) end: u64,
    /// Up to here the file has been written, with zeros behind the last record.
    pub(crate) filled: u64,
    /// Whether the file system lets writes bypass the page cache.
    pub(crate) direct: bool,
    /// The life that has written last in it.
    pub(crate) before: u64,
}

/// The newest file, where records are added.
pub(crate) struct Journal {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    number: u64,
    /// The file, opened once for each write that may be in flight: the kernel reports a write error once per open file
    /// description, so two syncs through one of them could not both hear of it.
    files: Vec<Arc<dyn DiskFile>>,
    direct: bool,
    end: u64,
    filled: u64,
    /// This life, and the one that wrote before it in this file.
    lives: (u64, u64),
    zeros: Blocks,
    spare: Arc<Spare>,
}

impl Journal {
    /// Makes the folder of a new journal with its first, empty file. What an earlier try has left is removed.
    ///
    /// # Errors
    /// If the disk fails.
    pub(crate) fn create(disk: &dyn Disk, folder: &Path) -> Result<()> {
        if disk.exists(folder)? {
            disk.remove_dir_all(folder)?;
        }
        disk.create_dir(folder)?;
        disk.create(&path(folder, 1))?;
        disk.sync_dir(folder)
    }

    /// Goes on where reading has ended, as a life that never was before.
    ///
    /// # Errors
    /// If the newest file cannot be opened.
    pub(crate) fn resume(disk: Arc<dyn Disk>, folder: &Path, tail: &Tail, life: u64) -> Result<Self> {
        let &Tail { number, end, filled, direct, before } = tail;
        let files = open_files(&*disk, folder, number, direct)?;
        let (zeros, spare) = (Blocks::zeros(AHEAD_BYTES), Arc::default());
        let lives = (life, before);
        Ok(Self { disk, folder: folder.into(), number, files, direct, end, filled, lives, zeros, spare })
    }

    /// The number of the newest file.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// How much of the newest file is written.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Gives records their place in the newest file, after all that had theirs before. `durable` is the offset below which
    /// the file is known to be durable.
    ///
    /// # Errors
    /// If the disk fails, or too many writes are in flight.
    pub(crate) fn place(&mut self, records: &[u8], durable: u64) -> Result<Placed> {
        let free = self.files.iter().find(|file| Arc::strong_count(file) == 1).cloned();
        let file = free.ok_or_else(|| Error::other("too many writes at once"))?;
        let (life, before) = self.lives;
        let mark = record::write_mark(self.number, WriteMark { durable, life, before });
        let blocks = self.spare.fill(self.number, &mark, records);
        let at = self.end;
        let end = at + blocks.bytes().len() as u64;
        if end > self.filled && records.len() < LARGE_BYTES {
            // Before anybody else is given a place there.
            match file.write_all_at(self.zeros.bytes(), self.filled) {
                Ok(()) => self.filled += self.zeros.bytes().len() as u64,
                // These zeros only save time: whether there is room for the records is for their own write to say.
                Err(error) if is_full(&error) => {}
                Err(error) => return Err(error),
            }
        }
        self.end = end;
        self.filled = self.filled.max(end);
        Ok(Placed { file, blocks, at, spare: self.spare.clone() })
    }

    /// Lets the journal go on in the next file. Nothing may be in flight: the mark at the end of the old file says that all
    /// of it is there.
    ///
    /// # Errors
    /// If the disk fails. The next file is empty then, or the old one says that it goes on there.
    pub(crate) fn rotate(&mut self) -> Result<()> {
        let next = self.number + 1;
        self.disk.create(&path(&self.folder, next))?;
        self.disk.sync_dir(&self.folder)?;
        let files = open_files(&*self.disk, &self.folder, next, self.direct)?;
        let goes_on = record::encode_goes_on();
        let records = [&record::frame(self.number, &goes_on)[..], &goes_on].concat();
        self.place(&records, self.end)?.write()?;
        (self.number, self.files, self.end, self.filled, self.lives.1) = (next, files, 0, 0, 0);
        Ok(())
    }

    /// Notes that everything is durable, so that whatever is missing at the next open is known to be damage. Nothing may be
    /// in flight.
    ///
    /// # Errors
    /// If the disk fails; nothing is lost by it.
    pub(crate) fn seal(&mut self) -> Result<()> {
        self.place(&[], self.end)?.write()
    }
}

/// What has its place in the journal and is yet to be written there.
#[must_use]
pub(crate) struct Placed {
    file: Arc<dyn DiskFile>,
    blocks: Blocks,
    at: u64,
    spare: Arc<Spare>,
}

impl Placed {
    /// Where the next write begins.
    pub(crate) fn end(&self) -> u64 {
        self.at + self.blocks.bytes().len() as u64
    }

    /// Makes it durable. Several may do so at once; whoever is told of one waits for those before it.
    ///
    /// # Errors
    /// If the disk fails: then any part of it may have been written.
    pub(crate) fn write(self) -> Result<()> {
        let Self { file, blocks, at, spare } = self;
        file.write_all_at(blocks.bytes(), at)?;
        spare.put_back(blocks);
        file.sync()
    }
}

fn open_files(disk: &dyn Disk, folder: &Path, number: u64, direct: bool) -> Result<Vec<Arc<dyn DiskFile>>> {
    (0..WRITES_MAX).map(|_| disk.open(&path(folder, number), direct)).collect()
}

/// Whether writes to a file may bypass the page cache: tried with the sizes that are written later, as zeros behind its
/// records. Returns it with the offset up to which the file is filled now.
///
/// # Errors
/// If the disk fails.
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
        // A full disk is told to whoever writes: until then there is all to read.
        Err(error) if is_full(&error) => Ok((true, filled)),
        Err(error) if refuses_direct(&error) => Ok((false, filled)),
        Err(error) => Err(error),
    }
}

fn is_full(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// What file systems answer to direct I/O, or to direct I/O in our block size, if they do not have it.
fn refuses_direct(error: &Error) -> bool {
    let refusals = [Errno::INVAL, Errno::OPNOTSUPP, Errno::NOTSUP, Errno::NOSYS];
    error.raw_os_error().is_some_and(|raw| refusals.iter().any(|errno| errno.raw_os_error() == raw))
}

/// Removes the files up to a number: their rows are in tables.
///
/// # Errors
/// If the disk fails.
pub(crate) fn remove_until(disk: &dyn Disk, folder: &Path, done: u64) -> Result<()> {
    for name in disk.list(folder)? {
        if number(&name).is_some_and(|number| number <= done) {
            disk.remove(&folder.join(name))?;
        }
    }
    Ok(())
}

/// The number of a journal's file, by its name.
fn number(name: &str) -> Option<u64> {
    name.strip_suffix(SUFFIX)?.strip_suffix('.')?.parse().ok()
}

/// Where the file of a number lies.
pub(crate) fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number}.{SUFFIX}"))
}
