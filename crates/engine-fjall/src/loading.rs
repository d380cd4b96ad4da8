//! Loads a store at open: first fences and journal position from the tables, then the journal itself.

use wayleave_core::ids::ShardId;
use wayleave_core::time::Time;
use wayleave_engine::Error;

use crate::fence_row::{self, FenceRow};
use crate::flusher::{DONE_KEY, Done};
use crate::folder::Folder;
use crate::journal::{Journal, Tail};
use crate::open_error::OpenError;
use crate::partitions::{self, Partitions, shard_of};
use crate::replay::Replay;
use crate::store::{self, Start, Store};
use crate::syncer::{Drive, Syncer};
use crate::tables::{Snapshot, Tables};

/// How a store is loaded.
pub(crate) struct Loading {
    /// The memtable size that triggers a flush.
    pub(crate) freeze_bytes: usize,
    /// Whether to drop everything after damage in the journal.
    pub(crate) repair: bool,
    /// Who drives the group commit.
    pub(crate) drive: Drive,
    /// The id of this open: unique and not 0.
    pub(crate) life: u64,
}

/// Loads the store of a folder. `before_repair` runs before a repair drops anything.
///
/// # Errors
/// If the folder cannot be used; every message names the folder and the remedy.
pub(crate) fn load<T: Tables>(
    folder: &Folder,
    tables: T,
    loading: Loading,
    before_repair: impl FnOnce(&T) -> Result<(), OpenError>,
) -> Result<Store<T>, OpenError> {
    let Loading { freeze_bytes, repair, drive, life } = loading;
    let replayed = match replay(folder, &tables, false) {
        Err(OpenError::JournalDamaged { repair: Some(_), .. }) if repair => {
            before_repair(&tables)?;
            replay(folder, &tables, true)
        }
        replayed => replayed,
    };
    let Replayed { partitions, tail, last_committed } = replayed?;
    let io = |error| OpenError::io(folder.path(), error);
    let journal = Journal::resume(folder.disk().clone(), &folder.journal(), &tail, life).map_err(io)?;
    let journal_bytes = usize::try_from(tail.bytes).unwrap_or(usize::MAX);
    let syncer = Syncer::start(journal, drive).map_err(io)?;
    Ok(Store::new(Start { syncer, partitions, tables, last_committed, freeze_bytes, journal_bytes }))
}

/// What tables and journal say.
struct Replayed {
    partitions: Partitions,
    tail: Tail,
    last_committed: Time,
}

fn replay<T: Tables>(folder: &Folder, tables: &T, repair: bool) -> Result<Replayed, OpenError> {
    let snapshot = tables.snapshot();
    let (partitions, fence_changed) = load_fences(&snapshot, folder)?;
    let done = load_done(&snapshot, folder)?;
    let mut last_committed = fence_changed.max(done.at);
    let journal = folder.journal();
    let replay = Replay { disk: folder.disk(), folder: &journal, done: done.file, repair };
    let tail = replay
        .run(|record| last_committed = last_committed.max(store::replay(&partitions, record)))
        .map_err(|failure| OpenError::journal(folder.path(), failure))?;
    Ok(Replayed { partitions, tail, last_committed })
}

/// The fence states of all shards according to the tables, and the latest commit time among them.
fn load_fences(rows: &impl Snapshot, folder: &Folder) -> Result<(Partitions, Time), OpenError> {
    let (partitions, mut latest) = (Partitions::default(), Time::ZERO);
    // A fence row is the first row of its shard: seek from each to the next shard that has rows.
    let mut next = Some(ShardId(0));
    while let Some(from) = next {
        let Some(first) = rows.range(&fence_row::key(from), &[0xff; 8]).next() else { break };
        let (key, value) = first.map_err(|error| unreadable(folder, &error))?;
        let shard = shard_of(&key);
        next = shard.0.checked_add(1).map(ShardId);
        if key != fence_row::key(shard) {
            continue;
        }
        let row = FenceRow::decode(&value)
            .ok_or_else(|| damaged(folder, format!("the fence row of shard {} cannot be read", shard.0)))?;
        for (_, place) in partitions.at(&[shard]) {
            let mut partition = partitions::lock(&place);
            (partition.fence, partition.at) = (row.fence, row.at);
        }
        latest = latest.max(row.at);
    }
    Ok((partitions, latest))
}

/// The last journal file whose rows are all in tables.
fn load_done(rows: &impl Snapshot, folder: &Folder) -> Result<Done, OpenError> {
    let found = rows.get(&DONE_KEY).map_err(|error| unreadable(folder, &error))?;
    let Some(value) = found else { return Ok(Done::default()) };
    Done::decode(&value).ok_or_else(|| damaged(folder, "the row that counts the journal's files cannot be read".into()))
}

fn damaged(folder: &Folder, what: String) -> OpenError {
    OpenError::Damaged { path: folder.path().into(), what }
}

fn unreadable(folder: &Folder, error: &Error) -> OpenError {
    damaged(folder, error.to_string())
}
