//! The committers: merge queued batches into one transaction, bisect it when it is refused, and resolve its outcome
//! when the connection breaks.
//!
//! **A lost response.** The fence makes a retry idempotent: whichever of the two attempts arrives first advances the
//! fence, and the other is refused. So a fenced transaction is simply sent again. If the retry is refused, it has met
//! either its own first attempt, which the fence row shows by its sequence number under our epoch, or another owner.
//! Only where another owner has already passed our sequence number is the outcome unknown.
//!
//! **A locked row.** A foreign session may hold a row lock indefinitely. So a transaction first waits only briefly for
//! locks. Bisection then finds the batch that needs the row, and that batch waits in a task of its own: the others
//! proceed.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;
use wayleave_core::ids::{Epoch, ShardId};
use wayleave_engine::Error;
use wayleave_engine::fences::FenceState;

use crate::job::{OrderKey, PendingBatch};
use crate::overlay::Overlay;
use crate::queue::{Queue, Serves};
use crate::transaction::{Attempt, Locks};
use crate::transaction_batch::TransactionBatch;
use crate::trouble::{Class, Trouble};
use crate::wire::Database;

/// How long a commit is retried, from the first error on. Callers wait meanwhile, and then get "unavailable".
const PATIENCE: Duration = Duration::from_millis(2_500);
/// The same for a commit that may have been applied: learning its outcome is worth a longer wait.
const PATIENCE_IN_DOUBT: Duration = Duration::from_secs(5);
/// How often a transaction is bisected because of locked rows; what remains then waits as a whole.
const LOCK_TRIES: u32 = 12;
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// What a committer works with.
pub(crate) struct CommitContext<D> {
    pub(crate) queue: Queue,
    pub(crate) overlay: Overlay,
    pub(crate) database: D,
    /// Set when the database was unreachable for longer than our patience: until it is back, commits are tried once.
    pub(crate) down: AtomicBool,
    /// Permits for tasks of batches that wait for locked rows.
    pub(crate) stuck: Arc<Semaphore>,
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
    while let Some(jobs) = bench.queue.next(serves).await {
        let stuck = bench.commit(jobs).await;
        if stuck.is_empty() {
            continue;
        }
        match Arc::clone(&bench.stuck).try_acquire_owned() {
            Ok(place) => {
                let bench = Arc::clone(&bench);
                tokio::spawn(async move {
                    bench.wait_for_locks(stuck).await;
                    drop(place);
                });
            }
            Err(_) => bench.wait_for_locks(stuck).await,
        }
    }
}

impl<D: Database> CommitContext<D> {
    /// Commits batches that fit together and answers each with its true outcome, in order. If they are refused as a
    /// whole, bisection finds the one at fault. Returns the batches that need locked rows, and those behind them,
    /// unanswered.
    async fn commit(&self, jobs: Vec<Arc<PendingBatch>>) -> Vec<Arc<PendingBatch>> {
        let mut parts = vec![jobs];
        let mut stuck = Vec::new();
        let mut held = HashSet::new();
        let mut patience = LOCK_TRIES;
        while let Some(part) = parts.pop() {
            let (behind, mut part): (Vec<_>, Vec<_>) = part.into_iter().partition(|job| is_behind(&mut held, job));
            stuck.extend(behind);
            if part.is_empty() {
                continue;
            }
            match self.push_through(&part, Locks::Brief).await {
                Verdict::Done => self.answer(&part, &Ok(())),
                Verdict::Locked(_) if part.len() == 1 || patience == 0 => {
                    held.extend(part.iter().flat_map(|job| &job.lanes));
                    stuck.append(&mut part);
                }
                verdict @ (Verdict::Refused(_) | Verdict::Locked(_)) if part.len() > 1 => {
                    patience -= u32::from(matches!(verdict, Verdict::Locked(_)));
                    let second = part.split_off(part.len() / 2);
                    parts.extend([second, part]);
                }
                Verdict::Refused(error) | Verdict::Failed(error) => self.answer(&part, &Err(error)),
                Verdict::Locked(why) => self.answer(&part, &Err(Error::Unavailable(why))),
            }
        }
        stuck
    }

    /// Commits batches one by one. The first that meets a locked row gets the whole patience for it; the others have
    /// waited as long by then. A batch behind one that failed fails too: its fence can no longer hold, or it needs the
    /// same row.
    async fn wait_for_locks(&self, jobs: Vec<Arc<PendingBatch>>) {
        let mut failed: Vec<(Arc<PendingBatch>, Error)> = Vec::new();
        let mut locks = Locks::Patient;
        for job in jobs {
            let before = failed.iter().find(|(other, _)| job.lanes.iter().any(|lane| other.lanes.contains(lane)));
            let outcome = match before {
                Some((_, error)) => Err(error.clone()),
                None => match self.push_through(std::slice::from_ref(&job), locks).await {
                    Verdict::Done => Ok(()),
                    Verdict::Refused(error) | Verdict::Failed(error) => Err(error),
                    Verdict::Locked(why) => {
                        locks = Locks::Brief;
                        Err(Error::Unavailable(why))
                    }
                },
            };
            if let Err(error) = &outcome {
                // The batches behind it were never sent.
                let unsent = Error::Unavailable(format!("an earlier commit failed: {error}"));
                failed.push((Arc::clone(&job), unsent));
            }
            self.answer(&[job], &outcome);
        }
    }

    fn answer(&self, jobs: &[Arc<PendingBatch>], outcome: &Result<(), Error>) {
        for job in jobs {
            self.overlay.remove(job);
            job.answer(outcome.clone());
        }
        self.queue.done(jobs);
    }

    async fn push_through(&self, jobs: &[Arc<PendingBatch>], locks: Locks) -> Verdict {
        let Some(group) = TransactionBatch::merge(jobs) else { return self.refuse(jobs).await };
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
                Attempt::Fenced if tries.doubt.is_some() => match self.trace(&group).await {
                    Ok(Trace::Applied) => return Verdict::Done,
                    Ok(Trace::NotApplied) => return self.refuse(jobs).await,
                    Ok(Trace::Unclear) => return tries.give_up("another owner has already committed past it"),
                    Err(trouble) => trouble.words(),
                },
                Attempt::Fenced => return self.refuse(jobs).await,
                // The first attempt may still be on its way to the database: only its fence would tell.
                Attempt::Conflict if tries.doubt.is_some() => return tries.give_up("a row has changed since"),
                Attempt::Conflict => return Verdict::Refused(Error::Conflict),
                Attempt::Locked(why) if tries.doubt.is_none() => return Verdict::Locked(why),
                Attempt::Locked(why) => why,
                Attempt::Undone(trouble) => match trouble.class() {
                    Class::Again | Class::Lost => trouble.words(),
                    _ if trouble.is_cancelled() => trouble.words(),
                    Class::Damaged | Class::Refused if tries.doubt.is_some() => return tries.give_up(&trouble.words()),
                    Class::Damaged => return Verdict::Failed(Error::Corrupt(trouble.words())),
                    Class::Refused => return Verdict::Failed(Error::Unavailable(trouble.words())),
                },
                Attempt::InDoubt(why) => {
                    tries.doubt.get_or_insert_with(|| why.clone());
                    if group.moves.is_empty() {
                        return tries.give_up("it has no fence that would tell");
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
    async fn refuse(&self, jobs: &[Arc<PendingBatch>]) -> Verdict {
        let [job] = jobs else {
            // Bisection finds which one it is.
            return Verdict::Refused(Error::Conflict);
        };
        let shards = job.fences.iter().map(|fence| i32::from(fence.shard.0)).collect();
        match self.database.fence_states(shards).await {
            Err(trouble) => Verdict::Failed(trouble.unchanged()),
            Ok(fence_states) => match fence_states.check(&job.fences) {
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
fn is_behind(held: &mut HashSet<OrderKey>, job: &PendingBatch) -> bool {
    let behind = job.lanes.iter().any(|lane| held.contains(lane));
    if behind {
        held.extend(&job.lanes);
    }
    behind
}

/// The attempts of one transaction.
#[derive(Default)]
struct Tries {
    since: Option<Instant>,
    pause: Option<Duration>,
    /// Why it is unknown whether an earlier attempt was applied.
    doubt: Option<String>,
}

impl Tries {
    /// Backs off before the next attempt; false if there should be none.
    async fn pause(&mut self, one_is_enough: bool) -> bool {
        let since = *self.since.get_or_insert_with(Instant::now);
        let patience = if self.doubt.is_some() { PATIENCE_IN_DOUBT } else { PATIENCE };
        if since.elapsed() > patience || (one_is_enough && self.doubt.is_none()) {
            return false;
        }
        let pause = self.pause.map_or(PAUSE, |pause| (pause * 2).min(PAUSE_MAX));
        self.pause = Some(pause);
        tokio::time::sleep(pause).await;
        true
    }

    fn give_up(&self, why: &str) -> Verdict {
        Verdict::Failed(match &self.doubt {
            Some(doubt) => Error::OutcomeUnknown(format!("{doubt}; {why}")),
            None => Error::Unavailable(why.to_owned()),
        })
    }
}
