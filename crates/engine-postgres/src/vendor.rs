//! What only PostgreSQL itself has. Databases that merely speak its wire refuse some of this; then the engine goes
//! without, and nothing but this file knows.

use tokio_postgres::Client;

use crate::Durability;

/// The timeline: it grows whenever a standby is promoted or a backup brought back. Taken from where the log is written
/// now; the control file lags behind a promotion until the first checkpoint.
const TIMELINE: &str = "SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int8";

/// For databases without timelines.
const NO_INCARNATION: &str = "0";

/// Settings of a session. Every read is a walk along the one index: no statistics of a young table may talk the planner
/// into anything else. With those ways barred plans look dear, which must not start the compiler.
const SETTINGS: &[&str] = &[
    "SET enable_seqscan = off",
    "SET enable_bitmapscan = off",
    "SET jit = off",
    "SET default_transaction_isolation = 'read committed'",
    // A node that is cut off in the middle of a transaction must not hold its locks for long.
    "SET tcp_keepalives_idle = 5",
    "SET tcp_keepalives_interval = 2",
    "SET tcp_keepalives_count = 3",
    "SET tcp_user_timeout = 10000",
    // Durable before answered, on disk and on the standbys that the server names, whatever its default is.
    "SELECT set_config('synchronous_commit', 'on', false) \
     WHERE current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')",
];

/// How tables are stored: fences are updated in place, so their pages need room; queues leave dead rows behind.
const STORAGE: &[&str] = &[
    "ALTER TABLE wayleave_fences SET (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000)",
    "ALTER TABLE wayleave_rows SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1)",
];

/// Tunes a session as far as the database allows.
pub(crate) async fn tune(client: &Client) -> Result<(), tokio_postgres::Error> {
    futures::future::try_join_all(SETTINGS.iter().map(|setting| attempt(client, setting))).await.map(drop)
}

/// Tunes the tables as far as the database allows.
pub(crate) async fn tune_tables(client: &Client) -> Result<(), tokio_postgres::Error> {
    for change in STORAGE {
        attempt(client, change).await?;
    }
    Ok(())
}

/// The expression that tells which store answers.
pub(crate) async fn incarnation(client: &Client) -> &'static str {
    if client.query_one(TIMELINE, &[]).await.is_ok() { TIMELINE } else { NO_INCARNATION }
}

/// What the database says about its own durability.
pub(crate) async fn durability(client: &Client) -> Durability {
    let show = async |name: &str| {
        let row = client.query_one("SELECT current_setting($1, true)", &[&name]).await.ok()?;
        row.try_get::<_, Option<String>>(0).ok().flatten()
    };
    Durability {
        fsync: show("fsync").await.is_none_or(|value| value != "off"),
        // What the server would do by itself: the session's own value is raised above.
        synchronous_commit: reset_value(client).await.unwrap_or_else(|| "on".into()),
        synchronous_standbys: show("synchronous_standby_names").await.unwrap_or_default(),
    }
}

async fn reset_value(client: &Client) -> Option<String> {
    let text = "SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit'";
    client.query_opt(text, &[]).await.ok()??.try_get(0).ok()
}

/// Runs a statement that the database may not understand. Only a lost connection is an error.
async fn attempt(client: &Client, text: &str) -> Result<(), tokio_postgres::Error> {
    match client.batch_execute(text).await {
        Err(error) if error.as_db_error().is_none() => Err(error),
        _ => Ok(()),
    }
}
