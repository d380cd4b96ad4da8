//! One pipelined transaction: fences, conditions, writes, commit.
//!
//! COMMIT is sent before the first response arrives. That is safe: if a statement fails, the database aborts the
//! transaction and treats COMMIT as ROLLBACK; if BEGIN itself fails, the guard keeps each statement from changing
//! anything.

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};
use wayleave_core::ids::ShardId;
use wayleave_core::time::Time;

use crate::clock::{Clock, boot_us};
use crate::pipeline::in_order;
use crate::session::{CALL, Session};
use crate::statements::{BEGIN, BEGIN_TO_TRY};
use crate::transaction_batch::TransactionBatch;
use crate::trouble::Trouble;

/// The first statement of a transaction.
pub(crate) enum FirstStatement {
    /// The group's fences.
    Fences,
    /// Gives a shard a new owner.
    Own(ShardId),
}

/// How long a transaction waits for row locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locks {
    /// Long enough for the locks of other nodes' transactions.
    Brief,
    /// Just to see whether they are free: a connection is hardly occupied, however many rows are locked.
    Try,
}

/// The outcome of a transaction.
pub(crate) enum Attempt {
    /// Durable; with the row that its first statement returned, if any.
    Done(Option<Row>),
    /// A fence does not hold. Nothing was changed.
    Fenced,
    /// A condition does not hold. Nothing was changed.
    Conflict,
    /// Another session held a row lock for too long. Nothing was changed.
    Locked(String),
    /// Rolled back for another reason. Nothing was changed.
    Undone(Trouble),
    /// Unknown.
    InDoubt(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Begin,
    FirstStatement,
    Expect,
    Write,
    Commit,
}

type Question<'a> = BoxFuture<'a, (Step, Result<Vec<Row>, tokio_postgres::Error>)>;

/// Runs a transaction to its end. The connection is healthy afterwards unless the outcome is in doubt or the connection
/// was lost.
pub(crate) async fn run(
    session: &Session,
    clock: &Clock,
    head: FirstStatement,
    group: &TransactionBatch,
    locks: Locks,
) -> Attempt {
    let warnings = session.warnings();
    let statements = &session.statements;
    let fences = Fences::new(group, clock.now());
    let (present_keys, present_values) = columns(&group.present);
    let absent = column(&group.absent);
    let (put_keys, put_values) = columns(&group.puts);
    let deletes = column(&group.deletes);
    let present_count = i64::try_from(group.present.len()).unwrap_or(i64::MAX);

    let own = if let FirstStatement::Own(shard) = head { i32::from(shard.0) } else { 0 };

    let begin = if locks == Locks::Brief { BEGIN } else { BEGIN_TO_TRY };
    let mut questions: Vec<Question<'_>> = vec![say(session, Step::Begin, begin)];
    match head {
        FirstStatement::Own(_) => {
            questions.push(timed(
                clock,
                3,
                ask(session, Step::FirstStatement, &statements.own, vec![&own, &fences.at]),
            ));
        }
        FirstStatement::Fences if group.moves.is_empty() => {}
        FirstStatement::Fences => {
            questions.push(timed(clock, 1, ask(session, Step::FirstStatement, &statements.fence, fences.params())))
        }
    }
    if !group.present.is_empty() {
        let params: Vec<&(dyn ToSql + Sync)> = vec![&present_keys, &present_values, &present_count];
        questions.push(ask(session, Step::Expect, &statements.expect, params));
    }
    if !group.absent.is_empty() {
        questions.push(ask(session, Step::Expect, &statements.absent, vec![&absent]));
    }
    if !group.puts.is_empty() {
        questions.push(ask(session, Step::Write, &statements.put, vec![&put_keys, &put_values]));
    }
    if !group.deletes.is_empty() {
        questions.push(ask(session, Step::Write, &statements.delete, vec![&deletes]));
    }
    questions.push(say(session, Step::Commit, "COMMIT"));
    match tokio::time::timeout(CALL, in_order(questions)).await {
        Err(_) => Attempt::InDoubt(Trouble::Slow(CALL).words()),
        Ok(answers) => judge(answers, session.warned_since(warnings)),
    }
}

fn ask<'a>(
    session: &'a Session,
    step: Step,
    statement: &'a Statement,
    params: Vec<&'a (dyn ToSql + Sync)>,
) -> Question<'a> {
    async move { (step, session.client.query(statement, &params).await) }.boxed()
}

fn say<'a>(session: &'a Session, step: Step, text: &'a str) -> Question<'a> {
    async move { (step, session.client.batch_execute(text).await.map(|()| Vec::new())) }.boxed()
}

/// Judges the responses together. The first failure is the cause; later ones are consequences.
fn judge(answers: Vec<(Step, Result<Vec<Row>, tokio_postgres::Error>)>, warned: Option<String>) -> Attempt {
    let mut head = None;
    for (step, answer) in answers {
        match answer {
            Ok(rows) if step == Step::FirstStatement => head = rows.into_iter().next(),
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
        Step::FirstStatement if code == Some(&SqlState::DIVISION_BY_ZERO) => Attempt::Fenced,
        Step::Expect if code == Some(&SqlState::DIVISION_BY_ZERO) || code == Some(&SqlState::UNIQUE_VIOLATION) => {
            Attempt::Conflict
        }
        Step::Commit if trouble.proves_refused_commit() => Attempt::Undone(trouble),
        Step::FirstStatement | Step::Expect | Step::Write if trouble.is_lock_timeout() => {
            Attempt::Locked(trouble.words())
        }
        Step::Begin | Step::FirstStatement | Step::Expect | Step::Write if trouble.proves_rollback() => {
            Attempt::Undone(trouble)
        }
        // COMMIT was sent and may have succeeded.
        _ => Attempt::InDoubt(trouble.words()),
    }
}

/// Samples the clock when the response arrives: the response to COMMIT comes much later.
fn timed<'a>(clock: &'a Clock, column: usize, question: Question<'a>) -> Question<'a> {
    let sent = boot_us();
    let learn = move |(step, answer): (Step, Result<Vec<Row>, tokio_postgres::Error>)| {
        let report =
            answer.as_ref().ok().and_then(|rows| rows.first()).and_then(|row| row.try_get::<_, i64>(column).ok());
        if let Some(store_us) = report {
            clock.learn(store_us.max(0).cast_unsigned(), sent);
        }
        (step, answer)
    };
    question.map(learn).boxed()
}

/// The fences as column arrays.
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
