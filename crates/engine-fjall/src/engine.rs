//! The engine over fjall: opens a data folder and implements the engine contract on it.

use std::path::Path;
use std::sync::Arc;

use fjall::config::{CompressionPolicy, PartitioningPolicy};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions};
use futures::FutureExt;
use wayleave_core::ids::{Epoch, ShardId};
use wayleave_core::time::Time;
use wayleave_engine::snapshot_file::SnapshotHeader;
use wayleave_engine::{Batch, Commit, Engine, Error, Expect, Health, Key, Look, Pending, Row, Scan, Value};

use crate::background;
use crate::bulk_load::{self, INCARNATION_KEY};
use crate::clock::Clock;
use crate::db_journal;
use crate::disk::{Disk, OsDisk};
use crate::flusher::{Flusher, JournalFolder};
use crate::folder::Folder;
use crate::loading::{self, Loading};
use crate::open_error::OpenError;
use crate::snapshot::{self, Snapshot};
use crate::store::Store;
use crate::syncer::Drive;
use crate::tables::FjallTables;
use crate::watchdog::{self, Watchdog, Watched};

const KEYSPACE: &str = "rows";

/// Options for opening a store. Options that apply at creation are ignored for an existing folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The number of shards of a new folder.
    pub shards: u16,
    /// The size of the block cache, in bytes.
    pub cache_bytes: u64,
    /// The size of the memtables that triggers a flush, in bytes; up to twice as much is in memory during a flush.
    /// Smaller values cost throughput.
    pub memtable_bytes: usize,
    /// The maximum number of open table files, at least 10. Compactions temporarily open more.
    pub files_max: usize,
    /// Whether to drop everything after damage in the journal instead of refusing to open.
    pub repair: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { shards: 64, cache_bytes: 32 << 20, memtable_bytes: 48 << 20, files_max: 900, repair: false }
    }
}

/// The embedded store in one folder.
///
/// `commit` applies back-pressure: it blocks while the memtables are full and flushing cannot keep up.
pub struct Fjall {
    // Field order is drop order: the watchdog and the running flush, the last sync and the database, then the folder's
    // lock.
    watchdog: Watchdog,
    _flusher: Flusher<FjallTables>,
    store: Arc<Store<FjallTables>>,
    clock: Clock,
    /// The incarnation of the store; changes on restore.
    incarnation: u64,
    folder: Folder,
}

impl Fjall {
    /// Opens the store in a folder, creating it if needed.
    ///
    /// # Errors
    /// If the folder cannot be used. Every message names the folder and the remedy.
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
        // Random: the upper half is enough, and setting the lowest bit excludes 0.
        let life = (wayleave_engine::entropy::system() >> 64) as u64 | 1;
        let load = |repair: bool| {
            let loading = Loading { freeze_bytes: options.memtable_bytes, repair, drive: Drive::Threads, life };
            loading::load(&folder, FjallTables::new(rows.clone(), database.clone()), loading)
        };
        let store = match load(false) {
            Err(OpenError::JournalDamaged { repair: Some(_), .. }) if options.repair => {
                // What was granted in the dropped part must not be granted again, so the store gets a new incarnation,
                // as after a restore. This happens before the repair: otherwise an interrupted repair would leave no
                // trace of the loss.
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

    /// The health of the store: whether it accepts commits, and if not, why.
    #[must_use]
    pub fn health(&self) -> Health {
        self.watchdog.health()
    }

    /// The number of shards, fixed when the folder was created.
    #[must_use]
    pub fn shards(&self) -> u16 {
        self.folder.shards()
    }

    /// Takes a snapshot of all rows without stopping the store. It contains everything acknowledged before this call.
    ///
    /// # Errors
    /// If the store cannot flush its memtables.
    pub fn snapshot(&self) -> impl Future<Output = Result<Snapshot, Error>> + Send + 'static {
        let header = SnapshotHeader { shards: self.shards(), at: self.clock.now(), ..SnapshotHeader::default() };
        Snapshot::take(self.store.clone(), header)
    }

    /// What a copy of the store must know besides its rows.
    #[must_use]
    pub fn header(&self) -> SnapshotHeader {
        let fences = snapshot::fences(&self.store, self.shards());
        SnapshotHeader { shards: self.shards(), at: self.clock.now(), fences }
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
            Ok((fence, durable)) => durable.map(move |done| done.map(|()| (fence.epoch, fence.seq))).boxed(),
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
        // Read the time first: rows read afterwards existed at that time or are newer. No other process has this
        // folder, so the incarnation is constant.
        let (now, incarnation, stepped_at) = (self.clock.now(), self.incarnation, Time::ZERO);
        std::future::ready(self.store.scan(scans).map(|rows| Look { now, incarnation, stepped_at, rows })).boxed()
    }

    fn commit(&self, batch: Batch) -> Commit {
        let Batch { fences, expects, mut writes } = batch;
        // Sorted writes traverse the memtable with good cache locality. The sort is stable, so writes of one key stay
        // in order.
        writes.sort_by(|a, b| a.key.cmp(&b.key));
        let committed = self.store.commit(&fences, &expects, &writes, self.clock.now());
        committed.unwrap_or_else(|error| std::future::ready(Err(error)).boxed())
    }
}

/// Gives the store a new incarnation, for callers that rely on numbers that only grow.
fn renew_incarnation(rows: &Keyspace) -> Result<(), fjall::Error> {
    let mut table = rows.start_ingestion()?;
    table.write(INCARNATION_KEY, bulk_load::incarnation().to_be_bytes())?;
    table.finish()
}

pub(crate) fn make_database(path: &Path) -> Result<(), fjall::Error> {
    // Twice the default number of L0 tables before compaction: each compaction rewrites most of L1, while a read spends
    // only a tenth of a microsecond on the filter of an L0 table.
    let merging = fjall::compaction::Leveled::default().with_l0_threshold(8);
    // fjall does not pin the filters and indexes of ingested L0 tables. They go through the block cache, so they are
    // partitioned: otherwise each cache miss would read a quarter of a megabyte.
    let pages = PartitioningPolicy::all(true);
    // Prefix-truncated keys leave little to compress. Compression starts at L2, which a store has from about five
    // gigabytes on.
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

/// Threads that flush and compact. The first prefers flushes, and spins while a compaction is requested and no other
/// thread is free. With a single thread, flushes queue behind compactions, and memtables and journals pile up.
fn background_threads() -> usize {
    std::thread::available_parallelism().map_or(3, |cores| cores.get().clamp(3, 6))
}

/// Opens what [`make_database`] has created. fjall silently recreates files that it misses, so a loss must be detected
/// here.
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
    // Open on a low-priority thread, because fjall's threads inherit the priority of their creator. Flushes and
    // compactions can wait; clients cannot.
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
        // After a power cut this is a batch that was never acknowledged. It is indistinguishable from damage to the
        // last journal.
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
