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
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lsm_tree::{Cache, Checksum, Table};
use xxhash_rust::xxh3::Xxh3Default;

use crate::lsm::TABLES;
use crate::trouble;

pub(crate) const CURRENT: &str = "current";

/// Files are read in pieces of this size.
const PIECE_BYTES: usize = 1 << 20;

/// A table file that the newest version names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedTable {
    pub(crate) path: PathBuf,
    /// The checksum of the whole file (XXH3, 128 bits).
    pub(crate) checksum: u128,
    /// What is added to the sequence numbers in the file.
    seqno: u64,
}

/// A file that is missing or damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadFile {
    pub(crate) path: PathBuf,
    pub(crate) what: String,
    /// Whether what was stored is gone; otherwise it only cannot be read at the moment.
    pub(crate) is_damage: bool,
}

impl ListedTable {
    /// Opens the table alone, without changing anything.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub(crate) fn open(&self) -> lsm_tree::Result<Table> {
        let (checksum, cache) = (Checksum::from_raw(self.checksum), Arc::new(Cache::with_capacity_bytes(0)));
        Table::recover(self.path.clone(), checksum, self.seqno, 0, cache, None, true, true)
    }

    /// The table's number, by which its file is called.
    pub(crate) fn number(&self) -> u64 {
        self.path.file_name().and_then(|name| name.to_str()?.parse().ok()).unwrap_or(0)
    }
}

impl BadFile {
    fn damaged(path: &Path, what: &str) -> Self {
        Self { path: path.into(), what: what.into(), is_damage: true }
    }
}

/// Reads and checks the manifest in a folder; returns the number of the newest version and the tables that it names. The
/// tables' content is not read, but every one must be there.
///
/// # Errors
/// The first file that is missing or damaged. Nothing is changed.
pub(crate) fn read(folder: &Path) -> Result<(u64, Vec<ListedTable>), BadFile> {
    let (number, tables) = (newest(folder)?, list(folder)?);
    for table in &tables {
        table.path.metadata().map_err(|error| unreadable(&table.path, &error))?;
    }
    Ok((number, tables))
}

/// Reads and checks the manifest alone.
///
/// # Errors
/// The first file that is missing or damaged.
pub(crate) fn list(folder: &Path) -> Result<Vec<ListedTable>, BadFile> {
    let bad = |path: &Path, what: &str| BadFile::damaged(path, what);
    let (number, checksum) = read_current(folder)?;
    let version = folder.join(format!("v{number}"));
    let bytes = read_small(&version)?;
    if xxhash_rust::xxh3::xxh3_128(&bytes) != checksum {
        return Err(bad(&version, "its checksum is not the one that the file current names"));
    }
    let tables = parse(&version, &bytes).ok_or_else(|| bad(&version, "its list of tables cannot be read"))?;
    let path = |number: u64| folder.join(TABLES).join(number.to_string());
    let listed = |(number, checksum, seqno)| ListedTable { path: path(number), checksum, seqno };
    Ok(tables.into_iter().map(listed).collect())
}

/// The number of the newest version, according to `current`.
///
/// # Errors
/// If the file is missing or damaged.
pub(crate) fn newest(folder: &Path) -> Result<u64, BadFile> {
    read_current(folder).map(|(number, _)| number)
}

fn read_current(folder: &Path) -> Result<(u64, u128), BadFile> {
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
    BadFile { path: path.into(), what, is_damage: trouble::is_damage_io(error) }
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
/// false the check ends early, as if the file were sound.
///
/// # Errors
/// What is wrong with the file.
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
