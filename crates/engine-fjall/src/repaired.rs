//! Raises a store's counters after a repair: numbers from commits that the repair has dropped must not be assigned
//! again.
//!
//! A note is in the tables before the repair drops anything, because the repair may be interrupted, and a later open finds a
//! journal without damage. The batch that raises the numbers removes the note. Epochs of roles that are left follow the
//! incarnation.

use wayleave_engine::transplant::{as_new_store, uncounted};
use wayleave_engine::{Error, Row, Write};

use crate::bulk_load;
use crate::lsm::FjallTables;
use crate::own_rows::{INCARNATION_KEY, REPAIRED_KEY};
use crate::store::Store;
use crate::tables::Tables;

/// Makes the store another one, as a restore does, and notes that what it counts must be raised. Fails if the disk
/// fails. Nothing has changed.
pub(crate) fn note(tables: &FjallTables) -> lsm_tree::Result<()> {
    let incarnation = bulk_load::incarnation().to_be_bytes();
    tables.load(|write| {
        write(&INCARNATION_KEY, &incarnation)?;
        write(&REPAIRED_KEY, &[])
    })
}

/// Raises the counters of a store of this many shards, if there is a note. Waits for room, so the flush thread must
/// run. The batch need not be awaited: it comes before all others. Fails if the note cannot be read or the batch not
/// be written.
pub(crate) fn raise_counted<T: Tables>(store: &Store<T>, shards: u16) -> Result<(), Error> {
    if store.get(&[REPAIRED_KEY.to_vec()])?.iter().all(Option::is_none) {
        return Ok(());
    }
    let mut writes = Vec::new();
    for first in uncounted(shards) {
        let row = match store.get(std::slice::from_ref(&first.key)) {
            Ok(found) => match found.into_iter().flatten().next() {
                Some(value) => as_new_store(Row { key: first.key, value }),
                None => Ok(Some(first)),
            },
            // Its shard stays closed.
            Err(Error::Corrupt(_)) => continue,
            Err(error) => return Err(error),
        };
        // Neither does one open that does not decode.
        writes.extend(row.ok().flatten().map(|Row { key, value }| Write { key, value: Some(value) }));
    }
    writes.push(Write { key: REPAIRED_KEY.into(), value: None });
    drop(store.commit(&[], &[], &writes, store.last_committed())?);
    tracing::warn!(
        "chunk ids, the version of the map and epochs of new roles continue well above all that were assigned before the repair"
    );
    Ok(())
}
