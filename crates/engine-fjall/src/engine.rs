//! The engine over fjall: opens a data folder and implements the engine contract on it.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use futures::FutureExt;
use wayleave_core::ids::{Epoch, ShardId};
use wayleave_core::time::Time;
use wayleave_engine::format;
use wayleave_engine::snapshot_file::SnapshotHeader;
use wayleave_engine::{Batch, Commit, Engine, Error, Expect, Health, Key, Look, Pending, Row, Scan, Value, Write};

use crate::clock::Clock;
use crate::damage::DamageLog;
use crate::disk::{Disk, OsDisk};
use crate::flusher::{Flusher, JournalFolder};
use crate::folder::{self, Folder};
use crate::loading::{self, Loading};
use crate::lsm::{FjallTables, TableOptions};
use crate::manifest;
use crate::merger::{Merger, Room};
use crate::open_error::OpenError;
use crate::orphans::Orphans;
use crate::own_rows;
use crate::private;
use crate::repaired;
use crate::salvaged::{self, Salvaged};
use crate::scrub::{OpenFolder, Scrub};
use crate::snapshot::{self, Snapshot};
use crate::store::Store;
use crate::tables::Tables;
use crate::versions;
use crate::watchdog::{self, Watchdog, Watched};

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
        Self { shards: 16, cache_bytes: 32 << 20, memtable_bytes: 48 << 20, files_max: 900, repair: false }
    }
}

impl Options {
    pub(crate) fn tables(&self) -> TableOptions {
        TableOptions { cache_bytes: self.cache_bytes, files_max: self.files_max }
    }
}

/// Numbers about a store, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// The size of all tables.
    pub table_bytes: u64,
    /// Tables that wait to be merged.
    pub tables_unmerged: u64,
    /// Deleted rows that are still in tables.
    pub tombstones: u64,
    /// The size of the journal that the next open replays.
    pub journal_bytes: u64,
    /// Files that are known to be damaged.
    pub damaged_files: u64,
    /// 1 while merging pauses.
    pub merging_paused: u64,
    /// 1 while new URLs are refused.
    pub refuses_urls: u64,
}

/// The embedded store in one folder.
///
/// `commit` applies back-pressure: it blocks while the memtables are full and flushing cannot keep up.
pub struct Fjall {
    // Field order is drop order: the background threads, the last sync and the tables, then the folder's lock. The merge
    // thread ends before the flush thread, which may wait for it.
    watchdog: Watchdog,
    _threads: Option<Threads>,
    store: Arc<Store<FjallTables>>,
    /// What is special about a damaged folder that is only read.
    salvaged: Option<Salvaged>,
    clock: Clock,
    /// Time from which on the clock has been watched.
    opened_at: Time,
    damage: Arc<DamageLog>,
    /// The incarnation of the store; changes on restore.
    incarnation: u64,
    folder: Folder,
}

/// What writes tables, in the order in which it ends.
type Threads = (Scrub, Merger<FjallTables>, Flusher<FjallTables>);

impl Fjall {
    /// Opens the store in a folder, creating it if needed. Fails if the folder cannot be used. Every message names the
    /// folder and the remedy.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        if options.shards == 0 {
            return Err(OpenError::Options("the number of shards is 0: choose at least 1".into()));
        }
        let path = path.as_ref();
        let disk: Arc<dyn Disk> = Arc::new(OsDisk);
        let folder = Folder::open(&disk, path, options.shards, |db| make_tables(db, options.shards))?;
        private::keep_and_log(path);
        let (tables, orphans) = open_tables(&folder, &options)?;
        let loading = Loading::new(&options);
        // What was granted in a part that a repair drops must not be granted again.
        let note = |tables: &FjallTables| repaired::note(tables).map_err(|error| OpenError::tables(path, error));
        let store = Arc::new(loading::load(&folder, tables, loading, note)?);
        let incarnation = own_rows::incarnation(&store.tables, &folder)?;
        // Nothing is missing between the tables and the journal.
        folder.raise_format()?;
        format::raise(format::VERSION);
        orphans.remove();
        let threads = || {
            let io = |error| OpenError::io(path, error);
            let journal = JournalFolder { disk: Arc::clone(&disk), path: folder.journal() };
            let flusher = Flusher::start(Arc::clone(&store), journal).map_err(io)?;
            repaired::raise_counted(&store, folder.shards()).map_err(|error| OpenError::engine(path, error))?;
            let floor_bytes = watchdog::floor_bytes(options.memtable_bytes);
            let room = Room { disk: Arc::clone(&disk), folder: path.into(), floor_bytes };
            let merger = Merger::start(Arc::clone(&store), room).map_err(io)?;
            let scrubbed = OpenFolder { disk: Arc::clone(&disk), path: path.into() };
            let scrub = Scrub::start(&store, scrubbed, Arc::clone(&store.tables.damage)).map_err(io)?;
            Ok::<_, OpenError>((scrub, merger, flusher))
        };
        let watchdog = watch(&store, &folder, &options)?;
        let threads = Some(threads()?);
        let (clock, damage) = (Clock::start(store.last_committed()), Arc::clone(&store.tables.damage));
        let opened_at = clock.now();
        Ok(Self { watchdog, _threads: threads, store, salvaged: None, clock, opened_at, damage, incarnation, folder })
    }

    /// Opens a damaged folder to save what can be read of it, without rows of the engine itself and parts of tables and journal
    /// that cannot be read. Nothing is changed in it; what has to be made for that is in the folder `scratch`, which is removed
    /// at the end. Fails if too little can be read, or another process uses one of the folders.
    pub fn salvage(path: impl AsRef<Path>, scratch: &Path, options: &Options) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let opened = salvaged::open(path, scratch, options.tables()).map_err(OpenError::past_salvage);
        let (mut salvaged, folder, tables) = opened?;
        let loaded = loading::salvage(&folder, tables, Loading::new(options), &path.join(folder::JOURNAL));
        let (store, lost) = loaded.map_err(OpenError::past_salvage)?;
        salvaged.lost = lost;
        let store = Arc::new(store);
        let watchdog = watch(&store, &folder, options)?;
        let (clock, damage) = (Clock::start(store.last_committed()), Arc::clone(&store.tables.damage));
        // What is salvaged stays as it is: nothing writes tables, and what is made of it raises what it counts.
        let (threads, salvaged) = (None, Some(salvaged));
        let opened_at = clock.now();
        Ok(Self { watchdog, _threads: threads, store, salvaged, clock, opened_at, damage, incarnation: 0, folder })
    }

    /// The health of the store: whether it accepts commits, and if not, why.
    #[must_use]
    pub fn health(&self) -> Health {
        self.watchdog.health()
    }

    /// Numbers about the store, for metrics.
    #[must_use]
    pub fn numbers(&self) -> Numbers {
        let sizes = self.store.tables.sizes();
        let paused = self.store.merging.lock().unwrap_or_else(PoisonError::into_inner).paused.is_some();
        Numbers {
            table_bytes: sizes.all,
            tables_unmerged: self.store.tables.young() as u64,
            tombstones: sizes.tombstones,
            journal_bytes: self.store.journal_bytes.load(Ordering::Relaxed) as u64,
            damaged_files: self.damage.count() as u64,
            merging_paused: paused.into(),
            refuses_urls: self.refuses_growth().is_some().into(),
        }
    }

    /// The number of shards, fixed when the folder was created.
    #[must_use]
    pub fn shards(&self) -> u16 {
        self.folder.shards()
    }

    /// Takes a snapshot of all rows without stopping the store. It contains everything acknowledged before this call.
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

    /// The tables that could not be opened, whose rows were read without their indexes, if the store is salvaged; and whether
    /// rows are missing in them.
    #[must_use]
    pub fn rebuilt_tables(&self) -> &[(PathBuf, bool)] {
        self.salvaged.as_ref().map_or(&[], |salvaged| &salvaged.rebuilt)
    }

    /// What is missing besides rows of tables, if the store is salvaged.
    #[must_use]
    pub fn losses(&self) -> &[String] {
        self.salvaged.as_ref().map_or(&[], |salvaged| &salvaged.lost.what)
    }

    /// Writes of lost commits, if the store is salvaged: what is stored under their keys may be older.
    #[must_use]
    pub fn lost_writes(&self) -> &[Write] {
        self.salvaged.as_ref().map_or(&[], |salvaged| &salvaged.lost.writes)
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

    fn past_damage<'a>(&'a self, scan: &'a Scan) -> Pending<'a, (Key, Vec<Row>)> {
        std::future::ready(self.store.past_damage(scan)).boxed()
    }

    fn look<'a>(&'a self, scans: &'a [Scan]) -> Pending<'a, Look> {
        // Read the time first: rows read afterwards existed at that time or are newer. No other process has this
        // folder, so the incarnation is constant.
        let (now, incarnation, steady_since) = (self.clock.now(), self.incarnation, self.opened_at);
        std::future::ready(self.store.scan(scans).map(|rows| Look { now, incarnation, steady_since, rows })).boxed()
    }

    fn refuses_growth(&self) -> Option<String> {
        self.store.refuses_growth()
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

/// Creates empty tables, with the row that repeats the number of shards.
pub(crate) fn make_tables(path: &Path, shards: u16) -> Result<(), OpenError> {
    let broken = |error| OpenError::tables(path, error);
    let tables = FjallTables::open(path, Options::default().tables()).map_err(broken)?;
    tables.load(|write| write(&own_rows::SHARDS_KEY, &shards.to_be_bytes())).map_err(broken)
}

/// Opens what [`make_tables`] has created, after checking that all of it is there. Files that the manifest does not name are set
/// aside.
pub(crate) fn open_tables(folder: &Folder, options: &Options) -> Result<(FjallTables, Orphans), OpenError> {
    let path = folder.database();
    let aside = Orphans::put_back(&path).map_err(|error| OpenError::io(&path, error))?;
    let (version, listed) = manifest::read(&path).map_err(|bad| {
        let error = OpenError::bad_file(folder.path(), &bad);
        if versions::may_choose(&path, &folder.journal()) { error } else { error.past_salvage() }
    })?;
    let orphans = aside.set_aside(version, &listed).map_err(|error| OpenError::io(&path, error))?;
    let tables = FjallTables::open(&path, options.tables()).map_err(|error| {
        let refused = listed.iter().find_map(|table| Some((table, table.open().err()?)));
        match refused {
            Some((table, error)) => OpenError::table(folder.path(), &table.path, error),
            None => OpenError::tables(folder.path(), error),
        }
    })?;
    own_rows::check_shards(&tables, folder)?;
    Ok((tables, orphans))
}

/// Starts to watch a store.
fn watch(store: &Arc<Store<FjallTables>>, folder: &Folder, options: &Options) -> Result<Watchdog, OpenError> {
    let floor_bytes = watchdog::floor_bytes(options.memtable_bytes);
    let (disk, damage) = (Arc::clone(folder.disk()), Arc::clone(&store.tables.damage));
    let watched = Watched { disk, folder: folder.path().into(), damage, floor_bytes };
    Watchdog::start(Arc::clone(store), watched).map_err(|error| OpenError::io(folder.path(), error))
}

#[cfg(test)]
#[path = "salvaged_tests.rs"]
mod salvaged_tests;

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "damage_tests.rs"]
mod damage_tests;

#[cfg(test)]
#[path = "repaired_tests.rs"]
mod repaired_tests;
