//! Loads a store at open: first fences and journal position from the tables, then the journal itself.

use std::path::Path;

use wayleave_core::ids::ShardId;
use wayleave_core::time::Time;
use wayleave_engine::{Error, Write};

use crate::engine::Options;
use crate::fence_row::{self, FenceRow};
use crate::flusher::{DONE_KEY, Done};
use crate::folder::Folder;
use crate::journal::{self, Journal, Tail};
use crate::open_error::OpenError;
use crate::partitions::{self, Partitions, shard_of};
use crate::record::Record;
use crate::replay::Replay;
use crate::store::{self, Start, Store};
use crate::syncer::{Drive, Syncer};
use crate::tables::{Snapshot, Tables};
use crate::trouble;

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

impl Loading {
    /// For a store with threads.
    pub(crate) fn new(options: &Options) -> Self {
        // Random: the upper half is enough, and setting the lowest bit excludes 0.
        let life = (wayleave_engine::entropy::system() >> 64) as u64 | 1;
        Self { freeze_bytes: options.memtable_bytes, repair: options.repair, drive: Drive::Threads, life }
    }
}

/// Loads the store of a folder. `before_repair` runs before a repair drops anything. Fails if the folder cannot be
/// used; every message names the folder and the remedy.
pub(crate) fn load<T: Tables>(
    folder: &Folder,
    tables: T,
    loading: Loading,
    before_repair: impl FnOnce(&T) -> Result<(), OpenError>,
) -> Result<Store<T>, OpenError> {
    let replayed = match replay(folder, &tables, false) {
        Err(OpenError::JournalDamaged { repair: Some(_), .. }) if loading.repair => {
            before_repair(&tables)?;
            replay(folder, &tables, true)
        }
        replayed => replayed,
    };
    start(folder, tables, loading, replayed?)
}

/// What is missing of a journal.
#[derive(Debug, Default)]
pub(crate) struct LostCommits {
    /// For people.
    pub(crate) what: Vec<String>,
    /// Writes of lost commits that can be read. They are not applied, because others between them may not be: the rows of the
    /// store may be older.
    pub(crate) writes: Vec<Write>,
}

/// Loads what can be read of a damaged store, whose journal is in another folder; returns also what is missing of that journal.
/// Nothing is changed in it: the store gets an empty one of its own. Fails if tables or journal cannot be read at the
/// moment.
pub(crate) fn salvage<T: Tables>(
    folder: &Folder,
    tables: T,
    loading: Loading,
    damaged: &Path,
) -> Result<(Store<T>, LostCommits), OpenError> {
    let snapshot = tables.snapshot();
    let ((mut partitions, fence_changed), mut lost) = (load_fences(&snapshot, folder)?, LostCommits::default());
    let (done, is_counted) = match load_done(&snapshot, folder) {
        Err(OpenError::Damaged { .. }) => (all_of_journal(folder, damaged), false),
        done => (done?, true),
    };
    let failed = |failure| OpenError::journal(folder.path(), failure);
    let mut last_committed = fence_changed.max(done.at);
    let replay = Replay { disk: folder.disk(), folder: damaged, done: done.file, repair: false };
    let (mut replayed, mut behind) = (Vec::new(), Vec::new());
    let apply = |record: Record| {
        if !is_counted {
            replayed.extend(writes(&record));
        }
        last_committed = last_committed.max(store::replay(&partitions, record));
    };
    let damage = replay.salvage(apply, |record| behind.extend(writes(&record)));
    if let Some(damage) = damage.map_err(failed)? {
        lost = LostCommits { what: vec![damage.loss()], writes: behind };
        if !is_counted {
            // What was replayed may be in tables already, followed there by what was not: it would bring back older rows.
            partitions = load_fences(&snapshot, folder)?.0;
            let all = "all of the journal: the row that says which of its files are in tables cannot be read";
            lost.what.push(all.into());
            lost.writes.extend(replayed);
        }
    }
    drop(snapshot);
    let journal = folder.journal();
    Journal::create(&**folder.disk(), &journal).map_err(|error| OpenError::io(&journal, error))?;
    let fresh = Replay { disk: folder.disk(), folder: &journal, done: 0, repair: false };
    let tail = fresh.run(|_| {}).map_err(failed)?;
    Ok((start(folder, tables, loading, Replayed { partitions, tail, last_committed })?, lost))
}

fn writes(record: &Record) -> Vec<Write> {
    if let Record::Batch { writes, .. } = record { writes.clone() } else { Vec::new() }
}

fn start<T: Tables>(folder: &Folder, tables: T, loading: Loading, replayed: Replayed) -> Result<Store<T>, OpenError> {
    let Loading { freeze_bytes, drive, life, .. } = loading;
    let Replayed { partitions, tail, last_committed } = replayed;
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
        let (shard, found) = match rows.range(&fence_row::key(from), &[0xff; 8]).next() {
            None => break,
            Some(Ok((key, value))) => {
                let shard = shard_of(&key);
                (shard, (key == fence_row::key(shard)).then_some(Ok(value)))
            }
            // It may reach to the end of all tables. Nothing of a shard that cannot be is to be kept for it.
            Some(Err(Error::Corrupt(_))) if from.0 >= folder.shards() => break,
            // The block may belong to a later shard: ask for this one alone.
            Some(Err(Error::Corrupt(_))) => (from, rows.get(&fence_row::key(from)).transpose()),
            Some(Err(error)) => return Err(unreadable(folder, &error)),
        };
        next = shard.0.checked_add(1).map(ShardId);
        let row = match found {
            None => continue,
            Some(Ok(value)) => FenceRow::decode(&value).ok_or_else(|| "it does not decode".to_owned()),
            Some(Err(Error::Corrupt(why))) => Err(why),
            Some(Err(error)) => return Err(unreadable(folder, &error)),
        };
        for (_, place) in partitions.at(&[shard]) {
            let mut partition = partitions::lock(&place);
            match &row {
                Ok(row) => (partition.fence, partition.at) = (row.fence, row.at),
                // It costs its shard only. The journal may have a newer one.
                Err(why) => partition.fence_lost = Some(format!("the fence of shard {}: {why}", shard.0)),
            }
        }
        latest = latest.max(row.map_or(Time::ZERO, |row| row.at));
    }
    Ok((partitions, latest))
}

/// The last journal file whose rows are all in tables.
fn load_done(rows: &impl Snapshot, folder: &Folder) -> Result<Done, OpenError> {
    let found = rows.get(&DONE_KEY).map_err(|error| unreadable(folder, &error))?;
    let Some(value) = found else { return Ok(Done::default()) };
    Done::decode(&value).ok_or_else(|| damaged(folder, "the row that counts the journal's files cannot be read".into()))
}

/// The whole journal, where it is not known which files are in tables: to replay some of them again changes nothing, as long as
/// all later ones follow.
fn all_of_journal(folder: &Folder, journal: &Path) -> Done {
    let numbers = journal::numbers(&**folder.disk(), journal).unwrap_or_default();
    Done { file: numbers.first().map_or(0, |first| first.saturating_sub(1)), at: Time::ZERO }
}

fn damaged(folder: &Folder, what: String) -> OpenError {
    OpenError::Damaged { path: folder.path().into(), what }
}

fn unreadable(folder: &Folder, error: &Error) -> OpenError {
    damaged(folder, trouble::cause(error))
}
