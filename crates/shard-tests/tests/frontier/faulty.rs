//! A fault-injecting store: fails chosen calls, delays reads, and records which fences commits carry.

use std::collections::VecDeque;

use tokio::sync::watch;
use wayleave_core::ids::Epoch;
use wayleave_engine::{Error, Expect, Fence, Key, Look, Pending, Value, Write};

use crate::prelude::*;
use crate::support::RuntimeClock;

/// The injected outcome of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Done,
    Refused,
    /// Applied, and the answer is lost.
    Lost,
}

/// A recorded call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Scan,
    Commit,
}

pub struct Faulty {
    memory: Memory,
    /// Commits and `own` are refused, reads are not: as on a full disk.
    pub full: AtomicBool,
    /// Outcomes of the next non-empty commits; later ones succeed.
    fates: Mutex<VecDeque<Fate>>,
    /// Scans and gets that still succeed before one fails.
    reads_left: Mutex<Option<usize>>,
    /// Whether `get_many` waits.
    gate: watch::Sender<bool>,
    /// Whether `scan_many` waits.
    scan_gate: watch::Sender<bool>,
    /// The shard whose own commits are applied and not confirmed for the time being.
    unconfirmed: watch::Sender<Option<ShardId>>,
    /// Scans and commits in order of arrival.
    pub steps: Mutex<Vec<Step>>,
    pub owns: AtomicUsize,
    pub scans: AtomicUsize,
    /// Rows that scans have returned.
    pub rows: AtomicUsize,
    /// Bytes of keys and values that commits have written.
    pub bytes: AtomicUsize,
    /// Keys that were deleted and not written again: an LSM store has a tombstone for each.
    tombstones: Mutex<BTreeSet<Key>>,
    /// Tombstones that scans have passed over.
    pub passed: AtomicUsize,
    /// Keys whose rows cannot be read, as in a damaged block.
    damaged: Mutex<BTreeSet<Key>>,
    /// A damaged block without rows: scans over it fail.
    empty_damaged: Mutex<Option<Key>>,
    /// Why the store wants no new URLs.
    pub no_growth: Mutex<Option<String>>,
    /// The writes of every commit requested.
    pub written: Mutex<Vec<Vec<Key>>>,
    /// The fences of every commit requested.
    pub commits: Mutex<Vec<Vec<Fence>>>,
}

pub const FULL: &str = "no space left on device";
pub const DAMAGE: &str = "checksum mismatch in a block";

impl Faulty {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            memory: Memory::new(RuntimeClock::new()),
            full: AtomicBool::new(false),
            fates: Mutex::default(),
            reads_left: Mutex::default(),
            gate: watch::channel(false).0,
            scan_gate: watch::channel(false).0,
            unconfirmed: watch::channel(None).0,
            steps: Mutex::default(),
            owns: AtomicUsize::new(0),
            scans: AtomicUsize::new(0),
            rows: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            tombstones: Mutex::default(),
            passed: AtomicUsize::new(0),
            damaged: Mutex::default(),
            empty_damaged: Mutex::default(),
            no_growth: Mutex::default(),
            written: Mutex::default(),
            commits: Mutex::default(),
        })
    }

    /// Damages the rows of all keys for which this holds. Returns how many there are.
    pub async fn damage(&self, is_bad: impl Fn(&Row) -> bool) -> usize {
        let all = Scan { from: Vec::new(), to: vec![0xff; 40], limit: usize::MAX };
        let rows = self.memory.scan_many(&[all]).await.unwrap().pop().unwrap();
        let bad: Vec<Key> = rows.into_iter().filter(|row| is_bad(row)).map(|row| row.key).collect();
        let count = bad.len();
        self.damaged.lock().unwrap().extend(bad);
        count
    }

    /// Damages a block without rows at a key that `change` makes of that of the row for which `is_it` holds.
    pub async fn damage_key(&self, is_it: impl Fn(&Row) -> bool, change: impl Fn(&mut Key)) {
        let all = Scan { from: Vec::new(), to: vec![0xff; 40], limit: usize::MAX };
        let mut key = self.memory.scan_many(&[all]).await.unwrap().remove(0).into_iter().find(is_it).unwrap().key;
        change(&mut key);
        *self.empty_damaged.lock().unwrap() = Some(key);
    }

    /// All rows can be read again.
    pub fn repair(&self) {
        self.damaged.lock().unwrap().clear();
    }

    fn check_damage(&self, key: &Key) -> Result<(), Error> {
        if self.damaged.lock().unwrap().contains(key) { Err(Error::Corrupt(DAMAGE.to_owned())) } else { Ok(()) }
    }

    /// A new one, opened with this many shards.
    pub async fn opened(shards: u16) -> (Arc<Self>, Frontier) {
        let engine = Self::new();
        let frontier = engine.open(shards).await;
        (engine, frontier)
    }

    pub async fn open(self: &Arc<Self>, shards: u16) -> Frontier {
        let config = Config { clock_step: Millis(0), ..Config::new(shards) };
        Frontier::open(self.clone(), config, &tokio::runtime::Handle::current()).await.unwrap()
    }

    pub fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::Release);
    }

    pub fn set_fates(&self, fates: &[Fate]) {
        *self.fates.lock().unwrap() = fates.iter().copied().collect();
    }

    /// Fails the read after this many more.
    pub fn fail_read_after(&self, reads: usize) {
        *self.reads_left.lock().unwrap() = Some(reads);
    }

    pub fn hold_gets(&self, hold: bool) {
        self.gate.send_replace(hold);
    }

    pub fn hold_scans(&self, hold: bool) {
        self.scan_gate.send_replace(hold);
    }

    /// Holds back the confirmation of commits that one shard makes alone.
    pub fn hold_confirmations(&self, shard: Option<ShardId>) {
        self.unconfirmed.send_replace(shard);
    }

    fn check_read(&self) -> Result<(), Error> {
        let mut left = self.reads_left.lock().unwrap();
        match *left {
            Some(0) => {
                *left = None;
                Err(Error::Unavailable("a read failed on purpose".to_owned()))
            }
            Some(n) => {
                *left = Some(n - 1);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn is_full(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }
}

impl Engine for Faulty {
    fn now(&self) -> Time {
        self.memory.now()
    }

    fn own<'a>(&'a self, shard: ShardId, expects: &'a [Expect]) -> Pending<'a, (Epoch, u64)> {
        self.owns.fetch_add(1, Ordering::AcqRel);
        if self.is_full() {
            return std::future::ready(Err(Error::Unavailable(FULL.to_owned()))).boxed();
        }
        self.memory.own(shard, expects)
    }

    fn get_many<'a>(&'a self, keys: &'a [Key]) -> Pending<'a, Vec<Option<Value>>> {
        let mut gate = self.gate.subscribe();
        async move {
            gate.wait_for(|held| !held).await.map_err(|_| Error::Unavailable("the test is over".to_owned()))?;
            self.check_read()?;
            keys.iter().try_for_each(|key| self.check_damage(key))?;
            self.memory.get_many(keys).await
        }
        .boxed()
    }

    fn scan_many<'a>(&'a self, scans: &'a [Scan]) -> Pending<'a, Vec<Vec<Row>>> {
        self.scans.fetch_add(1, Ordering::AcqRel);
        self.steps.lock().unwrap().push(Step::Scan);
        let mut gate = self.scan_gate.subscribe();
        async move {
            gate.wait_for(|held| !held).await.map_err(|_| Error::Unavailable("the test is over".to_owned()))?;
            self.check_read()?;
            let found = self.memory.scan_many(scans).await?;
            found.iter().flatten().try_for_each(|row| self.check_damage(&row.key))?;
            if let Some(bad) = &*self.empty_damaged.lock().unwrap() {
                let reads = |(scan, rows): (&Scan, &Vec<Row>)| {
                    let end = rows.last().filter(|_| rows.len() == scan.limit).map_or(&scan.to, |last| &last.key);
                    scan.from <= *bad && bad < end
                };
                if scans.iter().zip(&found).any(reads) {
                    return Err(Error::Corrupt(DAMAGE.to_owned()));
                }
            }
            for (scan, rows) in scans.iter().zip(&found) {
                let end = rows.last().filter(|_| rows.len() == scan.limit).map_or(&scan.to, |last| &last.key);
                let passed = self.tombstones.lock().unwrap().range(scan.from.clone()..end.clone()).count();
                self.passed.fetch_add(passed, Ordering::AcqRel);
            }
            self.rows.fetch_add(found.iter().map(Vec::len).sum(), Ordering::AcqRel);
            Ok(found)
        }
        .boxed()
    }

    fn past_damage<'a>(&'a self, scan: &'a Scan) -> Pending<'a, (Key, Vec<Row>)> {
        async move {
            let mut rest = Scan { limit: usize::MAX, ..scan.clone() };
            if let Some(bad) = self.empty_damaged.lock().unwrap().clone() {
                rest.from = rest.from.max([bad.as_slice(), &[0]].concat());
            }
            let keys = self.memory.scan_many(&[rest]).await?.remove(0).into_iter().map(|row| row.key);
            let (mut last, mut next) = (scan.from.clone(), scan.to.clone());
            for key in keys {
                if self.check_damage(&key).is_ok() {
                    next = key;
                    break;
                }
                last = key;
            }
            // Only as much of the key as is behind the damage: an engine need not know the next one.
            let len = (1..=next.len()).find(|len| next[..*len] > last[..]).unwrap_or(next.len());
            next.truncate(len);
            Ok((next, Vec::new()))
        }
        .boxed()
    }

    fn refuses_growth(&self) -> Option<String> {
        self.no_growth.lock().unwrap().clone()
    }

    fn look<'a>(&'a self, scans: &'a [Scan]) -> Pending<'a, Look> {
        self.memory.look(scans)
    }

    fn commit(&self, batch: Batch) -> Commit {
        self.commits.lock().unwrap().push(batch.fences.clone());
        self.written.lock().unwrap().push(batch.writes.iter().map(|write| write.key.clone()).collect());
        let size = |write: &Write| write.key.len() + write.value.as_ref().map_or(0, Vec::len);
        self.bytes.fetch_add(batch.writes.iter().map(size).sum(), Ordering::Relaxed);
        self.steps.lock().unwrap().push(Step::Commit);
        for write in &batch.writes {
            let mut tombstones = self.tombstones.lock().unwrap();
            match write.value {
                Some(_) => tombstones.remove(&write.key),
                None => tombstones.insert(write.key.clone()),
            };
        }
        let refused = |why: &str| std::future::ready(Err(Error::Unavailable(why.to_owned()))).boxed();
        if self.is_full() {
            return refused(FULL);
        }
        let fate = if batch.writes.is_empty() { None } else { self.fates.lock().unwrap().pop_front() };
        match fate {
            Some(Fate::Refused) => return refused("refused on purpose"),
            Some(Fate::Lost) => self.memory.lose_next_answer(LostAnswer::Applied),
            Some(Fate::Done) | None => {}
        }
        let alone = if let [fence] = &batch.fences[..] { Some(fence.shard) } else { None };
        let (commit, mut held) = (self.memory.commit(batch), self.unconfirmed.subscribe());
        async move {
            let confirmed = |held: &Option<ShardId>| held.is_none() || *held != alone;
            held.wait_for(confirmed).await.map_err(|_| Error::OutcomeUnknown("the test is over".to_owned()))?;
            commit.await
        }
        .boxed()
    }
}
