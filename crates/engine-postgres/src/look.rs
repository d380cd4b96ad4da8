//! Rows, time and incarnation in one consistent read.

use futures::FutureExt;
use futures::future::BoxFuture;
use wayleave_core::time::Time;
use wayleave_engine::{Error, Look, Row, Scan};

use crate::clock::{Clock, Note, boot_us};
use crate::pipeline::in_order;
use crate::pool::Pool;
use crate::reads::{PgResult, ask, scan_one};
use crate::session::{CALL, Session};
use crate::trouble::within;

/// All statements of this transaction share one snapshot.
const ONE_STEP: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// What the database says about time.
#[derive(Default)]
struct TimeReport {
    store_us: u64,
    /// The latest time of a node that leads the database's clock, as far as recorded.
    noted: Note,
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
    let (report, rows) = ask(pool, scans, |session, scans| one_step(session, scans).boxed()).await?;
    let noted_us = report.noted.extrapolated_us(report.store_us);
    clock.learn(report.store_us, sent);
    clock.raise(noted_us);
    clock.compare(noted_us.saturating_sub(report.store_us));
    let now = floor.max(Time(report.store_us.max(noted_us) / 1_000));
    // After what was heard: this very response may be the first to show a step.
    Ok(Look { now, incarnation: report.incarnation, steady_since: clock.steady_since(), rows })
}

async fn one_step(session: &Session, scans: &[Scan]) -> PgResult<(TimeReport, Vec<Vec<Row>>)> {
    let frame = |text| async move { session.client.batch_execute(text).await.map(|()| Part::Frame) }.boxed();
    // Time comes first: it is older than the snapshot that all statements see.
    let mut questions: Vec<BoxFuture<'_, PgResult<Part>>> = vec![frame(ONE_STEP), ask_time(session).boxed()];
    for scan in scans {
        questions.push(scan_one(session, scan).map(|rows| rows.map(Part::Rows)).boxed());
    }
    questions.push(frame("COMMIT"));
    let mut report = TimeReport::default();
    let mut rows = Vec::with_capacity(scans.len());
    for part in in_order(questions).await {
        match part? {
            Part::Frame => {}
            Part::TimeReport(answer) => report = answer,
            Part::Rows(found) => rows.push(found),
        }
    }
    Ok((report, rows))
}

async fn ask_time(session: &Session) -> PgResult<Part> {
    let row = session.client.query_one(&session.statements.time, &[]).await?;
    let number = |column: usize| row.try_get::<_, i64>(column).map(|number| number.max(0).cast_unsigned());
    let noted = Note { at: Time(number(1)?), store: Time(number(2)?) };
    let incarnation = row.try_get::<_, i64>(3)?.cast_unsigned();
    Ok(Part::TimeReport(TimeReport { store_us: number(0)?, noted, incarnation }))
}

/// Samples the clock, and records what other nodes must learn of it.
pub(crate) async fn sample(looks: &Pool, notes: &Pool, clock: &Clock) -> Result<(), Error> {
    look(looks, clock, &[]).await?;
    let Some(note) = clock.note() else { return Ok(()) };
    let session = notes.lease().await.map_err(|trouble| trouble.unchanged())?;
    let (store, at) = (note.store.0.cast_signed(), note.at.0.cast_signed());
    let noted = within(CALL, session.client.execute(&session.statements.note, &[&store, &at])).await;
    noted.map_err(|trouble| trouble.unchanged())?;
    session.keep();
    Ok(())
}
