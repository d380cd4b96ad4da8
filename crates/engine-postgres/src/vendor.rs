//! What only PostgreSQL itself has. Databases that merely speak its protocol refuse some of this; then the engine works
//! without it, and only this file knows.

use tokio_postgres::Client;

use crate::Durability;

/// The timeline, which grows whenever a standby is promoted or a backup is restored. Taken from the current WAL
/// position; the control file lags behind a promotion until the first checkpoint.
const TIMELINE: &str = "SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int8";

/// Which database of which cluster this is. A promoted standby is the same one; what `CREATE DATABASE … TEMPLATE` or a dump makes
/// is another one.
const IDENTITY: &str = "SELECT system_identifier::text || '/' || (SELECT oid::text FROM pg_database WHERE datname = current_database()) \
                        FROM pg_control_system()";

/// For databases without timelines.
const NO_INCARNATION: &str = "0";

/// Session settings. Every read is an index scan, and the statistics of a young table must not make the planner choose
/// otherwise. With the other plans disabled costs look high, which must not trigger JIT compilation.
const SETTINGS: &[&str] = &[
    "SET enable_seqscan = off",
    "SET enable_bitmapscan = off",
    "SET jit = off",
    "SET default_transaction_isolation = 'read committed'",
    // A node that is partitioned in the middle of a transaction must not hold its locks for long.
    "SET tcp_keepalives_idle = 5",
    "SET tcp_keepalives_interval = 2",
    "SET tcp_keepalives_count = 3",
    "SET tcp_user_timeout = 10000",
    // Durable before answered, on disk and on synchronous standbys, whatever the server's default is.
    "SELECT set_config('synchronous_commit', 'on', false) \
     WHERE current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')",
];

/// Storage settings: fences are updated in place (HOT), so their pages need free space; queues leave dead rows behind.
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

/// The SQL expression for the store's incarnation.
pub(crate) async fn incarnation(client: &Client) -> &'static str {
    if client.query_one(TIMELINE, &[]).await.is_ok() { TIMELINE } else { NO_INCARNATION }
}

/// The identity of the database, if it has one.
pub(crate) async fn identity(client: &Client) -> Option<String> {
    client.query_one(IDENTITY, &[]).await.ok()?.try_get(0).ok()
}

/// The durability settings of the database.
pub(crate) async fn durability(client: &Client) -> Durability {
    let show = async |name: &str| {
        let row = client.query_one("SELECT current_setting($1, true)", &[&name]).await.ok()?;
        row.try_get::<_, Option<String>>(0).ok().flatten()
    };
    Durability {
        fsync: show("fsync").await.is_none_or(|value| value != "off"),
        // The server's default: this session's own value was raised above.
        synchronous_commit: reset_value(client).await.unwrap_or_else(|| "on".into()),
        synchronous_standbys: show("synchronous_standby_names").await.unwrap_or_default(),
    }
}

async fn reset_value(client: &Client) -> Option<String> {
    let text = "SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit'";
    client.query_opt(text, &[]).await.ok()??.try_get(0).ok()
}

/// Runs a statement that the database may not support. Only a lost connection is an error.
async fn attempt(client: &Client, text: &str) -> Result<(), tokio_postgres::Error> {
    match client.batch_execute(text).await {
        Err(error) if error.as_db_error().is_none() => Err(error),
        _ => Ok(()),
    }
}
