//! Rebuilds tables that cannot be opened, for a salvage: their rows are read from the blocks alone.
//!
//! A table's file has its rows in blocks, each with its length and a checksum, and behind them an index, a filter and a
//! description. Where one of these is damaged, every row may still be there ([`crate::table_blocks`]). The tables are made anew in
//! another folder, which refers to all others by symbolic links: the damaged folder stays as it is. What is missing in between is
//! a *hole*, which reads must not pass: an older table may have other versions of the same rows.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use lsm_tree::table::block::BlockType;
use lsm_tree::table::block::decoder::ParsedItem;
use lsm_tree::table::{DataBlock, Writer};
use lsm_tree::{InternalValue, SeqNo};
use wayleave_engine::Key;

use crate::lsm::{AFTER_ALL, Hole, TABLES};
use crate::manifest::{CURRENT, ListedTable};
use crate::open_error::OpenError;
use crate::table_blocks::{self, Found};
use crate::trouble;
use crate::versions::Chosen;

/// A database in which tables were made anew.
#[derive(Debug, Default)]
pub(crate) struct RebuiltTables {
    /// Keys whose newer rows may be missing.
    pub(crate) holes: Vec<Hole>,
    /// Each table that was made anew, and whether rows are missing in it.
    pub(crate) tables: Vec<(PathBuf, bool)>,
}

impl RebuiltTables {
    /// Makes a database in a new folder: it refers to the tables of a version, and has those of its own that cannot be opened.
    /// Fails if the disk fails, or nothing at all is known of what a table had.
    pub(crate) fn make(damaged: &Path, chosen: &Chosen, database: &Path) -> Result<Self, OpenError> {
        let mut rebuilt = Self::default();
        let to = database.join(TABLES);
        fs::create_dir_all(&to).map_err(|error| OpenError::io(&to, error))?;
        for table in &chosen.version.tables {
            let to = to.join(table.path.file_name().unwrap_or_default());
            let is_sound = chosen.sound.contains(&(table.path.clone(), table.checksum));
            if is_sound || !rebuilt.rebuild(damaged, table, &to)? {
                let linked = std::path::absolute(&table.path).and_then(|table| symlink(table, &to));
                linked.map_err(|error| OpenError::io(&to, error))?;
            }
        }
        let version = &chosen.version;
        let manifest = || {
            let bytes = version.mended()?;
            fs::write(database.join(version.path.file_name().unwrap_or_default()), &bytes)?;
            fs::write(database.join(CURRENT), version.current(&bytes))
        };
        manifest().map_err(|error| OpenError::io(database, error))?;
        Ok(rebuilt)
    }

    /// Makes a damaged table anew, if it must be.
    fn rebuild(&mut self, damaged: &Path, table: &ListedTable, to: &Path) -> Result<bool, OpenError> {
        let rows = Rows::read(&table.path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                OpenError::file(damaged, &table.path, "it is missing, so it is not known which rows it had")
            }
            _ => OpenError::io(&table.path, error),
        })?;
        // If only a block of rows is damaged, the table's own filter shows which keys that concerns.
        if !rows.holes.is_empty() && rows.has_index && refusal(table).is_none() {
            return Ok(false);
        }
        let Some(filler) = rows.filler() else {
            let what = "nothing of it can be read, so it is not known which rows it had";
            return Err(OpenError::file(damaged, &table.path, what));
        };
        rows.write(to, table.number(), filler).map_err(|error| OpenError::tables(to, error))?;
        self.tables.push((table.path.clone(), !rows.holes.is_empty()));
        self.holes.extend(rows.holes);
        Ok(true)
    }
}

/// Why a table cannot be opened, if so.
pub(crate) fn refusal(table: &ListedTable) -> Option<String> {
    table.open().err().filter(trouble::is_damage).map(|error| trouble::describe(&error))
}

/// Whether something of a table can be read, so that the rest of its store can be saved.
pub(crate) fn is_readable(path: &Path) -> bool {
    Rows::read(path).is_ok_and(|rows| rows.filler().is_some())
}

/// What can be read of a table.
struct Rows {
    blocks: Vec<DataBlock>,
    /// Keys whose rows may be in blocks that cannot be read.
    holes: Vec<Hole>,
    /// Whether all blocks of the index can be read.
    has_index: bool,
}

impl Rows {
    fn read(path: &Path) -> std::io::Result<Self> {
        let (mut blocks, mut holes, mut meta) = (Vec::new(), Vec::new(), Meta::default());
        // The end of the rows that were read, and what may follow them.
        let (mut end, mut after_last, mut is_over) = (0, Key::new(), false);
        let mut index_blocks = 0;
        for Found { at, kind, block, end: next } in table_blocks::read(path)? {
            let block = DataBlock::new(block);
            match kind {
                BlockType::Data => {
                    let keys = || block.iter().map(|row| row.materialize(&block.inner.data).key.user_key);
                    let (Some(first), Some(last)) = (keys().next(), keys().next_back()) else { continue };
                    if at != end {
                        // The first key may have newer versions before it.
                        holes.push((std::mem::take(&mut after_last), after(&first)));
                    }
                    (end, after_last) = (next, after(&last));
                    blocks.push(block);
                }
                BlockType::Meta => meta = Meta::read(&block),
                BlockType::Index => index_blocks += 1,
                BlockType::Filter => {}
            }
            is_over |= kind != BlockType::Data && at == end;
        }
        let is_whole = meta.blocks.map_or(is_over && holes.is_empty(), |count| count == blocks.len() as u64);
        if is_whole {
            holes.clear();
        } else if !is_over {
            holes.push((after_last, meta.last.map_or_else(|| AFTER_ALL.into(), |last| after(&last))));
        }
        if let (Some(first), Some((from, _))) = (meta.first, holes.first_mut().filter(|(from, _)| from.is_empty())) {
            *from = first;
        }
        holes.retain(|(from, to)| from < to);
        // Besides those that are counted, index and filter have one each that refers to the others.
        let has_index = meta.index_blocks.is_some_and(|count| index_blocks == count + 2);
        Ok(Self { blocks, holes, has_index })
    }

    fn items(&self) -> impl Iterator<Item = InternalValue> {
        self.blocks.iter().flat_map(|block| block.iter().map(|row| row.materialize(&block.inner.data)))
    }

    /// The row of a table that would otherwise be empty: in a hole, where it is not read. `None` if the hole is
    /// everything.
    fn filler(&self) -> Option<Vec<InternalValue>> {
        match self.holes.first() {
            _ if !self.blocks.is_empty() => Some(Vec::new()),
            Some((from, _)) if !from.is_empty() => Some(vec![InternalValue::new_tombstone(from.as_slice(), 0)]),
            _ => None,
        }
    }

    fn write(&self, to: &Path, number: u64, filler: Vec<InternalValue>) -> lsm_tree::Result<()> {
        let mut table = Writer::new(to.into(), number, 0)?;
        self.items().chain(filler).try_for_each(|item| table.write(item))?;
        table.finish().map(drop)
    }
}

/// The lowest sequence number in a table, without what its version adds.
pub(crate) fn lowest_seqno(path: &Path) -> Option<u64> {
    let bytes = fs::read(path).ok()?;
    let archive = sfa::Reader::new(path).ok()?;
    let section = archive.toc().section(b"meta")?;
    let found = table_blocks::block_at(&bytes, usize::try_from(section.pos()).ok()?)?;
    Meta::read(&DataBlock::new(found.block)).lowest_seqno
}

/// The content of a table's description.
#[derive(Default)]
struct Meta {
    lowest_seqno: Option<u64>,
    blocks: Option<u64>,
    index_blocks: Option<u64>,
    first: Option<Key>,
    last: Option<Key>,
}

impl Meta {
    fn read(block: &DataBlock) -> Self {
        let value = |name: &[u8]| block.point_read(name, SeqNo::MAX).map(|found| found.value.to_vec());
        let count = |name: &[u8]| value(name).and_then(|value| value.try_into().ok()).map(u64::from_le_bytes);
        let (blocks, index_blocks) = (count(b"block_count#data"), count(b"block_count#index"));
        let lowest_seqno = count(b"seqno#min");
        Self { lowest_seqno, blocks, index_blocks, first: value(b"key#min"), last: value(b"key#max") }
    }
}

fn after(key: &[u8]) -> Key {
    [key, &[0]].concat()
}

#[cfg(test)]
#[path = "rebuilt_tables_tests.rs"]
mod tests;
