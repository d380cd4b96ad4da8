//! Finds the trustworthy blocks of a damaged table.
//!
//! A row may contain bytes that look like a block, even with a checksum that is right. So a block counts only where one must
//! begin: at the start of the file or of a section, where the last block is, where a block of the index says so, behind another block, or in front of
//! such a place without a gap. Blocks within a row always leave a gap, because a block ends with more than its last row.
//!
//! The table of contents, which names the sections, and the header of each block have checksums of their own.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Cursor, Result};
use std::os::unix::fs::FileExt;
use std::path::Path;

use lsm_tree::CompressionType;
use lsm_tree::coding::Decode;
use lsm_tree::table::block::{BlockType, Header};
use lsm_tree::table::{Block, IndexBlock};

use crate::manifest;
use crate::trouble;

/// What the header of a block begins with.
const MAGIC: [u8; 4] = lsm_tree::file::MAGIC_BYTES;

/// What is read at once where a disk fails.
const SECTOR_BYTES: usize = 4096;

/// A table of contents with all sections that there are, and what is behind it, is at most this long. A table's description is longer,
/// so no row is that close to the end.
const CONTENTS_BYTES_MAX: usize = 256;

/// A block that can be read.
pub(crate) struct Found {
    /// Where it begins.
    pub(crate) at: usize,
    pub(crate) kind: BlockType,
    pub(crate) block: Block,
    /// Where it ends.
    pub(crate) end: usize,
}

/// All blocks that can be believed, in their order.
pub(crate) fn read(path: &Path) -> Result<Vec<Found>> {
    let bytes = read_sectors(path)?;
    // Its reader makes room for all entries before it compares a checksum.
    let toc = manifest::is_bounded(path).ok().filter(|is_bounded| *is_bounded);
    let toc = toc.and_then(|_| sfa::Reader::from_reader(&mut Cursor::new(&bytes)).ok());
    let sections = toc.iter().flat_map(|archive| archive.toc().iter());
    let sections: Vec<(&[u8], usize)> =
        sections.filter_map(|section| Some((section.name(), usize::try_from(section.pos()).ok()?))).collect();
    let mut places: BTreeSet<usize> = sections.iter().map(|(_, at)| *at).collect();
    if let Some(meta) = meta_at_end(&bytes).filter(|_| places.is_empty()) {
        // In front of the description is a section of one byte.
        places.extend([meta.saturating_sub(1), meta]);
    }
    let index = sections.iter().filter(|(name, _)| [&b"index"[..], b"tli"].contains(name)).map(|(_, at)| *at).min();
    // The top of the index names its parts, and these name the blocks of rows.
    let mut known = 0;
    while let Some(index) = index.filter(|_| places.len() > known) {
        known = places.len();
        let parts = blocks_from(&bytes, index, &places).into_iter().filter(|found| found.kind == BlockType::Index);
        for part in parts.map(|found| IndexBlock::new(found.block)) {
            places.extend(part.iter().filter_map(|handle| usize::try_from(*handle.offset).ok()));
        }
    }
    Ok(blocks_from(&bytes, 0, &places))
}

/// Where the description of a table begins, which is the last block, without its table of contents.
fn meta_at_end(bytes: &[u8]) -> Option<usize> {
    let begins = bytes.windows(MAGIC.len()).enumerate().rev().filter(|(_, part)| *part == MAGIC).map(|(at, _)| at);
    let is_last = |found: &Found| found.kind == BlockType::Meta && bytes.len() - found.end <= CONTENTS_BYTES_MAX;
    begins.filter_map(|at| block_at(bytes, at)).next().filter(is_last).map(|found| found.at)
}

/// The blocks from a place on where one begins; others begin at `places` at least.
fn blocks_from(bytes: &[u8], mut at: usize, places: &BTreeSet<usize>) -> Vec<Found> {
    let mut found = Vec::new();
    while at < bytes.len() {
        at = match (block_at(bytes, at), header_at(bytes, at)) {
            (Some(block), _) => {
                let end = block.end;
                found.push(block);
                end
            }
            // Only its content is damaged.
            (None, Some((_, end))) => end,
            (None, None) => match next_block(bytes, at, places) {
                Some(next) => next,
                None => break,
            },
        };
    }
    found
}

/// Where the next block begins behind one whose length is not known.
fn next_block(bytes: &[u8], at: usize, places: &BTreeSet<usize>) -> Option<usize> {
    // A section of one byte is all that is not a block.
    if block_at(bytes, at + 1).is_some() {
        return Some(at + 1);
    }
    let place = *places.range(at + 1..).next()?;
    let mut from = at + 1;
    while let Some(begin) = bytes.get(from..place).and_then(|part| part.windows(MAGIC.len()).position(|at| at == MAGIC))
    {
        let begin = from + begin;
        let mut end = begin;
        while let Some(block) = block_at(bytes, end).filter(|_| end < place) {
            end = block.end;
        }
        if end == place {
            return Some(begin);
        }
        from = end.max(begin + 1);
    }
    Some(place)
}

/// The block that begins here, if it can be read.
pub(crate) fn block_at(bytes: &[u8], at: usize) -> Option<Found> {
    let (header, end) = header_at(bytes, at)?;
    let is_plain = header.data_length == header.uncompressed_length;
    let compression = if is_plain { CompressionType::None } else { CompressionType::Lz4 };
    let block = Block::from_reader(&mut bytes.get(at..end)?, compression).ok()?;
    Some(Found { at, kind: header.block_type, block, end })
}

/// The header of the block that begins here, and the block's end.
fn header_at(bytes: &[u8], at: usize) -> Option<(Header, usize)> {
    let header = Header::decode_from(&mut bytes.get(at..)?).ok()?;
    let end = at.checked_add(Header::serialized_len())?.checked_add(usize::try_from(header.data_length).ok()?)?;
    Some((header, end))
}

/// A file, with zeros where the disk cannot read it.
fn read_sectors(path: &Path) -> Result<Vec<u8>> {
    match fs::read(path) {
        Err(error) if trouble::is_damage_io(&error) => {}
        read => return read,
    }
    let file = File::open(path)?;
    let mut bytes = vec![0; usize::try_from(file.metadata()?.len()).map_err(std::io::Error::other)?];
    for (number, sector) in bytes.chunks_mut(SECTOR_BYTES).enumerate() {
        match file.read_exact_at(sector, (number * SECTOR_BYTES) as u64) {
            Err(error) if !trouble::is_damage_io(&error) => return Err(error),
            Err(_) => sector.fill(0),
            Ok(()) => {}
        }
    }
    Ok(bytes)
}
