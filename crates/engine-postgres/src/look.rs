//! Rows, time and incarnation in one consistent read.

use futures::FutureExt;
use futures::future::BoxFuture;
use wayleave_core::time::Time;
use wayleave_engine::{Error, Look, Row, Scan};

use crate::clock::{Clock, boot_us};
use crate::link::{CALL, Link};
use crate::pipeline::in_order;
use crate::pool::Pool;
use crate::reads::{PgResult, ask, scan_one};
use crate::trouble::within;

/// All statements of this transaction share one snapshot.
const ONE_STEP: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// What the database says about time.
struct TimeReport {
    store_us: i64,
    /// The latest time of a node that leads the database's clock, as far as recorded.
    noted: Time,
    stepped_at: Time,
    incarnation: u64,
}

enum Part {
    Frame,
    TimeReport(TimeReport),
    Rows(Vec<Row>),
}

/// Reads rows with the store's time. Batches in flight when it begins may be missing.
pub(crate) async fn look(pool: &Pool, clock: &Clock, scans: &[Scan]) -> Result<Look, Error> {
    // Read before the request is sent: what the response does not show happened later.
    let floor = clock.now();
    let sent = boot_us();
    let (told, rows) = ask(pool, scans, |link, scans| one_step(link, scans).boxed()).await?;
    let now = floor.max(told.noted).max(clock.learn(told.store_us, sent));
    clock.raise(now);
    clock.hear_step(told.stepped_at);
    // After `learn`: this very response may be the first to show a step.
    Ok(Look { now, incarnation: told.incarnation, stepped_at: clock.stepped_at(), rows })
}

async fn one_step(link: &Link, scans: &[Scan]) -> PgResult<(TimeReport, Vec<Vec<Row>>)> {
    let frame = |text| async move { link.client.batch_execute(text).await.map(|()| Part::Frame) }.boxed();
    // Time comes first: it is older than the snapshot that all statements see.
    let mut questions: Vec<BoxFuture<'_, PgResult<Part>>> = vec![frame(ONE_STEP), ask_time(link).boxed()];
    for scan in scans {
        questions.push(scan_one(link, scan).map(|rows| rows.map(Part::Rows)).boxed());
    }
    questions.push(frame("COMMIT"));
    let mut told = TimeReport { store_us: 0, noted: Time::ZERO, stepped_at: Time::ZERO, incarnation: 0 };
    let mut rows = Vec::with_capacity(scans.len());
    for part in in_order(questions).await {
        match part? {
            Part::Frame => {}
            Part::TimeReport(answer) => told = answer,
            Part::Rows(found) => rows.push(found),
        }
    }
    Ok((told, rows))
}

async fn ask_time(link: &Link) -> PgResult<Part> {
    let row = link.client.query_one(&link.statements.time, &[]).await?;
    let number = |column: usize| row.try_get::<_, i64>(column);
    let time = |column: usize| number(column).map(|ms| Time(ms.max(0).cast_unsigned()));
    let incarnation = number(3)?.cast_unsigned();
    Ok(Part::TimeReport(TimeReport { store_us: number(0)?, noted: time(1)?, stepped_at: time(2)?, incarnation }))
}

/// Samples the clock, and records what other nodes must learn of it.
pub(crate) async fn sample(looks: &Pool, notes: &Pool, clock: &Clock) -> Result<(), Error> {
    look(looks, clock, &[]).await?;
    let Some(note) = clock.note() else { return Ok(()) };
    let link = notes.lease().await.map_err(|trouble| trouble.unchanged())?;
    let (stepped_at, at) = (note.stepped_at.0.cast_signed(), note.at.0.cast_signed());
    let noted = within(CALL, link.client.execute(&link.statements.note, &[&stepped_at, &at])).await;
    noted.map_err(|trouble| trouble.unchanged())?;
    link.keep();
    clock.hear_step(note.stepped_at);
    Ok(())
}
