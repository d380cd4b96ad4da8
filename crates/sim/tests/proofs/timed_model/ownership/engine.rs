//! The engine of the model: rows in bytes, fences checked by the shared function, one clock that may step.

use wayleave_engine::fences::{FenceState, Fences};
use wayleave_engine::rows::key::OUTSIDE;
use wayleave_engine::{Error, Expect, Key, Look, Value};

use super::frozen::Frozen;
use crate::prelude::*;

/// The engine's clock at the start of the model.
pub const NOON: u64 = 1_000_000;

pub type Rows = BTreeMap<Key, Value>;

/// How the engine checks a batch against its fences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fencing {
    /// Epoch and sequence number, in the transaction that applies the batch: the contract.
    Whole,
    /// Not at all.
    Never,
    /// By reading, before the transaction that applies the batch.
    ReadBefore,
    /// The epoch alone.
    EpochOnly,
}

/// A batch, in a hashable form.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Asked {
    pub fences: Vec<(u16, u64, u64)>,
    expects: Vec<Expect>,
    writes: Vec<(Key, Option<Value>)>,
}

impl From<Batch> for Asked {
    fn from(batch: Batch) -> Self {
        Self {
            fences: batch.fences.into_iter().map(|fence| (fence.shard.0, fence.epoch.0, fence.seq)).collect(),
            expects: batch.expects,
            writes: batch.writes.into_iter().map(|write| (write.key, write.value)).collect(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Store {
    /// Rows of nodes and seats.
    outside: Frozen<Rows>,
    shards: Vec<Frozen<Rows>>,
    /// Epoch and sequence number of the last commit, by shard.
    turns: Vec<(u64, u64)>,
    /// By how much its clock has stepped.
    pub offset_ms: u64,
}

/// The rows of nodes and seats at a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Glance {
    pub now: Time,
    /// Since when the node that looks knows that the engine's clock runs evenly.
    pub steady_since: Time,
    rows: Frozen<Rows>,
}

impl Glance {
    /// As [`wayleave_engine::Engine::look`].
    pub fn look(&self, scans: &[Scan]) -> Look {
        let row = |(key, value): (&Key, &Value)| Row { key: key.clone(), value: value.clone() };
        let rows = |scan: &Scan| self.rows.range::<Key, _>(&scan.from..&scan.to).take(scan.limit).map(row).collect();
        Look { now: self.now, incarnation: 0, steady_since: self.steady_since, rows: scans.iter().map(rows).collect() }
    }

    pub fn row(&self, key: &Key) -> Option<Value> {
        self.rows.get(key).cloned()
    }
}

impl Store {
    /// Shards with these rows, each owned once.
    pub fn new(shards: Vec<Rows>, outside: Rows) -> Self {
        let turns = vec![(1, 0); shards.len()];
        Self {
            outside: Frozen::new(outside),
            shards: shards.into_iter().map(Frozen::new).collect(),
            turns,
            offset_ms: 0,
        }
    }

    pub fn now(&self, real_ms: u64) -> Time {
        Time(NOON + real_ms + self.offset_ms)
    }

    pub fn shard(&self, shard: ShardId) -> &Frozen<Rows> {
        &self.shards[usize::from(shard.0)]
    }

    /// The epoch of a shard and the number of its last commit.
    pub fn turn(&self, shard: ShardId) -> (u64, u64) {
        self.turns[usize::from(shard.0)]
    }

    /// The rows of a shard as they would be after some batches.
    pub fn shard_with<'a>(&self, shard: ShardId, batches: impl Iterator<Item = &'a Asked>) -> Frozen<Rows> {
        let mut rows = self.shard(shard).clone();
        for asked in batches {
            let here = asked.writes.iter().filter(|(key, _)| key.starts_with(&shard.0.to_be_bytes()));
            let mut new = Rows::clone(&rows);
            here.for_each(|(key, value)| set(&mut new, key, value.as_ref()));
            rows = Frozen::new(new);
        }
        rows
    }

    pub fn glance(&self, real_ms: u64) -> Glance {
        Glance { now: self.now(real_ms), steady_since: Time::ZERO, rows: self.outside.clone() }
    }

    /// As [`wayleave_engine::Engine::own`]: increments the epoch, unless an expectation does not hold.
    pub fn own(&mut self, shard: ShardId, expects: &[Expect]) -> Result<(u64, u64), Error> {
        self.expect(expects)?;
        let turn = &mut self.turns[usize::from(shard.0)];
        turn.0 += 1;
        Ok(*turn)
    }

    /// Whether a batch would be applied; it is not.
    pub fn check(&self, asked: &Asked, fencing: Fencing) -> Result<(), Error> {
        match fencing {
            Fencing::Never => {}
            Fencing::EpochOnly => {
                let old = |(shard, epoch, _): &&(u16, u64, u64)| self.turns[usize::from(*shard)].0 != *epoch;
                if let Some((shard, epoch, seq)) = asked.fences.iter().find(old) {
                    return Err(Error::Fenced { shard: *shard, epoch: *epoch, seq: *seq });
                }
            }
            Fencing::Whole | Fencing::ReadBefore => {
                let mut fences = Fences::default();
                for (shard, (epoch, seq)) in (0u16..).zip(&self.turns) {
                    fences.set(ShardId(shard), FenceState { epoch: Epoch(*epoch), seq: *seq });
                }
                let fence = |(shard, epoch, seq): &(u16, u64, u64)| Fence {
                    shard: ShardId(*shard),
                    epoch: Epoch(*epoch),
                    seq: *seq,
                };
                fences.check(&asked.fences.iter().map(fence).collect::<Vec<_>>())?;
            }
        }
        self.expect(&asked.expects)
    }

    /// Applies a batch that was checked, now or long ago.
    pub fn apply(&mut self, asked: &Asked) {
        for (shard, _, seq) in &asked.fences {
            self.turns[usize::from(*shard)].1 = *seq;
        }
        let shards = self.shards.len();
        let place = |key: &Key| usize::from(u16::from_be_bytes([key[0], key[1]])).min(shards);
        for (at, rows) in self.shards.iter_mut().chain([&mut self.outside]).enumerate() {
            let here: Vec<_> = asked.writes.iter().filter(|(key, _)| place(key) == at).collect();
            if !here.is_empty() {
                let mut new = Rows::clone(rows);
                here.into_iter().for_each(|(key, value)| set(&mut new, key, value.as_ref()));
                *rows = Frozen::new(new);
            }
        }
    }

    fn expect(&self, expects: &[Expect]) -> Result<(), Error> {
        let holds = |(key, value): &Expect| self.outside.get(key) == value.as_ref();
        assert!(expects.iter().all(|(key, _)| key.starts_with(&OUTSIDE.0.to_be_bytes())), "only seats are expected");
        if expects.iter().all(holds) { Ok(()) } else { Err(Error::Conflict) }
    }
}

/// The rows after some writes.
pub fn after(rows: &Rows, writes: &[Write]) -> Rows {
    let mut rows = rows.clone();
    writes.iter().for_each(|write| set(&mut rows, &write.key, write.value.as_ref()));
    rows
}

fn set(rows: &mut Rows, key: &Key, value: Option<&Value>) {
    match value {
        Some(value) => rows.insert(key.clone(), value.clone()),
        None => rows.remove(key),
    };
}
