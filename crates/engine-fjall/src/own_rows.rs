//! The rows that the store keeps for itself besides fences, under kind 0 of the last shard: what the journal's rows are
//! counted by ([`crate::flusher::DONE_KEY`]), the incarnation, the number of shards, and a note of a repair.

use wayleave_engine::Error;

use crate::folder::Folder;
use crate::lsm::FjallTables;
use crate::open_error::OpenError;
use crate::tables::{Snapshot, Tables};

/// The row with the store's incarnation (8 bytes, big-endian), which distinguishes a restored store from the original.
pub(crate) const INCARNATION_KEY: [u8; 4] = [0xff, 0xff, 0, 2];
/// The row with the number of shards (2 bytes, big-endian). The file FORMAT has it too: with another number, hosts would
/// be looked for in shards that do not have them.
pub(crate) const SHARDS_KEY: [u8; 4] = [0xff, 0xff, 0, 3];

/// The row that is there from before a repair drops anything until [`crate::repaired`] has raised what the store counts.
pub(crate) const REPAIRED_KEY: [u8; 4] = [0xff, 0xff, 0, 4];

/// The incarnation: 0, unless the store was made from another one or repaired.
///
/// # Errors
/// If the row that says so cannot be read.
pub(crate) fn incarnation(tables: &impl Tables, folder: &Folder, salvage: bool) -> Result<u64, OpenError> {
    let found = match tables.snapshot().get(&INCARNATION_KEY) {
        // What is made of it is another store in any case.
        Err(Error::Corrupt(_)) if salvage => None,
        found => found.map_err(|error| damaged(folder, error.to_string()))?,
    };
    let Some(value) = found else { return Ok(0) };
    let number = value.as_slice().try_into().map(u64::from_be_bytes);
    number.map_err(|_| damaged(folder, "the row that names the store cannot be read".into()))
}

/// Compares the number of shards with that in FORMAT.
///
/// # Errors
/// If they differ, or the row is missing; unless the store is salvaged, also if it cannot be read.
pub(crate) fn check_shards(tables: &FjallTables, folder: &Folder, salvage: bool) -> Result<(), OpenError> {
    let found = match tables.snapshot().get(&SHARDS_KEY) {
        Err(Error::Corrupt(_)) if salvage => return Ok(()),
        found => found.map_err(|error| damaged(folder, error.to_string()))?,
    };
    let stored = found.and_then(|value| value.as_slice().try_into().ok().map(u16::from_be_bytes));
    match stored {
        Some(stored) if stored == folder.shards() => Ok(()),
        Some(stored) => {
            let what = format!("FORMAT says {} shards, the tables have {stored}", folder.shards());
            Err(damaged(folder, what))
        }
        None => Err(damaged(folder, "the row with the number of shards is missing".into())),
    }
}

fn damaged(folder: &Folder, what: String) -> OpenError {
    OpenError::Damaged { path: folder.path().into(), what }
}
