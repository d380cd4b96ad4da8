//! The thread that moves rows from memory to the database's tables: freeze what is in memory, write it in order as one new
//! table, then forget it and the journal files that it came from.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use fjall::Keyspace;
use wayleave_core::ids::ShardId;

use crate::background;
use crate::fence_row::FenceRow;
use crate::journal;
use crate::memtable::Memtable;
use crate::store::Store;
use crate::trouble;

/// The row that says up to which file the journal's rows are in tables: in the last shard's rows of kind 0.
pub(crate) const DONE_KEY: [u8; 4] = [0xff, 0xff, 0, 1];

/// With more young tables than this, reads get slow: the next one waits until some have been merged.
const YOUNG_TABLES_MAX: usize = 24;
const MERGE_POLL: Duration = Duration::from_millis(10);

/// The thread. Dropping it ends the thread after the flush that is under way.
pub(crate) struct Flusher {
    store: Arc<Store>,
    thread: Option<JoinHandle<()>>,
}

impl Flusher {
    /// Starts the thread for a store whose journal lies in `journal`.
    ///
    /// # Errors
    /// If the machine gives no thread.
    pub(crate) fn start(store: Arc<Store>, journal: PathBuf) -> std::io::Result<Self> {
        let theirs = Arc::clone(&store);
        let thread = std::thread::Builder::new().name("wayleave-flush".into()).spawn(move || run(&theirs, &journal))?;
        Ok(Self { store, thread: Some(thread) })
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.store.flush.lock().unwrap_or_else(PoisonError::into_inner).closing = true;
        self.store.flush_changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked leaves rows in memory and in the journal: nothing is lost.
            let _ = thread.join();
        }
    }
}

fn run(store: &Store, journal: &Path) {
    background::give_way();
    while wait(store) {
        let flushed = flush(store, journal);
        if let Err(why) = &flushed {
            tracing::error!(error = %why, "rows cannot be written to a table; the store must be opened again");
            store.syncer.fail(why.clone());
        }
        store.tell_flush();
        if flushed.is_err() {
            return;
        }
    }
}

/// Moves what is in memory to a table.
///
/// # Errors
/// Why not. Then it is still in the journal.
pub(crate) fn flush(store: &Store, journal: &Path) -> Result<(), String> {
    let frozen = freeze(store);
    // The file that goes on must be there before the note that it does, which lies among the rows. And nothing may be left
    // to be written to a file that will be removed.
    store.syncer.settle()?;
    write_table(store, &frozen.tables).map_err(|error| trouble::describe(&error))?;
    forget(store, &frozen, journal).map_err(|error| trouble::describe(&error.into()))
}

/// Waits for something to flush; false when the store is closing.
fn wait(store: &Store) -> bool {
    let idle = |flush: &mut crate::store::Flush| {
        !flush.closing && store.active_bytes.load(Ordering::Relaxed) < store.freeze_bytes
    };
    let flush = store.flush.lock().unwrap_or_else(PoisonError::into_inner);
    !store.flush_changed.wait_while(flush, idle).unwrap_or_else(PoisonError::into_inner).closing
}

/// The rows of all shards at one moment.
pub(crate) struct Frozen {
    pub(crate) tables: Vec<Arc<Memtable>>,
    /// The journal's files up to this one hold these rows, and no others.
    done: u64,
}

/// Freezes the rows of all shards at one moment and lets the journal go on in a new file.
pub(crate) fn freeze(store: &Store) -> Frozen {
    // Made beforehand: it holds the note that goes with the rows.
    let _last = store.partitions.at(&[ShardId(u16::MAX)]);
    store.partitions.with_all(|all| {
        let done = store.syncer.rotate();
        let mut tables = Vec::with_capacity(all.len());
        for (shard, partition) in all {
            let mut table = std::mem::take(&mut partition.active);
            if std::mem::take(&mut partition.turned) {
                let row = FenceRow { turn: partition.turn, at: partition.at }.write(*shard);
                table.put(&row.key, row.value.as_deref());
            }
            if shard.0 == u16::MAX {
                table.put(&DONE_KEY, Some(&done.to_be_bytes()));
            }
            let table = Arc::new(table);
            partition.frozen = Some(table.clone());
            tables.push(table);
        }
        store.active_bytes.store(0, Ordering::Relaxed);
        Frozen { tables, done }
    })
}

pub(crate) fn write_table(store: &Store, tables: &[Arc<Memtable>]) -> Result<(), fjall::Error> {
    wait_for_merges(store, &store.rows);
    let mut table = store.rows.start_ingestion()?;
    for rows in tables {
        rows.each(|key, value| match value {
            Some(value) => table.write(key, value),
            None => table.write_tombstone(key),
        })?;
    }
    table.finish()
}

fn wait_for_merges(store: &Store, rows: &Keyspace) {
    while rows.l0_table_count() > YOUNG_TABLES_MAX
        && !store.flush.lock().unwrap_or_else(PoisonError::into_inner).closing
    {
        std::thread::sleep(MERGE_POLL);
    }
}

/// Forgets rows that are in tables now, and the journal's files that they came from.
pub(crate) fn forget(store: &Store, frozen: &Frozen, journal: &Path) -> std::io::Result<()> {
    store.partitions.with_all(|all| all.iter_mut().for_each(|(_, partition)| partition.frozen = None));
    journal::remove_until(journal, frozen.done)
}
