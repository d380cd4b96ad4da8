//! The snapshot file format: all rows of a store at one moment, in key order; any truncation or damage is detected.
//!
//! ```text
//! file    "wayleave snapshot\n" · header frame · rows frames · end frame
//! frame   length of the body (4 bytes, little endian) · check (8 bytes) · body
//! header  1 · version · number of shards · time in milliseconds · number of fences · (shard · epoch · commit) for each
//! rows    2 · (key · value) for each row
//! end     3 · number of rows · bytes of their keys and values · number of losses · (text · number of hosts · hosts) for each
//! ```
//!
//! A file that could not be completed ends with a frame `4 · reason` instead.
//!
//! The checksum of a frame covers its body and is seeded with the checksum of the previous frame, so a missing,
//! repeated or misplaced frame fails like a damaged one. Numbers are variable-length; keys and values are
//! length-prefixed.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};
use wayleave_core::codec::{self, Damaged};
use wayleave_core::ids::{Epoch, ShardId};
use wayleave_core::time::Time;

use crate::Row;
use crate::fences::FenceState;
use crate::format::VERSION;

/// How a snapshot begins.
pub const MAGIC: &[u8] = b"wayleave snapshot\n";
const HEADER: u8 = 1;
const ROWS: u8 = 2;
const END: u8 = 3;
const FAILED: u8 = 4;
/// A frame is written once it reaches this size.
const FRAME_BYTES: usize = 256 << 10;
/// A longer frame has a damaged length: a row is far smaller than this.
const FRAME_BYTES_MAX: usize = 256 << 20;

/// What the snapshot is of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotHeader {
    /// The number of shards of the store.
    pub shards: u16,
    /// The store's time when the snapshot was taken.
    pub at: Time,
    /// The owner's epoch and the last commit of each shard that was ever owned. The rows are without the engine's own.
    pub fences: BTreeMap<ShardId, FenceState>,
}

/// Rows that could not be read, and are not in a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// What is lost, and why, for people.
    pub what: String,
    /// The hosts that it concerns.
    pub hosts: Vec<String>,
}

/// What the snapshot contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotCounts {
    /// Rows.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

/// Why a snapshot file is refused.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum SnapshotError {
    #[error("it is not a snapshot of wayleave")]
    NotOne,
    #[error("it has format {found}, this program reads formats up to {VERSION}: use a newer wayleave")]
    Newer { found: u32 },
    #[error("it is truncated at byte {at}, before its end mark: take or copy it again")]
    Truncated { at: u64 },
    #[error("it is damaged at byte {at} ({what}): use another copy")]
    Damaged { at: u64, what: String },
    #[error("it is not complete, because its store could not be read: {why}")]
    Failed { why: String },
    #[error("it cannot be read: {0}")]
    Io(std::io::Error),
}

fn check(body: &[u8], before: u64) -> u64 {
    rapidhash_v3_seeded(body, &RapidSecrets::seed(before))
}

/// Writes a snapshot file.
pub struct SnapshotWriter<W> {
    out: W,
    frame: codec::Writer,
    /// The checksum of the last frame.
    last: u64,
    counts: SnapshotCounts,
}

impl<W: Write> SnapshotWriter<W> {
    /// Writes the start of the file.
    pub fn begin(mut out: W, header: &SnapshotHeader) -> std::io::Result<Self> {
        out.write_all(MAGIC)?;
        let mut frame = codec::Writer::with_capacity(FRAME_BYTES + (4 << 10));
        frame.byte(HEADER);
        frame.number(VERSION.into());
        frame.number(header.shards.into());
        frame.number(header.at.0);
        frame.number(header.fences.len() as u64);
        for (shard, fence) in &header.fences {
            frame.number(shard.0.into());
            frame.number(fence.epoch.0);
            frame.number(fence.seq);
        }
        let mut writer = Self { out, frame, last: 0, counts: SnapshotCounts::default() };
        writer.end_frame()?;
        Ok(writer)
    }

    /// Adds a row, whose key is greater than the previous one.
    pub fn row(&mut self, key: &[u8], value: &[u8]) -> std::io::Result<()> {
        if self.frame.is_empty() {
            self.frame.byte(ROWS);
        }
        self.frame.bytes(key);
        self.frame.bytes(value);
        self.counts.rows += 1;
        self.counts.bytes += (key.len() + value.len()) as u64;
        if self.frame.len() < FRAME_BYTES { Ok(()) } else { self.end_frame() }
    }

    /// Finishes the file, and names what is not in it.
    pub fn finish(mut self, losses: &[Loss]) -> std::io::Result<SnapshotCounts> {
        if !self.frame.is_empty() {
            self.end_frame()?;
        }
        self.frame.byte(END);
        self.frame.number(self.counts.rows);
        self.frame.number(self.counts.bytes);
        self.frame.number(losses.len() as u64);
        for loss in losses {
            self.frame.text(&loss.what);
            self.frame.number(loss.hosts.len() as u64);
            loss.hosts.iter().for_each(|host| self.frame.text(host));
        }
        self.end_frame()?;
        self.out.flush()?;
        Ok(self.counts)
    }

    /// Ends the file with the reason why it is not complete.
    pub fn fail(mut self, why: &str) -> std::io::Result<SnapshotCounts> {
        if !self.frame.is_empty() {
            self.end_frame()?;
        }
        self.frame.byte(FAILED);
        self.frame.text(why);
        self.end_frame()?;
        self.out.flush()?;
        Ok(self.counts)
    }

    fn end_frame(&mut self) -> std::io::Result<()> {
        let body = self.frame.as_bytes();
        let length = u32::try_from(body.len()).map_err(|_| std::io::Error::other("a row of over 4 GB"))?;
        self.last = check(body, self.last);
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(&self.last.to_le_bytes())?;
        self.out.write_all(body)?;
        self.frame.clear();
        Ok(())
    }
}

/// Reads a snapshot file and verifies its checksums.
pub struct SnapshotReader<R> {
    input: R,
    header: SnapshotHeader,
    /// The offset of the next frame.
    at: u64,
    last: u64,
    counts: SnapshotCounts,
    body: Vec<u8>,
    last_key: Vec<u8>,
    /// The losses that the end mark names, once that was read.
    end: Option<Vec<Loss>>,
}

impl<R: Read> SnapshotReader<R> {
    /// Reads the start of the file. Fails if it is not a snapshot that this program reads.
    pub fn begin(mut input: R) -> Result<Self, SnapshotError> {
        let mut magic = vec![0; MAGIC.len()];
        match input.read_exact(&mut magic) {
            Ok(()) if magic == MAGIC => {}
            Err(error) if error.kind() != ErrorKind::UnexpectedEof => return Err(SnapshotError::Io(error)),
            _ => return Err(SnapshotError::NotOne),
        }
        let (body, last_key) = (Vec::new(), Vec::new());
        let header = SnapshotHeader::default();
        let (at, counts) = (MAGIC.len() as u64, SnapshotCounts::default());
        let mut reader = Self { input, header, at, last: 0, counts, body, last_key, end: None };
        let frame_at = reader.at;
        reader.read_frame()?;
        reader.header = parse_header(&reader.body, frame_at)?;
        Ok(reader)
    }

    /// What the snapshot is of.
    pub const fn header(&self) -> &SnapshotHeader {
        &self.header
    }

    /// The next rows, in key order; `None` after the end mark, once everything was verified. Fails if the file is
    /// truncated or damaged. The caller must then discard the rows it was given.
    pub fn next_rows(&mut self) -> Result<Option<Vec<Row>>, SnapshotError> {
        if self.end.is_some() {
            return Ok(None);
        }
        let at = self.at;
        let damaged = |what: &str| SnapshotError::Damaged { at, what: what.into() };
        let unreadable = |why: Damaged| damaged(why.0);
        self.read_frame()?;
        let mut body = codec::Reader::new(&self.body);
        match body.byte().map_err(unreadable)? {
            ROWS => {}
            END => {
                let rows = body.number().map_err(unreadable)?;
                let found = SnapshotCounts { rows, bytes: body.number().map_err(unreadable)? };
                if found != self.counts {
                    return Err(damaged("the end mark counts other rows"));
                }
                self.end = Some(read_losses(&mut body).map_err(unreadable)?);
                self.expect_nothing()?;
                return Ok(None);
            }
            FAILED => return Err(SnapshotError::Failed { why: body.text().map_err(unreadable)?.into() }),
            _ => return Err(damaged("a frame of unknown kind")),
        }
        let mut rows = Vec::new();
        while !body.is_empty() {
            let (key, value) = (body.bytes().map_err(unreadable)?, body.bytes().map_err(unreadable)?);
            if self.counts.rows > 0 && key <= self.last_key.as_slice() {
                return Err(damaged("rows out of order"));
            }
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
            self.counts.rows += 1;
            self.counts.bytes += (key.len() + value.len()) as u64;
            rows.push(Row { key: key.into(), value: value.into() });
        }
        Ok(Some(rows))
    }

    /// The rows and bytes read so far.
    pub const fn counts(&self) -> SnapshotCounts {
        self.counts
    }

    /// What could not be read when the snapshot was taken; known after its end.
    pub fn losses(&self) -> &[Loss] {
        self.end.as_deref().unwrap_or_default()
    }

    fn read_frame(&mut self) -> Result<(), SnapshotError> {
        let mut head = [0; 12];
        self.fill(&mut head)?;
        let (length, check_found) = head.split_at(4);
        let length = length.try_into().map_or(0, u32::from_le_bytes) as usize;
        let check_found = check_found.try_into().map_or(0, u64::from_le_bytes);
        if length > FRAME_BYTES_MAX {
            return Err(SnapshotError::Damaged { at: self.at, what: "a frame's length is out of bounds".into() });
        }
        // Not preallocated: the length may be damaged.
        self.body.clear();
        let read = self.input.by_ref().take(length as u64).read_to_end(&mut self.body).map_err(SnapshotError::Io)?;
        if read < length {
            return Err(SnapshotError::Truncated { at: self.at + (head.len() + read) as u64 });
        }
        self.last = check(&self.body, self.last);
        if self.last != check_found {
            return Err(SnapshotError::Damaged { at: self.at, what: "a checksum does not match".into() });
        }
        self.at += (head.len() + length) as u64;
        Ok(())
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), SnapshotError> {
        let mut have = 0;
        while let Some(rest) = buffer.get_mut(have..).filter(|rest| !rest.is_empty()) {
            match self.input.read(rest) {
                Ok(0) => return Err(SnapshotError::Truncated { at: self.at + have as u64 }),
                Ok(read) => have += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(SnapshotError::Io(error)),
            }
        }
        Ok(())
    }

    fn expect_nothing(&mut self) -> Result<(), SnapshotError> {
        let mut one = [0];
        match self.input.read(&mut one) {
            Ok(0) => Ok(()),
            Ok(_) => Err(SnapshotError::Damaged { at: self.at, what: "bytes behind its end mark".into() }),
            Err(error) => Err(SnapshotError::Io(error)),
        }
    }
}

fn read_losses(body: &mut codec::Reader<'_>) -> Result<Vec<Loss>, Damaged> {
    let mut losses = Vec::new();
    for _ in 0..body.number()? {
        let (what, mut hosts) = (body.text()?.to_owned(), Vec::new());
        for _ in 0..body.number()? {
            hosts.push(body.text()?.to_owned());
        }
        losses.push(Loss { what, hosts });
    }
    Ok(losses)
}

fn parse_header(body: &[u8], at: u64) -> Result<SnapshotHeader, SnapshotError> {
    let damaged = |what: &str| SnapshotError::Damaged { at, what: what.into() };
    let unreadable = |why: Damaged| damaged(why.0);
    let mut body = codec::Reader::new(body);
    if body.byte().map_err(unreadable)? != HEADER {
        return Err(damaged("the header is missing"));
    }
    let found: u32 = body.small().map_err(unreadable)?;
    // Checked before the rest: the rest of a newer format may differ.
    if found > VERSION {
        return Err(SnapshotError::Newer { found });
    }
    let shards: u16 = body.small().map_err(unreadable)?;
    let at = Time(body.number().map_err(unreadable)?);
    if shards == 0 {
        return Err(damaged("the header names no shards"));
    }
    let mut fences = BTreeMap::new();
    // Not preallocated: reading ends with the bytes, however many are claimed.
    for _ in 0..body.number().map_err(unreadable)? {
        let shard = ShardId(body.small().map_err(unreadable)?);
        let epoch = Epoch(body.number().map_err(unreadable)?);
        fences.insert(shard, FenceState { epoch, seq: body.number().map_err(unreadable)? });
    }
    Ok(SnapshotHeader { shards, at, fences })
}

#[cfg(test)]
#[path = "snapshot_file_tests.rs"]
mod tests;
