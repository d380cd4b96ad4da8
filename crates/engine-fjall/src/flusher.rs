//! The flush thread: freezes the memtables, writes them as one sorted table, then drops them together with the journal
//! files that contain the same rows.
//!
//! Whatever stops the thread (an error, a panic) fails the store: commits wait for a flush when memory is full, and must
//! not wait forever.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::oneshot;
use wayleave_core::ids::ShardId;
use wayleave_core::time::Time;

use crate::background;
use crate::disk::Disk;
use crate::fence_row::FenceRow;
use crate::journal;
use crate::memtable::Memtable;
use crate::store::{Flush, Store};
use crate::tables::{Tables, YOUNG_TABLES_LIMIT};
use crate::trouble;

/// The row that records the last journal file whose rows are all in tables, and the time of the last commit in it. It
/// is stored under kind 0 of the last shard. Value: file · time (8 bytes each, big-endian).
pub(crate) const DONE_KEY: [u8; 4] = [0xff, 0xff, 0, 1];

/// The L0 stall threshold: with more L0 tables reads get slow, so the next flush waits for a merge.
const YOUNG_TABLES_MAX: usize = 24;
/// Rows stay in memory and journal at most this long, so that what is deleted leaves the files within a day.
pub(crate) const FLUSH_AFTER: Duration = Duration::from_secs(2 * 3600);
/// What a start has found in the journal stays there at most this long: a store that is restarted often must flush too.
const FLUSH_FIRST_AFTER: Duration = Duration::from_secs(600);

/// The content of [`DONE_KEY`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    /// Journal files up to this one are fully in tables.
    pub(crate) file: u64,
    /// The time of the last commit in those files.
    pub(crate) at: Time,
}

impl Done {
    pub(crate) fn encode(self) -> Vec<u8> {
        [self.file.to_be_bytes(), self.at.0.to_be_bytes()].concat()
    }

    /// Decodes the row; `None` if the bytes are invalid.
    pub(crate) fn decode(value: &[u8]) -> Option<Self> {
        let (file, rest) = value.split_first_chunk::<8>()?;
        let at = rest.try_into().ok().map(u64::from_be_bytes)?;
        Some(Self { file: u64::from_be_bytes(*file), at: Time(at) })
    }
}

/// The flush thread. Dropping this ends it after the running flush.
pub(crate) struct Flusher<T: Tables> {
    store: Arc<Store<T>>,
    thread: Option<JoinHandle<()>>,
}

/// The location of a store's journal.
#[derive(Clone, Debug)]
pub(crate) struct JournalFolder {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) path: PathBuf,
}

impl<T: Tables> Flusher<T> {
    /// Starts the flush thread of a store with this journal.
    pub(crate) fn start(store: Arc<Store<T>>, journal: JournalFolder) -> std::io::Result<Self> {
        let theirs = Arc::clone(&store);
        let run = move || {
            if catch_unwind(AssertUnwindSafe(|| run(&theirs, &journal))).is_err() {
                fail(&theirs, "the thread that writes tables panicked: see the log, then restart".into());
            }
        };
        let thread = std::thread::Builder::new().name("wayleave-flush".into()).spawn(run)?;
        Ok(Self { store, thread: Some(thread) })
    }
}

impl<T: Tables> Drop for Flusher<T> {
    fn drop(&mut self) {
        self.store.flush.lock().unwrap_or_else(PoisonError::into_inner).closing = true;
        self.store.flush_changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // Whatever happened to the thread, its rows are still in the journal.
            let _ = thread.join();
        }
    }
}

fn run<T: Tables>(store: &Store<T>, journal: &JournalFolder) {
    background::give_way();
    let _over = Over(store);
    let mut after = FLUSH_FIRST_AFTER;
    while let Some(wanted) = wait(store, std::mem::replace(&mut after, FLUSH_AFTER)) {
        let flushed = flush(store, journal);
        let failed = flushed.is_err();
        if let Err(why) = flushed {
            tracing::error!(error = %why, "cannot write rows to a table; restart to reopen the store");
            fail(store, why);
        } else {
            // No other thread adds tables, so they contain exactly what was frozen. Receivers that gave up are ignored.
            wanted.into_iter().for_each(|waiting| _ = waiting.send(store.tables.snapshot()));
        }
        store.notify_flush();
        if failed {
            return;
        }
    }
}

fn fail<T: Tables>(store: &Store<T>, why: String) {
    store.syncer.fail(why);
    store.notify_flush();
}

/// Flushes the memtables to a table. The error is the reason. The rows are then still in the journal.
pub(crate) fn flush<T: Tables>(store: &Store<T>, journal: &JournalFolder) -> Result<(), String> {
    let frozen = freeze(store);
    settle(store)?;
    write_table(store, &frozen)?;
    forget(store, &frozen, journal)
}

/// Waits until the next journal file exists: the flushed rows include the record that it exists. Also waits until no
/// write is outstanding to a file that will be removed.
pub(crate) fn settle<T: Tables>(store: &Store<T>) -> Result<(), String> {
    let settled = store.syncer.settled()?.blocking_recv();
    settled.map_or_else(|_| Err("the store was closed".into()), |settled| settled.map_err(|error| error.to_string()))
}

/// However the thread ends, callers waiting for a snapshot must get an answer.
struct Over<'a, T: Tables>(&'a Store<T>);

impl<T: Tables> Drop for Over<'_, T> {
    fn drop(&mut self) {
        let mut flush = self.0.flush.lock().unwrap_or_else(PoisonError::into_inner);
        flush.over = true;
        flush.wanted.clear();
    }
}

/// Callers waiting for a snapshot of a store.
type Wanted<T> = Vec<oneshot::Sender<<T as Tables>::Snapshot>>;

/// Waits for something to flush; `None` when the store is closing. Snapshot requests are dequeued before the freeze, so
/// the freeze includes everything acknowledged before them.
fn wait<T: Tables>(store: &Store<T>, mut after: Duration) -> Option<Wanted<T>> {
    let idle = |flush: &mut Flush<T::Snapshot>| !flush.closing && !store.is_full() && flush.wanted.is_empty();
    let mut flush = store.flush.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let waited = store.flush_changed.wait_timeout_while(flush, after, idle);
        let (next, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        flush = next;
        if !timeout.timed_out() || store.active_bytes.load(Ordering::Relaxed) > 0 {
            return (!flush.closing).then(|| std::mem::take(&mut flush.wanted));
        }
        after = FLUSH_AFTER;
    }
}

/// The frozen memtables of all shards at one moment.
pub(crate) struct Frozen {
    pub(crate) tables: Vec<Arc<Memtable>>,
    /// Journal files up to this one contain exactly these rows.
    done: u64,
}

/// Freezes the memtables of all shards atomically and rotates the journal.
pub(crate) fn freeze<T: Tables>(store: &Store<T>) -> Frozen {
    // Created in advance: this partition holds the row that records the flush.
    let _last = store.partitions.at(&[ShardId(u16::MAX)]);
    store.partitions.with_all(|all| {
        let done = store.syncer.rotate();
        let note = Done { file: done, at: store.last_committed() };
        let mut tables = Vec::with_capacity(all.len());
        for (shard, partition) in all {
            let mut table = std::mem::take(&mut partition.active);
            if std::mem::take(&mut partition.fence_changed) {
                let row = FenceRow { fence: partition.fence, at: partition.at }.write(*shard);
                table.put(&row.key, row.value.as_deref());
            }
            if shard.0 == u16::MAX {
                table.put(&DONE_KEY, Some(&note.encode()));
            }
            let table = Arc::new(table);
            partition.frozen = Some(table.clone());
            tables.push(table);
        }
        store.active_bytes.store(0, Ordering::Relaxed);
        store.journal_bytes.store(0, Ordering::Relaxed);
        Frozen { tables, done }
    })
}

/// Writes the frozen rows to a table, once the number of L0 tables permits.
pub(crate) fn write_table<T: Tables>(store: &Store<T>, frozen: &Frozen) -> Result<(), String> {
    wait_for_merges(store)?;
    store.tables.add(&frozen.tables)?;
    ask_for_merge(store);
    Ok(())
}

fn ask_for_merge<T: Tables>(store: &Store<T>) {
    store.merging.lock().unwrap_or_else(PoisonError::into_inner).asked = true;
    store.merging_changed.notify_all();
}

/// Waits while there are too many L0 tables. While merging pauses, or everything is merged, the store continues with more of them.
fn wait_for_merges<T: Tables>(store: &Store<T>) -> Result<(), String> {
    if store.tables.young() <= YOUNG_TABLES_MAX {
        return Ok(());
    }
    ask_for_merge(store);
    // The merge thread notifies after each merge, and so does whatever fails the store.
    let must_wait = |flush: &mut Flush<T::Snapshot>| {
        let merging = store.merging.lock().unwrap_or_else(PoisonError::into_inner);
        let most = if merging.paused.is_some() || merging.all { YOUNG_TABLES_LIMIT } else { YOUNG_TABLES_MAX };
        drop(merging);
        !flush.closing && store.tables.young() > most && store.syncer.check().is_ok()
    };
    let flush = store.flush.lock().unwrap_or_else(PoisonError::into_inner);
    drop(store.flush_changed.wait_while(flush, must_wait).unwrap_or_else(PoisonError::into_inner));
    store.syncer.check().map_err(|error| error.to_string())
}

/// Drops the flushed rows and the journal files that contain them.
pub(crate) fn forget<T: Tables>(store: &Store<T>, frozen: &Frozen, journal: &JournalFolder) -> Result<(), String> {
    store.partitions.with_all(|all| all.iter_mut().for_each(|(_, partition)| partition.frozen = None));
    let removed = journal::remove_until(&*journal.disk, &journal.path, frozen.done);
    removed.map_err(|error| trouble::describe_io(&error))
}

#[cfg(test)]
#[path = "flusher_tests.rs"]
mod tests;
