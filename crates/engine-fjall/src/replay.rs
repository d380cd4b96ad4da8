//! Recovery: replays the journal at open, distinguishes a torn tail from damage, and prepares the newest file for
//! appends.
//!
//! A power cut may tear the writes that were in flight, in any order; none of them was acknowledged. So replay stops at
//! the first missing record and drops the rest, unless a later write proves that the record was durable: every write
//! carries the offset below which the file was durable when it was placed. That is damage, and so is a file without a
//! continuation mark when the next file has content. On damage the store refuses to open and changes nothing.
//!
//! A torn tail is overwritten with zeros. If the disk loses these (after a failed sync that cannot be excluded), a
//! complete write of the tail may reappear directly after newer writes. So every write also names the life of the store
//! that wrote it and the life that it found there: a write that does not follow from its predecessor ends the file.
//!
//! What was replayed is then synced, file by file: a killed process may have left it in the page cache only, and later
//! writes depend on it.

use std::io::{ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::blocks::{BLOCK_BYTES, padding_after};
use crate::disk::Disk;
use crate::journal::{self, Tail};
use crate::record::{self, Record};

/// Why a journal cannot be replayed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An I/O error.
    Io(std::io::Error),
    /// Something that was durable is missing.
    Damaged(Damage),
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

/// Where the damage is, and what a repair would drop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    /// The file.
    pub(crate) file: PathBuf,
    /// The offset in the file.
    pub(crate) offset: u64,
    /// What is wrong.
    pub(crate) what: String,
    /// What a repair would drop; `None` if it cannot help.
    pub(crate) repair: Option<Dropped>,
}

/// What a repair drops: everything after the damage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// Bytes of the damaged file after the damage.
    pub(crate) bytes: u64,
    /// Batches after the damage that are still readable, in this file and in later ones.
    pub(crate) batches: u64,
    /// Later files.
    pub(crate) files: u64,
}

impl std::fmt::Display for Dropped {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { bytes, batches, files } = self;
        write!(out, "{bytes} bytes of this file and {files} later files, ")?;
        match batches {
            0 => write!(out, "in which no whole batch can be read"),
            1 => write!(out, "with at least one whole batch"),
            _ => write!(out, "with at least {batches} whole batches"),
        }
    }
}

/// A journal that is being replayed.
pub(crate) struct Replay<'a> {
    /// The disk of its files.
    pub(crate) disk: &'a Arc<dyn Disk>,
    /// The journal's folder.
    pub(crate) folder: &'a Path,
    /// Files up to this one are fully in tables.
    pub(crate) done: u64,
    /// Whether to drop everything after damage instead of refusing to open.
    pub(crate) repair: bool,
}

/// The content of one file.
struct Content {
    /// The end of its readable records.
    end: usize,
    goes_on: bool,
    /// The life that wrote last.
    life: u64,
    bytes: Vec<u8>,
}

impl Replay<'_> {
    /// Replays all files after `done` into `apply`; returns the position at which the journal continues.
    ///
    /// # Errors
    /// If the disk fails, or something that was durable is missing and no repair was asked for.
    pub(crate) fn run(&self, mut apply: impl FnMut(Record)) -> std::result::Result<Tail, Failure> {
        let mut number = self.done + 1;
        loop {
            let content = self.read(number, &mut apply)?;
            if content.goes_on {
                self.make_durable(number, &content)?;
                number += 1;
                continue;
            }
            let damaged = self.damage(number, &content)?;
            let repaired = damaged.is_some();
            if let Some(what) = damaged {
                let damage = self.describe(number, &content, what)?;
                if !self.repair {
                    return Err(Failure::Damaged(damage));
                }
                let Damage { file, offset, what, repair } = &damage;
                let dropped = repair.map(|dropped| dropped.to_string()).unwrap_or_default();
                tracing::warn!(
                    journal.file = %file.display(), journal.offset = offset, dropped, what,
                    "the journal is damaged; what follows is dropped, acknowledged or not, and a copy of it kept beside the journal. \
                     Put again what is missing. Epochs of roles go on well above all that were granted; hosts that were \
                     reserved in the dropped part may be visited by others"
                );
                self.set_aside(number, &content)?;
            }
            let next = self.path(number + 1);
            if self.disk.exists(&next)? {
                // An interrupted rotation leaves it empty.
                self.disk.remove(&next)?;
            }
            // Flushed files stay until the next flush: the database's record that they are flushed may itself be only
            // in the page cache.
            return Ok(self.make_ready(number, &content, repaired)?);
        }
    }

    fn path(&self, number: u64) -> PathBuf {
        journal::path(self.folder, number)
    }

    fn read(&self, number: u64, apply: &mut impl FnMut(Record)) -> std::result::Result<Content, Failure> {
        let bytes = match self.disk.read(&self.path(number)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let what = "the file is missing".into();
                return Err(Failure::Damaged(Damage { file: self.path(number), offset: 0, what, repair: None }));
            }
            Err(error) => return Err(error.into()),
        };
        let (mut end, mut life) = (0, 0);
        while let Some((body, length)) = record::first(number, bytes.get(end..).unwrap_or_default()) {
            match record::decode(body) {
                Ok(Record::GoesOn) => return Ok(Content { end: end + length, goes_on: true, life, bytes }),
                Ok(Record::Padding) => {}
                Ok(Record::Write(mark)) if mark.life == life || mark.before == life => life = mark.life,
                Ok(Record::Write(_)) => break,
                Ok(record) => apply(record),
                Err(error) => {
                    // Its checksum is valid: a newer program wrote a record kind that this one does not know.
                    let (file, what) = (self.path(number), error.to_string());
                    return Err(Failure::Damaged(Damage { file, offset: end as u64, what, repair: None }));
                }
            }
            end += length;
        }
        Ok(Content { end, goes_on: false, life, bytes })
    }

    /// Diagnoses a file without a continuation mark; `None` if it is the newest, with at most a torn tail.
    fn damage(&self, number: u64, content: &Content) -> Result<Option<String>> {
        let claimed = later_writes(number, content).filter_map(|body| match record::decode(body) {
            // Of any life: a torn write claims no more than what precedes its tail.
            Ok(Record::Write(mark)) => Some(mark.durable),
            _ => None,
        });
        if claimed.max().is_some_and(|durable| durable > content.end as u64) {
            return Ok(Some("a record cannot be read, and later ones say that it was durable".into()));
        }
        if self.has_begun(number + 1)? || self.disk.exists(&self.path(number + 2))? {
            return Ok(Some("it ends here, and the next file has begun".into()));
        }
        Ok(None)
    }

    fn describe(&self, number: u64, content: &Content, what: String) -> std::result::Result<Damage, Failure> {
        let mut dropped = Dropped { bytes: unread(content).len() as u64, ..Dropped::default() };
        dropped.batches = later_batches(number, content);
        let mut later = number + 1;
        while self.disk.exists(&self.path(later))? {
            let mut count = 0;
            // A later file may be damaged as well: count what is readable.
            match self.read(later, &mut |_| count += 1) {
                Ok(_) | Err(Failure::Damaged(_)) => {}
                Err(error) => return Err(error),
            }
            (dropped.batches, dropped.files, later) = (dropped.batches + count, dropped.files + 1, later + 1);
        }
        Ok(Damage { file: self.path(number), offset: content.end as u64, what, repair: Some(dropped) })
    }

    /// Keeps what a repair drops beside the journal, under names that replay ignores.
    fn set_aside(&self, number: u64, content: &Content) -> Result<()> {
        let kept = self.folder.join(format!("{number}.dropped-from-{}", content.end));
        if self.disk.exists(&kept)? {
            self.disk.remove(&kept)?;
        }
        self.disk.create(&kept)?;
        let file = self.disk.open(&kept, false)?;
        file.write_all_at(unread(content), 0)?;
        file.sync()?;
        // In descending order, so that an interrupted repair can be repeated.
        let mut last = number;
        while self.disk.exists(&self.path(last + 1))? {
            last += 1;
        }
        for later in (number + 1..=last).rev() {
            self.disk.rename(&self.path(later), &self.folder.join(format!("{later}.dropped")))?;
        }
        self.disk.sync_dir(self.folder)
    }

    /// Syncs a file that is continued by the next one.
    fn make_durable(&self, number: u64, content: &Content) -> Result<()> {
        let file = self.disk.open(&self.path(number), false)?;
        if !self.has_begun(number + 1)? {
            // The continuation mark itself may be what a sync has failed for; see below.
            file.write_all_at(content.bytes.get(..content.end).unwrap_or_default(), 0)?;
        }
        file.sync()
    }

    fn has_begun(&self, number: u64) -> Result<bool> {
        let path = self.path(number);
        Ok(self.disk.exists(&path)? && !self.disk.read(&path)?.is_empty())
    }

    /// Prepares the newest file for appends: zeros after its records, the last block padded, everything synced.
    fn make_ready(&self, number: u64, content: &Content, repaired: bool) -> Result<Tail> {
        let path = self.path(number);
        let torn = unread(content).len();
        if torn > 0 && !repaired {
            tracing::warn!(
                journal.number = number,
                journal.bytes_kept = content.end,
                journal.bytes_dropped = torn,
                "the end of the journal was torn off by a power cut or a kill and is dropped; it was not acknowledged"
            );
        }
        let file = self.disk.open(&path, false)?;
        // Overwritten instead of truncated: the space stays allocated even on a full disk.
        let mut rest = vec![0; padding_after(content.end)];
        record::pad(number, &mut rest);
        let end = (content.end + rest.len()) as u64;
        rest.resize(rest.len().max(torn), 0);
        if !rest.is_empty() {
            file.write_all_at(&rest, content.end as u64)?;
        }
        let filled = end.max((content.bytes.len() / BLOCK_BYTES * BLOCK_BYTES) as u64);
        let (direct, filled) = journal::probe_direct(&**self.disk, &path, end, filled)?;
        // After a failed writeback the kernel marks pages clean that never reached the disk: reads return them, but
        // they would be lost with the page cache. Rewriting them makes the sync effective. `O_DIRECT` writes were not
        // in the page cache; only padding of an earlier open was, in the last two blocks.
        let from = if direct { content.end.saturating_sub(2 * BLOCK_BYTES) / BLOCK_BYTES * BLOCK_BYTES } else { 0 };
        file.write_all_at(content.bytes.get(from..content.end).unwrap_or_default(), from as u64)?;
        file.sync()?;
        Ok(Tail { number, end, filled, direct, before: content.life })
    }
}

/// The bytes after the readable records, without trailing zeros.
fn unread(content: &Content) -> &[u8] {
    let rest = content.bytes.get(content.end..).unwrap_or_default();
    let written = rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    rest.get(..written).unwrap_or_default()
}

/// The first record of each block after the readable records: every write begins on a block boundary.
fn later_writes(number: u64, content: &Content) -> impl Iterator<Item = &[u8]> {
    let blocks = (content.end.next_multiple_of(BLOCK_BYTES)..content.bytes.len()).step_by(BLOCK_BYTES);
    blocks.filter_map(move |at| Some(record::first(number, content.bytes.get(at..)?)?.0))
}

/// The number of readable batches after the damage.
fn later_batches(number: u64, content: &Content) -> u64 {
    let (mut count, mut at) = (0, content.end.next_multiple_of(BLOCK_BYTES));
    while at < content.bytes.len() {
        match record::first(number, content.bytes.get(at..).unwrap_or_default()) {
            Some((body, length)) => {
                count += u64::from(matches!(record::decode(body), Ok(Record::Batch { .. })));
                at += length;
            }
            None => at = (at + 1).next_multiple_of(BLOCK_BYTES),
        }
    }
    count
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
