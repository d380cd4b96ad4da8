//! The engine over fjall: how a folder is opened, and the contract over the store in it.

use std::path::Path;
use std::sync::Arc;

use fjall::config::{CompressionPolicy, PartitioningPolicy};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions};
use futures::FutureExt;
use wayleave_core::ids::{Epoch, ShardId};
use wayleave_core::time::Time;
use wayleave_engine::{Batch, Commit, Engine, Error, Expect, Health, Key, Look, Pending, Row, Scan, Value};

use crate::background;
use crate::clock::Clock;
use crate::db_journal;
use crate::disk::{Disk, OsDisk};
use crate::flusher::{Flusher, JournalFolder};
use crate::folder::Folder;
use crate::loading::{self, Loading};
use crate::open_error::OpenError;
use crate::restore::INCARNATION_KEY;
use crate::snapshot::Snapshot;
use crate::snapshot_file::SnapshotHeader;
use crate::store::Store;
use crate::syncer::Drive;
use crate::tables::FjallTables;
use crate::watchdog::{self, Watchdog, Watched};

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
    /// Table files that are kept open, at least 10. Merges open more for as long as they take.
    pub files_max: usize,
    /// Whether to drop what follows damage in the journal instead of refusing to open.
    pub repair: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { shards: 16, cache_bytes: 32 << 20, memtable_bytes: 48 << 20, files_max: 900, repair: false }
    }
}

/// The embedded store in one folder.
///
/// `commit` may be held up: while memory is full and its rows cannot go to tables fast enough.
pub struct Fjall {
    // The order of the fields is the order in which they end: the watchdog and the flush under way, the last sync and the
    // database, then the folder's lock.
    watchdog: Watchdog,
    _flusher: Flusher<FjallTables>,
    store: Arc<Store<FjallTables>>,
    clock: Clock,
    /// Which store this is: another one after a restore.
    incarnation: u64,
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
        let disk: Arc<dyn Disk> = Arc::new(OsDisk);
        let broken = |error| OpenError::database(path, error);
        let folder = Folder::open(&disk, path, options.shards, |db| make_database(db).map_err(broken))?;
        let (database, rows) = open_database(&folder, &options)?;
        let io = |error| OpenError::io(path, error);
        // Drawn by chance: the upper half is enough, and the lowest bit keeps it from being 0.
        let life = (wayleave_engine::entropy::system() >> 64) as u64 | 1;
        let load = |repair: bool| {
            let loading = Loading { freeze_bytes: options.memtable_bytes, repair, drive: Drive::Threads, life };
            loading::load(&folder, FjallTables::new(rows.clone(), database.clone()), loading)
        };
        let store = match load(false) {
            Err(OpenError::JournalDamaged { repair: Some(_), .. }) if options.repair => {
                // What was granted in the part that is dropped must not be granted again: it is another store from now on,
                // as after a restore. Before the repair, or one that is cut off would leave no trace of it.
                renew_incarnation(&rows).map_err(broken)?;
                load(true)
            }
            loaded => loaded,
        };
        let store = Arc::new(store?);
        let reserve_bytes = watchdog::reserve_bytes(options.memtable_bytes);
        let watched = Watched { disk: Arc::clone(&disk), folder: path.into(), reserve_bytes };
        let watchdog = Watchdog::start(Arc::clone(&store), watched).map_err(io)?;
        let journal = JournalFolder { disk, path: folder.journal() };
        let flusher = Flusher::start(Arc::clone(&store), journal).map_err(io)?;
        let clock = Clock::start(store.last_committed());
        let incarnation = loading::incarnation(&store.tables, &folder, INCARNATION_KEY)?;
        Ok(Self { watchdog, _flusher: flusher, store, clock, incarnation, folder })
    }

    /// How the store is: whether it takes commits, and why not.
    #[must_use]
    pub fn health(&self) -> Health {
        self.watchdog.health()
    }

    /// The number of shards, fixed when the folder was made.
    #[must_use]
    pub fn shards(&self) -> u16 {
        self.folder.shards()
    }

    /// Takes a snapshot of all rows while the store goes on. What was acknowledged before this is asked for is in it.
    ///
    /// # Errors
    /// If the store cannot write what it holds in memory.
    pub fn snapshot(&self) -> impl Future<Output = Result<Snapshot, Error>> + Send + 'static {
        let header = SnapshotHeader { shards: self.shards(), at: self.clock.now() };
        Snapshot::take(self.store.clone(), header)
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
        // always the same store, unless it was made from a snapshot of another.
        let (now, incarnation, stepped_at) = (self.clock.now(), self.incarnation, Time::ZERO);
        std::future::ready(self.store.scan(scans).map(|rows| Look { now, incarnation, stepped_at, rows })).boxed()
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

/// Makes another store of this one, for whoever counts on numbers that only grow.
fn renew_incarnation(rows: &Keyspace) -> Result<(), fjall::Error> {
    let mut table = rows.start_ingestion()?;
    table.write(INCARNATION_KEY, crate::restore::incarnation().to_be_bytes())?;
    table.finish()
}

pub(crate) fn make_database(path: &Path) -> Result<(), fjall::Error> {
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
pub(crate) fn open_database(folder: &Folder, options: &Options) -> Result<(Database, Keyspace), OpenError> {
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
        .max_cached_files(Some(options.files_max.max(10)))
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

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
