//! Reads a journal file in pieces, so that opening a store needs no memory for whole files.

use std::io::Result;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use wayleave_core::codec::Damaged;

use crate::blocks::BLOCK_BYTES;
use crate::disk::Disk;
use crate::record::{self, FRAME_BYTES, Record};
use crate::trouble;

/// The size of a piece; a longer record is read whole.
pub(crate) const PIECE_BYTES: usize = 1 << 20;

/// A journal file that is being read.
pub(crate) struct JournalReader {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    number: u64,
    /// Its length.
    pub(crate) len: u64,
    /// A part of the file, and where it begins.
    piece: Vec<u8>,
    start: u64,
    /// Whether sectors that the disk cannot read are read as zeros.
    pub(crate) passes: bool,
}

impl JournalReader {
    /// Opens the file with this number. Fails if it does not exist or cannot be read.
    pub(crate) fn open(disk: &Arc<dyn Disk>, path: PathBuf, number: u64) -> Result<Self> {
        let len = disk.len(&path)?;
        Ok(Self { disk: Arc::clone(disk), path, number, len, piece: Vec::new(), start: 0, passes: false })
    }

    /// The bytes from an offset on: at least `bytes` of them, unless the file ends before.
    fn at(&mut self, offset: u64, bytes: usize) -> Result<&[u8]> {
        let end = offset.saturating_add(bytes as u64).min(self.len);
        let has = self.start <= offset && end <= self.start + self.piece.len() as u64;
        if !has {
            self.piece = self.read_at(offset, bytes.max(PIECE_BYTES))?;
            self.start = offset;
        }
        let from = usize::try_from(offset.saturating_sub(self.start)).unwrap_or(usize::MAX);
        Ok(self.piece.get(from..).unwrap_or_default())
    }

    fn read_at(&self, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        match self.disk.read_at(&self.path, offset, bytes) {
            Err(error) if self.passes && trouble::is_damage_io(&error) => {}
            read => return read,
        }
        let end = offset.saturating_add(bytes as u64).min(self.len);
        let mut read = Vec::with_capacity(bytes);
        while offset + (read.len() as u64) < end {
            let at = offset + read.len() as u64;
            // To the end of the sector.
            let len =
                usize::try_from((at + 1).next_multiple_of(BLOCK_BYTES as u64).min(end) - at).unwrap_or(BLOCK_BYTES);
            match self.disk.read_at(&self.path, at, len) {
                Err(error) if !trouble::is_damage_io(&error) => return Err(error),
                Ok(sector) if sector.len() == len => read.extend(sector),
                _ => read.resize(read.len() + len, 0),
            }
        }
        Ok(read)
    }

    /// The record at an offset and its length; `None` if no complete record begins there.
    pub(crate) fn record(&mut self, at: u64) -> Result<Option<(std::result::Result<Record, Damaged>, u64)>> {
        let number = self.number;
        let head = self.at(at, FRAME_BYTES)?;
        let Some(length) = head.first_chunk::<4>().map(|length| u32::from_le_bytes(*length)) else { return Ok(None) };
        let whole = FRAME_BYTES as u64 + u64::from(length);
        if length == 0 || at.saturating_add(whole) > self.len {
            return Ok(None);
        }
        let bytes = self.at(at, usize::try_from(whole).unwrap_or(usize::MAX))?;
        Ok(record::first(number, bytes).map(|(body, length)| (record::decode(body), length as u64)))
    }

    /// The end of what was written after an offset: behind the last byte that is not zero.
    pub(crate) fn written_end(&mut self, from: u64) -> Result<u64> {
        let mut end = self.len;
        while end > from {
            let start = end.saturating_sub(PIECE_BYTES as u64).max(from);
            let piece = self.read_at(start, usize::try_from(end - start).unwrap_or(usize::MAX))?;
            if let Some(last) = piece.iter().rposition(|byte| *byte != 0) {
                return Ok(start + last as u64 + 1);
            }
            end = start;
        }
        Ok(from)
    }

    /// Passes a part of the file to `write`, piece by piece with its offset. Fails if the disk or `write` fails.
    pub(crate) fn copy(&mut self, part: Range<u64>, mut write: impl FnMut(&[u8], u64) -> Result<()>) -> Result<()> {
        let mut at = part.start;
        while at < part.end {
            let bytes = usize::try_from((part.end - at).min(PIECE_BYTES as u64)).unwrap_or(PIECE_BYTES);
            let piece = self.disk.read_at(&self.path, at, bytes)?;
            if piece.is_empty() {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            write(&piece, at)?;
            at += piece.len() as u64;
        }
        Ok(())
    }
}
