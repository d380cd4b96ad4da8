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
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::blocks::{BLOCK_BYTES, Spare, padding_after};
use crate::disk::{self, Disk};
use crate::journal::{self, HEAD_BYTES, Tail};
use crate::journal_damage::{Damage, Dropped};
use crate::journal_reader::{JournalReader, PIECE_BYTES};
use crate::record::{self, Record, WriteMark};
use crate::trouble;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Why a journal cannot be replayed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An I/O error and its file.
    Io(std::io::Error, Option<PathBuf>),
    /// Something that was durable is missing.
    Damaged(Damage),
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error, None)
    }
}

/// What a repair writes again without dropping anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    /// The head of a file.
    Head,
    /// The continuation mark at its end.
    Mark,
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

/// A file, and what is wrong with it, if so.
pub(crate) type Inspected = (PathBuf, std::result::Result<(), String>);

/// What was found in one file.
struct Content {
    /// The end of its readable records.
    end: u64,
    is_continued: bool,
    /// The life that wrote last.
    life: u64,
    file: JournalReader,
}

impl Replay<'_> {
    /// Replays all files after `done` into `apply`; returns the position at which the journal continues. Fails if the
    /// disk fails, or something that was durable is missing and no repair was asked for.
    pub(crate) fn run(&self, mut apply: impl FnMut(Record)) -> std::result::Result<Tail, Failure> {
        // `continues_at`: where the continuation mark of the file before begins.
        let (mut number, mut bytes, mut continues_at) = (self.done + 1, 0, 0);
        loop {
            let mut content = self.read(number, &mut apply)?;
            bytes += content.end;
            if content.is_continued {
                self.make_durable(number, &mut content)?;
                (number, continues_at) = (number + 1, content.end / BLOCK * BLOCK);
                continue;
            }
            let damaged = self.damage(number, &mut content)?;
            let repaired = damaged.is_some();
            if let Some(what) = damaged {
                let lost = self.lost_alone(number, &mut content)?;
                if !self.repair {
                    return Err(Failure::Damaged(self.describe(number, &mut content, what, lost)?));
                }
                match lost {
                    Some(Lost::Head) => {
                        self.write_head(number, continues_at)?;
                        continue;
                    }
                    Some(Lost::Mark) => {
                        self.write_mark(number, &content)?;
                        (number, continues_at) = (number + 1, content.end / BLOCK * BLOCK);
                        continue;
                    }
                    None => self.drop_rest(number, &mut content, what)?,
                }
            }
            let next = self.path(number + 1);
            if self.disk.exists(&next)? {
                // An interrupted rotation leaves it with nothing but its head.
                self.disk.remove(&next)?;
            }
            // Flushed files stay until the next flush: the tables' record that they are flushed may itself be only in the
            // page cache.
            return Ok(Tail { bytes, ..self.make_ready(number, &mut content, continues_at, repaired)? });
        }
    }

    /// Replays what can be read without changing anything, up to the first damage that costs batches. Returns that damage;
    /// `behind` gets what can be read behind it.
    pub(crate) fn salvage(
        &self,
        apply: impl FnMut(Record),
        mut behind: impl FnMut(Record),
    ) -> std::result::Result<Option<Damage>, Failure> {
        let damage = self.until_damage(apply)?;
        if let Some(damage) = &damage {
            let numbers = journal::numbers(&**self.disk, self.folder).unwrap_or_default();
            for number in numbers.into_iter().filter(|number| *number >= damage.number) {
                let mut file = JournalReader::open(self.disk, self.path(number), number)?;
                file.passes = true;
                let from = if number == damage.number { damage.offset } else { 0 };
                each_record(&mut file, from, &mut behind)?;
            }
        }
        Ok(damage)
    }

    fn until_damage(&self, mut apply: impl FnMut(Record)) -> std::result::Result<Option<Damage>, Failure> {
        let (mut number, mut begin) = (self.done + 1, 0);
        loop {
            let mut content = match self.read_from(number, begin, true, &mut apply) {
                Err(Failure::Damaged(damage)) => return Ok(Some(damage)),
                content => content?,
            };
            begin = 0;
            if content.is_continued {
                number += 1;
                continue;
            }
            let Some(what) = self.damage(number, &mut content)? else { return Ok(None) };
            match self.lost_alone(number, &mut content)? {
                Some(Lost::Head) => begin = HEAD_BYTES,
                Some(Lost::Mark) => number += 1,
                None => return self.describe(number, &mut content, what, None).map(Some),
            }
        }
    }

    /// Reads all files after `done` without changing anything; returns what is wrong with each, by its path.
    pub(crate) fn inspect(&self) -> std::result::Result<Vec<Inspected>, Failure> {
        let last = journal::numbers(&**self.disk, self.folder)?.last().copied().unwrap_or(0);
        let (mut files, mut number, mut is_continued) = (Vec::new(), self.done + 1, true);
        // The file after the last one is missing if that one continues.
        while is_continued || number <= last {
            let content = self.read(number, &mut |_| {});
            is_continued = content.as_ref().is_ok_and(|content| content.is_continued);
            let verdict = match content {
                Ok(_) if is_continued => Ok(()),
                Ok(mut content) => self.damage(number, &mut content)?.map_or(Ok(()), Err),
                Err(Failure::Damaged(damage)) => Err(format!("at byte {}: {}", damage.offset, damage.what)),
                Err(Failure::Io(error, _)) if trouble::is_damage_io(&error) => {
                    Err(format!("it cannot be read: {error}"))
                }
                Err(failure) => return Err(failure),
            };
            files.push((self.path(number), verdict));
            number += 1;
        }
        Ok(files)
    }

    fn path(&self, number: u64) -> PathBuf {
        journal::path(self.folder, number)
    }

    fn read(&self, number: u64, apply: &mut impl FnMut(Record)) -> std::result::Result<Content, Failure> {
        self.read_from(number, 0, false, apply)
    }

    /// Reads a file from one of its blocks on; with `passes`, sectors that the disk cannot read are read as zeros.
    fn read_from(
        &self,
        number: u64,
        begin: u64,
        passes: bool,
        apply: &mut impl FnMut(Record),
    ) -> std::result::Result<Content, Failure> {
        let mut file = match JournalReader::open(self.disk, self.path(number), number) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let what = "the file is missing".into();
                return Err(Failure::Damaged(Damage {
                    file: self.path(number),
                    number,
                    offset: 0,
                    what,
                    repair: None,
                }));
            }
            Err(error) => return Err(Failure::Io(error, Some(self.path(number)))),
        };
        file.passes = passes;
        let (mut end, mut life) = (begin, 0);
        let failed = |error| Failure::Io(error, Some(self.path(number)));
        while let Some((record, length)) = file.record(end).map_err(failed)? {
            match record {
                Ok(Record::Continuation) => return Ok(Content { end: end + length, is_continued: true, life, file }),
                Ok(Record::Padding | Record::Head { .. }) => {}
                Ok(Record::Write(mark)) if mark.life == life || mark.before == life => life = mark.life,
                Ok(Record::Write(_)) => break,
                Ok(record) => apply(record),
                Err(error) => {
                    // Its checksum is valid: a newer program wrote a record kind that this one does not know.
                    let (file, what) = (self.path(number), error.to_string());
                    return Err(Failure::Damaged(Damage { file, number, offset: end, what, repair: None }));
                }
            }
            end += length;
        }
        Ok(Content { end, is_continued: false, life, file })
    }

    /// Diagnoses a file without a continuation mark; `None` if it is the newest, with at most a torn tail.
    fn damage(&self, number: u64, content: &mut Content) -> Result<Option<String>> {
        if content.end < HEAD_BYTES {
            return Ok(Some("its beginning cannot be read".into()));
        }
        let mut claimed = 0;
        let mut at = content.end.next_multiple_of(BLOCK);
        // Every write begins on a block boundary.
        while at < content.file.len {
            // Of any life: a torn write claims no more than what precedes its tail.
            if let Some((Ok(Record::Write(mark)), _)) = content.file.record(at)? {
                claimed = claimed.max(mark.durable);
            }
            at += BLOCK;
        }
        if claimed > content.end {
            return Ok(Some("a record cannot be read, and later ones say that it was durable".into()));
        }
        if self.has_begun(number + 1)? || self.disk.exists(&self.path(number + 2))? {
            return Ok(Some("it ends here, and the next file has begun".into()));
        }
        Ok(None)
    }

    /// The unreadable part, if all batches are readable: the head, if the first write behind it is readable and
    /// nothing was replayed yet; or the continuation mark, if all records were read up to the start of the next file,
    /// as its head names it.
    fn lost_alone(&self, number: u64, content: &mut Content) -> Result<Option<Lost>> {
        if content.end == 0 {
            let is_next = matches!(content.file.record(HEAD_BYTES)?, Some((Ok(Record::Write(_)), _)));
            return Ok(is_next.then_some(Lost::Head));
        }
        if !self.disk.exists(&self.path(number + 1))? {
            return Ok(None);
        }
        let mut next = JournalReader::open(self.disk, self.path(number + 1), number + 1)?;
        next.passes = content.file.passes;
        let Some((Ok(Record::Head { continues_at }), _)) = next.record(0)? else { return Ok(None) };
        Ok((continues_at > 0 && content.end >= continues_at).then_some(Lost::Mark))
    }

    /// Whether there is a file with this number whose head cannot be read.
    fn has_lost_head(&self, number: u64) -> Result<bool> {
        if !self.disk.exists(&self.path(number))? {
            return Ok(false);
        }
        let mut file = JournalReader::open(self.disk, self.path(number), number)?;
        file.passes = true;
        Ok(!matches!(file.record(0)?, Some((Ok(Record::Head { .. }), _))))
    }

    /// Writes a head over a damaged one.
    fn write_head(&self, number: u64, continues_at: u64) -> Result<()> {
        tracing::warn!(
            journal.number = number,
            "the head of a journal file is damaged and is written again; no batch is lost"
        );
        journal::write_head(&*self.disk.open(&self.path(number), false)?, number, continues_at)
    }

    /// Writes a continuation mark over a damaged one.
    fn write_mark(&self, number: u64, content: &Content) -> Result<()> {
        tracing::warn!(
            journal.file = %self.path(number).display(), journal.offset = content.end,
            "the end mark of a journal file is damaged and is written again; no batch is lost"
        );
        let start = content.end / BLOCK * BLOCK;
        let mark = WriteMark { durable: start, life: content.life, before: content.life };
        let continuation = record::encode_continuation();
        let records =
            [&record::write_mark(number, mark)[..], &record::frame(number, &continuation), &continuation].concat();
        let blocks = Spare::default().fill(number, &records, &[]);
        let file = self.disk.open(&self.path(number), false)?;
        file.write_all_at(blocks.bytes(), start)?;
        file.sync()
    }

    fn describe(
        &self,
        number: u64,
        content: &mut Content,
        what: String,
        lost: Option<Lost>,
    ) -> std::result::Result<Damage, Failure> {
        let (file, offset) = (self.path(number), content.end);
        if lost.is_some() {
            return Ok(Damage { file, number, offset, what, repair: Some(Dropped::default()) });
        }
        let end = content.file.written_end(content.end)?;
        let mut dropped = Dropped { bytes: end - content.end, ..Dropped::default() };
        let mut is_last = true;
        each_record(&mut content.file, content.end, |record| {
            is_last = false;
            dropped.batches += u64::from(matches!(record, Record::Batch { .. }));
        })?;
        dropped.may_be_whole = is_last && content.end >= HEAD_BYTES && self.has_lost_head(number + 1)?;
        let mut later = number + 1;
        while self.disk.exists(&self.path(later))? {
            let mut count = 0;
            // A later file may be damaged as well: count what is readable.
            match self.read_from(later, 0, content.file.passes, &mut |_| count += 1) {
                Ok(_) | Err(Failure::Damaged(_)) => {}
                Err(error) => return Err(error),
            }
            (dropped.batches, dropped.files, later) = (dropped.batches + count, dropped.files + 1, later + 1);
        }
        Ok(Damage { file, number, offset, what, repair: Some(dropped) })
    }

    /// Drops everything after damage.
    fn drop_rest(&self, number: u64, content: &mut Content, what: String) -> std::result::Result<(), Failure> {
        let Damage { file, offset, what, repair, .. } = self.describe(number, content, what, None)?;
        let dropped = repair.unwrap_or_default();
        tracing::warn!(
            journal.file = %file.display(), journal.offset = offset, dropped.bytes, dropped.files, dropped.batches, what,
            "the journal is damaged; what follows is dropped, acknowledged or not, and a copy of it kept beside the journal. \
             Put again what is missing. Epochs of roles go on well above all that were granted; hosts that were \
             reserved in the dropped part may be visited by others"
        );
        Ok(self.set_aside(number, content)?)
    }

    /// Keeps what a repair drops beside the journal, under names that replay ignores and that no earlier repair has used.
    fn set_aside(&self, number: u64, content: &mut Content) -> Result<()> {
        let kept = self.unused(&format!("{number}.dropped-from-{}", content.end))?;
        self.disk.create(&kept)?;
        let file = self.disk.open(&kept, false)?;
        let end = content.file.written_end(content.end)?;
        content.file.copy(content.end..end, |bytes, at| file.write_all_at(bytes, at - content.end))?;
        file.sync()?;
        // In descending order, so that an interrupted repair can be repeated.
        let mut last = number;
        while self.disk.exists(&self.path(last + 1))? {
            last += 1;
        }
        for later in (number + 1..=last).rev() {
            self.disk.rename(&self.path(later), &self.unused(&format!("{later}.dropped"))?)?;
        }
        self.disk.sync_dir(self.folder)
    }

    /// A path with this name, or with a number behind it, at which there is nothing.
    fn unused(&self, name: &str) -> Result<PathBuf> {
        let (mut path, mut count) = (self.folder.join(name), 1);
        while self.disk.exists(&path)? {
            count += 1;
            path = self.folder.join(format!("{name}-{count}"));
        }
        Ok(path)
    }

    /// Syncs a file that is continued by the next one.
    fn make_durable(&self, number: u64, content: &mut Content) -> Result<()> {
        let file = self.disk.open(&self.path(number), false)?;
        if !self.has_begun(number + 1)? {
            // The continuation mark itself may be what a sync has failed for; see below.
            content.file.copy(0..content.end, |bytes, at| file.write_all_at(bytes, at))?;
        }
        file.sync()
    }

    fn has_begun(&self, number: u64) -> Result<bool> {
        let path = self.path(number);
        Ok(self.disk.exists(&path)? && self.disk.len(&path)? > HEAD_BYTES)
    }

    /// Prepares the newest file for appends: zeros after its records, the last block padded, everything synced.
    fn make_ready(&self, number: u64, content: &mut Content, continues_at: u64, repaired: bool) -> Result<Tail> {
        let path = self.path(number);
        let file = self.disk.open(&path, false)?;
        if content.end < HEAD_BYTES {
            // A repair has dropped everything.
            zero(&*file, 0..content.file.len)?;
            journal::write_head(&*file, number, continues_at)?;
            content.end = HEAD_BYTES;
            content.file = JournalReader::open(self.disk, path.clone(), number)?;
        }
        let torn = content.file.written_end(content.end)?.saturating_sub(content.end);
        if torn > 0 && !repaired {
            tracing::warn!(
                journal.number = number,
                journal.bytes_kept = content.end,
                journal.bytes_dropped = torn,
                "the end of the journal was torn off by a power cut or a kill and is dropped; it was not acknowledged"
            );
        }
        // Overwritten instead of truncated: the space stays allocated even on a full disk.
        let records = usize::try_from(content.end).map_err(std::io::Error::other)?;
        let mut rest = vec![0; padding_after(records)];
        record::pad(number, &mut rest);
        let end = content.end + rest.len() as u64;
        if torn > 0 {
            // Before the padding, which would otherwise join the records to a complete write of the tail.
            zero(&*file, content.end..content.end + torn)?;
            file.sync()?;
        }
        if !rest.is_empty() {
            file.write_all_at(&rest, content.end)?;
        }
        let filled = end.max(content.file.len / BLOCK * BLOCK);
        let (direct, filled) = journal::probe_direct(&**self.disk, &path, end, filled)?;
        // After a failed writeback the kernel marks pages clean that never reached the disk: reads return them, but
        // they would be lost with the page cache. Rewriting them makes the sync effective. `O_DIRECT` writes were not
        // in the page cache; only padding of an earlier open was, in the last two blocks.
        let from = if direct { content.end.saturating_sub(2 * BLOCK) / BLOCK * BLOCK } else { 0 };
        content.file.copy(from..content.end, |bytes, at| file.write_all_at(bytes, at))?;
        file.sync()?;
        Ok(Tail { number, end, filled, direct, before: content.life, bytes: 0 })
    }
}

/// Overwrites a part of a file with zeros.
fn zero(file: &dyn disk::DiskFile, part: Range<u64>) -> Result<()> {
    let zeros = vec![0; PIECE_BYTES];
    let mut at = part.start;
    while at < part.end {
        let bytes = usize::try_from(part.end - at).unwrap_or(usize::MAX).min(PIECE_BYTES);
        file.write_all_at(zeros.get(..bytes).unwrap_or_default(), at)?;
        at += bytes as u64;
    }
    Ok(())
}

/// Passes every readable record behind an offset to `take`.
fn each_record(file: &mut JournalReader, from: u64, mut take: impl FnMut(Record)) -> Result<()> {
    let mut at = from.next_multiple_of(BLOCK);
    while at < file.len {
        let Some((record, length)) = file.record(at)? else {
            at = (at + 1).next_multiple_of(BLOCK);
            continue;
        };
        record.into_iter().for_each(&mut take);
        at += length;
    }
    Ok(())
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
