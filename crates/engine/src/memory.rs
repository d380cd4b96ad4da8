//! The in-memory engine: the reference for the conformance suite, and the store into which the simulator injects
//! faults.
//!
//! Visibility and durability are separate: a stepped engine makes batches durable only on request, and
//! [`Memory::crash`] keeps what a real crash would keep, a prefix of the batches in commit order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use tokio::sync::oneshot;
use wayleave_core::ids::{Epoch, ShardId};
use wayleave_core::time::Time;

use crate::clock::Clock;
use crate::fences::{FenceState, Fences};
use crate::{Batch, Commit, Engine, Error, Expect, Key, Look, Pending, Row, Scan, Value};

/// An engine that loses everything when it is dropped.
pub struct Memory {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    rows: BTreeMap<Key, Value>,
    fences: Fences,
    /// The latest time returned, so that a clock that steps back stays invisible.
    last: Time,
    /// The incarnation; changes with [`Memory::fail_over`].
    incarnation: u64,
    /// Whether batches become durable only on request.
    stepped: bool,
    /// Batches that are visible but not durable, in commit order.
    waiting: VecDeque<Waiting>,
    /// While set, every call is refused with this reason.
    outage: Option<String>,
    refusals: VecDeque<Error>,
    lost_answers: VecDeque<LostAnswer>,
    /// Rows that cannot be read.
    damaged: BTreeSet<Key>,
    /// Why no new URLs are wanted.
    no_growth: Option<String>,
}

/// A batch that is visible but not durable, with its undo record.
struct Waiting {
    rows: Vec<(Key, Option<Value>)>,
    fence_states: Vec<(ShardId, FenceState)>,
    done: oneshot::Sender<Result<(), Error>>,
}

/// What actually happens to a batch whose response is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostAnswer {
    /// It was applied.
    Applied,
    /// It never arrived.
    Dropped,
}

impl Memory {
    /// An engine in which every batch is durable at once.
    #[must_use]
    pub fn new(clock: impl Clock) -> Self {
        Self { clock: Arc::new(clock), state: Mutex::default() }
    }

    /// An engine in which batches become durable only through [`Memory::make_durable`].
    #[must_use]
    pub fn stepped(clock: impl Clock) -> Self {
        let state = State { stepped: true, ..State::default() };
        Self { clock: Arc::new(clock), state: Mutex::new(state) }
    }

    /// The number of batches that are visible but not durable.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Makes the oldest `count` pending batches durable and resolves them. Returns how many there were.
    pub fn make_durable(&self, count: usize) -> usize {
        let mut state = self.lock();
        let count = count.min(state.waiting.len());
        let durable: Vec<Waiting> = state.waiting.drain(..count).collect();
        drop(state);
        for batch in durable {
            // The receiver may be gone; the batch is durable anyway.
            let _ = batch.done.send(Ok(()));
        }
        count
    }

    /// Simulates a power cut and returns the engine that starts afterwards, with the durable batches only. Pending
    /// commits of the old engine resolve as unknown, and it refuses every further call.
    #[must_use]
    pub fn crash(&self) -> Self {
        let mut state = self.lock();
        while let Some(batch) = state.waiting.pop_back() {
            state.put_back(batch.rows, batch.fence_states);
            let _ = batch.done.send(Err(Error::OutcomeUnknown("the store crashed".into())));
        }
        let next = State {
            rows: std::mem::take(&mut state.rows),
            fences: std::mem::take(&mut state.fences),
            last: state.last,
            incarnation: state.incarnation,
            stepped: state.stepped,
            damaged: std::mem::take(&mut state.damaged),
            ..State::default()
        };
        state.outage = Some("the store crashed; open it again".into());
        Self { clock: Arc::clone(&self.clock), state: Mutex::new(next) }
    }

    /// Simulates a failover to another store instance with the same rows.
    pub fn fail_over(&self) {
        self.lock().incarnation += 1;
    }

    /// Refuses every call as unavailable, until [`Memory::end_outage`].
    pub fn begin_outage(&self, why: &str) {
        self.lock().outage = Some(why.into());
    }

    /// Ends an outage.
    pub fn end_outage(&self) {
        self.lock().outage = None;
    }

    /// Reads of the rows for which this holds fail as corrupt, until they are written anew or [`Memory::repair`]. Returns how many
    /// there are.
    pub fn damage(&self, is_bad: impl Fn(&Key) -> bool) -> usize {
        let mut state = self.lock();
        let bad: Vec<Key> = state.rows.keys().filter(|key| is_bad(key)).cloned().collect();
        let count = bad.len();
        state.damaged.extend(bad);
        count
    }

    /// All rows can be read again.
    pub fn repair(&self) {
        self.lock().damaged.clear();
    }

    /// Sets why no new URLs are wanted.
    pub fn refuse_growth(&self, why: Option<&str>) {
        self.lock().no_growth = why.map(str::to_owned);
    }

    /// The next call, whichever it is, fails with this error and changes nothing. Repeated calls queue up.
    pub fn fail_next(&self, error: Error) {
        self.lock().refusals.push_back(error);
    }

    /// The next commit that would succeed is answered as unknown, whatever actually happens to it.
    pub fn lose_next_answer(&self, truth: LostAnswer) {
        self.lock().lost_answers.push_back(truth);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in a test must not be masked by a second one. Every change below is complete or not begun.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_own(&self, shard: ShardId, expects: &[Expect]) -> Result<(FenceState, Commit), Error> {
        let mut state = self.lock();
        state.refuse()?;
        state.check(expects)?;
        let old = state.fences.state(shard);
        let new = FenceState { epoch: Epoch(old.epoch.0.saturating_add(1)), seq: old.seq };
        state.fences.set(shard, new);
        Ok((new, state.settle(Vec::new(), vec![(shard, old)])))
    }

    fn try_commit(&self, batch: Batch) -> Result<Commit, Error> {
        let mut state = self.lock();
        state.refuse()?;
        let fence_states = state.fences.check(&batch.fences)?;
        state.check(&batch.expects)?;
        let lost = state.lost_answers.pop_front();
        if lost == Some(LostAnswer::Dropped) {
            return Err(Error::OutcomeUnknown("the answer was lost".into()));
        }
        let old_states = fence_states.iter().map(|(shard, _)| (*shard, state.fences.state(*shard))).collect();
        for (shard, fence_state) in fence_states {
            state.fences.set(shard, fence_state);
        }
        let mut old_rows = Vec::new();
        for write in batch.writes {
            // What is written anew can be read, as in a store that never overwrites.
            state.damaged.remove(&write.key);
            let old = match write.value {
                Some(value) => state.rows.insert(write.key.clone(), value),
                None => state.rows.remove(&write.key),
            };
            if state.stepped {
                old_rows.push((write.key, old));
            }
        }
        let commit = state.settle(old_rows, old_states);
        match lost {
            // The caller gives up only after the time that a response would have taken.
            Some(_) => Ok(commit.map(|_| Err(Error::OutcomeUnknown("the answer was lost".into()))).boxed()),
            None => Ok(commit),
        }
    }

    fn try_scan(&self, scans: &[Scan]) -> Result<Vec<Vec<Row>>, Error> {
        let mut state = self.lock();
        state.refuse()?;
        let found: Vec<Vec<Row>> = scans.iter().map(|scan| state.scan(scan)).collect();
        found.iter().flatten().try_for_each(|row| state.check_readable(&row.key))?;
        Ok(found)
    }

    fn try_past_damage(&self, scan: &Scan) -> Result<(Key, Vec<Row>), Error> {
        let mut state = self.lock();
        state.refuse()?;
        let (mut last, mut next) = (&scan.from, &scan.to);
        let rows = state.scan(&Scan { limit: usize::MAX, ..scan.clone() });
        for row in &rows {
            if state.check_readable(&row.key).is_ok() {
                next = &row.key;
                break;
            }
            last = &row.key;
        }
        // Only as much of the key as is behind the damage: an engine need not know the next one.
        let ends = (1..=next.len()).filter_map(|len| next.get(..len));
        let end = ends.into_iter().find(|end| *end > last.as_slice()).unwrap_or(next);
        Ok((end.to_vec(), Vec::new()))
    }

    fn try_look(&self, scans: &[Scan]) -> Result<Look, Error> {
        let now = self.now();
        let mut state = self.lock();
        state.refuse()?;
        let rows: Vec<Vec<Row>> = scans.iter().map(|scan| state.scan_durable(scan)).collect();
        rows.iter().flatten().try_for_each(|row| state.check_readable(&row.key))?;
        Ok(Look { now, incarnation: state.incarnation, steady_since: Time::ZERO, rows })
    }

    fn try_get(&self, keys: &[Key]) -> Result<Vec<Option<Value>>, Error> {
        let mut state = self.lock();
        state.refuse()?;
        keys.iter().try_for_each(|key| state.check_readable(key))?;
        Ok(keys.iter().map(|key| state.rows.get(key).cloned()).collect())
    }
}

impl State {
    fn refuse(&mut self) -> Result<(), Error> {
        if let Some(why) = &self.outage {
            return Err(Error::Unavailable(why.clone()));
        }
        self.refusals.pop_front().map_or(Ok(()), Err)
    }

    fn check_readable(&self, key: &Key) -> Result<(), Error> {
        if self.damaged.contains(key) { Err(Error::Corrupt("the row is damaged".to_owned())) } else { Ok(()) }
    }

    fn check(&self, expects: &[Expect]) -> Result<(), Error> {
        let holds = expects.iter().all(|(key, value)| self.rows.get(key) == value.as_ref());
        if holds { Ok(()) } else { Err(Error::Conflict) }
    }

    fn scan(&self, scan: &Scan) -> Vec<Row> {
        // `BTreeMap::range` panics if the end is before the start; for callers such a range is empty.
        if scan.from >= scan.to {
            return Vec::new();
        }
        let range = self.rows.range::<Key, _>(&scan.from..&scan.to);
        range.take(scan.limit).map(|(key, value)| Row { key: key.clone(), value: value.clone() }).collect()
    }

    /// The rows as a crash at this moment would leave them: other nodes must not act on what may still be lost.
    fn scan_durable(&self, scan: &Scan) -> Vec<Row> {
        let mut before: BTreeMap<&Key, Option<&Value>> = BTreeMap::new();
        for (key, old) in self.waiting.iter().flat_map(|batch| &batch.rows) {
            if scan.from <= *key && *key < scan.to {
                before.entry(key).or_insert(old.as_ref());
            }
        }
        let mut rows = self.scan(&Scan { limit: scan.limit.saturating_add(before.len()), ..scan.clone() });
        rows.retain(|row| !before.contains_key(&row.key));
        let old = before.into_iter().filter_map(|(key, value)| Some(Row { key: key.clone(), value: value?.clone() }));
        rows.extend(old);
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        rows.truncate(scan.limit);
        rows
    }

    /// Answers a batch that was just applied: at once, or when it becomes durable.
    fn settle(&mut self, rows: Vec<(Key, Option<Value>)>, fence_states: Vec<(ShardId, FenceState)>) -> Commit {
        if !self.stepped {
            return std::future::ready(Ok(())).boxed();
        }
        let (done, answer) = oneshot::channel();
        self.waiting.push_back(Waiting { rows, fence_states, done });
        answer
            .map(|answer| answer.unwrap_or_else(|_| Err(Error::OutcomeUnknown("the store was closed".into()))))
            .boxed()
    }

    /// Undoes a batch, newest change first, so that a key written twice gets its original value back.
    fn put_back(&mut self, rows: Vec<(Key, Option<Value>)>, fence_states: Vec<(ShardId, FenceState)>) {
        for (key, old) in rows.into_iter().rev() {
            match old {
                Some(value) => self.rows.insert(key, value),
                None => self.rows.remove(&key),
            };
        }
        for (shard, fence_state) in fence_states {
            self.fences.set(shard, fence_state);
        }
    }
}

impl Engine for Memory {
    fn now(&self) -> Time {
        let mut state = self.lock();
        state.last = state.last.max(self.clock.read());
        state.last
    }

    fn own<'a>(&'a self, shard: ShardId, expects: &'a [Expect]) -> Pending<'a, (Epoch, u64)> {
        match self.try_own(shard, expects) {
            Ok((fence_state, durable)) => {
                durable.map(move |done| done.map(|()| (fence_state.epoch, fence_state.seq))).boxed()
            }
            Err(error) => std::future::ready(Err(error)).boxed(),
        }
    }

    fn get_many<'a>(&'a self, keys: &'a [Key]) -> Pending<'a, Vec<Option<Value>>> {
        std::future::ready(self.try_get(keys)).boxed()
    }

    fn scan_many<'a>(&'a self, scans: &'a [Scan]) -> Pending<'a, Vec<Vec<Row>>> {
        std::future::ready(self.try_scan(scans)).boxed()
    }

    fn past_damage<'a>(&'a self, scan: &'a Scan) -> Pending<'a, (Key, Vec<Row>)> {
        std::future::ready(self.try_past_damage(scan)).boxed()
    }

    fn look<'a>(&'a self, scans: &'a [Scan]) -> Pending<'a, Look> {
        std::future::ready(self.try_look(scans)).boxed()
    }

    fn refuses_growth(&self) -> Option<String> {
        self.lock().no_growth.clone()
    }

    fn commit(&self, batch: Batch) -> Commit {
        self.try_commit(batch).unwrap_or_else(|error| std::future::ready(Err(error)).boxed())
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
