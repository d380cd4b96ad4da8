//! The rows that the store keeps for itself besides fences, under kind 0 of the last shard: what the journal's rows are
//! counted by ([`crate::flusher::DONE_KEY`]), the incarnation, the number of shards, and a note of a repair.

use lsm_tree::{InternalValue, Slice};
use wayleave_engine::Value;

use crate::folder::Folder;
use crate::manifest::ListedTable;
use crate::open_error::OpenError;
use crate::tables::{Snapshot, Tables};
use crate::trouble;

/// The row with the store's incarnation (8 bytes, big-endian), which distinguishes a restored store from the original.
pub(crate) const INCARNATION_KEY: [u8; 4] = [0xff, 0xff, 0, 2];
/// The row with the number of shards (2 bytes, big-endian). The file FORMAT has it too: with another number, hosts would
/// be looked for in shards that do not have them.
pub(crate) const SHARDS_KEY: [u8; 4] = [0xff, 0xff, 0, 3];

/// The row that is there from before a repair drops anything until [`crate::repaired`] has raised what the store counts.
pub(crate) const REPAIRED_KEY: [u8; 4] = [0xff, 0xff, 0, 4];

/// The newest value of a row in tables that are not opened as a whole.
pub(crate) fn newest(tables: &[ListedTable], key: [u8; 4]) -> Result<Option<Value>, String> {
    let (mut newest, key): (Option<InternalValue>, _) = (None, Slice::from(key.as_slice()));
    for listed in tables {
        let unreadable = |error: lsm_tree::Error| trouble::describe(&error);
        for row in listed.open().map_err(unreadable)?.range(key.clone()..=key.clone()) {
            let row = row.map_err(unreadable)?;
            newest = newest.filter(|newest| newest.key.seqno > row.key.seqno).or(Some(row));
        }
    }
    Ok(newest.filter(|row| !row.key.is_tombstone()).map(|row| row.value.to_vec()))
}

/// The incarnation: 0, unless the store was made from another one or repaired. Fails if the row that says so cannot be
/// read.
pub(crate) fn incarnation(tables: &impl Tables, folder: &Folder) -> Result<u64, OpenError> {
    let found = tables.snapshot().get(&INCARNATION_KEY).map_err(|error| damaged(folder, trouble::cause(&error)))?;
    let Some(value) = found else { return Ok(0) };
    let number = value.as_slice().try_into().map(u64::from_be_bytes);
    number.map_err(|_| damaged(folder, "the row that names the store cannot be read".into()))
}

/// The number of shards in the tables. Fails if the row cannot be read, or is missing.
pub(crate) fn shards(tables: &impl Tables) -> Result<u16, String> {
    decode_shards(tables.snapshot().get(&SHARDS_KEY).map_err(|error| trouble::cause(&error))?)
}

/// Decodes the row with the number of shards.
pub(crate) fn decode_shards(found: Option<Value>) -> Result<u16, String> {
    let stored = found.and_then(|value| value.as_slice().try_into().ok().map(u16::from_be_bytes));
    stored.ok_or_else(|| "the row with the number of shards is missing".into())
}

/// Compares the number of shards with that in FORMAT. Fails if they differ, or the row cannot be read.
pub(crate) fn check_shards(tables: &impl Tables, folder: &Folder) -> Result<(), OpenError> {
    let stored = shards(tables).map_err(|what| damaged(folder, what))?;
    if stored == folder.shards() {
        return Ok(());
    }
    Err(damaged(folder, unlike(folder.shards(), stored)))
}

/// What is wrong if FORMAT and tables have another number of shards.
pub(crate) fn unlike(format: u16, stored: u16) -> String {
    format!("FORMAT says {format} shards, the tables have {stored}")
}

fn damaged(folder: &Folder, what: String) -> OpenError {
    OpenError::Damaged { path: folder.path().into(), what }
}
