//! The engine over fjall: one keyspace for all rows, fences in memory, group commit.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable};
use futures::FutureExt;
use wayleave_core::ids::{Epoch, ShardId};
use wayleave_core::time::Time;
use wayleave_engine::fences::{Fences, Turn};
use wayleave_engine::{Batch, Commit, Engine, Error, Expect, Key, Look, Pending, Row, Scan, Value, Write};

use crate::clock::Clock;
use crate::fence_row::{self, FenceRow};
use crate::folder::Folder;
use crate::journal::{self, Journal};
use crate::open_error::OpenError;
use crate::syncer::Syncer;
use crate::trouble;

const KEYSPACE: &str = "rows";

/// How a store is opened. What a new folder is made with stays with it: later values are not looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The number of shards of a new folder.
    pub shards: u16,
    /// Memory for blocks that have been read, in bytes.
    pub cache_bytes: u64,
    /// Memory for rows before they go to a table, in bytes, of a new folder. Smaller ones cost much speed.
    pub memtable_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { shards: 16, cache_bytes: 32 << 20, memtable_bytes: 32 << 20 }
    }
}

/// The embedded store in one folder.
///
/// `commit` may be held up by the database: while a sync runs, and when writes outrun its background work.
pub struct Fjall {
    // The order of the fields is the order in which they end: the last sync, the database, then the folder's lock.
    syncer: Syncer,
    rows: Keyspace,
    database: Database,
    clock: Clock,
    /// Held from a batch's check until it is applied, so that no other batch comes between.
    fences: Mutex<Fences>,
    folder: Folder,
}

impl Fjall {
    /// Opens the store in a folder, making it if it is new.
    ///
    /// # Errors
    /// If the folder cannot be used; every message names the folder and the remedy.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        if options.shards == 0 {
            return Err(OpenError::Options("the number of shards is 0: choose at least 1".into()));
        }
        let path = path.as_ref();
        let broken = |error| OpenError::database(path, error);
        let folder = Folder::open(path, options.shards, |db| make_database(db, &options).map_err(broken))?;
        let (database, rows) = open_database(&folder, &options)?;
        let (fences, last_committed) = load_fences(&rows, &folder)?;
        let synced = database.clone();
        let mut journal = Journal::open(&folder.database()).map_err(|error| OpenError::io(path, error))?;
        let sync = move || {
            synced.persist(PersistMode::Buffer).map_err(|error| trouble::describe(&error))?;
            journal.sync().map_err(|error| trouble::describe(&error.into()))
        };
        let syncer = Syncer::start(sync).map_err(|error| OpenError::io(path, error))?;
        Ok(Self { syncer, rows, database, clock: Clock::start(last_committed), fences: Mutex::new(fences), folder })
    }

    /// The number of shards, fixed when the folder was made.
    #[must_use]
    pub fn shards(&self) -> u16 {
        self.folder.shards()
    }

    /// The data folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    fn try_own(&self, shard: ShardId, expects: &[Expect]) -> Result<(Turn, Commit), Error> {
        self.syncer.check()?;
        let mut fences = self.fences.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_rows(expects)?;
        let old = fences.turn(shard);
        let turn = Turn { epoch: Epoch(old.epoch.0.saturating_add(1)), seq: old.seq };
        self.apply(vec![FenceRow { turn, at: self.clock.now() }.write(shard)])?;
        fences.set(shard, turn);
        Ok((turn, self.syncer.answer()))
    }

    fn try_commit(&self, batch: Batch) -> Result<Commit, Error> {
        self.syncer.check()?;
        let mut fences = self.fences.lock().unwrap_or_else(PoisonError::into_inner);
        let turns = fences.check(&batch.fences)?;
        self.check_rows(&batch.expects)?;
        let mut writes = batch.writes;
        let at = self.clock.now();
        writes.extend(turns.iter().map(|(shard, turn)| FenceRow { turn: *turn, at }.write(*shard)));
        self.apply(writes)?;
        for (shard, turn) in turns {
            fences.set(shard, turn);
        }
        // Inside the lock: the order of the answers is the order of the batches.
        Ok(self.syncer.answer())
    }

    /// Whether rows are as expected. The caller holds the fences.
    fn check_rows(&self, expects: &[Expect]) -> Result<(), Error> {
        for (key, expected) in expects {
            let found = self.rows.get(key).map_err(|error| trouble::on_read(&error))?;
            if found.as_deref() != expected.as_deref() {
                return Err(Error::Conflict);
            }
        }
        Ok(())
    }

    /// Makes writes visible, not durable. The caller holds the fences.
    fn apply(&self, mut writes: Vec<Write>) -> Result<(), Error> {
        // Sorted, because neighbours are inserted cheaply; stable, so that the last of equal keys is the latest.
        writes.sort_by(|a, b| a.key.cmp(&b.key));
        let mut batch = fjall::OwnedWriteBatch::with_capacity(self.database.clone(), writes.len());
        let mut writes = writes.into_iter().peekable();
        while let Some(write) = writes.next() {
            if writes.peek().is_some_and(|later| later.key == write.key) {
                continue;
            }
            match write.value {
                Some(value) => batch.insert(&self.rows, write.key, value),
                None => batch.remove(&self.rows, write.key),
            }
        }
        batch.commit().map_err(|error| {
            let why = trouble::describe(&error);
            self.syncer.fail(why.clone());
            match error {
                // The database had stopped before this batch came.
                fjall::Error::Poisoned => Error::Unavailable(why),
                // Part of the batch may lie in the journal, perhaps all of it.
                _ => Error::OutcomeUnknown(why),
            }
        })
    }

    fn try_get(&self, keys: &[Key]) -> Result<Vec<Option<Value>>, Error> {
        self.syncer.check()?;
        // One snapshot for all: a batch that is being applied meanwhile is seen wholly or not at all.
        let snapshot = self.database.snapshot();
        let get = |key: &Key| Ok(snapshot.get(&self.rows, key)?.map(|value| value.to_vec()));
        keys.iter().map(get).collect::<Result<_, _>>().map_err(|error| trouble::on_read(&error))
    }

    fn try_scan(&self, scans: &[Scan]) -> Result<Vec<Vec<Row>>, Error> {
        self.syncer.check()?;
        let snapshot = self.database.snapshot();
        let scan = |scan: &Scan| {
            let mut found = Vec::new();
            if scan.from >= scan.to || scan.limit == 0 {
                return Ok(found);
            }
            for row in snapshot.range::<&[u8], _>(&self.rows, scan.from.as_slice()..scan.to.as_slice()) {
                let (key, value) = row.into_inner()?;
                if fence_row::is_fence_key(&key) {
                    continue;
                }
                found.push(Row { key: key.to_vec(), value: value.to_vec() });
                if found.len() == scan.limit {
                    break;
                }
            }
            Ok(found)
        };
        scans.iter().map(scan).collect::<Result<_, _>>().map_err(|error: fjall::Error| trouble::on_read(&error))
    }
}

impl Engine for Fjall {
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn own<'a>(&'a self, shard: ShardId, expects: &'a [Expect]) -> Pending<'a, (Epoch, u64)> {
        match self.try_own(shard, expects) {
            Ok((turn, durable)) => durable.map(move |done| done.map(|()| (turn.epoch, turn.seq))).boxed(),
            Err(error) => std::future::ready(Err(error)).boxed(),
        }
    }

    fn get_many<'a>(&'a self, keys: &'a [Key]) -> Pending<'a, Vec<Option<Value>>> {
        std::future::ready(self.try_get(keys)).boxed()
    }

    fn scan_many<'a>(&'a self, scans: &'a [Scan]) -> Pending<'a, Vec<Vec<Row>>> {
        std::future::ready(self.try_scan(scans)).boxed()
    }

    fn look<'a>(&'a self, scans: &'a [Scan]) -> Pending<'a, Look> {
        // The time first: what is read afterwards lay there then or came later. Nobody else has this folder, so it is
        // always the same store.
        let now = self.clock.now();
        std::future::ready(self.try_scan(scans).map(|rows| Look { now, incarnation: 0, rows })).boxed()
    }

    fn commit(&self, batch: Batch) -> Commit {
        self.try_commit(batch).unwrap_or_else(|error| std::future::ready(Err(error)).boxed())
    }
}

fn make_database(path: &Path, options: &Options) -> Result<(), fjall::Error> {
    let settings =
        || KeyspaceCreateOptions::default().manual_journal_persist(true).max_memtable_size(options.memtable_bytes);
    Database::builder(path).open()?.keyspace(KEYSPACE, settings).map(drop)
}

/// Threads that flush and compact. The first prefers to flush, and spins while a compaction is asked for and nobody else
/// is free to do it; with one thread alone flushes wait behind compactions, and memory and journals pile up.
fn background_threads() -> usize {
    std::thread::available_parallelism().map_or(3, |cores| cores.get().clamp(3, 6))
}

/// Opens what [`make_database`] has made. The database itself would rather make anew what it misses, so a loss must be
/// noticed here.
fn open_database(folder: &Folder, options: &Options) -> Result<(Database, Keyspace), OpenError> {
    let damaged = |what: &str| OpenError::Damaged { path: folder.path().into(), what: what.into() };
    let broken = |error| OpenError::database(folder.path(), error);
    let path = folder.database();
    if !path.join("version").exists() {
        return Err(damaged("db/version is missing"));
    }
    let io = |error| OpenError::io(folder.path(), error);
    let Some(written) = journal::newest_content(&path).map_err(io)? else {
        return Err(damaged("the journal in db is missing"));
    };
    let builder = Database::builder(path)
        .cache_size(options.cache_bytes)
        .manual_journal_persist(true)
        .worker_threads(background_threads());
    let database = builder.open().map_err(broken)?;
    if !database.keyspace_exists(KEYSPACE) {
        return Err(damaged("the tables in db/keyspaces are missing"));
    }
    let kept = journal::length(&written.path).map_err(io)?;
    if kept < written.bytes {
        // After a power cut this is the batch that nobody was answered. It cannot be told from damage to the last journal.
        tracing::warn!(
            journal.path = %written.path.display(), journal.bytes_kept = kept, journal.bytes_dropped = written.bytes - kept,
            "the end of the journal could not be read and was dropped; after a clean stop this means damage: check the disk"
        );
    }
    let rows = database.keyspace(KEYSPACE, KeyspaceCreateOptions::default).map_err(broken)?;
    Ok((database, rows))
}

/// The turns of all shards and the latest time at which any was committed.
fn load_fences(rows: &Keyspace, folder: &Folder) -> Result<(Fences, Time), OpenError> {
    let mut fences = Fences::default();
    let mut last = Time::ZERO;
    let broken = |error| OpenError::database(folder.path(), error);
    // A fence row is the first of its shard: from there on to the next shard that has rows at all.
    let mut next = Some(ShardId(0));
    while let Some(from) = next {
        let Some(first) = rows.range(fence_row::key(from)..).next() else { break };
        let (key, value) = first.into_inner().map_err(broken)?;
        let Some(shard) = fence_row::shard_of(&key) else { break };
        next = shard.0.checked_add(1).map(ShardId);
        if !fence_row::is_fence_key(&key) {
            continue;
        }
        let row = FenceRow::decode(&value).ok_or_else(|| OpenError::Damaged {
            path: folder.path().into(),
            what: format!("the fence row of shard {} cannot be read", shard.0),
        })?;
        fences.set(shard, row.turn);
        last = last.max(row.at);
    }
    Ok((fences, last))
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
