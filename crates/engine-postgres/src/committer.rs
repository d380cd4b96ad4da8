//! The committers: merge queued batches into one transaction, bisect it when it is refused, and resolve its outcome
//! when the connection breaks.
//!
//! **A lost response.** The fence makes a retry idempotent: whichever of the two attempts arrives first advances the
//! fence, and the other is refused. So a fenced transaction is simply sent again. If the retry is refused, it has met
//! either its own first attempt, which the fence row shows by its sequence number under our epoch, or another owner.
//! Only where another owner has already passed our sequence number is the outcome unknown.
//!
//! **A locked row.** A foreign session may hold row locks indefinitely, and any number of them. So a transaction first
//! waits only briefly for locks. Bisection then finds the batches that need locked rows. They leave the committer, and a
//! task of their own tries them again and again, each with hardly any wait, for as long as their callers have patience. So
//! a locked row never occupies a connection. The tries of owners and those of compare-and-swaps have permits of their own: a
//! session that locks the rows of thousands of roles does not keep a shard waiting that it has locked out once. The rows that were found locked are remembered for a while: later batches
//! that need them go to such a task at once.
//!
//! Interleavings, of batches A and B that need one row, and C that does not:
//!
//! 1. (A, C are sent together) (A is locked out): C is committed by bisection. B stays in the queue, because A's lane is
//!    busy until it is answered.
//! 2. (A, B are sent together) (A is locked out): B is locked out too, or behind A in its task, and not sent before A is answered.
//! 3. (A waits in its task) (the row is released): A's next try commits it, then B.
//! 4. (A was answered "unavailable") (B is sent while the row is still remembered as locked): B goes to a task at once; its
//!    first try commits it if the row is free, and the row is forgotten.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;
use wayleave_core::ids::{Epoch, ShardId};
use wayleave_engine::Error;
use wayleave_engine::fences::FenceState;

use crate::overlay::Overlay;
use crate::pending_batch::{BatchKind, OrderKey, PendingBatch};
use crate::queue::{Queue, Serves};
use crate::transaction::{Attempt, Locks};
use crate::transaction_batch::TransactionBatch;
use crate::trouble::{Class, LOCKED_REMEDY, Trouble};
use crate::wire::Database;

/// How long a commit is retried, from the first error on. Callers wait meanwhile, and then get "unavailable".
const PATIENCE: Duration = Duration::from_millis(2_500);
/// The same for a commit that may have been applied: learning its outcome is worth a longer wait.
const PATIENCE_IN_DOUBT: Duration = Duration::from_secs(5);
/// How long a batch waits for locked rows.
const PATIENCE_FOR_LOCKS: Duration = Duration::from_secs(4);
/// How often a transaction is bisected because of locked rows; what remains is then tried batch by batch.
const LOCK_TRIES: u32 = 40;
/// For how long a row is remembered that was found locked.
const LOCKED_FOR: Duration = Duration::from_secs(10);
/// How many of the batches of a kind that wait for locked rows are tried at once, each with a connection.
pub(crate) const TRIED_AT_ONCE: usize = 2;
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// What a committer works with.
pub(crate) struct CommitContext<D> {
    pub(crate) queue: Queue,
    pub(crate) overlay: Overlay,
    pub(crate) database: D,
    /// Set when the database was unreachable for longer than our patience: until it is back, commits are tried once.
    pub(crate) down: AtomicBool,
    /// For batches of owners and roles.
    pub(crate) locked: Locked,
    /// For batches about nodes: other rows, however many are locked, do not delay them.
    pub(crate) locked_of_nodes: Locked,
}

/// What is known of locked rows.
pub(crate) struct Locked {
    /// The lanes of batches that were locked out, and when last.
    lanes: Mutex<HashMap<OrderKey, Instant>>,
    /// Permits for trying batches again, by kind: the committers always find a connection.
    tries: [Semaphore; 3],
}

impl Default for Locked {
    fn default() -> Self {
        Self { lanes: Mutex::default(), tries: std::array::from_fn(|_| Semaphore::new(TRIED_AT_ONCE)) }
    }
}

impl Locked {
    const fn tries(&self, kind: BatchKind) -> &Semaphore {
        let [owners, swaps, nodes] = &self.tries;
        match kind {
            BatchKind::Owners => owners,
            BatchKind::CompareAndSwaps => swaps,
            BatchKind::Nodes => nodes,
        }
    }

    /// The lanes that are probably locked.
    fn lanes(&self) -> HashSet<OrderKey> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.retain(|_, last| last.elapsed() < LOCKED_FOR);
        lanes.keys().copied().collect()
    }

    /// A batch alone was locked out, or not.
    fn note(&self, pending: &PendingBatch, is_locked: bool) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        for lane in &pending.lanes {
            if is_locked {
                lanes.insert(*lane, Instant::now());
            } else {
                lanes.remove(lane);
            }
        }
    }
}

/// The outcome of batches that were sent together.
enum Verdict {
    Done,
    /// At least one of them is at fault.
    Refused(Error),
    /// All of them failed, for a reason that is not theirs.
    Failed(Error),
    /// Another session has locked a row that one of them needs. Nothing was changed.
    Locked(String),
}

/// What the fence rows say about a transaction whose response was lost.
enum Trace {
    Applied,
    NotApplied,
    Unclear,
}

/// Commits until the queue is closed and empty.
pub(crate) async fn run<D: Database>(bench: Arc<CommitContext<D>>, serves: Serves) {
    while let Some(batches) = bench.queue.next(serves).await {
        let stuck = bench.commit(batches, serves).await;
        if !stuck.is_empty() {
            let bench = Arc::clone(&bench);
            tokio::spawn(async move { bench.wait_for_locks(stuck, serves).await });
        }
    }
}

impl<D: Database> CommitContext<D> {
    const fn locked(&self, serves: Serves) -> &Locked {
        match serves {
            Serves::Nodes => &self.locked_of_nodes,
            Serves::Others => &self.locked,
        }
    }

    /// Commits batches that fit together and answers each with its true outcome, in order. If they are refused as a
    /// whole, bisection finds the one at fault. Returns the batches that need locked rows, and those behind them,
    /// unanswered.
    async fn commit(&self, batches: Vec<Arc<PendingBatch>>, serves: Serves) -> Vec<Arc<PendingBatch>> {
        let mut parts = vec![batches];
        let mut stuck = Vec::new();
        let mut held = self.locked(serves).lanes();
        let (mut locks, mut patience) = (Locks::Brief, LOCK_TRIES);
        while let Some(part) = parts.pop() {
            let (behind, mut part): (Vec<_>, Vec<_>) =
                part.into_iter().partition(|pending| is_behind(&mut held, pending));
            stuck.extend(behind);
            if part.is_empty() {
                continue;
            }
            match self.push_through(&part, locks).await {
                Verdict::Done => self.answer(&part, &Ok(())),
                Verdict::Locked(_) if part.len() == 1 || patience == 0 => {
                    held.extend(part.iter().flat_map(|pending| &pending.lanes));
                    stuck.append(&mut part);
                }
                verdict @ (Verdict::Refused(_) | Verdict::Locked(_)) if part.len() > 1 => {
                    if matches!(verdict, Verdict::Locked(_)) {
                        // Some row has been locked for long enough. Who is locked out by chance is soon tried again.
                        (locks, patience) = (Locks::Try, patience - 1);
                    }
                    let second = part.split_off(part.len() / 2);
                    parts.extend([second, part]);
                }
                Verdict::Refused(error) | Verdict::Failed(error) => self.answer(&part, &Err(error)),
                Verdict::Locked(why) => self.answer(&part, &Err(Error::Unavailable(why))),
            }
        }
        // A batch that was known to be behind another one was set aside before those that precede it were tried.
        stuck.sort_unstable_by_key(|pending| pending.number);
        stuck
    }

    /// Tries batches one by one, again and again, until each is answered. A batch behind one that failed fails too: its fence
    /// can no longer hold, or it needs the same row.
    async fn wait_for_locks(&self, mut batches: Vec<Arc<PendingBatch>>, serves: Serves) {
        let (locked, since) = (self.locked(serves), Instant::now());
        let mut failed: Vec<(Arc<PendingBatch>, Error)> = Vec::new();
        let mut pause = PAUSE;
        while !batches.is_empty() {
            let mut held = HashSet::new();
            let mut left = Vec::new();
            for pending in batches {
                if is_behind(&mut held, &pending) {
                    left.push(pending);
                    continue;
                }
                let before =
                    failed.iter().find(|(other, _)| pending.lanes.iter().any(|lane| other.lanes.contains(lane)));
                let outcome = match before {
                    Some((_, error)) => Err(error.clone()),
                    None => match self.try_alone(&pending, locked, since).await {
                        Verdict::Locked(_) if since.elapsed() < PATIENCE_FOR_LOCKS => {
                            held.extend(&pending.lanes);
                            left.push(pending);
                            continue;
                        }
                        Verdict::Done => Ok(()),
                        Verdict::Refused(error) | Verdict::Failed(error) => Err(error),
                        Verdict::Locked(why) => Err(Error::Unavailable(why)),
                    },
                };
                if let Err(error) = &outcome {
                    // The batches behind it were never sent.
                    let unsent = Error::Unavailable(format!("an earlier commit failed: {error}"));
                    failed.push((Arc::clone(&pending), unsent));
                }
                self.answer(&[pending], &outcome);
            }
            batches = left;
            if !batches.is_empty() {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }

    async fn try_alone(&self, pending: &Arc<PendingBatch>, locked: &Locked, since: Instant) -> Verdict {
        // Never closed.
        let _permit = locked.tries(pending.kind).acquire().await;
        if since.elapsed() >= PATIENCE_FOR_LOCKS {
            return Verdict::Locked(format!("rows were locked for too long{LOCKED_REMEDY}"));
        }
        let verdict = self.push_through(std::slice::from_ref(pending), Locks::Try).await;
        locked.note(pending, matches!(verdict, Verdict::Locked(_)));
        verdict
    }

    fn answer(&self, batches: &[Arc<PendingBatch>], outcome: &Result<(), Error>) {
        for pending in batches {
            self.overlay.remove(pending);
            pending.answer(outcome.clone());
        }
        self.queue.done(batches);
    }

    async fn push_through(&self, batches: &[Arc<PendingBatch>], locks: Locks) -> Verdict {
        let Some(group) = TransactionBatch::merge(batches) else { return self.refuse(batches).await };
        if group.is_empty() {
            return Verdict::Done;
        }
        let mut tries = Tries::default();
        loop {
            let again = match self.database.attempt(&group, locks).await {
                Attempt::Done(_) => {
                    self.down.store(false, Ordering::Relaxed);
                    return Verdict::Done;
                }
                Attempt::Fenced if tries.unknown_outcome.is_some() => match self.trace(&group).await {
                    Ok(Trace::Applied) => return Verdict::Done,
                    Ok(Trace::NotApplied) => return self.refuse(batches).await,
                    Ok(Trace::Unclear) => return tries.give_up("another owner has already committed past it"),
                    Err(trouble) => trouble.words(),
                },
                Attempt::Fenced => return self.refuse(batches).await,
                // The first attempt may still be on its way to the database: only a fence would show its outcome.
                Attempt::Conflict if tries.unknown_outcome.is_some() => {
                    return tries.give_up("a row has changed since");
                }
                Attempt::Conflict => return Verdict::Refused(Error::Conflict),
                Attempt::Locked(why) if tries.unknown_outcome.is_none() => return Verdict::Locked(why),
                Attempt::Locked(why) => why,
                Attempt::Undone(trouble) => match trouble.class() {
                    Class::Again | Class::Lost => trouble.words(),
                    _ if trouble.is_cancelled() => trouble.words(),
                    Class::Damaged | Class::Refused if tries.unknown_outcome.is_some() => {
                        return tries.give_up(&trouble.words());
                    }
                    // Some page that one of them needs: the shards of the others are whole.
                    Class::Damaged => return Verdict::Refused(Error::Corrupt(trouble.words())),
                    Class::Refused => return Verdict::Failed(Error::Unavailable(trouble.words())),
                },
                Attempt::InDoubt(why) => {
                    tries.unknown_outcome.get_or_insert_with(|| why.clone());
                    if group.moves.is_empty() {
                        return tries.give_up("it has no fence that would show the outcome");
                    }
                    why
                }
            };
            if !tries.pause(self.down.load(Ordering::Relaxed)).await {
                self.down.store(true, Ordering::Relaxed);
                return tries.give_up(&again);
            }
        }
    }

    /// Reports which fence does not hold, as the store has it now.
    async fn refuse(&self, batches: &[Arc<PendingBatch>]) -> Verdict {
        let [pending] = batches else {
            // Bisection finds which one it is.
            return Verdict::Refused(Error::Conflict);
        };
        let shards = pending.fences.iter().map(|fence| i32::from(fence.shard.0)).collect();
        match self.database.fence_states(shards).await {
            Err(trouble) => Verdict::Failed(trouble.unchanged()),
            Ok(fence_states) => match fence_states.check(&pending.fences) {
                Err(fenced) => Verdict::Refused(fenced),
                // It did not hold before and holds now: only a store that was set back in time does that.
                Ok(_) => Verdict::Failed(Error::Unavailable("the fences have moved meanwhile".into())),
            },
        }
    }

    /// Finds out the outcome of a transaction that was refused at its second attempt.
    async fn trace(&self, group: &TransactionBatch) -> Result<Trace, Trouble> {
        let shards = group.moves.iter().map(|step| i32::from(step.shard)).collect();
        let fence_states = self.database.settle(shards).await?;
        let mut unclear = false;
        for step in &group.moves {
            let FenceState { epoch, seq } = fence_states.state(ShardId(step.shard));
            let passed = seq >= step.next.cast_unsigned();
            match (passed, epoch == Epoch(step.epoch.cast_unsigned())) {
                // No other writer uses our epoch, and fences move together.
                (true, true) => return Ok(Trace::Applied),
                (false, _) => return Ok(Trace::NotApplied),
                (true, false) => unclear = true,
            }
        }
        Ok(if unclear { Trace::Unclear } else { Trace::NotApplied })
    }
}

/// Whether a batch must wait for one that is held up; if so, so must those behind it.
fn is_behind(held: &mut HashSet<OrderKey>, pending: &PendingBatch) -> bool {
    let behind = pending.lanes.iter().any(|lane| held.contains(lane));
    if behind {
        held.extend(&pending.lanes);
    }
    behind
}

/// The attempts of one transaction.
#[derive(Default)]
struct Tries {
    since: Option<Instant>,
    pause: Option<Duration>,
    /// Why it is unknown whether an earlier attempt was applied.
    unknown_outcome: Option<String>,
}

impl Tries {
    /// Backs off before the next attempt; false if there should be none.
    async fn pause(&mut self, one_is_enough: bool) -> bool {
        let since = *self.since.get_or_insert_with(Instant::now);
        let patience = if self.unknown_outcome.is_some() { PATIENCE_IN_DOUBT } else { PATIENCE };
        if since.elapsed() > patience || (one_is_enough && self.unknown_outcome.is_none()) {
            return false;
        }
        let pause = self.pause.map_or(PAUSE, |pause| (pause * 2).min(PAUSE_MAX));
        self.pause = Some(pause);
        tokio::time::sleep(pause).await;
        true
    }

    fn give_up(&self, why: &str) -> Verdict {
        Verdict::Failed(match &self.unknown_outcome {
            Some(unknown_outcome) => Error::OutcomeUnknown(format!("{unknown_outcome}; {why}")),
            None => Error::Unavailable(why.to_owned()),
        })
    }
}

#[cfg(test)]
#[path = "committer_tests.rs"]
mod tests;
