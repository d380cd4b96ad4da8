//! The tables of production: fjall's LSM tree. We use only its tables and merges. Journal, memtables and threads are
//! our own, so that no failure of a merge can end the store and nothing is removed that we did not check.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lsm_tree::compaction::filter::{CompactionFilter, Context, Factory, ItemAccessor, Verdict};
use lsm_tree::compaction::{MoveDown, PullDown};
use lsm_tree::config::{
    BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry, PinningPolicy, RestartIntervalPolicy,
};
use lsm_tree::{
    AbstractTree, AnyTree, Cache, CompressionType, Config, DescriptorTable, Guard, SequenceNumberCounter, Slice, Table,
};
use wayleave_engine::{Error, Key, Value};

use crate::around::{self, Level, Step};
use crate::damage::DamageLog;
use crate::manifest;
use crate::memtable::Memtable;
use crate::private;
use crate::row_reader::CarefulRows;
use crate::tables::{
    MergeFailure, MergeKind, Sizes, Snapshot, TableRow, Tables, YOUNG_TABLES_DUE, YOUNG_TABLES_LIMIT, YOUNG_TABLES_MANY,
};
use crate::trouble;

/// The folder of the table files inside the database's.
pub(crate) const TABLES: &str = "tables";

/// After every key.
pub(crate) const AFTER_ALL: [u8; 8] = [0xff; 8];

/// Keys whose newer rows may be missing: from the first, up to the second.
pub(crate) type Hole = (Key, Key);

/// How many rows of each table are looked at first behind the last one that a merge took, where it has met damage: more than it reads
/// ahead. Then many more: what was deleted does not count as taken. If it took none, the beginning of each table is looked at.
const NEAR_ROWS: [usize; 2] = [1_000, 100_000];

/// The size of a table that a merge writes.
pub(crate) const TABLE_BYTES: u64 = 64 << 20;

/// How many files and how much memory the tables may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableOptions {
    /// The size of the block cache, in bytes.
    pub(crate) cache_bytes: u64,
    /// The maximum number of open table files.
    pub(crate) files_max: usize,
}

/// The tables.
pub(crate) struct FjallTables {
    pub(crate) tree: AnyTree,
    folder: PathBuf,
    /// One more than the sequence number of the newest visible version.
    visible: SequenceNumberCounter,
    snapshots: Arc<OpenSnapshots>,
    /// Makes a running merge end early.
    stop: Arc<AtomicBool>,
    /// What the next merge may write.
    bytes_max: Arc<AtomicU64>,
    /// The key of the last row that a merge has taken.
    reached: Arc<Mutex<Vec<u8>>>,
    /// Held while a table is added: its file is not part of any version until then.
    adding: Mutex<()>,
    /// None but where damaged tables were made anew.
    holes: Arc<[Hole]>,
    strategy: Arc<lsm_tree::compaction::Leveled>,
    /// What reads have found damaged.
    pub(crate) damage: Arc<DamageLog>,
    /// The current sizes. The tree's own are behind a lock that is held while a manifest is synced, and the watchdog
    /// of a hung disk must not wait for it.
    known: Mutex<KnownSizes>,
}

/// Sizes of one version of the tree.
#[derive(Default)]
struct KnownSizes {
    version: u64,
    young: usize,
    /// But for the age of tombstones.
    sizes: Sizes,
    /// When the oldest table with a tombstone was written, in nanoseconds since 1970.
    tombstones_since: Option<u128>,
}

impl KnownSizes {
    fn of(tree: &AnyTree, damage: &DamageLog) -> Self {
        let version = tree.current_version();
        let levels = levels(tree, damage);
        let next_merge = around::next_merge_bytes(&levels).unwrap_or_else(|| next_merge_bytes(&levels));
        let mut sizes = Sizes { next_merge, ..Sizes::default() };
        let young = version.level(0).map_or(0, |level| level.run_count());
        let mut tombstones_since = None;
        for table in version.iter_tables() {
            let about = &table.metadata;
            sizes.all += about.file_size;
            sizes.items += about.item_count;
            sizes.tombstones += about.tombstone_count;
            if about.tombstone_count > 0 {
                let created = *about.created_at;
                tombstones_since = Some(tombstones_since.map_or(created, |since: u128| since.min(created)));
            }
        }
        Self { version: version.id(), young, sizes, tombstones_since }
    }
}

impl FjallTables {
    /// Opens the tables in a folder, or creates them. The caller has checked the folder: a tree without its `current`
    /// file would be created anew.
    pub(crate) fn open(folder: &Path, options: TableOptions) -> lsm_tree::Result<Self> {
        let (seqno, visible) = (SequenceNumberCounter::new(1), SequenceNumberCounter::new(1));
        let (stop, bytes_max) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(u64::MAX)));
        let reached = Arc::default();
        let stops =
            StopFilters { stop: Arc::clone(&stop), bytes_max: Arc::clone(&bytes_max), reached: Arc::clone(&reached) };
        let config = Config::new(folder, seqno.clone(), visible.clone())
            .use_cache(Arc::new(Cache::with_capacity_bytes(options.cache_bytes)))
            .use_descriptor_table(Some(Arc::new(DescriptorTable::new(options.files_max.max(10)))))
            .with_compaction_filter_factory(Some(Arc::new(stops)));
        let tree = settings(config).open()?;
        private::keep_inside(folder);
        let next = tree.get_highest_persisted_seqno().map_or(1, |highest| highest + 1);
        seqno.fetch_max(next);
        visible.fetch_max(next);
        // Twice the default number of L0 tables before a merge: each rewrites most of L1, while a read spends only a
        // tenth of a microsecond on the filter of an L0 table.
        let strategy = lsm_tree::compaction::Leveled::default()
            .with_l0_threshold(YOUNG_TABLES_DUE)
            .with_table_target_size(TABLE_BYTES);
        let (snapshots, strategy) = (Arc::default(), Arc::new(strategy));
        let damage = Arc::default();
        Ok(Self {
            known: Mutex::new(KnownSizes::of(&tree, &damage)),
            tree,
            folder: folder.into(),
            visible,
            snapshots,
            stop,
            bytes_max,
            reached,
            adding: Mutex::default(),
            holes: Arc::default(),
            strategy,
            damage,
        })
    }

    /// The same tables, with holes that reads must not pass.
    pub(crate) fn with_holes(self, holes: &[Hole]) -> Self {
        Self { holes: holes.into(), ..self }
    }

    /// Adds what `fill` writes, in key order, as one table. An error adds nothing.
    pub(crate) fn load<T, E: From<lsm_tree::Error>>(
        &self,
        fill: impl FnOnce(&mut dyn FnMut(&[u8], &[u8]) -> Result<(), E>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut table = self.tree.ingestion()?;
        let filled = fill(&mut |key, value| table.write(key, value).map_err(E::from))?;
        table.finish()?;
        self.note_sizes();
        Ok(filled)
    }

    /// Notes the sizes after a change. Flushes and merges come here side by side: the later version counts.
    fn note_sizes(&self) {
        let sizes = KnownSizes::of(&self.tree, &self.damage);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if sizes.version >= known.version {
            *known = sizes;
        }
    }

    /// The files of all current tables: path and checksum, with their first and last keys.
    pub(crate) fn files(&self) -> Vec<TableFile> {
        let version = self.tree.current_version();
        version.iter_tables().map(TableFile::of).collect()
    }

    /// Removes the versions, and with them the tables, that no snapshot needs any more; and keeps the new ones private.
    fn tidy(&self) {
        self.note_sizes();
        private::keep_inside(&self.folder);
        self.snapshots.forget_tables();
        let oldest = self.snapshots.oldest(&self.visible);
        if let Err(error) = self.tree.get_version_history_lock().maintenance(&self.folder, oldest) {
            tracing::warn!(error = %trouble::describe(&error), "cannot remove files of merged tables; the next start removes them");
        }
    }

    fn reached(&self) -> MutexGuard<'_, Vec<u8>> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The levels of the newest version.
    pub(crate) fn levels(&self) -> Vec<Level> {
        levels(&self.tree, &self.damage)
    }

    /// One merge, or the move that makes room for it.
    fn merge_once(&self, kind: MergeKind, oldest: u64) -> Result<(), MergeFailure> {
        let levels = self.levels();
        let merged = match (kind, around::next_step(&levels)) {
            // It would meet the damage.
            (MergeKind::All, _) if self.tree.table_count() == 0 || levels.iter().any(|level| level.is_damaged) => {
                Ok(())
            }
            (MergeKind::All, _) => self.tree.major_compact(TABLE_BYTES, oldest),
            (MergeKind::Due, None) => self.tree.compact(self.strategy.clone(), oldest),
            (MergeKind::Due, Some(Step::Merge { from, to })) => self.tree.compact(Arc::new(PullDown(from, to)), oldest),
            (MergeKind::Due, Some(Step::Move { .. })) => self.move_level(oldest),
            (MergeKind::Due, Some(Step::Nothing)) => Ok(()),
            (MergeKind::Due, Some(Step::Stuck)) => {
                return Err(MergeFailure::Damaged("no merge can go around it".into()));
            }
        };
        merged.map_err(|error| failure(&error))
    }

    /// Moves a level out of the way. No table is added meanwhile: the step is chosen for a level of one run, and a flush would add
    /// a second one. The tree would put both into one run of the target, in which rows are then not found.
    fn move_level(&self, oldest: u64) -> lsm_tree::Result<()> {
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        match around::next_step(&self.levels()) {
            Some(Step::Move { from, to }) => self.tree.compact(Arc::new(MoveDown(from, to)), oldest),
            _ => Ok(()),
        }
    }

    /// Reads a bounded number of rows of each table from a key on, and notes the first unreadable table that is not
    /// known yet.
    fn note_unreadable(&self, from: &[u8], most: usize) -> Result<bool, MergeFailure> {
        let is_stopped = || self.stop.load(Ordering::Relaxed).then(|| std::io::Error::from(ErrorKind::Interrupted));
        let read = |table: &Table| {
            // As a merge reads: all blocks in order, without the index.
            let all: Box<dyn Iterator<Item = _>> =
                if from.is_empty() { Box::new(table.scan()?) } else { Box::new(table.range(Slice::from(from)..)) };
            let go_on =
                |row: lsm_tree::Result<_>| is_stopped().map_or_else(|| row.map(drop), |stopped| Err(stopped.into()));
            all.take(most).try_for_each(go_on)
        };
        let version = self.tree.current_version();
        for table in version.iter_tables().filter(|table| **table.metadata.key_range.max() >= *from) {
            match read(table).map_err(|error| failure(&error)) {
                Err(MergeFailure::Damaged(what)) if !self.damage.stops_merges(&table.path) => {
                    self.damage.on_merge_failure(&TableFile::of(table), &what);
                    self.note_sizes();
                    return Ok(self.damage.stops_merges(&table.path));
                }
                Ok(()) | Err(MergeFailure::Damaged(_)) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(false)
    }

    /// Removes what an unfinished merge has written: tables numbered from `first` on that belong to no version. Fails
    /// if the manifest on disk is another one than that in memory: it may have been replaced just before an error, and
    /// then names what the merge has written.
    fn remove_unfinished(&self, first: u64) -> Result<(), MergeFailure> {
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let version = self.tree.current_version();
        let unsure =
            |what: &str| MergeFailure::Unsure(format!("a merge failed while the manifest was written ({what})"));
        match manifest::newest(&self.folder) {
            Ok(number) if number == version.id() => {}
            Ok(_) => return Err(unsure("it is newer on disk")),
            Err(bad) => return Err(unsure(&bad.what)),
        }
        let Ok(entries) = std::fs::read_dir(self.folder.join(TABLES)) else { return Ok(()) };
        for path in entries.flatten().map(|entry| entry.path()) {
            let number = path.file_name().and_then(|name| name.to_str()?.parse::<u64>().ok());
            let is_used = |number| version.iter_tables().any(|table| table.id() == number);
            if number.is_some_and(|number| number >= first && !is_used(number)) {
                // What cannot be removed now is removed at the next start.
                _ = std::fs::remove_file(&path);
            }
        }
        Ok(())
    }
}

/// The file of a table.
#[derive(Clone, Debug)]
pub(crate) struct TableFile {
    pub(crate) path: PathBuf,
    /// The checksum of the whole file (XXH3, 128 bits).
    pub(crate) checksum: u128,
    pub(crate) first: Vec<u8>,
    pub(crate) last: Vec<u8>,
}

impl TableFile {
    fn of(table: &Table) -> Self {
        Self {
            path: table.path.to_path_buf(),
            checksum: table.checksum().into_u128(),
            first: table.metadata.key_range.min().to_vec(),
            last: table.metadata.key_range.max().to_vec(),
        }
    }
}

/// The levels of the newest version.
fn levels(tree: &AnyTree, damage: &DamageLog) -> Vec<Level> {
    let version = tree.current_version();
    let is_damaged = |table: &Table| damage.stops_merges(&table.path);
    let levels = version.iter_levels().map(|level| Level {
        runs: level.run_count(),
        bytes: level.size(),
        is_damaged: level.iter().flat_map(|run| run.iter()).any(is_damaged),
    });
    levels.collect()
}

fn settings(config: Config) -> Config {
    // Filters and indexes of ingested L0 tables are not pinned. They go through the block cache, so they are
    // partitioned: otherwise each cache miss would read a quarter of a megabyte.
    let pages = PinningPolicy::all(true);
    // Prefix-truncated keys leave little to compress. Compression starts at L2, which a store has from about five
    // gigabytes on.
    let plain = CompressionType::None;
    let bloom = FilterPolicyEntry::Bloom;
    config
        .filter_block_partitioning_policy(pages.clone())
        .index_block_partitioning_policy(pages)
        .data_block_compression_policy(CompressionPolicy::new([plain, plain, plain, CompressionType::Lz4]))
        .data_block_restart_interval_policy(RestartIntervalPolicy::new([10, 16]))
        .filter_policy(FilterPolicy::new([
            bloom(BloomConstructionPolicy::FalsePositiveRate(0.0001)),
            bloom(BloomConstructionPolicy::BitsPerKey(10.0)),
        ]))
}

/// The most bytes that the next merge of L0 can write, by the sizes of all levels: it takes all of L0 and what that overlaps in the
/// first level below, which is nearly all of it. Where every level is over its target, a new one begins above them.
fn next_merge_bytes(levels: &[Level]) -> u64 {
    let young = levels.first().map_or(0, |level| level.bytes);
    let below = || levels.iter().map(|level| level.bytes).enumerate().skip(1).filter(|(_, size)| *size > 0);
    let Some((first, size)) = below().next() else { return young };
    let target = |level: usize| {
        let deeper = u32::try_from(level - first).unwrap_or(u32::MAX);
        (TABLE_BYTES * u64::from(YOUNG_TABLES_DUE)).saturating_mul(10u64.saturating_pow(deeper))
    };
    let begins_above = first > 1 && below().all(|(level, size)| size > target(level));
    if begins_above { young } else { young + size }
}

/// The time since an instant, in nanoseconds since 1970, by the wall clock.
fn age(created_ns: u128) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Duration::from_nanos(u64::try_from(now.as_nanos().saturating_sub(created_ns)).unwrap_or(u64::MAX))
}

/// The instants of open snapshots: versions older than the first of them are removed.
#[derive(Default)]
struct OpenSnapshots(Mutex<Open>);

#[derive(Default)]
struct Open {
    counts: BTreeMap<u64, usize>,
    /// The tables of a version, by its number.
    tables: Option<(u64, Arc<[Table]>)>,
}

impl OpenSnapshots {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present instant, and the tables that have all rows that were visible then. Those of a later version need not: a
    /// merge keeps of each row only the newest version.
    fn open(&self, tree: &AnyTree, visible: &SequenceNumberCounter) -> (u64, Arc<[Table]>) {
        let mut open = self.lock();
        // Under the lock: `oldest` must not return a later instant before this one is known, so no merge begins in between.
        let instant = visible.get();
        *open.counts.entry(instant).or_default() += 1;
        let version = tree.current_version();
        let known = open.tables.as_ref().filter(|(number, _)| *number == version.id());
        let tables = known.map_or_else(|| version.iter_tables().cloned().collect(), |(_, tables)| Arc::clone(tables));
        open.tables = Some((version.id(), Arc::clone(&tables)));
        (instant, tables)
    }

    fn close(&self, instant: u64) {
        let counts = &mut self.lock().counts;
        if let Some(count) = counts.get_mut(&instant) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&instant);
            }
        }
    }

    fn oldest(&self, visible: &SequenceNumberCounter) -> u64 {
        self.lock().counts.first_key_value().map_or_else(|| visible.get(), |(instant, _)| *instant)
    }

    /// The files of merged tables are removed when their last user is gone.
    fn forget_tables(&self) {
        self.lock().tables = None;
    }
}

/// A snapshot of the tables.
pub(crate) struct FjallSnapshot {
    tree: AnyTree,
    instant: u64,
    tables: Arc<[Table]>,
    holes: Arc<[Hole]>,
    damage: Arc<DamageLog>,
    snapshots: Arc<OpenSnapshots>,
}

impl FjallSnapshot {
    /// Notes the table of a block that could not be read.
    fn note(&self, careful: &CarefulRows) {
        if let Some((table, what)) = careful.damaged() {
            self.damage.on_read_failure(&TableFile::of(table), what);
        }
    }

    fn careful(&self, from: &[u8], to: &[u8]) -> CarefulRows {
        CarefulRows::new(self.tables.iter(), (from, to), self.instant)
    }
}

impl Drop for FjallSnapshot {
    fn drop(&mut self) {
        self.snapshots.close(self.instant);
    }
}

#[cfg(test)]
impl FjallTables {
    /// Merges as the merge thread does.
    pub(crate) fn merge_around(&self, kind: MergeKind) -> Result<bool, MergeFailure> {
        self.merge(kind, u64::MAX).or_else(|failure| if self.find_unreadable() { Ok(true) } else { Err(failure) })
    }
}

#[cfg(test)]
impl FjallSnapshot {
    /// All rows.
    fn all(&self) -> impl Iterator<Item = Result<TableRow, Error>> {
        self.tree.iter(self.instant, None).map(|row| read(row.into_inner()))
    }
}

fn read(row: lsm_tree::Result<lsm_tree::KvPair>) -> Result<TableRow, Error> {
    match row {
        Ok((key, value)) => Ok((key.to_vec(), value.to_vec())),
        Err(error) => Err(trouble::on_read(&error)),
    }
}

impl Tables for FjallTables {
    type Snapshot = FjallSnapshot;

    fn snapshot(&self) -> FjallSnapshot {
        let (instant, tables) = self.snapshots.open(&self.tree, &self.visible);
        let (holes, damage) = (Arc::clone(&self.holes), Arc::clone(&self.damage));
        let (tree, snapshots) = (self.tree.clone(), Arc::clone(&self.snapshots));
        FjallSnapshot { tree, instant, tables, holes, damage, snapshots }
    }

    fn add(&self, rows: &[Arc<Memtable>]) -> Result<(), String> {
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        if self.young() >= YOUNG_TABLES_LIMIT + YOUNG_TABLES_MANY {
            return Err("too many tables wait to be merged: see the log for what holds merging up, then restart".into());
        }
        let add = || {
            let mut table = self.tree.ingestion()?;
            for rows in rows {
                rows.each(|key, value| match value {
                    Some(value) => table.write(key, value),
                    None => table.write_tombstone(key),
                })?;
            }
            table.finish()
        };
        add().map_err(|error| trouble::describe(&error))?;
        self.tidy();
        Ok(())
    }

    fn young(&self) -> usize {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).young
    }

    fn sizes(&self) -> Sizes {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        Sizes { tombstone_age: known.tombstones_since.map(age).unwrap_or_default(), ..known.sizes }
    }

    fn merge(&self, kind: MergeKind, bytes_max: u64) -> Result<bool, MergeFailure> {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
        let (before, first) = (self.tree.current_version().id(), self.tree.next_table_id());
        let oldest = self.snapshots.oldest(&self.visible);
        self.reached().clear();
        if let Err(failure) = self.merge_once(kind, oldest) {
            self.remove_unfinished(first)?;
            return Err(failure);
        }
        self.tidy();
        // Another version may also be that of a flush: then the next call finds nothing to do.
        Ok(kind == MergeKind::Due && self.tree.current_version().id() != before)
    }

    fn find_unreadable(&self) -> bool {
        let reached = self.reached().clone();
        let near = NEAR_ROWS.map(|most| (reached.as_slice(), most)).into_iter();
        let mut searches = near.chain([(&[][..], usize::MAX)]).map(|(from, most)| self.note_unreadable(from, most));
        searches.find(|found| *found != Ok(false)) == Some(Ok(true))
    }

    fn oldest_snapshot(&self) -> Option<u64> {
        self.snapshots.lock().counts.first_key_value().map(|(instant, _)| *instant)
    }

    fn stop_merging(&self, stop: bool) {
        self.stop.store(stop, Ordering::Relaxed);
    }
}

fn failure(error: &lsm_tree::Error) -> MergeFailure {
    match error {
        lsm_tree::Error::Io(io) => match io.kind() {
            ErrorKind::Interrupted => MergeFailure::Stopped,
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => MergeFailure::Full,
            _ if trouble::is_damage(error) => MergeFailure::Damaged(trouble::describe(error)),
            _ => MergeFailure::Failed(trouble::describe(error)),
        },
        _ => MergeFailure::Damaged(trouble::describe(error)),
    }
}

impl Snapshot for FjallSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Value>, Error> {
        if self.holes.iter().any(|hole| is_in(hole, key)) {
            return Err(in_hole());
        }
        match self.tree.get(key, self.instant).map_err(|error| trouble::on_read(&error)) {
            // It may be a filter. And the error does not name the table.
            Err(Error::Corrupt(_)) => {
                let mut careful = self.careful(key, &[key, &[0]].concat());
                let found = Iterator::next(&mut careful).transpose();
                self.note(&careful);
                Ok(found?.map(|(_, value)| value))
            }
            found => Ok(found?.map(|value| value.to_vec())),
        }
    }

    /// The filters of damaged tables show which rows of others are the newest.
    fn past_damage(&self, (from, to): (&[u8], &[u8]), limit: usize) -> Result<(Key, Vec<TableRow>), Error> {
        if let Some((_, end)) = self.holes.iter().find(|hole| is_in(hole, from)) {
            return Ok((end.as_slice().min(to).to_vec(), Vec::new()));
        }
        let mut careful = self.careful(from, to).passing();
        let mut rows = Vec::new();
        let end = loop {
            let next = careful.next().transpose()?;
            let end = careful.damage_end().unwrap_or(to).min(to);
            let Some((key, _)) = next.filter(|(key, _)| key.as_slice() < end) else { break end.to_vec() };
            match self.get(&key) {
                Ok(value) => rows.extend(value.map(|value| (key.clone(), value))),
                Err(Error::Corrupt(_)) => {}
                Err(error) => return Err(error),
            }
            if rows.len() >= limit {
                break [key.as_slice(), &[0]].concat();
            }
        };
        self.note(&careful);
        // A merge beside a snapshot may have written two versions of this row into two blocks, of which the first is damaged. A read
        // that began here again would meet it again.
        let end = if end.as_slice() > from { end } else { [from, &[0]].concat() };
        Ok((end, rows))
    }

    fn range(&self, from: &[u8], to: &[u8]) -> impl Iterator<Item = Result<TableRow, Error>> {
        let begins = |(start, end): &Hole| (from < end.as_slice() && start.as_slice() < to).then(|| start.clone());
        let hole = self.holes.iter().filter_map(begins).min();
        let to = hole.as_deref().map_or(Cow::Borrowed(to), |hole| hole.max(from).to_vec().into());
        let mut rows = self.tree.range::<&[u8], _>(from..&*to, self.instant, None).map(|row| read(row.into_inner()));
        let (mut careful, mut passed) = (None, 0);
        let end = hole.map(|_| Err(in_hole()));
        let rows = std::iter::from_fn(move || {
            if let Some(careful) = &mut careful {
                let next = Iterator::next(careful);
                self.note(careful);
                return next;
            }
            match rows.next() {
                // The tree reads ahead: there may be readable rows before the damage.
                Some(Err(Error::Corrupt(_))) => {
                    let careful = careful.insert(self.careful(from, &to));
                    let again = careful.take(passed).find(Result::is_err);
                    let next = again.or_else(|| careful.next());
                    self.note(careful);
                    next
                }
                row => {
                    passed += 1;
                    row
                }
            }
        });
        rows.chain(end)
    }
}

fn is_in((start, end): &Hole, key: &[u8]) -> bool {
    start.as_slice() <= key && key < end.as_slice()
}

fn in_hole() -> Error {
    Error::Corrupt("rows of a damaged table are missing here".into())
}

/// Lets every merge be stopped at the next row: on demand, or when it has written its part. The tree itself checks
/// only once in a million rows. Also reports how far it came.
#[derive(Clone)]
struct StopFilters {
    stop: Arc<AtomicBool>,
    bytes_max: Arc<AtomicU64>,
    reached: Arc<Mutex<Vec<u8>>>,
}

impl Factory for StopFilters {
    fn name(&self) -> &str {
        "stop"
    }

    fn make_filter(&self, _: &Context) -> Box<dyn CompactionFilter> {
        let bytes_left = self.bytes_max.load(Ordering::Relaxed);
        Box::new(StopFilter { shared: self.clone(), bytes_left, last: Vec::new() })
    }
}

struct StopFilter {
    shared: StopFilters,
    bytes_left: u64,
    /// The key of the last row.
    last: Vec<u8>,
}

impl CompactionFilter for StopFilter {
    fn filter_item(&mut self, item: ItemAccessor<'_>, _: &Context) -> lsm_tree::Result<Verdict> {
        if self.shared.stop.load(Ordering::Relaxed) {
            return Err(std::io::Error::from(ErrorKind::Interrupted).into());
        }
        // Only rows that stay come here.
        let bytes = (item.key().len() + item.value()?.len()) as u64;
        self.bytes_left = self.bytes_left.checked_sub(bytes).ok_or(std::io::Error::from(ErrorKind::StorageFull))?;
        self.last.clear();
        self.last.extend_from_slice(item.key());
        Ok(Verdict::Keep)
    }
}

impl Drop for StopFilter {
    fn drop(&mut self) {
        std::mem::swap(&mut *self.shared.reached.lock().unwrap_or_else(PoisonError::into_inner), &mut self.last);
    }
}

#[cfg(test)]
#[path = "lsm_tests.rs"]
pub(crate) mod tests;
