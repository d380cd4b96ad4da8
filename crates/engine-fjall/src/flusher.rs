//! The thread that moves rows from memory to the database's tables: freeze what is in memory, write it in order as one new
//! table, then forget it and the journal files that it came from.
//!
//! Whatever stops it, a failure, a panic, or tables that are not merged any more, ends in a failed store: commits wait for it
//! when memory is full, and must not wait for ever.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use wayleave_core::ids::ShardId;
use wayleave_core::time::Time;

use crate::background;
use crate::disk::Disk;
use crate::fence_row::FenceRow;
use crate::journal;
use crate::memtable::Memtable;
use crate::store::{Flush, Store};
use crate::tables::Tables;
use crate::trouble;

/// The row that says up to which file the journal's rows are in tables, and when the last of them was committed: in the last
/// shard's rows of kind 0. Value: file · time (8 bytes each, big endian); the time is missing in what older programs wrote.
pub(crate) const DONE_KEY: [u8; 4] = [0xff, 0xff, 0, 1];

/// With more young tables than this, reads get slow: the next one waits until some have been merged.
const YOUNG_TABLES_MAX: usize = 24;
const MERGE_POLL: Duration = Duration::from_millis(10);
/// A merge is asked for again every so many polls.
const POLLS_PER_ASK: u32 = 10;
/// Too many young tables and no merge at work in this time: the store has failed.
pub(crate) const MERGE_WAIT_MAX: Duration = Duration::from_secs(30);

/// What [`DONE_KEY`] holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    /// The journal's files up to this one are in tables.
    pub(crate) file: u64,
    /// When the last batch of them was committed.
    pub(crate) at: Time,
}

impl Done {
    pub(crate) fn encode(self) -> Vec<u8> {
        [self.file.to_be_bytes(), self.at.0.to_be_bytes()].concat()
    }

    /// Reads the row; none if it is not one.
    pub(crate) fn decode(value: &[u8]) -> Option<Self> {
        let (file, rest) = value.split_first_chunk::<8>()?;
        let at = if rest.is_empty() { Some(0) } else { rest.try_into().ok().map(u64::from_be_bytes) };
        Some(Self { file: u64::from_be_bytes(*file), at: Time(at?) })
    }
}

/// The thread. Dropping it ends the thread after the flush that is under way.
pub(crate) struct Flusher<T: Tables> {
    store: Arc<Store<T>>,
    thread: Option<JoinHandle<()>>,
}

/// Where the journal of a store lies.
#[derive(Clone, Debug)]
pub(crate) struct JournalFolder {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) path: PathBuf,
}

impl<T: Tables> Flusher<T> {
    /// Starts the thread for a store with this journal.
    ///
    /// # Errors
    /// If the machine gives no thread.
    pub(crate) fn start(store: Arc<Store<T>>, journal: JournalFolder) -> std::io::Result<Self> {
        let theirs = Arc::clone(&store);
        let run = move || {
            if catch_unwind(AssertUnwindSafe(|| run(&theirs, &journal))).is_err() {
                fail(&theirs, "the thread that writes tables panicked: see the log, then start again".into());
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
            // Whatever happened to it, its rows are still in the journal.
            let _ = thread.join();
        }
    }
}

fn run<T: Tables>(store: &Store<T>, journal: &JournalFolder) {
    background::give_way();
    let _over = Over(store);
    while let Some(wanted) = wait(store) {
        let flushed = flush(store, journal);
        let failed = flushed.is_err();
        if let Err(why) = flushed {
            tracing::error!(error = %why, "rows cannot be written to a table; the store must be opened again");
            fail(store, why);
        } else {
            // Nobody else adds tables: they hold what was frozen, and nothing that came later. Whoever gave up waiting needs
            // none.
            wanted.into_iter().for_each(|waiting| _ = waiting.send(store.tables.snapshot()));
        }
        store.tell_flush();
        if failed {
            return;
        }
    }
}

fn fail<T: Tables>(store: &Store<T>, why: String) {
    store.syncer.fail(why);
    store.tell_flush();
}

/// Moves what is in memory to a table.
///
/// # Errors
/// Why not. Then it is still in the journal.
pub(crate) fn flush<T: Tables>(store: &Store<T>, journal: &JournalFolder) -> Result<(), String> {
    let frozen = freeze(store);
    settle(store)?;
    write_table(store, &frozen)?;
    forget(store, &frozen, journal)
}

/// Waits until the file that goes on is there: it must be there before the note that it goes on, which lies among the rows.
/// And nothing may be left to be written to a file that will be removed.
pub(crate) fn settle<T: Tables>(store: &Store<T>) -> Result<(), String> {
    let told = store.syncer.settled()?.blocking_recv();
    told.map_or_else(|_| Err("the store was closed".into()), |told| told.map_err(|error| error.to_string()))
}

/// However the thread ends, those who wait for a snapshot must hear of it.
struct Over<'a, T: Tables>(&'a Store<T>);

impl<T: Tables> Drop for Over<'_, T> {
    fn drop(&mut self) {
        let mut flush = self.0.flush.lock().unwrap_or_else(PoisonError::into_inner);
        flush.over = true;
        flush.wanted.clear();
    }
}

/// Those who want a snapshot of a store.
type Wanted<T> = Vec<oneshot::Sender<<T as Tables>::Snapshot>>;

/// Waits for something to flush; none when the store is closing. Those who want a snapshot are taken from the line before
/// anything is frozen: what they know of is frozen then.
fn wait<T: Tables>(store: &Store<T>) -> Option<Wanted<T>> {
    let idle = |flush: &mut Flush<T::Snapshot>| {
        let full = store.active_bytes.load(Ordering::Relaxed) >= store.freeze_bytes;
        !flush.closing && !full && flush.wanted.is_empty()
    };
    let flush = store.flush.lock().unwrap_or_else(PoisonError::into_inner);
    let mut flush = store.flush_changed.wait_while(flush, idle).unwrap_or_else(PoisonError::into_inner);
    (!flush.closing).then(|| std::mem::take(&mut flush.wanted))
}

/// The rows of all shards at one moment.
pub(crate) struct Frozen {
    pub(crate) tables: Vec<Arc<Memtable>>,
    /// The journal's files up to this one hold these rows, and no others.
    done: u64,
}

/// Freezes the rows of all shards at one moment and lets the journal go on in a new file.
pub(crate) fn freeze<T: Tables>(store: &Store<T>) -> Frozen {
    // Made beforehand: it holds the note that goes with the rows.
    let _last = store.partitions.at(&[ShardId(u16::MAX)]);
    store.partitions.with_all(|all| {
        let done = store.syncer.rotate();
        let note = Done { file: done, at: store.last_committed() };
        let mut tables = Vec::with_capacity(all.len());
        for (shard, partition) in all {
            let mut table = std::mem::take(&mut partition.active);
            if std::mem::take(&mut partition.turned) {
                let row = FenceRow { turn: partition.turn, at: partition.at }.write(*shard);
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
        Frozen { tables, done }
    })
}

/// Writes frozen rows to a table, once there are not too many young ones.
pub(crate) fn write_table<T: Tables>(store: &Store<T>, frozen: &Frozen) -> Result<(), String> {
    wait_for_merges(store)?;
    store.tables.add(&frozen.tables)
}

/// Waits while there are too many young tables. Merges are asked for again and again: the database takes a request that finds
/// another merge in its way as done.
fn wait_for_merges<T: Tables>(store: &Store<T>) -> Result<(), String> {
    let closing = || store.flush.lock().unwrap_or_else(PoisonError::into_inner).closing;
    let mut merging = [true; 2];
    let mut moved = (store.tables.young(), Instant::now());
    for poll in 0u32.. {
        let young = store.tables.young();
        if young <= YOUNG_TABLES_MAX || closing() {
            break;
        }
        store.tables.check()?;
        if poll.is_multiple_of(POLLS_PER_ASK) {
            store.tables.ask_for_merge()?;
        }
        // A request that is turned away counts as a merge for a moment: two looks in a row tell.
        merging = [store.tables.merging(), merging[0]];
        if merging == [true; 2] || young < moved.0 {
            moved = (young, Instant::now());
        }
        if moved.1.elapsed() >= store.merge_wait_max {
            let seconds = store.merge_wait_max.as_secs();
            return Err(format!(
                "no tables were merged for {seconds} s: see the log, check the disk, then start again"
            ));
        }
        std::thread::sleep(MERGE_POLL);
    }
    Ok(())
}

/// Forgets rows that are in tables now, and the journal's files that they came from.
pub(crate) fn forget<T: Tables>(store: &Store<T>, frozen: &Frozen, journal: &JournalFolder) -> Result<(), String> {
    store.partitions.with_all(|all| all.iter_mut().for_each(|(_, partition)| partition.frozen = None));
    let removed = journal::remove_until(&*journal.disk, &journal.path, frozen.done);
    removed.map_err(|error| trouble::describe_io(&error))
}

#[cfg(test)]
#[path = "flusher_tests.rs"]
mod tests;
