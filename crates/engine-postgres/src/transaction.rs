//! One transaction, sent in one go: fences, expectations, writes, commit.
//!
//! The commit goes out before the first answer is in. That is safe: when a statement fails the database undoes the
//! transaction and takes the commit for a rollback; when BEGIN itself fails, the guard in each statement keeps it from
//! changing anything.

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};
use wayleave_core::ids::ShardId;
use wayleave_core::time::Time;

use crate::clock::{Clock, boot_us};
use crate::link::{CALL, Link};
use crate::pipeline::in_order;
use crate::statements::{BEGIN, BEGIN_IMPATIENT};
use crate::transaction_batch::TransactionBatch;
use crate::trouble::Trouble;

/// What a transaction begins with.
pub(crate) enum Head {
    /// The group's fences.
    Fences,
    /// A shard gets a new owner.
    Own(ShardId),
}

/// How long a transaction waits for rows that another session has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locks {
    /// As long as it takes to see that this is no ordinary contention.
    Brief,
    /// As long as the session is set to.
    Patient,
}

/// How a transaction ended.
pub(crate) enum Attempt {
    /// It is durable; with the row that its head gave, if it had one.
    Done(Option<Row>),
    /// A fence does not hold. Nothing was changed.
    Fenced,
    /// An expectation does not hold. Nothing was changed.
    Conflict,
    /// Another session has locked a row for too long. Nothing was changed.
    Locked(String),
    /// Nothing was changed, for another reason.
    Undone(Trouble),
    /// Nobody knows.
    InDoubt(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Begin,
    Head,
    Expect,
    Write,
    Commit,
}

type Question<'a> = BoxFuture<'a, (Step, Result<Vec<Row>, tokio_postgres::Error>)>;

/// Sends a transaction and waits for its end. The connection is sound afterwards unless the attempt is in doubt or
/// its trouble is a lost connection.
pub(crate) async fn run(link: &Link, clock: &Clock, head: Head, group: &TransactionBatch, locks: Locks) -> Attempt {
    let warnings = link.warnings();
    let statements = &link.statements;
    let fences = Fences::new(group, clock.now());
    let (present_keys, present_values) = columns(&group.present);
    let absent = column(&group.absent);
    let (put_keys, put_values) = columns(&group.puts);
    let deletes = column(&group.deletes);
    let present_count = i64::try_from(group.present.len()).unwrap_or(i64::MAX);

    let own = if let Head::Own(shard) = head { i32::from(shard.0) } else { 0 };

    let begin = if locks == Locks::Brief { BEGIN_IMPATIENT } else { BEGIN };
    let mut questions: Vec<Question<'_>> = vec![say(link, Step::Begin, begin)];
    match head {
        Head::Own(_) => {
            questions.push(timed(clock, 3, ask(link, Step::Head, &statements.own, vec![&own, &fences.at])));
        }
        Head::Fences if group.moves.is_empty() => {}
        Head::Fences => questions.push(timed(clock, 1, ask(link, Step::Head, &statements.fence, fences.params()))),
    }
    if !group.present.is_empty() {
        let params: Vec<&(dyn ToSql + Sync)> = vec![&present_keys, &present_values, &present_count];
        questions.push(ask(link, Step::Expect, &statements.expect, params));
    }
    if !group.absent.is_empty() {
        questions.push(ask(link, Step::Expect, &statements.absent, vec![&absent]));
    }
    if !group.puts.is_empty() {
        questions.push(ask(link, Step::Write, &statements.put, vec![&put_keys, &put_values]));
    }
    if !group.deletes.is_empty() {
        questions.push(ask(link, Step::Write, &statements.delete, vec![&deletes]));
    }
    questions.push(say(link, Step::Commit, "COMMIT"));
    match tokio::time::timeout(CALL, in_order(questions)).await {
        Err(_) => Attempt::InDoubt(Trouble::Slow(CALL).words()),
        Ok(answers) => judge(answers, link.warned_since(warnings)),
    }
}

fn ask<'a>(link: &'a Link, step: Step, statement: &'a Statement, params: Vec<&'a (dyn ToSql + Sync)>) -> Question<'a> {
    async move { (step, link.client.query(statement, &params).await) }.boxed()
}

fn say<'a>(link: &'a Link, step: Step, text: &'a str) -> Question<'a> {
    async move { (step, link.client.batch_execute(text).await.map(|()| Vec::new())) }.boxed()
}

/// What the answers mean together. The first that failed tells why; the ones after it only follow.
fn judge(answers: Vec<(Step, Result<Vec<Row>, tokio_postgres::Error>)>, warned: Option<String>) -> Attempt {
    let mut head = None;
    for (step, answer) in answers {
        match answer {
            Ok(rows) if step == Step::Head => head = rows.into_iter().next(),
            Ok(_) => {}
            Err(error) => return judge_failure(step, Trouble::Said(error)),
        }
    }
    if let Some(warning) = warned {
        return Attempt::InDoubt(Trouble::Warned(warning).words());
    }
    Attempt::Done(head)
}

fn judge_failure(step: Step, trouble: Trouble) -> Attempt {
    let code = trouble.code().cloned();
    let code = code.as_ref();
    match step {
        Step::Head if code == Some(&SqlState::DIVISION_BY_ZERO) => Attempt::Fenced,
        Step::Expect if code == Some(&SqlState::DIVISION_BY_ZERO) || code == Some(&SqlState::UNIQUE_VIOLATION) => {
            Attempt::Conflict
        }
        Step::Commit if trouble.proves_refused_commit() => Attempt::Undone(trouble),
        Step::Head | Step::Expect | Step::Write if trouble.is_lock_timeout() => Attempt::Locked(trouble.words()),
        Step::Begin | Step::Head | Step::Expect | Step::Write if trouble.proves_rollback() => Attempt::Undone(trouble),
        // The commit is on its way and may have been done.
        _ => Attempt::InDoubt(trouble.words()),
    }
}

/// Lets the clock learn from the answer, at the moment when it arrives: the commit's own answer comes much later.
fn timed<'a>(clock: &'a Clock, column: usize, question: Question<'a>) -> Question<'a> {
    let sent = boot_us();
    let learn = move |(step, answer): (Step, Result<Vec<Row>, tokio_postgres::Error>)| {
        let told =
            answer.as_ref().ok().and_then(|rows| rows.first()).and_then(|row| row.try_get::<_, i64>(column).ok());
        if let Some(store_us) = told {
            clock.learn(store_us, sent);
        }
        (step, answer)
    };
    question.map(learn).boxed()
}

/// The fences as columns.
struct Fences {
    shards: Vec<i32>,
    epochs: Vec<i64>,
    prevs: Vec<i64>,
    nexts: Vec<i64>,
    at: i64,
    count: i64,
}

impl Fences {
    fn new(group: &TransactionBatch, now: Time) -> Self {
        let moves = &group.moves;
        Self {
            shards: moves.iter().map(|step| i32::from(step.shard)).collect(),
            epochs: moves.iter().map(|step| step.epoch).collect(),
            prevs: moves.iter().map(|step| step.prev).collect(),
            nexts: moves.iter().map(|step| step.next).collect(),
            at: now.0.cast_signed(),
            count: i64::try_from(moves.len()).unwrap_or(i64::MAX),
        }
    }

    fn params(&self) -> Vec<&(dyn ToSql + Sync)> {
        vec![&self.shards, &self.epochs, &self.prevs, &self.nexts, &self.at, &self.count]
    }
}

fn column(keys: &[Bytes]) -> Vec<&[u8]> {
    keys.iter().map(|key| &**key).collect()
}

fn columns(rows: &[(Bytes, Bytes)]) -> (Vec<&[u8]>, Vec<&[u8]>) {
    rows.iter().map(|(key, value)| (&**key, &**value)).unzip()
}
