//! Tables that cannot be opened, for a store that is salvaged: their rows are read from the blocks alone.
//!
//! A table's file has its rows in blocks, each with its length and a checksum, and behind them an index, a filter and a
//! description. Where one of these is damaged, every row may still be there. The tables are made anew in a folder beside the
//! database, which refers to all others by symbolic links: the damaged folder stays as it is. What is missing in between is
//! a *hole*, which reads must not pass: an older table may have other versions of the same rows.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use lsm_tree::coding::Decode;
use lsm_tree::table::block::decoder::ParsedItem;
use lsm_tree::table::block::{BlockType, Header};
use lsm_tree::table::{Block, DataBlock, Writer};
use lsm_tree::{CompressionType, InternalValue, SeqNo};
use wayleave_engine::Key;

use crate::folder::Folder;
use crate::lsm::{AFTER_ALL, Hole, TABLES};
use crate::manifest::{self, CURRENT, ListedTable};
use crate::open_error::OpenError;
use crate::private;
use crate::trouble;

/// The folder, beside the database's.
const REBUILT: &str = "db.salvage";

/// What the header of a block begins with.
const MAGIC: [u8; 4] = lsm_tree::file::MAGIC_BYTES;

/// What is read at once where a disk fails.
const SECTOR_BYTES: usize = 4096;

/// A database in which tables were made anew. Dropping this removes it.
#[derive(Debug)]
pub(crate) struct RebuiltTables {
    pub(crate) path: PathBuf,
    /// Keys of which newer rows may be missing.
    pub(crate) holes: Vec<Hole>,
    /// Each table that was made anew, and whether rows are missing in it.
    pub(crate) tables: Vec<(PathBuf, bool)>,
}

impl Drop for RebuiltTables {
    fn drop(&mut self) {
        // What is left is removed by the next salvage.
        _ = fs::remove_dir_all(&self.path);
    }
}

impl RebuiltTables {
    /// Makes anew what cannot be opened of these tables; `None` if all can.
    ///
    /// # Errors
    /// If the disk fails, or nothing at all is known of what a table had.
    pub(crate) fn make(folder: &Folder, version: u64, listed: &[ListedTable]) -> Result<Option<Self>, OpenError> {
        let database = folder.database();
        let mut rebuilt = Self { path: folder.path().join(REBUILT), holes: Vec::new(), tables: Vec::new() };
        if rebuilt.path.exists() {
            fs::remove_dir_all(&rebuilt.path).map_err(|error| OpenError::io(&rebuilt.path, error))?;
        }
        for table in listed {
            if manifest::verify(&table.path, table.checksum, |_| true).is_ok() {
                continue;
            }
            let rows = Rows::read(&table.path).map_err(|error| OpenError::io(&table.path, error))?;
            // Where a block of rows is all that is damaged, the table's own filter tells which keys that concerns.
            if !rows.holes.is_empty() && rows.has_index && refusal(table).is_none() {
                continue;
            }
            let Some(filler) = rows.filler() else {
                let what = "nothing of it can be read, so it is not known which rows it had";
                return Err(OpenError::file(folder.path(), &table.path, what));
            };
            let to = rebuilt.path_of(table);
            fs::create_dir_all(rebuilt.path.join(TABLES)).map_err(|error| OpenError::io(&to, error))?;
            rows.write(&to, table.number(), filler).map_err(|error| OpenError::tables(&to, error))?;
            rebuilt.tables.push((table.path.clone(), !rows.holes.is_empty()));
            rebuilt.holes.extend(rows.holes);
        }
        if rebuilt.tables.is_empty() {
            return Ok(None);
        }
        rebuilt.refer_to_others(&database, version, listed).map_err(|error| OpenError::io(&rebuilt.path, error))?;
        private::keep_inside(&rebuilt.path);
        Ok(Some(rebuilt))
    }

    fn path_of(&self, table: &ListedTable) -> PathBuf {
        self.path.join(TABLES).join(table.path.file_name().unwrap_or_default())
    }

    /// Adds the manifest, and all tables that were not made anew.
    fn refer_to_others(&self, database: &Path, version: u64, listed: &[ListedTable]) -> std::io::Result<()> {
        for name in [CURRENT, &*format!("v{version}")] {
            fs::copy(database.join(name), self.path.join(name))?;
        }
        for table in listed.iter().filter(|table| self.tables.iter().all(|(made, _)| *made != table.path)) {
            symlink(std::path::absolute(&table.path)?, self.path_of(table))?;
        }
        Ok(())
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
        let bytes = read_sectors(path)?;
        let (mut blocks, mut holes, mut meta) = (Vec::new(), Vec::new(), Meta::default());
        // The end of the rows that were read, and what may follow them.
        let (mut end, mut after_last, mut is_over) = (0, Key::new(), false);
        let mut index_blocks = 0;
        for (at, kind, block, next) in blocks_of(&bytes) {
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
        // Besides those that are counted, index and filter have one each that refers to the others.
        let has_index = meta.index_blocks.is_some_and(|count| index_blocks == count + 2);
        Ok(Self { blocks, holes, has_index })
    }

    fn items(&self) -> impl Iterator<Item = InternalValue> {
        self.blocks.iter().flat_map(|block| block.iter().map(|row| row.materialize(&block.inner.data)))
    }

    /// What stands in a table that would be empty: in a hole, where it is not read. `None` if the hole is everything.
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

/// What a table's description tells.
#[derive(Default)]
struct Meta {
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
        Self { blocks, index_blocks, first: value(b"key#min"), last: value(b"key#max") }
    }
}

fn after(key: &[u8]) -> Key {
    [key, &[0]].concat()
}

/// Every block that can be read, with its place and its end.
fn blocks_of(bytes: &[u8]) -> impl Iterator<Item = (usize, BlockType, Block, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = bytes.get(at..)?;
            let begin = at + rest.windows(MAGIC.len()).position(|part| part == MAGIC)?;
            match block_at(bytes.get(begin..)?) {
                Some((kind, block, len)) => {
                    at = begin + len;
                    return Some((begin, kind, block, at));
                }
                None => at = begin + 1,
            }
        }
    })
}

/// The block that begins here, and its length.
fn block_at(bytes: &[u8]) -> Option<(BlockType, Block, usize)> {
    let header = Header::decode_from(&mut &*bytes).ok()?;
    let len = Header::serialized_len() + usize::try_from(header.data_length).ok()?;
    let is_plain = header.data_length == header.uncompressed_length;
    let compression = if is_plain { CompressionType::None } else { CompressionType::Lz4 };
    let block = Block::from_reader(&mut bytes.get(..len)?, compression).ok()?;
    Some((header.block_type, block, len))
}

/// A file, with zeros where the disk cannot read it.
fn read_sectors(path: &Path) -> std::io::Result<Vec<u8>> {
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
