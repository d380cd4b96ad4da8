//! Commits what waits: takes it together, splits it when it is refused, and finds out what became of it when the
//! connection broke.
//!
//! **A lost answer.** The fence makes a second try safe: whichever of the two arrives first moves the fence on, and the
//! other is refused. So a fenced transaction is simply sent again. Refused then, it has met either its own first try,
//! which the fence row shows by its number under our epoch, or another owner. Only where another owner has already
//! come past our number nobody can tell any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::Row;
use wayleave_core::ids::{Epoch, ShardId};
use wayleave_engine::Error;
use wayleave_engine::fences::{Fences, Turn};

use crate::clock::Clock;
use crate::group::Group;
use crate::job::Job;
use crate::link::CALL;
use crate::overlay::Overlay;
use crate::pool::Pool;
use crate::queue::Queue;
use crate::transaction::{self, Attempt, Head};
use crate::trouble::{Class, Trouble, within};

/// How long a commit tries to get through, from the first trouble on: callers wait meanwhile, and hear "unavailable" then.
const PATIENCE: Duration = Duration::from_millis(2_500);
/// The same for a commit that may have been applied: to learn what became of it is worth more waiting.
const PATIENCE_IN_DOUBT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// What a committer works with.
pub(crate) struct Bench {
    pub(crate) queue: Queue,
    pub(crate) overlay: Overlay,
    pub(crate) writes: Pool,
    pub(crate) clock: Clock,
    /// The database was away for longer than our patience: until it is back, one try is enough.
    pub(crate) down: AtomicBool,
}

/// How batches that were sent together ended.
enum Verdict {
    Done,
    /// One of them is to blame, or the only one is.
    Refused(Error),
    /// All of them, for a reason that is none of theirs.
    Failed(Error),
}

/// What the fence rows say about a transaction whose answer was lost.
enum Trace {
    Applied,
    NotApplied,
    Unclear,
}

/// Commits until the queue is closed and empty.
pub(crate) async fn run(bench: Arc<Bench>) {
    while let Some(jobs) = bench.queue.next().await {
        bench.commit(&jobs).await;
        bench.queue.done(&jobs);
    }
}

impl Bench {
    /// Commits batches that fit together and answers each truly, in order. When they are refused as a whole, halves find
    /// out who is to blame in few steps.
    async fn commit(&self, jobs: &[Arc<Job>]) {
        let mut parts = vec![jobs];
        while let Some(part) = parts.pop() {
            match self.push_through(part).await {
                Verdict::Done => self.answer(part, &Ok(())),
                Verdict::Refused(_) if part.len() > 1 => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
                Verdict::Refused(error) | Verdict::Failed(error) => self.answer(part, &Err(error)),
            }
        }
    }

    fn answer(&self, jobs: &[Arc<Job>], outcome: &Result<(), Error>) {
        for job in jobs {
            self.overlay.remove(job);
            job.answer(outcome.clone());
        }
    }

    async fn push_through(&self, jobs: &[Arc<Job>]) -> Verdict {
        let Some(group) = Group::merge(jobs) else { return self.refuse(jobs).await };
        if group.is_empty() {
            return Verdict::Done;
        }
        let mut tries = Tries::default();
        loop {
            let again = match self.attempt(&group).await {
                Attempt::Done(_) => {
                    self.down.store(false, Ordering::Relaxed);
                    return Verdict::Done;
                }
                Attempt::Fenced if tries.doubt.is_some() => match self.trace(&group).await {
                    Ok(Trace::Applied) => return Verdict::Done,
                    Ok(Trace::NotApplied) => return self.refuse(jobs).await,
                    Ok(Trace::Unclear) => return tries.give_up("another owner has come past this commit"),
                    Err(trouble) => trouble.words(),
                },
                Attempt::Fenced => return self.refuse(jobs).await,
                // The first try may still be on its way to the database: only its fence would tell.
                Attempt::Conflict if tries.doubt.is_some() => return tries.give_up("a row has changed since"),
                Attempt::Conflict => return Verdict::Refused(Error::Conflict),
                Attempt::Undone(trouble) => match trouble.class() {
                    Class::Again | Class::Lost => trouble.words(),
                    Class::Damaged | Class::Refused if tries.doubt.is_some() => return tries.give_up(&trouble.words()),
                    Class::Damaged => return Verdict::Failed(Error::Corrupt(trouble.words())),
                    Class::Refused => return Verdict::Failed(Error::Unavailable(trouble.words())),
                },
                Attempt::InDoubt(why) => {
                    tries.doubt.get_or_insert_with(|| why.clone());
                    if group.moves.is_empty() {
                        return tries.give_up("it has no fence to tell by");
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

    async fn attempt(&self, group: &Group) -> Attempt {
        let link = match self.writes.lease().await {
            Ok(link) => link,
            // Nothing was sent.
            Err(trouble) => return Attempt::Undone(trouble),
        };
        let attempt = transaction::run(&link, &self.clock, Head::Fences, group).await;
        let sound = match &attempt {
            Attempt::Done(_) | Attempt::Fenced | Attempt::Conflict => true,
            Attempt::Undone(trouble) => trouble.class() != Class::Lost,
            Attempt::InDoubt(_) => false,
        };
        if sound {
            link.keep();
        }
        attempt
    }

    /// Says which fence does not hold, as the store has it now.
    async fn refuse(&self, jobs: &[Arc<Job>]) -> Verdict {
        let [job] = jobs else {
            // Who of them it is will be found out by halves.
            return Verdict::Refused(Error::Conflict);
        };
        let shards = job.fences.iter().map(|fence| i32::from(fence.shard.0)).collect();
        match self.turns(shards).await {
            Err(trouble) => Verdict::Failed(trouble.unchanged()),
            Ok(turns) => match turns.check(&job.fences) {
                Err(fenced) => Verdict::Refused(fenced),
                // It did not hold, and holds now: only a store that was set back in time does that.
                Ok(_) => Verdict::Failed(Error::Unavailable("the fences moved meanwhile".into())),
            },
        }
    }

    /// What became of a transaction that was refused at its second try. To see it is not enough: a commit whose wait for
    /// a standby was cut short is seen, and lost in a failover. So a write goes after it.
    async fn trace(&self, group: &Group) -> Result<Trace, Trouble> {
        let shards: Vec<i32> = group.moves.iter().map(|step| i32::from(step.shard)).collect();
        let at = self.clock.now().0.cast_signed();
        let link = self.writes.lease().await?;
        let warnings = link.warnings();
        let rows = within(CALL, link.client.query(&link.statements.settle, &[&shards, &at])).await?;
        if let Some(warning) = link.warned_since(warnings) {
            return Err(Trouble::Warned(warning));
        }
        link.keep();
        let turns = read_turns(&rows)?;
        let mut unclear = false;
        for step in &group.moves {
            let Turn { epoch, seq } = turns.turn(ShardId(step.shard));
            let passed = seq >= step.next.cast_unsigned();
            match (passed, epoch == Epoch(step.epoch.cast_unsigned())) {
                // Nobody else counts under our epoch, and fences move together.
                (true, true) => return Ok(Trace::Applied),
                (false, _) => return Ok(Trace::NotApplied),
                (true, false) => unclear = true,
            }
        }
        Ok(if unclear { Trace::Unclear } else { Trace::NotApplied })
    }

    async fn turns(&self, shards: Vec<i32>) -> Result<Fences, Trouble> {
        let link = self.writes.lease().await?;
        let rows = within(CALL, link.client.query(&link.statements.turns, &[&shards])).await?;
        link.keep();
        read_turns(&rows)
    }
}

fn read_turns(rows: &[Row]) -> Result<Fences, Trouble> {
    let mut fences = Fences::default();
    for row in rows {
        let (shard, epoch, seq): (i32, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let turn = Turn { epoch: Epoch(epoch.cast_unsigned()), seq: seq.cast_unsigned() };
        fences.set(ShardId(u16::try_from(shard).unwrap_or(u16::MAX)), turn);
    }
    Ok(fences)
}

/// The tries of one transaction.
#[derive(Default)]
struct Tries {
    since: Option<Instant>,
    pause: Option<Duration>,
    /// Why it is not known whether an earlier try was applied.
    doubt: Option<String>,
}

impl Tries {
    /// Waits before the next try; false if there should be none.
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
