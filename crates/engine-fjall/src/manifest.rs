//! Checks the table files before the tree opens them, because opening removes what the manifest does not name.
//!
//! `current` names the newest version file `vN` and its checksum; `vN` names every table with its checksum. Opening with
//! a damaged `current` or `vN` would take another set of tables for the newest one and delete the rest.
//!
//! Layouts, all little-endian: `current` is N (8 bytes) · XXH3 of `vN` (16) · 0. The section `tables` of `vN` is the number
//! of levels (1), and per level the number of runs (1), per run the number of tables (4), per table its number (8) · 0 ·
//! checksum (16) · sequence number (8).

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lsm_tree::{Cache, Checksum, Table};
use xxhash_rust::xxh3::Xxh3Default;

use crate::lsm::TABLES;
use crate::trouble;

pub(crate) const CURRENT: &str = "current";

/// The sections of a version file that are one byte, the same in all. The tree panics at another one.
const FIXED: [(&[u8], u8); 4] =
    [(b"format_version", 3), (b"tree_type", 0), (b"level_count", 7), (b"filter_hash_type", 0)];

/// Files are read in pieces of this size.
const PIECE_BYTES: usize = 1 << 20;

/// The end of an archive: magic, version, kind of checksum, checksum (16), and place and length of the table of contents (8 each).
const ARCHIVE_TRAILER_BYTES: usize = 38;
/// An entry in the table of contents has at least place, length and the length of its name.
const ARCHIVE_ENTRY_BYTES: u64 = 18;

/// A table file that the newest version names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedTable {
    pub(crate) path: PathBuf,
    /// The checksum of the whole file (XXH3, 128 bits).
    pub(crate) checksum: u128,
    /// What is added to the sequence numbers in the file.
    pub(crate) seqno: u64,
}

/// A file that is missing or damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadFile {
    pub(crate) path: PathBuf,
    pub(crate) what: String,
    /// Whether what was stored is gone; otherwise it only cannot be read at the moment.
    pub(crate) is_damage: bool,
    /// What the operating system has reported, if so.
    pub(crate) io: Option<ErrorKind>,
}

impl ListedTable {
    /// Opens the table alone, without changing anything. The error says why it cannot be opened.
    pub(crate) fn open(&self) -> lsm_tree::Result<Table> {
        if !is_bounded(&self.path)? {
            return Err(lsm_tree::Error::InvalidTrailer);
        }
        let (checksum, cache) = (Checksum::from_raw(self.checksum), Arc::new(Cache::with_capacity_bytes(0)));
        Table::recover(self.path.clone(), checksum, self.seqno, 0, cache, None, true, true)
    }

    /// The table's number, by which its file is called.
    pub(crate) fn number(&self) -> u64 {
        self.path.file_name().and_then(|name| name.to_str()?.parse().ok()).unwrap_or(0)
    }
}

impl BadFile {
    pub(crate) fn damaged(path: &Path, what: &str) -> Self {
        Self { path: path.into(), what: what.into(), is_damage: true, io: None }
    }
}

/// Reads and checks the manifest in a folder; returns the number of the newest version and the tables that it names. The
/// tables' content is not read, but every one must be there. The error is the first file that is missing or damaged.
/// Nothing is changed.
pub(crate) fn read(folder: &Path) -> Result<(u64, Vec<ListedTable>), BadFile> {
    let (number, tables) = (newest(folder)?, list(folder)?);
    for table in &tables {
        if !is_bounded(&table.path).map_err(|error| unreadable(&table.path, &error))? {
            return Err(BadFile::damaged(&table.path, "its table of contents cannot be read"));
        }
    }
    Ok((number, tables))
}

/// Whether the table of contents of an archive, which tables and versions are, has at most as many entries as fit into the file. Its
/// reader makes room for all of them before it looks at a checksum, and that could be more than the memory there is.
pub(crate) fn is_bounded(path: &Path) -> std::io::Result<bool> {
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    let (mut trailer, mut head) = ([0; ARCHIVE_TRAILER_BYTES], [0; 8]);
    // Anything else that is wrong is found by the reader.
    let Some(at) = len.checked_sub(trailer.len() as u64) else { return Ok(true) };
    file.read_exact_at(&mut trailer, at)?;
    let begin = trailer.get(22..30).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
    if begin.checked_add(head.len() as u64).is_none_or(|end| end > len) {
        return Ok(true);
    }
    file.read_exact_at(&mut head, begin)?;
    let [.., a, b, c, d] = head;
    Ok(!head.starts_with(b"TOC!") || u64::from(u32::from_le_bytes([a, b, c, d])) * ARCHIVE_ENTRY_BYTES <= len)
}

/// Reads and checks the manifest alone. The error is the first file that is missing or damaged.
pub(crate) fn list(folder: &Path) -> Result<Vec<ListedTable>, BadFile> {
    let (number, checksum) = read_current(folder)?;
    let version = version(folder, number)?;
    if version.checksum != checksum {
        return Err(BadFile::damaged(&version.path, "its checksum is not the one that the file current names"));
    }
    Ok(version.tables)
}

/// A version file.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) number: u64,
    pub(crate) path: PathBuf,
    /// The checksum of the file as it is.
    pub(crate) checksum: u128,
    /// The tables that it names, the newest rows first.
    pub(crate) tables: Vec<ListedTable>,
}

impl Version {
    /// The content of its file, with all that is the same in every version as it must be.
    pub(crate) fn mended(&self) -> std::io::Result<Vec<u8>> {
        let mut bytes = std::fs::read(&self.path)?;
        let archive = sfa::Reader::new(&self.path).map_err(std::io::Error::other)?;
        for (name, value) in FIXED {
            let at = archive.toc().section(name).and_then(|section| usize::try_from(section.pos()).ok());
            at.and_then(|at| bytes.get_mut(at)).into_iter().for_each(|byte| *byte = value);
        }
        Ok(bytes)
    }

    /// The content of a file `current` that names this version, if its file has these bytes.
    pub(crate) fn current(&self, bytes: &[u8]) -> Vec<u8> {
        [&self.number.to_le_bytes()[..], &xxhash_rust::xxh3::xxh3_128(bytes).to_le_bytes(), &[0]].concat()
    }
}

/// Reads a version file, whose checksum only `current` knows. Fails if it is missing, or its list of tables cannot be
/// read.
pub(crate) fn version(folder: &Path, number: u64) -> Result<Version, BadFile> {
    let path = folder.join(format!("v{number}"));
    let bytes = read_small(&path)?;
    let is_bounded = is_bounded(&path).map_err(|error| unreadable(&path, &error))?;
    let tables = Some(())
        .filter(|()| is_bounded)
        .and_then(|()| parse(&path, &bytes))
        .ok_or_else(|| BadFile::damaged(&path, "its list of tables cannot be read"))?;
    let table = |number: u64| folder.join(TABLES).join(number.to_string());
    let listed = |(number, checksum, seqno)| ListedTable { path: table(number), checksum, seqno };
    let tables = tables.into_iter().map(listed).collect();
    Ok(Version { number, path, checksum: xxhash_rust::xxh3::xxh3_128(&bytes), tables })
}

/// The numbers of all version files, the newest first.
pub(crate) fn versions(folder: &Path) -> Vec<u64> {
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut numbers: Vec<u64> = names.filter_map(|name| name.to_str()?.strip_prefix('v')?.parse().ok()).collect();
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    numbers
}

/// The number of the newest version, according to `current`. Fails if the file is missing or damaged.
pub(crate) fn newest(folder: &Path) -> Result<u64, BadFile> {
    read_current(folder).map(|(number, _)| number)
}

/// The number and the checksum of the newest version, according to `current`. Fails if the file is missing or damaged.
pub(crate) fn read_current(folder: &Path) -> Result<(u64, u128), BadFile> {
    let current = folder.join(CURRENT);
    let bytes = read_small(&current)?;
    let parts =
        bytes.split_first_chunk::<8>().and_then(|(number, rest)| Some((number, rest.split_first_chunk::<16>()?)));
    match parts {
        Some((number, (checksum, [0]))) => Ok((u64::from_le_bytes(*number), u128::from_le_bytes(*checksum))),
        Some(_) => Err(BadFile::damaged(&current, "it does not end as it should")),
        None => Err(BadFile::damaged(&current, "it is too short")),
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> BadFile {
    let what = match error.kind() {
        ErrorKind::NotFound => "it is missing".to_owned(),
        _ => format!("it cannot be read: {error}"),
    };
    BadFile { path: path.into(), what, is_damage: trouble::is_damage_io(error), io: Some(error.kind()) }
}

fn read_small(path: &Path) -> Result<Vec<u8>, BadFile> {
    std::fs::read(path).map_err(|error| unreadable(path, &error))
}

/// The numbers, checksums and sequence numbers of all tables.
fn parse(version: &Path, bytes: &[u8]) -> Option<Vec<(u64, u128, u64)>> {
    let archive = sfa::Reader::new(version).ok()?;
    let section = archive.toc().section(b"tables")?;
    let start = usize::try_from(section.pos()).ok()?;
    let mut input = bytes.get(start..start.checked_add(usize::try_from(section.len()).ok()?)?)?;
    let mut tables = Vec::new();
    let [levels] = take::<1>(&mut input)?;
    for _ in 0..levels {
        let [runs] = take::<1>(&mut input)?;
        for _ in 0..runs {
            let count = u32::from_le_bytes(take(&mut input)?);
            for _ in 0..count {
                let number = u64::from_le_bytes(take(&mut input)?);
                let [0] = take::<1>(&mut input)? else { return None };
                let checksum = u128::from_le_bytes(take(&mut input)?);
                tables.push((number, checksum, u64::from_le_bytes(take(&mut input)?)));
            }
        }
    }
    input.is_empty().then_some(tables)
}

fn take<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = input.split_first_chunk::<N>()?;
    *input = rest;
    Some(*head)
}

/// Checks the content of a table against its checksum. `pause` is called after each piece with its size; if it returns
/// false the check ends early, as if the file were sound. The error says what is wrong with the file.
pub(crate) fn verify(path: &Path, checksum: u128, mut pause: impl FnMut(u64) -> bool) -> Result<(), BadFile> {
    let failed = |error: std::io::Error| unreadable(path, &error);
    let mut file = File::open(path).map_err(failed)?;
    let (mut hash, mut piece) = (Xxh3Default::new(), vec![0; PIECE_BYTES]);
    loop {
        let read = file.read(&mut piece).map_err(failed)?;
        if read == 0 {
            break;
        }
        hash.update(piece.get(..read).unwrap_or_default());
        if !pause(read as u64) {
            return Ok(());
        }
    }
    if hash.digest128() == checksum {
        return Ok(());
    }
    Err(BadFile::damaged(path, "its checksum does not match"))
}
