//! Reads: the overlay first, the database second, merged.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use wayleave_engine::{Error, Key, Row, Scan, Value};

use crate::overlay::{InFlight, Overlay};
use crate::past_damage::Readable;
use crate::pipeline::in_order;
use crate::pool::Pool;
use crate::session::{CALL, Session};
use crate::trouble::{Class, Trouble, within};

/// How often a read starts over because batches arrived meanwhile. The last attempt is accepted as it is, or a read
/// that is always overtaken would never end. Only a reader of a shard that its owner is writing can meet that.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(20);

/// A result of the client library.
pub(crate) type PgResult<T> = Result<T, tokio_postgres::Error>;

/// Point lookups, in the order of the keys.
pub(crate) async fn get_many(pool: &Pool, overlay: &Overlay, keys: &[Key]) -> Result<Vec<Option<Value>>, Error> {
    get_over(overlay, keys, |asked| async move { get_stored(pool, &asked).await }).await
}

/// Point lookups where `stored` queries the database.
pub(crate) async fn get_over<'k, F>(
    overlay: &Overlay,
    keys: &'k [Key],
    stored: impl Fn(Vec<&'k [u8]>) -> F,
) -> Result<Vec<Option<Value>>, Error>
where
    F: Future<Output = Result<HashMap<Vec<u8>, Value>, Error>>,
{
    let mut tries = 0;
    loop {
        let (in_flight, stamp) = overlay.get(keys);
        let mut asked: Vec<&[u8]> =
            keys.iter().zip(&in_flight).filter(|(_, found)| found.is_none()).map(|(key, _)| &**key).collect();
        asked.sort_unstable();
        asked.dedup();
        let rows = if asked.is_empty() { HashMap::new() } else { stored(asked).await? };
        tries += 1;
        if tries < TRIES && overlay.stamp_of_keys(keys) != stamp {
            continue;
        }
        let pick = |(key, found): (&Key, Option<InFlight>)| match found {
            Some(value) => value.map(|value| value.to_vec()),
            None => rows.get(key.as_slice()).cloned(),
        };
        return Ok(keys.iter().zip(in_flight).map(pick).collect());
    }
}

async fn get_stored(pool: &Pool, keys: &[&[u8]]) -> Result<HashMap<Vec<u8>, Value>, Error> {
    ask(pool, keys, |session, keys| {
        async move {
            let rows = session.client.query(&session.statements.get, &[&keys]).await?;
            rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
        }
        .boxed()
    })
    .await
}

/// Range scans.
pub(crate) async fn scan_many(pool: &Pool, overlay: &Overlay, scans: &[Scan]) -> Result<Vec<Vec<Row>>, Error> {
    scan_over(overlay, scans, |wider| async move { scan_stored(pool, &wider).await }).await
}

/// Range scans where `stored` queries the database.
pub(crate) async fn scan_over<F>(
    overlay: &Overlay,
    scans: &[Scan],
    stored: impl Fn(Vec<Scan>) -> F,
) -> Result<Vec<Vec<Row>>, Error>
where
    F: Future<Output = Result<Vec<Vec<Row>>, Error>>,
{
    let mut tries = 0;
    loop {
        let (in_flight, stamp) = overlay.scan(scans);
        // Rows with a deletion in flight must not use up the limit.
        let wider: Vec<Scan> = scans.iter().zip(&in_flight).map(|(scan, found)| widen(scan, found)).collect();
        let found = stored(wider).await?;
        tries += 1;
        if tries < TRIES && overlay.stamp_of_scans(scans) != stamp {
            continue;
        }
        let answers = scans.iter().zip(found).zip(in_flight);
        return Ok(answers.map(|((scan, stored), in_flight)| merge(stored, in_flight, scan.limit)).collect());
    }
}

fn widen(scan: &Scan, in_flight: &[(Bytes, InFlight)]) -> Scan {
    let deleted = in_flight.iter().filter(|(_, value)| value.is_none()).count();
    let limit = if scan.limit == 0 { 0 } else { scan.limit.saturating_add(deleted) };
    Scan { limit, ..scan.clone() }
}

async fn scan_stored(pool: &Pool, scans: &[Scan]) -> Result<Vec<Vec<Row>>, Error> {
    if !scans.iter().any(is_useful) {
        return Ok(scans.iter().map(|_| Vec::new()).collect());
    }
    ask(pool, scans, |session, scans| {
        async move {
            let all = scans.iter().map(|scan| scan_one(session, scan).boxed()).collect();
            in_order(all).await.into_iter().collect()
        }
        .boxed()
    })
    .await
}

/// Where a scan continues behind damage, with the rows in flight before that.
pub(crate) async fn past_damage(pool: &Pool, overlay: &Overlay, scan: &Scan) -> Result<(Key, Vec<Row>), Error> {
    // As everywhere, the overlay is read first.
    let (in_flight, _) = overlay.scan(std::slice::from_ref(scan));
    let end = crate::past_damage::past_damage(pool, (&scan.from, &scan.to)).await?;
    let rows = in_flight.into_iter().flatten().filter(|(key, _)| key[..] < end[..]);
    let rows = rows.filter_map(|(key, value)| Some(Row { key: key.to_vec(), value: value?.to_vec() })).collect();
    Ok((end, rows))
}

impl Readable for Pool {
    async fn first_key(&self, from: &[u8], to: &[u8]) -> Result<Option<Key>, Error> {
        ask(self, &(from, to), |session, (from, to)| {
            async move {
                let row = session.client.query_opt(&session.statements.first_key, &[from, to]).await?;
                row.map(|row| row.try_get(0)).transpose()
            }
            .boxed()
        })
        .await
    }

    async fn first_row(&self, from: &[u8], to: &[u8]) -> Result<Option<Key>, Error> {
        let scan = Scan { from: from.to_vec(), to: to.to_vec(), limit: 1 };
        let rows = ask(self, &scan, |session, scan| scan_one(session, scan).boxed()).await?;
        Ok(rows.into_iter().next().map(|row| row.key))
    }
}

/// Whether a scan can return anything.
fn is_useful(scan: &Scan) -> bool {
    scan.from < scan.to && scan.limit > 0
}

/// One range, from the database alone.
pub(crate) async fn scan_one(session: &Session, scan: &Scan) -> PgResult<Vec<Row>> {
    if !is_useful(scan) {
        return Ok(Vec::new());
    }
    let limit = i64::try_from(scan.limit).unwrap_or(i64::MAX);
    let rows = session.client.query(&session.statements.scan, &[&scan.from, &scan.to, &limit]).await?;
    rows.iter().map(|row| Ok(Row { key: row.try_get(0)?, value: row.try_get(1)? })).collect()
}

/// The overlay wins. The database was asked for one more row per deletion in flight, so the first `limit` merged rows
/// never extend past the last row that it returned.
fn merge(stored: Vec<Row>, in_flight: Vec<(Bytes, InFlight)>, limit: usize) -> Vec<Row> {
    if in_flight.is_empty() {
        return stored;
    }
    let mut merged = Vec::with_capacity(stored.len() + in_flight.len());
    let mut stored = stored.into_iter().peekable();
    for (key, value) in in_flight {
        while let Some(row) = stored.next_if(|row| row.key.as_slice() < &key[..]) {
            merged.push(row);
        }
        stored.next_if(|row| row.key.as_slice() == &key[..]);
        if let Some(value) = value {
            merged.push(Row { key: key.to_vec(), value: value.to_vec() });
        }
    }
    merged.extend(stored);
    merged.truncate(limit);
    merged
}

/// Queries on a pooled connection. If the connection fence_states out to be broken (as after a restart of the database), the
/// read is retried: reads are idempotent.
pub(crate) async fn ask<T, A: ?Sized>(
    pool: &Pool,
    about: &A,
    question: for<'l> fn(&'l Session, &'l A) -> BoxFuture<'l, PgResult<T>>,
) -> Result<T, Error> {
    let mut tries = 0;
    loop {
        let session = pool.lease().await.map_err(|trouble| trouble.unchanged())?;
        let trouble = match within(CALL, question(&session, about)).await {
            Ok(answer) => {
                session.keep();
                return Ok(answer);
            }
            Err(trouble) => trouble,
        };
        let class = trouble.class();
        if class != Class::Lost {
            session.keep();
        }
        tries += 1;
        let hopeful = matches!(trouble, Trouble::Said(_)) && matches!(class, Class::Lost | Class::Again);
        if !hopeful || tries == TRIES {
            return Err(trouble.unchanged());
        }
        tokio::time::sleep(PAUSE).await;
    }
}
