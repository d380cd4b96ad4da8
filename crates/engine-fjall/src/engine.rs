//! The engine over fjall: how a folder is opened, and the contract over the store in it.

use std::path::Path;
use std::sync::Arc;

use fjall::config::{CompressionPolicy, PartitioningPolicy};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions};
use futures::FutureExt;
use wayleave_core::ids::{Epoch, ShardId};
use wayleave_core::time::Time;
use wayleave_engine::{Batch, Commit, Engine, Expect, Key, Look, Pending, Row, Scan, Value};

use crate::background;
use crate::clock::Clock;
use crate::db_journal;
use crate::fence_row::{self, FenceRow};
use crate::flusher::{DONE_KEY, Flusher};
use crate::folder::Folder;
use crate::journal::{Journal, Segment};
use crate::open_error::OpenError;
use crate::partitions::{self, Partitions, shard_of};
use crate::store::{self, Store};
use crate::syncer::{Syncer, Writing};
use crate::trouble;

const KEYSPACE: &str = "rows";

/// How a store is opened. What a new folder is made with stays with it: later values are not looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The number of shards of a new folder.
    pub shards: u16,
    /// Memory for blocks that have been read, in bytes.
    pub cache_bytes: u64,
    /// Memory for rows before they go to a table, in bytes; while they go, as much again. Smaller ones cost speed.
    pub memtable_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { shards: 16, cache_bytes: 32 << 20, memtable_bytes: 48 << 20 }
    }
}

/// The embedded store in one folder.
///
/// `commit` may be held up: while memory is full and its rows cannot go to tables fast enough.
pub struct Fjall {
    // The order of the fields is the order in which they end: the flush under way, the last sync and the database, then
    // the folder's lock.
    _flusher: Flusher,
    store: Arc<Store>,
    clock: Clock,
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
        let folder = Folder::open(path, options.shards, |db| make_database(db).map_err(broken))?;
        let (database, rows) = open_database(&folder, &options)?;
        let partitions = load_fences(&rows, &folder)?;
        let done = load_done(&rows, &folder)?;
        let mut journal = Journal::open(&folder.journal(), done, |record| store::replay(&partitions, record))
            .map_err(|error| OpenError::journal(path, error))?;
        let (number, journal_bytes) = (journal.number(), journal.bytes());
        let describe = |error: std::io::Error| trouble::describe(&error.into());
        let place = move |segments: &[Segment]| -> Result<Writing, String> {
            let placed = journal.place(segments).map_err(describe)?;
            Ok(Box::new(move || placed.write().map_err(describe)))
        };
        let syncer = Syncer::start(number, place).map_err(|error| OpenError::io(path, error))?;
        let store = Arc::new(Store::new(syncer, partitions, (database, rows), (options.memtable_bytes, journal_bytes)));
        let flusher = Flusher::start(store.clone(), folder.journal()).map_err(|error| OpenError::io(path, error))?;
        let clock = Clock::start(store.last_committed());
        Ok(Self { _flusher: flusher, store, clock, folder })
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
}

impl Engine for Fjall {
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn own<'a>(&'a self, shard: ShardId, expects: &'a [Expect]) -> Pending<'a, (Epoch, u64)> {
        match self.store.own(shard, expects, self.clock.now()) {
            Ok((turn, durable)) => durable.map(move |done| done.map(|()| (turn.epoch, turn.seq))).boxed(),
            Err(error) => std::future::ready(Err(error)).boxed(),
        }
    }

    fn get_many<'a>(&'a self, keys: &'a [Key]) -> Pending<'a, Vec<Option<Value>>> {
        std::future::ready(self.store.get(keys)).boxed()
    }

    fn scan_many<'a>(&'a self, scans: &'a [Scan]) -> Pending<'a, Vec<Vec<Row>>> {
        std::future::ready(self.store.scan(scans)).boxed()
    }

    fn look<'a>(&'a self, scans: &'a [Scan]) -> Pending<'a, Look> {
        // The time first: what is read afterwards lay there then or came later. Nobody else has this folder, so it is
        // always the same store.
        let now = self.clock.now();
        std::future::ready(self.store.scan(scans).map(|rows| Look { now, incarnation: 0, rows })).boxed()
    }

    fn commit(&self, batch: Batch) -> Commit {
        let Batch { fences, expects, mut writes } = batch;
        // Neighbours in the tree one after the other: the second finds in the cache what the first has brought there. Writes
        // of one key stay in their order.
        writes.sort_by(|a, b| a.key.cmp(&b.key));
        let committed = self.store.commit(&fences, &expects, &writes, self.clock.now());
        committed.unwrap_or_else(|error| std::future::ready(Err(error)).boxed())
    }
}

fn make_database(path: &Path) -> Result<(), fjall::Error> {
    // Twice as many young tables as usual before they are merged: each merge rewrites most of the next level, and a read
    // looks at the filter of a young table for a tenth of a microsecond.
    let merging = fjall::compaction::Leveled::default().with_l0_threshold(8);
    // Young tables are ingested, and of those the database keeps nothing in memory but what its cache holds: their filters
    // and indexes go there page by page, or each read that misses would bring a quarter of a megabyte.
    let pages = PartitioningPolicy::all(true);
    // Sorted keys are written without what they share, so there is little left to compress: that starts with the third level,
    // which a store has from about five gigabytes on.
    let plain = CompressionType::None;
    let compression = CompressionPolicy::new([plain, plain, plain, CompressionType::Lz4]);
    let settings = || {
        KeyspaceCreateOptions::default()
            .manual_journal_persist(true)
            .compaction_strategy(Arc::new(merging.clone()))
            .filter_block_partitioning_policy(pages.clone())
            .index_block_partitioning_policy(pages.clone())
            .data_block_compression_policy(compression.clone())
    };
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
    let Some(written) = db_journal::newest_content(&path).map_err(io)? else {
        return Err(damaged("the journal in db is missing"));
    };
    let builder = Database::builder(path)
        .cache_size(options.cache_bytes)
        .manual_journal_persist(true)
        .worker_threads(background_threads());
    // On a thread of its own that gives way, because the database's threads are as their maker: flushing and merging can
    // wait a moment, and clients cannot.
    let opening = std::thread::Builder::new().name("wayleave-open".into()).spawn(|| {
        background::give_way();
        builder.open()
    });
    let opened = opening.map_err(io)?.join().map_err(|_| damaged("it cannot be read, see the log"))?;
    let database = opened.map_err(broken)?;
    if !database.keyspace_exists(KEYSPACE) {
        return Err(damaged("the tables in db/keyspaces are missing"));
    }
    let kept = db_journal::length(&written.path).map_err(io)?;
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

/// The turns of all shards as the tables know them.
fn load_fences(rows: &Keyspace, folder: &Folder) -> Result<Partitions, OpenError> {
    let partitions = Partitions::default();
    let broken = |error| OpenError::database(folder.path(), error);
    // A fence row is the first of its shard: from there on to the next shard that has rows at all.
    let mut next = Some(ShardId(0));
    while let Some(from) = next {
        let Some(first) = rows.range(fence_row::key(from)..).next() else { break };
        let (key, value) = first.into_inner().map_err(broken)?;
        let shard = shard_of(&key);
        next = shard.0.checked_add(1).map(ShardId);
        if key != fence_row::key(shard) {
            continue;
        }
        let row = FenceRow::decode(&value).ok_or_else(|| OpenError::Damaged {
            path: folder.path().into(),
            what: format!("the fence row of shard {} cannot be read", shard.0),
        })?;
        for (_, place) in partitions.at(&[shard]) {
            let mut partition = partitions::lock(&place);
            (partition.turn, partition.at) = (row.turn, row.at);
        }
    }
    Ok(partitions)
}

/// Up to which file the journal's rows are in tables.
fn load_done(rows: &Keyspace, folder: &Folder) -> Result<u64, OpenError> {
    let found = rows.get(DONE_KEY).map_err(|error| OpenError::database(folder.path(), error))?;
    let Some(value) = found else { return Ok(0) };
    value.first_chunk().map(|number| u64::from_be_bytes(*number)).ok_or_else(|| OpenError::Damaged {
        path: folder.path().into(),
        what: "the row that counts the journal's files cannot be read".into(),
    })
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
