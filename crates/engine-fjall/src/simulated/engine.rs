//! The embedded store with a simulator scheduling every step: when a group is written, when its write completes, when
//! the memtables are flushed.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use tokio::sync::oneshot;
use wayleave_core::ids::{Epoch, ShardId};
use wayleave_core::time::Time;
use wayleave_engine::{Batch, Commit, Engine, Error, Expect, Key, Look, Pending, Row, Scan, Value};

use crate::disk::Disk;
use crate::flusher::{self, Frozen, JournalFolder};
use crate::folder::Folder;
use crate::loading::{self, Loading};
use crate::open_error::OpenError;
use crate::store::Store;
use crate::syncer::{Drive, Flight};
use crate::tables::{MergeKind, Tables};
use crate::timekeeper::Timekeeper;

use super::{SimDisk, SimTables};

pub use crate::timekeeper::Reading;

/// The simulator decides when to flush, never the memtable size.
const NEVER: usize = usize::MAX / 4;

/// The progress of a flush.
#[derive(Default)]
enum Flush {
    #[default]
    Idle,
    Frozen(Frozen, oneshot::Receiver<Result<(), Error>>),
    Settled(Frozen),
    Written(Frozen),
}

/// The embedded store on a simulated disk.
pub struct Simulated {
    store: Arc<Store<SimTables>>,
    journal: JournalFolder,
    flights: Mutex<Vec<Flight>>,
    flush: Mutex<Flush>,
    keeper: Mutex<Timekeeper>,
    read_clock: Box<dyn Fn() -> Reading + Send + Sync>,
    _folder: Folder,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Simulated {
    /// Opens the store in a folder of a simulated disk.
    pub fn open(
        disk: &SimDisk,
        tables: &SimTables,
        path: &Path,
        shards: u16,
        read_clock: impl Fn() -> Reading + Send + Sync + 'static,
    ) -> Result<Self, OpenError> {
        let life = disk.below(u64::MAX) | 1;
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let folder = Folder::open(&disk, path, shards, |_| Ok(()))?;
        let loading = Loading { freeze_bytes: NEVER, repair: false, drive: Drive::ByHand, life };
        let store = Arc::new(loading::load(&folder, tables.clone(), loading, |_| Ok(()))?);
        let keeper = Timekeeper::new(read_clock(), store.last_committed());
        Ok(Self {
            store,
            journal: JournalFolder { disk, path: folder.journal() },
            flights: Mutex::default(),
            flush: Mutex::default(),
            keeper: Mutex::new(keeper),
            read_clock: Box::new(read_clock),
            _folder: folder,
        })
    }

    /// Begins to write the queue as one group; false if nothing can begin.
    pub fn begin_write(&self) -> bool {
        let flight = self.store.syncer.begin();
        let begun = flight.is_some();
        lock(&self.flights).extend(flight);
        begun
    }

    /// The number of writes in flight.
    #[must_use]
    pub fn writes(&self) -> usize {
        lock(&self.flights).len()
    }

    /// Completes one of the writes in flight, and notifies all waiters that can be notified.
    pub fn end_write(&self, which: usize) {
        let mut flights = lock(&self.flights);
        if which < flights.len() {
            let mut flight = flights.swap_remove(which);
            drop(flights);
            flight.write();
            self.store.syncer.finish(flight);
        }
    }

    /// Carries out the next step of a flush: freeze, wait for the journal, write the table, drop the frozen rows.
    /// Returns the step's name. An error fails the store.
    pub fn step_flush(&self) -> &'static str {
        let mut flush = lock(&self.flush);
        let (next, name) = match std::mem::take(&mut *flush) {
            Flush::Idle => {
                let frozen = flusher::freeze(&self.store);
                match self.store.syncer.settled() {
                    Ok(settled) => (Flush::Frozen(frozen, settled), "freeze"),
                    Err(_) => (Flush::Idle, "failed"),
                }
            }
            Flush::Frozen(frozen, mut settled) => match settled.try_recv() {
                Ok(Ok(())) => (Flush::Settled(frozen), "settled"),
                Err(oneshot::error::TryRecvError::Empty) => (Flush::Frozen(frozen, settled), "not settled"),
                _ => (Flush::Idle, "failed"),
            },
            Flush::Settled(frozen) => match flusher::write_table(&self.store, &frozen) {
                Ok(()) => (Flush::Written(frozen), "table"),
                Err(why) => {
                    self.store.syncer.fail(why);
                    (Flush::Idle, "failed")
                }
            },
            Flush::Written(frozen) => {
                if let Err(why) = flusher::forget(&self.store, &frozen, &self.journal) {
                    self.store.syncer.fail(why);
                }
                (Flush::Idle, "forget")
            }
        };
        *flush = next;
        name
    }

    /// Runs a merge of tables. One that fails changes nothing and does not fail the store.
    pub fn merge(&self) {
        _ = self.store.tables.merge(MergeKind::Due, u64::MAX);
    }

    /// Whether the store has failed and must be reopened.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.store.syncer.check().is_err()
    }

    /// Ends the process: nothing more is written, and remaining waiters get an error.
    pub fn kill(&self) {
        self.store.syncer.fail("the process has ended".into());
        lock(&self.flights).clear();
    }

    /// Writes everything queued and seals the journal, as a clean shutdown does.
    pub fn close(&self) {
        while self.begin_write() || self.writes() > 0 {
            self.end_write(0);
        }
        self.store.syncer.seal();
    }
}

impl Engine for Simulated {
    fn now(&self) -> Time {
        lock(&self.keeper).advance((self.read_clock)())
    }

    fn own<'a>(&'a self, shard: ShardId, expects: &'a [Expect]) -> Pending<'a, (Epoch, u64)> {
        match self.store.own(shard, expects, self.now()) {
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
        let (now, steady_since) = (self.now(), Time::ZERO);
        std::future::ready(self.store.scan(scans).map(|rows| Look { now, incarnation: 0, steady_since, rows })).boxed()
    }

    fn commit(&self, batch: Batch) -> Commit {
        let Batch { fences, expects, mut writes } = batch;
        writes.sort_by(|a, b| a.key.cmp(&b.key));
        let committed = self.store.commit(&fences, &expects, &writes, self.now());
        committed.unwrap_or_else(|error| std::future::ready(Err(error)).boxed())
    }
}
