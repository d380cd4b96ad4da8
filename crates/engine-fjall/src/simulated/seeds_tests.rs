//! Simulation of the store on its simulated disk: concurrent commits across rotations, flushes, kills, power cuts,
//! clean shutdowns and failures at every operation, opens included.
//!
//! The oracle: the store has a prefix of each shard's batches that contains everything acknowledged; a batch over two
//! shards is in both or in neither; rows outside the shards, epochs and time never fall behind what was acknowledged;
//! and the folder opens after anything but damage. To test the test, every sync of the code is omitted in fence, and
//! some seed must notice.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::FutureExt;
use wayleave_core::ids::{Epoch, ShardId};
use wayleave_engine::{Batch, Commit, Engine, Error, Fence, Scan, Write};

use super::*;
use crate::OpenError;

const PATH: &str = "/machine/data";
const SHARDS: u16 = 3;
/// The shard prefix of rows outside all shards, such as those of roles.
const OUTSIDE: u16 = u16::MAX;

/// A batch of a shard: its name, and the rows that it wrote or deleted.
type Sent = (u64, Vec<(u8, Option<u64>)>);

/// The expected state of a shard.
#[derive(Default)]
struct Shard {
    epoch: u64,
    /// The committed batches, in sequence, starting at 1.
    batches: Vec<Sent>,
    /// The number of the last acknowledged batch.
    acked: u64,
}

/// A commit that is not answered yet.
struct Waiting {
    commit: Commit,
    fences: Vec<(u16, u64)>,
    outside: Option<u64>,
    at: u64,
}

struct Story {
    seed: u64,
    disk: SimDisk,
    tables: SimTables,
    clock: Arc<AtomicU64>,
    shards: BTreeMap<u16, Shard>,
    /// The last value of the row outside the shards, and the last acknowledged one.
    outside: (u64, u64),
    /// The latest commit time of anything acknowledged.
    at: u64,
    names: u64,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    acked: u64,
    unknown: u64,
    rotations: u64,
    opens: u64,
    failed_opens: u64,
}

impl Story {
    fn new(seed: u64) -> Self {
        let shards = (0..SHARDS).map(|shard| (shard, Shard::default())).collect();
        Self {
            seed,
            disk: SimDisk::new(seed),
            tables: SimTables::default(),
            clock: Arc::new(AtomicU64::new(1_000)),
            shards,
            outside: (0, 0),
            at: 0,
            names: 0,
            counts: Counts::default(),
        }
    }

    fn below(&self, bound: u64) -> u64 {
        self.disk.below(bound)
    }

    fn once_in(&self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Opens the store, retrying through faults and power cuts within about `operations` operations, which the open
    /// must survive.
    fn open(&mut self, operations: u64) -> Result<Simulated, String> {
        for _ in 0..20 {
            self.disk.set_phase("open");
            if self.once_in(2) {
                let fault = [Fault::PowerCut, Fault::Io, Fault::NoSpace, Fault::ReadOnly][self.below(4) as usize];
                self.disk.fail_after(self.below(operations), fault);
            }
            let opened = self.try_open();
            self.disk.heal();
            match opened {
                Ok(engine) => {
                    self.counts.opens += 1;
                    self.disk.set_phase("run");
                    return Ok(engine);
                }
                Err(error) => {
                    let damage = matches!(
                        error,
                        OpenError::Damaged { .. }
                            | OpenError::Lost { .. }
                            | OpenError::JournalDamaged { .. }
                            | OpenError::Foreign { .. }
                    );
                    if damage {
                        return Err(format!("nothing was damaged: {error}"));
                    }
                    self.counts.failed_opens += 1;
                    self.end(self.below(2) == 0);
                }
            }
        }
        self.disk.power_cut();
        self.try_open().map_err(|error| format!("the disk is healthy: {error}"))
    }

    fn try_open(&self) -> Result<Simulated, OpenError> {
        let clock = self.clock.clone();
        let read = move || {
            let ns = u128::from(clock.load(Ordering::Relaxed)) * 1_000_000;
            Reading { wall_ns: ns, boot_ns: ns }
        };
        Simulated::open(&self.disk, &self.tables, Path::new(PATH), SHARDS, read)
    }

    /// Ends the process: by a kill, or with the machine.
    fn end(&self, cut: bool) {
        if cut {
            self.disk.power_cut();
        } else {
            self.disk.kill();
        }
    }

    /// Compares the store with what was acknowledged, and continues from its state.
    fn check(&mut self, engine: &Simulated) -> Result<(), String> {
        self.check_outside(engine)?;
        if engine.now().0 < self.at {
            return Err(format!("time went back: {} after {}", engine.now().0, self.at));
        }
        let mut found = BTreeMap::new();
        for shard in 0..SHARDS {
            let Some(expected) = self.shards.get_mut(&shard) else { continue };
            let own = engine.own(ShardId(shard), &[]);
            while engine.begin_write() {}
            while engine.writes() > 0 {
                engine.end_write(0);
            }
            let Some(Ok((epoch, seq))) = own.now_or_never() else {
                return Err("a healthy disk does not let a shard be owned".into());
            };
            if epoch.0 <= expected.epoch {
                return Err(format!("epoch {} of shard {shard} was granted before", epoch.0));
            }
            expected.epoch = epoch.0;
            if seq < expected.acked || seq > expected.batches.len() as u64 {
                let (acked, sent) = (expected.acked, expected.batches.len());
                return Err(format!("shard {shard} has {seq} batches: {acked} were acknowledged, {sent} sent"));
            }
            expected.batches.truncate(seq as usize);
            expected.acked = seq;
            found.insert(shard, seq);
            let mut rows = BTreeMap::new();
            for (key, value) in expected.batches.iter().flat_map(|(_, writes)| writes) {
                match value {
                    Some(value) => _ = rows.insert(row_key(shard, *key), value.to_be_bytes().to_vec()),
                    None => _ = rows.remove(&row_key(shard, *key)),
                }
            }
            let stored = scan(engine, shard)?;
            if stored != rows {
                return Err(format!("shard {shard} at {seq} holds {stored:?} and not {rows:?}"));
            }
        }
        self.check_pairs()
    }

    /// A batch over two shards has one name in both; it must be in both or in neither.
    fn check_pairs(&self) -> Result<(), String> {
        let mut seen: BTreeMap<u64, usize> = BTreeMap::new();
        for (name, _) in self.shards.values().flat_map(|shard| &shard.batches) {
            *seen.entry(*name).or_default() += 1;
        }
        let expected = |name: u64| if name.is_multiple_of(5) { 2 } else { 1 };
        match seen.iter().find(|(name, count)| **count != expected(**name)) {
            Some((name, count)) => Err(format!("batch {name} is in {count} shards")),
            None => Ok(()),
        }
    }

    fn check_outside(&mut self, engine: &Simulated) -> Result<(), String> {
        let found = engine.get_many(&[row_key(OUTSIDE, 1)]).now_or_never();
        let Some(Ok(found)) = found else { return Err("the row outside cannot be read".into()) };
        let value = found.into_iter().next().flatten();
        let value = value.map_or(0, |value| u64::from_be_bytes(value.try_into().unwrap_or_default()));
        let (last, acked) = self.outside;
        if value < acked || value > last {
            return Err(format!("the row outside is {value}: {acked} was acknowledged, {last} sent"));
        }
        self.outside = (value, value);
        Ok(())
    }

    /// One life of a process: commits and disk steps in any order, until it ends.
    fn live(&mut self, engine: &Simulated) -> bool {
        let mut waiting: Vec<Waiting> = Vec::new();
        let steps = 20 + self.below(120);
        if self.once_in(2) {
            let fault =
                [Fault::PowerCut, Fault::PowerCut, Fault::Io, Fault::NoSpace, Fault::ReadOnly][self.below(5) as usize];
            self.disk.fail_after(self.below(60), fault);
        }
        if self.once_in(8) {
            self.tables.fail_next();
        }
        for _ in 0..steps {
            self.clock.fetch_add(self.below(3), Ordering::Relaxed);
            match self.below(11) {
                0..4 => waiting.extend(self.commit(engine)),
                4 | 5 => _ = engine.begin_write(),
                6 | 7 => {
                    let writes = engine.writes() as u64;
                    engine.end_write(self.below(writes) as usize);
                }
                8 => self.counts.rotations += u64::from(engine.step_flush() == "freeze"),
                9 => {
                    if self.once_in(4) {
                        self.tables.fill_up_next_merge();
                    }
                    engine.merge();
                }
                _ => self.poll(&mut waiting),
            }
            self.poll(&mut waiting);
        }
        let clean = self.once_in(4);
        if clean {
            engine.close();
        }
        self.poll(&mut waiting);
        self.disk.heal();
        clean
    }

    fn commit(&mut self, engine: &Simulated) -> Option<Waiting> {
        let at = engine.now().0;
        if self.once_in(6) {
            self.outside.0 += 1;
            let value = self.outside.0;
            let writes = vec![Write { key: row_key(OUTSIDE, 1), value: Some(value.to_be_bytes().to_vec()) }];
            let commit = engine.commit(Batch { writes, ..Batch::default() });
            return Some(Waiting { commit, fences: Vec::new(), outside: Some(value), at });
        }
        self.names += 1;
        let name = self.names;
        let first = self.below(u64::from(SHARDS)) as u16;
        let second = (first + 1) % SHARDS;
        let shards = if name.is_multiple_of(5) { vec![first, second] } else { vec![first] };
        let large = self.once_in(12);
        let (mut fences, mut writes) = (Vec::new(), Vec::new());
        for shard in shards {
            let rows: Vec<(u8, Option<u64>)> = (0..1 + self.below(3))
                .map(|_| (self.below(6) as u8, (!self.once_in(4)).then(|| name * 100 + self.below(100))))
                .collect();
            let Some(expected) = self.shards.get_mut(&shard) else { continue };
            // Each key once: an engine sorts the writes of a batch.
            let rows: BTreeMap<u8, Option<u64>> = rows.into_iter().collect();
            for (key, value) in &rows {
                let value = value.map(|value| value.to_be_bytes().to_vec());
                writes.push(Write { key: row_key(shard, *key), value });
            }
            if large {
                // A row that comes and goes, to fill more than a block.
                writes.push(Write { key: row_key(shard, 99), value: Some(vec![7; 9_000]) });
            }
            expected.batches.push((name, rows.into_iter().collect()));
            let seq = expected.batches.len() as u64;
            fences.push(Fence { shard: ShardId(shard), epoch: Epoch(expected.epoch), seq });
        }
        let numbers = fences.iter().map(|fence| (fence.shard.0, fence.seq)).collect();
        let commit = engine.commit(Batch { fences, expects: Vec::new(), writes });
        Some(Waiting { commit, fences: numbers, outside: None, at })
    }

    /// Collects the store's answers.
    fn poll(&mut self, waiting: &mut Vec<Waiting>) {
        let mut left = Vec::new();
        for mut one in waiting.drain(..) {
            match (&mut one.commit).now_or_never() {
                None => left.push(one),
                Some(Ok(())) => {
                    self.counts.acked += 1;
                    self.at = self.at.max(one.at);
                    for (shard, seq) in &one.fences {
                        if let Some(shard) = self.shards.get_mut(shard) {
                            shard.acked = shard.acked.max(*seq);
                        }
                    }
                    self.outside.1 = self.outside.1.max(one.outside.unwrap_or(0));
                }
                Some(Err(Error::OutcomeUnknown(_) | Error::Unavailable(_) | Error::Fenced { .. })) => {
                    self.counts.unknown += 1;
                }
                Some(Err(other)) => panic!("seed {}: {other}", self.seed),
            }
        }
        *waiting = left;
    }

    /// The whole run: lives of processes, each ended in some way, each followed by a check.
    fn run(&mut self) -> Result<(), String> {
        let mut engine = self.open(24)?;
        self.check(&engine)?;
        for _ in 0..6 {
            let clean = self.live(&engine);
            let cut = !clean && self.once_in(2);
            drop(engine);
            self.end(cut);
            // A second end before anything new was written: what the first end left must be sufficient by itself.
            if self.once_in(3) {
                drop(self.open(12)?);
                self.end(self.once_in(2));
            }
            engine = self.open(12)?;
            self.check(&engine)?;
            if self.once_in(2) {
                drop(engine);
                self.end(true);
                engine = self.open(12)?;
                self.check(&engine)?;
            }
        }
        Ok(())
    }
}

fn row_key(shard: u16, key: u8) -> Vec<u8> {
    let [high, low] = shard.to_be_bytes();
    vec![high, low, 9, key]
}

/// The rows of a shard except the large one.
fn scan(engine: &Simulated, shard: u16) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, String> {
    let all = Scan { from: row_key(shard, 0), to: row_key(shard, 99), limit: 100 };
    let found = engine.scan_many(&[all]).now_or_never();
    let rows = found.ok_or("a scan waits")?.map_err(|error| error.to_string())?;
    Ok(rows.into_iter().flatten().map(|row| (row.key, row.value)).collect())
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn no_seed_loses_what_was_acknowledged() {
    let first = number("WAYLEAVE_SIM_SEED");
    let count = first.map_or_else(|| number("WAYLEAVE_DISK_SEEDS").unwrap_or(2_000), |_| 1);
    let mut sum = Counts::default();
    for seed in first.unwrap_or(0)..first.unwrap_or(0) + count {
        let mut story = Story::new(seed);
        if let Err(broken) = story.run() {
            panic!("seed {seed}: {broken}");
        }
        let Counts { acked, unknown, rotations, opens, failed_opens } = story.counts;
        sum = Counts {
            acked: sum.acked + acked,
            unknown: sum.unknown + unknown,
            rotations: sum.rotations + rotations,
            opens: sum.opens + opens,
            failed_opens: sum.failed_opens + failed_opens,
        };
    }
    println!("{count} seeds: {sum:?}");
    if first.is_none() {
        assert!(sum.acked > count * 20 && sum.rotations > count && sum.unknown > count && sum.failed_opens > count);
    }
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let history = |seed| {
        let mut story = Story::new(seed);
        story.run().unwrap();
        (format!("{:?}", story.counts), story.disk.operations())
    };
    for seed in [1, 2, 77] {
        assert_eq!(history(seed), history(seed));
    }
    assert_ne!(history(1), history(2));
}

/// One flipped bit anywhere in the journal after a clean shutdown: the store refuses to open, or nothing acknowledged
/// is missing.
#[test]
fn no_flipped_bit_loses_what_was_acknowledged() {
    let (mut refused, mut harmless) = (0, 0);
    for seed in 0..600 {
        let mut story = Story::new(seed);
        let engine = story.open(24).and_then(|engine| story.check(&engine).map(|()| engine)).unwrap();
        story.live(&engine);
        if engine.has_failed() {
            continue;
        }
        engine.close();
        drop(engine);
        story.disk.kill();
        let folder = Path::new(PATH).join("journal");
        let files = crate::disk::Disk::list(&story.disk, &folder).unwrap();
        let file = folder.join(&files[story.below(files.len() as u64) as usize]);
        let length = crate::disk::Disk::read(&story.disk, &file).unwrap().len() as u64;
        if !story.disk.flip(&file, story.below(length.min(60_000)) as usize, 1 << story.below(8)) {
            continue;
        }
        match story.try_open() {
            Err(OpenError::JournalDamaged { .. }) => refused += 1,
            // The power was cut while the journal was being sealed.
            Err(OpenError::Io { .. }) => {}
            Err(error) => panic!("seed {seed}: {error}"),
            Ok(engine) => {
                story.check(&engine).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
                harmless += 1;
            }
        }
    }
    println!("{refused} refused, {harmless} harmless");
    assert!(refused > 100 && harmless > 20, "both happen: {refused}, {harmless}");
}

/// Blocks of tables that cannot be read: a read of a row returns what was acknowledged or says that it is damaged, and a
/// merge neither drops nor hides anything.
#[test]
fn no_unreadable_block_loses_or_changes_rows_in_silence() {
    let (mut corrupt, mut right) = (0, 0);
    for seed in 0..400 {
        let mut story = Story::new(seed);
        let engine = story.open(24).and_then(|engine| story.check(&engine).map(|()| engine)).unwrap();
        story.live(&engine);
        story.tables.heal();
        if engine.has_failed() || !story.disk.has_power() {
            continue;
        }
        let read = |engine: &Simulated, shard: u16, key: u8| {
            engine.get_many(&[row_key(shard, key)]).now_or_never().unwrap().map(|mut found| found.remove(0))
        };
        let all = || (0..SHARDS).flat_map(|shard| (0..10).map(move |key| (shard, key)));
        let before: Vec<_> = all().map(|(shard, key)| read(&engine, shard, key).unwrap()).collect();
        for _ in 0..3 {
            // Rows of the engine itself are checked at open.
            story.tables.damage(|bound| story.below(bound), |key| key.get(2) == Some(&9));
        }
        for _ in 0..2 {
            for ((shard, key), expected) in all().zip(&before) {
                match read(&engine, shard, key) {
                    Ok(found) => {
                        assert_eq!(&found, expected, "seed {seed}");
                        right += 1;
                    }
                    Err(Error::Corrupt(_)) => corrupt += 1,
                    Err(error) => panic!("seed {seed}: {error}"),
                }
                if let Ok(rows) = scan(&engine, shard) {
                    assert_eq!(rows.get(&row_key(shard, key)), expected.as_ref(), "seed {seed}");
                }
            }
            engine.merge();
            while engine.step_flush() != "forget" && engine.begin_write() | (engine.writes() > 0) {
                engine.end_write(0);
            }
        }
    }
    assert!(corrupt > 50 && right > 1_000, "both happen: {corrupt}, {right}");
}

/// Runs seeds until one fails; returns how many it took.
fn seeds_until_broken(most: u64, arrange: impl Fn(&Story)) -> Option<u64> {
    (0..most).find(|seed| {
        let mut story = Story::new(*seed);
        arrange(&story);
        story.run().is_err()
    })
}

/// Each sync of the code, omitted: some seed must lose something or fail to open. A sync that nothing needs would only
/// cost time.
#[test]
fn every_sync_that_is_left_out_is_noticed() {
    let points: std::collections::BTreeSet<SyncPoint> = (0..200)
        .flat_map(|seed| {
            let mut story = Story::new(seed);
            story.run().unwrap();
            story.disk.sync_points()
        })
        .collect();
    let mut unnoticed = Vec::new();
    for point in points {
        match seeds_until_broken(4_000, |story| story.disk.lie_about(point.clone())) {
            Some(seed) => println!("{point:?}: noticed by seed {seed}"),
            None => unnoticed.push(point),
        }
    }
    assert!(unnoticed.is_empty(), "no check misses {unnoticed:?}");
}
