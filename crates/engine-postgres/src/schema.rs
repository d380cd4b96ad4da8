//! The tables of a store: created at the first open, migrated at later ones. The number of the storage format is recorded
//! in `wayleave_format`, and read before anything is changed.
//!
//! Nodes raise the format in the row of joins, once all of them know it. A newer program therefore only adds tables and leaves the number
//! of an existing store as it is: nodes of the older program continue with the others, and may be started again. The number in
//! `wayleave_format` follows at the next open. The higher one of the two counts.
//!
//! Several nodes may open a new store at once. Advisory locks are not portable, so the row in `wayleave_format` is the
//! lock: its holder runs the migrations, the others wait and find them done. Migrations must be idempotent, because not
//! every database rolls back DDL.

use std::time::Duration;

use tokio_postgres::{Client, Error, Row};
use wayleave_engine::format::VERSION;
use wayleave_engine::rows::join;

use crate::open_error::OpenError;
use crate::target::Target;
use crate::trouble::Trouble;
use crate::vendor;

/// Migration n adds what format n needs to the tables of format n − 1, whose programs must be able to continue. It is run at every open until
/// the format is raised. A released migration is never changed.
const STEPS: &[&str] = &["\
CREATE TABLE IF NOT EXISTS wayleave_rows (key bytea PRIMARY KEY, value bytea NOT NULL); \
CREATE TABLE IF NOT EXISTS wayleave_fences (shard int4 PRIMARY KEY, epoch int8 NOT NULL, seq int8 NOT NULL, at int8 NOT NULL); \
CREATE TABLE IF NOT EXISTS wayleave_place (one bool PRIMARY KEY, identity text NOT NULL)"];

const FOUND: &str = "SELECT version, shards FROM wayleave_format WHERE one";
const LOCKED: &str = "SELECT version, shards FROM wayleave_format WHERE one FOR UPDATE";

const TRIES: u32 = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(100);

/// Creates or migrates the tables and returns the number of shards, which is fixed at creation.
pub(crate) async fn prepare(client: &Client, target: &Target, shards: u16) -> Result<u16, OpenError> {
    let mut tries = 0;
    loop {
        match attempt(client, target, shards).await {
            Ok(done) => return done,
            // Two nodes create a table at the same moment: one fails, and finds it created when it retries.
            Err(error) if tries < TRIES && is_race(&error) => {
                tries += 1;
                tokio::time::sleep(BETWEEN_TRIES).await;
            }
            Err(error) => return Err(OpenError::sort(target, &Trouble::Said(error))),
        }
    }
}

fn is_race(error: &Error) -> bool {
    // Unique violation in the catalogue, duplicate table or type, serialization failure, deadlock, internal error (a
    // catalogue row that another session changed meanwhile).
    error.code().is_some_and(|code| matches!(code.code(), "23505" | "42P07" | "42710" | "40001" | "40P01" | "XX000"))
}

async fn attempt(client: &Client, target: &Target, shards: u16) -> Result<Result<u16, OpenError>, Error> {
    let found = match client.query_opt(FOUND, &[]).await {
        Err(error) if error.code().is_some_and(|code| code.code() == "42P01") => None,
        found => found?,
    };
    if let Some(row) = found {
        let found = format_of(client, &row).await?;
        if found > VERSION {
            return Ok(Err(OpenError::Newer { place: target.to_string(), found }));
        }
        if row.try_get::<_, i32>(0)? == VERSION as i32 {
            // After the format was read: a copy marks the database before it writes the format.
            if is_unfinished(client).await? {
                return Ok(Err(OpenError::Unfinished { place: target.to_string() }));
            }
            return Ok(shards_of(target, row.try_get(1)?));
        }
    } else {
        make_lock(client, shards).await?;
    }
    // An explicit transaction: the client's own would need exclusive access to the connection.
    client.batch_execute("BEGIN").await?;
    match run_steps(client).await {
        Ok(shards) => {
            client.batch_execute("COMMIT").await?;
            vendor::tune_tables(client).await?;
            if is_unfinished(client).await? {
                return Ok(Err(OpenError::Unfinished { place: target.to_string() }));
            }
            Ok(shards_of(target, shards))
        }
        Err(error) => {
            client.batch_execute("ROLLBACK").await?;
            Err(error)
        }
    }
}

/// The format of a store: of its tables, or of its rows, whichever is higher.
async fn format_of(client: &Client, row: &Row) -> Result<u32, Error> {
    let tables = u32::try_from(row.try_get::<_, i32>(0)?).unwrap_or_default();
    Ok(tables.max(agreed(client).await?))
}

/// The format that nodes have agreed on; 0 if there never were any.
async fn agreed(client: &Client) -> Result<u32, Error> {
    let found = match client.query_opt("SELECT value FROM wayleave_rows WHERE key = $1", &[&join::key()]).await {
        Err(error) if error.code().is_some_and(|code| code.code() == "42P01") => None,
        found => found?,
    };
    let Some(row) = found else { return Ok(0) };
    // A damaged row is refused when the node joins.
    Ok(join::decode(row.try_get(0)?).map_or(0, |(_, format)| format))
}

/// Whether a copy into this database was interrupted, or is under way.
async fn is_unfinished(client: &Client) -> Result<bool, Error> {
    match client.query_opt("SELECT what FROM wayleave_loading", &[]).await {
        Err(error) if error.code().is_some_and(|code| code.code() == "42P01") => Ok(false),
        found => found.map(|_| true),
    }
}

/// The number of shards of the store in a database; `None` if there is no store. Nothing is created.
pub(crate) async fn find(client: &Client, target: &Target) -> Result<Option<u16>, OpenError> {
    let found = match client.query_opt(FOUND, &[]).await {
        Err(error) if error.code().is_some_and(|code| code.code() == "42P01") => return Ok(None),
        found => found.map_err(|error| OpenError::sort(target, &Trouble::Said(error)))?,
    };
    let Some(row) = found else { return Ok(None) };
    let sort = |error| OpenError::sort(target, &Trouble::Said(error));
    let shards = row.try_get::<_, i32>(1).map_err(sort)?;
    let found = format_of(client, &row).await.map_err(sort)?;
    if found > VERSION {
        return Err(OpenError::Newer { place: target.to_string(), found });
    }
    match is_unfinished(client).await {
        Ok(false) => shards_of(target, shards).map(Some),
        Ok(true) => Err(OpenError::Unfinished { place: target.to_string() }),
        Err(error) => Err(OpenError::sort(target, &Trouble::Said(error))),
    }
}

/// Creates the tables of a new store.
pub(crate) async fn create(client: &Client, shards: u16) -> Result<(), Error> {
    make_lock(client, shards).await?;
    client.batch_execute("BEGIN").await?;
    run_steps(client).await?;
    client.batch_execute("COMMIT").await?;
    vendor::tune_tables(client).await
}

async fn make_lock(client: &Client, shards: u16) -> Result<(), Error> {
    let table = "CREATE TABLE IF NOT EXISTS wayleave_format \
        (one bool PRIMARY KEY, version int4 NOT NULL, shards int4 NOT NULL, created_at timestamptz NOT NULL DEFAULT now())";
    client.batch_execute(table).await?;
    let row =
        "INSERT INTO wayleave_format (one, version, shards) VALUES (true, 0, $1::int4) ON CONFLICT (one) DO NOTHING";
    client.execute(row, &[&i32::from(shards)]).await.map(drop)
}

/// Under the lock: runs the missing migrations, if another node has not run them meanwhile. The next check notices a
/// store that has become newer. A new store has this program's format.
async fn run_steps(client: &Client) -> Result<i32, Error> {
    let row = client.query_one(LOCKED, &[]).await?;
    let (version, shards): (i32, i32) = (row.try_get(0)?, row.try_get(1)?);
    for step in STEPS.iter().skip(usize::try_from(version).unwrap_or(0)) {
        client.batch_execute(step).await?;
    }
    // Where no nodes have agreed on one, 0 would call the store new.
    let format = if version == 0 { VERSION } else { agreed(client).await? };
    client
        .execute(
            "UPDATE wayleave_format SET version = $1::int4 WHERE one AND version < $1::int4 AND $1::int4 > 0",
            &[&format.cast_signed()],
        )
        .await?;
    Ok(shards)
}

fn shards_of(target: &Target, shards: i32) -> Result<u16, OpenError> {
    match u16::try_from(shards) {
        Ok(shards) if shards > 0 => Ok(shards),
        _ => Err(OpenError::Damaged { place: target.to_string(), what: format!("it has {shards} shards") }),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Barrier;
    use wayleave_testbed::Cluster;

    use super::*;
    use crate::session;

    /// Without the retries after a race, about every second round fails.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn tables_made_at_the_same_moment_are_made_once() {
        const NODES: u16 = 8;
        for _ in 0..5 {
            let url = Cluster::shared().await.fresh_database().await;
            let target = Target::parse(&url).unwrap();
            let start = Arc::new(Barrier::new(usize::from(NODES)));
            let mut tasks = Vec::new();
            for shards in 1..=NODES {
                let client = session::bare(&target).await.unwrap();
                let (target, start) = (target.clone(), Arc::clone(&start));
                tasks.push(tokio::spawn(async move {
                    start.wait().await;
                    prepare(&client, &target, shards).await.unwrap()
                }));
            }
            let mut shards = Vec::new();
            for task in tasks {
                shards.push(task.await.unwrap());
            }
            shards.dedup();
            assert_eq!(shards.len(), 1, "one number of shards for all: {shards:?}");
        }
    }
}
