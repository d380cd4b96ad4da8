//! Simulates two nodes' queues, overlays and committers over one simulated database, from seeds. Transactions are
//! delayed, lost on the way there or back, arrive after their sender gave up, or meet locked rows. Meanwhile owners
//! change, and batches of former owners are fenced.
//!
//! Invariants for every seed:
//! - an owner that has just taken a shard reads exactly what the database has, and nothing of its predecessors' failed
//!   batches;
//! - an owner reads its own batches as soon as it has sent them;
//! - a batch that was answered `Ok` is in the database, once;
//! - a batch that was refused or "unavailable" is not, not even long after the answer.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::oneshot;
use wayleave_core::ids::{Epoch, ShardId};
use wayleave_engine::fences::{FenceState, Fences};
use wayleave_engine::suite::harness::{all, batch, fenced, key};
use wayleave_engine::{Batch, Commit, Error, Row, Scan, Write};

use crate::committer::{self, CommitContext, Locked};
use crate::overlay::Overlay;
use crate::pending_batch::PendingBatch;
use crate::queue::{Queue, Serves};
use crate::reads;
use crate::transaction::{Attempt, Locks};
use crate::transaction_batch::TransactionBatch;
use crate::trouble::Trouble;
use crate::wire::Database;

const SHARDS: u16 = 3;
const NAMES: u64 = 4;
const SEEDS: u64 = 300;
const STEPS: usize = 60;

/// A generator per seed (SplitMix64).
#[derive(Clone)]
struct Chance(Arc<Mutex<u64>>);

impl Chance {
    fn below(&self, bound: u64) -> u64 {
        let mut state = self.0.lock().unwrap();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

#[derive(Default)]
struct Tables {
    fences: Fences,
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    /// How often each value has been written. Besides rows shared with other batches, whose values a later batch of the
    /// same transaction may replace, every batch writes a row of its own.
    written: HashMap<Vec<u8>, usize>,
}

/// The simulated database, shared by all nodes.
#[derive(Clone)]
struct Sim {
    tables: Arc<Mutex<Tables>>,
    chance: Chance,
}

impl Sim {
    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap()
    }

    async fn takes_a_while(&self) {
        tokio::time::sleep(Duration::from_millis(self.chance.below(40))).await;
    }

    /// Runs one transaction.
    fn run(&self, group: &TransactionBatch) -> Attempt {
        let mut tables = self.lock();
        for step in &group.moves {
            let fence_state = tables.fences.state(ShardId(step.shard));
            if (fence_state.epoch.0, fence_state.seq) != (step.epoch.cast_unsigned(), step.prev.cast_unsigned()) {
                return Attempt::Fenced;
            }
        }
        let holds =
            |(key, value): &(bytes::Bytes, bytes::Bytes)| tables.rows.get(&key[..]).is_some_and(|is| is == value);
        if !group.present.iter().all(holds) || group.absent.iter().any(|key| tables.rows.contains_key(&key[..])) {
            return Attempt::Conflict;
        }
        for step in &group.moves {
            let fence_state = FenceState { epoch: Epoch(step.epoch.cast_unsigned()), seq: step.next.cast_unsigned() };
            tables.fences.set(ShardId(step.shard), fence_state);
        }
        for (key, value) in &group.puts {
            tables.rows.insert(key.to_vec(), value.to_vec());
            *tables.written.entry(value.to_vec()).or_default() += 1;
        }
        for key in &group.deletes {
            tables.rows.remove(&key[..]);
        }
        Attempt::Done(None)
    }

    fn own(&self, shard: ShardId) -> FenceState {
        let mut tables = self.lock();
        let FenceState { epoch, seq } = tables.fences.state(shard);
        let fence_state = FenceState { epoch: Epoch(epoch.0 + 1), seq };
        tables.fences.set(shard, fence_state);
        fence_state
    }

    fn scan(&self, scan: &Scan) -> Vec<Row> {
        let tables = self.lock();
        let range = tables.rows.range(scan.from.clone()..scan.to.clone()).take(scan.limit);
        range.map(|(key, value)| Row { key: key.clone(), value: value.clone() }).collect()
    }
}

impl Database for Sim {
    async fn attempt(&self, group: &TransactionBatch, _: Locks) -> Attempt {
        self.takes_a_while().await;
        match self.chance.below(12) {
            // Never arrives.
            0 => Attempt::InDoubt("lost on the way there".into()),
            // Arrives, and the response is lost.
            1 => {
                drop(self.run(group));
                Attempt::InDoubt("lost on the way back".into())
            }
            // Arrives long after its sender has given up.
            2 => {
                let (late, group, wait) = (self.clone(), group.clone(), self.chance.below(3_000));
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(wait)).await;
                    drop(late.run(&group));
                });
                Attempt::InDoubt("late".into())
            }
            3 => Attempt::Undone(Trouble::Crowded(1)),
            4 => Attempt::Locked("a locked row".into()),
            _ => {
                let attempt = self.run(group);
                self.takes_a_while().await;
                attempt
            }
        }
    }

    async fn fence_states(&self, _: Vec<i32>) -> Result<Fences, Trouble> {
        self.takes_a_while().await;
        Ok(self.lock().fences.clone())
    }

    async fn settle(&self, shards: Vec<i32>) -> Result<Fences, Trouble> {
        if self.chance.below(6) == 0 {
            return Err(Trouble::Crowded(1));
        }
        self.fence_states(shards).await
    }
}

/// One node with its own queue and overlay.
struct Node {
    bench: Arc<CommitContext<Sim>>,
    /// The shards that its owners believe to own.
    owned: HashMap<u16, FenceState>,
}

impl Node {
    fn start(sim: &Sim) -> Self {
        let bench = Arc::new(CommitContext {
            queue: Queue::default(),
            overlay: Overlay::default(),
            database: sim.clone(),
            down: AtomicBool::new(false),
            locked: Locked::default(),
            locked_of_nodes: Locked::default(),
        });
        for serves in [Serves::Others, Serves::Others, Serves::Nodes] {
            tokio::spawn(committer::run(Arc::clone(&bench), serves));
        }
        Self { bench, owned: HashMap::new() }
    }

    fn commit(&self, batch: Batch) -> Commit {
        let (answer, durable) = oneshot::channel();
        match self.bench.queue.push(PendingBatch::new(batch, answer).unwrap(), &self.bench.overlay) {
            Ok(()) => durable.map(Result::unwrap).boxed(),
            Err(error) => std::future::ready(Err(error)).boxed(),
        }
    }

    async fn scan(&self, shard: u16) -> Vec<Row> {
        let sim = &self.bench.database;
        let stored = |wider: Vec<Scan>| async move {
            sim.takes_a_while().await;
            Ok(wider.iter().map(|scan| sim.scan(scan)).collect())
        };
        reads::scan_over(&self.bench.overlay, &[all(shard)], stored).await.unwrap().remove(0)
    }
}

/// The pending answer of a batch.
type CommitTask = tokio::task::JoinHandle<Result<(), Error>>;

/// One run of a seed.
struct Run {
    sim: Sim,
    nodes: Vec<Node>,
    /// Fences that were issued earlier, as a host move carries them: most are stale by the time they are used.
    old: Vec<(u16, FenceState)>,
    sent: Vec<(Vec<u8>, CommitTask)>,
    values: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let sim = Sim { tables: Arc::default(), chance: Chance(Arc::new(Mutex::new(seed))) };
        let nodes = vec![Node::start(&sim), Node::start(&sim)];
        Self { sim, nodes, old: Vec::new(), sent: Vec::new(), values: 0 }
    }

    /// A node takes a shard, and reads it as a new owner does. Meanwhile its old batches are still in flight, and
    /// holders of stale fences send more.
    async fn own(&mut self, at: usize, shard: u16) {
        let fence_state = self.sim.own(ShardId(shard));
        // The response takes a moment, during which the old owner keeps sending.
        if self.sim.chance.below(2) == 0 {
            self.send_old(at);
        }
        self.sim.takes_a_while().await;
        let node = &self.nodes[at];
        node.bench.queue.supersede(ShardId(shard), fence_state, &node.bench.overlay);
        if self.sim.chance.below(2) == 0 {
            self.send_old(at);
        }
        let found = self.nodes[at].scan(shard).await;
        assert_eq!(found, self.sim.scan(&all(shard)), "a new owner reads what the database does not have");
        if let Some(before) = self.nodes[at].owned.insert(shard, fence_state) {
            self.old.push((shard, before));
        }
    }

    /// A row that other batches write too, and one that identifies this batch.
    fn writes(&mut self, shard: u16, name: &str) -> ([Write; 2], Vec<u8>) {
        self.values += 1;
        let mark = format!("batch {}", self.values).into_bytes();
        let own = Write { key: key(shard, &mark), value: Some(mark.clone()) };
        ([Write { key: key(shard, name), value: Some([&mark[..], b" shared"].concat()) }, own], mark)
    }

    fn name(&self) -> String {
        self.sim.chance.below(NAMES).to_string()
    }

    /// An owner commits, under one fence or two.
    fn send(&mut self, at: usize, shard: u16, both: bool) {
        let mut fences = Vec::new();
        for shard in [Some(shard), both.then_some((shard + 1) % SHARDS)].into_iter().flatten() {
            let Some(fence_state) = self.nodes[at].owned.get_mut(&shard) else { return };
            fence_state.seq += 1;
            fences.push((shard, fence_state.epoch, fence_state.seq));
        }
        let name = self.name();
        let (writes, mark) = self.writes(shard, &name);
        let (shared, epoch) = (writes[0].clone(), fences[0].1);
        let answer = self.nodes[at].commit(fenced(fences, writes));
        self.keep(mark, answer);
        let held = self.sim.lock().fences.state(ShardId(shard)).epoch == epoch;
        if self.sim.chance.below(3) == 0 && held {
            // Nothing else reads or writes here meanwhile, so the owner must find its own write, unless it was refused.
            let shown = self.nodes[at].bench.overlay.get(&[shared.key]).0.remove(0);
            assert!(
                shown.is_none_or(|shown| shown.as_deref() == shared.value.as_deref()),
                "an owner reads its own batches"
            );
        }
    }

    /// Sends a batch under a fence that was issued earlier.
    fn send_old(&mut self, at: usize) {
        let Some((shard, fence_state)) = self.old.last().copied() else { return };
        let name = self.name();
        let (writes, mark) = self.writes(shard, &name);
        let answer = self.nodes[at].commit(fenced([(shard, fence_state.epoch, fence_state.seq + 1)], writes));
        self.keep(mark, answer);
    }

    /// A change without a fence.
    fn send_swap(&mut self, at: usize) {
        let row = key(u16::MAX, "role");
        let stored = self.sim.lock().rows.get(&row).cloned();
        let (writes, mark) = self.writes(u16::MAX, "role");
        let answer = self.nodes[at].commit(Batch { expects: vec![(row, stored)], ..batch(writes) });
        self.keep(mark, answer);
    }

    fn keep(&mut self, mark: Vec<u8>, answer: Commit) {
        self.sent.push((mark, tokio::spawn(answer)));
    }

    async fn go(&mut self) -> [usize; 3] {
        for _ in 0..STEPS {
            let (at, shard) = (self.sim.chance.below(2) as usize, self.sim.chance.below(SHARDS.into()) as u16);
            match self.sim.chance.below(10) {
                0 | 1 => self.own(at, shard).await,
                2 => self.send_old(at),
                3 => self.send_swap(at),
                4 => self.sim.takes_a_while().await,
                5 => self.send(at, shard, true),
                _ => self.send(at, shard, false),
            }
        }
        let mut counts = [0; 3];
        let mut answers = Vec::new();
        for (value, answer) in std::mem::take(&mut self.sent) {
            answers.push((value, answer.await.unwrap()));
        }
        // Until everything delayed has arrived.
        tokio::time::sleep(Duration::from_secs(60)).await;
        for (value, answer) in answers {
            let written = self.sim.lock().written.get(&value).copied().unwrap_or(0);
            let (kind, true_word) = match &answer {
                Ok(()) => (0, written == 1),
                Err(Error::OutcomeUnknown(_)) => (1, written <= 1),
                Err(_) => (2, written == 0),
            };
            assert!(true_word, "written {written} times, and answered {answer:?}");
            counts[kind] += 1;
        }
        counts
    }
}

#[test]
fn reads_and_answers_are_true_for_every_seed() {
    let mut counts = [0; 3];
    for seed in 0..SEEDS {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let run = std::panic::AssertUnwindSafe(|| runtime.block_on(async { Run::new(seed).go().await }));
        let Ok(found) = std::panic::catch_unwind(run) else { panic!("seed {seed} breaks a promise") };
        for (sum, count) in counts.iter_mut().zip(found) {
            *sum += count;
        }
    }
    let [done, unknown, refused] = counts;
    assert!(done > 1_000 && unknown > 50 && refused > 1_000, "too little happened: {counts:?}");
}
