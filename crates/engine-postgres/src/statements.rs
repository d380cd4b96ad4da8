//! The statements of the hot paths, prepared once per connection.
//!
//! All of this works on YugabyteDB and CockroachDB. A failed check raises division_by_zero, which aborts the
//! transaction: raising a named error would need a procedural language, which is not portable.
//!
//! **The guard.** A transaction is pipelined: its statements are sent before the result of BEGIN is known. If BEGIN
//! failed, each statement would autocommit, without fence or atomicity. So BEGIN sets a transaction-local variable, and
//! a statement that does not see it changes nothing.

use tokio_postgres::{Client, Error, Statement};

use crate::clock::KEPT_US;
use crate::timekeeper::LEAN;

/// The database's time at which a statement arrived, in microseconds: before its snapshot is taken, so what the
/// statement does not see happened later.
const MICROS: &str = "(extract(epoch FROM statement_timestamp()) * 1000000)::int8";

/// Opens a transaction, sets the variable for the guard, and limits the wait for locks. A name with a dot needs no
/// declaration.
pub(crate) const BEGIN: &str = "BEGIN; SET LOCAL wayleave.transaction = 'open'; SET LOCAL lock_timeout = 200";

/// The same with hardly any wait for locks.
pub(crate) const BEGIN_TO_TRY: &str = "BEGIN; SET LOCAL wayleave.transaction = 'open'; SET LOCAL lock_timeout = 10";

/// True within a transaction that [`BEGIN`] has opened and nowhere else.
macro_rules! guard {
    () => {
        "current_setting('wayleave.transaction', true) = 'open'"
    };
}

/// Advances the fences of a batch, or fails. Rows are locked in shard order, so that two nodes that write the same
/// shards cannot deadlock.
const FENCE: &str = concat!(
    "\
WITH want AS (SELECT shard, epoch, prev, next FROM \
  unnest($1::int4[], $2::int8[], $3::int8[], $4::int8[]) AS w (shard, epoch, prev, next) WHERE ",
    guard!(),
    "), \
held AS (SELECT shard FROM wayleave_fences WHERE shard = ANY ($1::int4[]) ORDER BY shard FOR UPDATE), \
done AS (UPDATE wayleave_fences AS f SET seq = w.next, at = greatest(f.at, $5::int8) FROM want AS w, held AS h \
  WHERE f.shard = w.shard AND f.shard = h.shard AND f.epoch = w.epoch AND f.seq = w.prev RETURNING f.shard) \
SELECT 1 / CASE WHEN (SELECT count(*) FROM done) = $6::int8 THEN 1 ELSE 0 END, "
);

/// Locks rows and fails unless each exists with its expected value.
const EXPECT: &str = "\
WITH want AS (SELECT k, v FROM unnest($1::bytea[], $2::bytea[]) AS w (k, v)), \
held AS (SELECT key, value FROM wayleave_rows WHERE key = ANY ($1::bytea[]) ORDER BY key FOR UPDATE) \
SELECT 1 / CASE WHEN (SELECT count(*) FROM held, want WHERE key = k AND value = v) = $3::int8 THEN 1 ELSE 0 END";

/// Inserts placeholders for rows that must be absent: a plain insert, so that only one of two nodes succeeds.
const ABSENT: &str = concat!(
    "INSERT INTO wayleave_rows (key, value) SELECT k, ''::bytea FROM unnest($1::bytea[]) AS w (k) WHERE ",
    guard!()
);

const PUT: &str = concat!(
    "INSERT INTO wayleave_rows (key, value) SELECT k, v FROM unnest($1::bytea[], $2::bytea[]) AS w (k, v) WHERE ",
    guard!(),
    " ON CONFLICT (key) DO UPDATE SET value = excluded.value"
);

const DELETE: &str = concat!("DELETE FROM wayleave_rows WHERE key = ANY ($1::bytea[]) AND ", guard!());

const OWN: &str = concat!(
    "INSERT INTO wayleave_fences (shard, epoch, seq, at) SELECT $1::int4, 1, 0, $2::int8 WHERE ",
    guard!(),
    " ON CONFLICT (shard) DO UPDATE SET epoch = wayleave_fences.epoch + 1, at = greatest(wayleave_fences.at, excluded.at) RETURNING epoch, seq, at, "
);

const TURNS: &str = "SELECT shard, epoch, seq FROM wayleave_fences WHERE shard = ANY ($1::int4[])";

/// The fence states of shards, and a write: once that is durable, so is every earlier commit, also on synchronous
/// standbys.
const SETTLE: &str = "\
UPDATE wayleave_fences SET at = greatest(at, $2::int8) WHERE shard = ANY ($1::int4[]) RETURNING shard, epoch, seq";

const GET: &str = "SELECT key, value FROM wayleave_rows WHERE key = ANY ($1::bytea[])";

const SCAN: &str =
    "SELECT key, value FROM wayleave_rows WHERE key >= $1::bytea AND key < $2::bytea ORDER BY key LIMIT $3::int8";

/// The first key of a range. It reads no value.
pub(crate) const FIRST_KEY: &str =
    "SELECT key FROM wayleave_rows WHERE key >= $1::bytea AND key < $2::bytea ORDER BY key LIMIT 1";

/// The statements of one connection.
pub(crate) struct Statements {
    pub(crate) fence: Statement,
    pub(crate) expect: Statement,
    pub(crate) absent: Statement,
    pub(crate) put: Statement,
    pub(crate) delete: Statement,
    pub(crate) own: Statement,
    pub(crate) fence_states: Statement,
    pub(crate) settle: Statement,
    pub(crate) note: Statement,
    pub(crate) get: Statement,
    pub(crate) scan: Statement,
    pub(crate) first_key: Statement,
    pub(crate) time: Statement,
}

impl Statements {
    /// Prepares all of them in one round trip.
    pub(crate) async fn prepare(client: &Client, incarnation: &str) -> Result<Self, Error> {
        let (fence, own) = (format!("{FENCE}{MICROS}"), format!("{OWN}{MICROS}"));
        let (note, time) = (note(), time(incarnation));
        let (fence, expect, absent, put, delete, own, fence_states, settle, note, get, scan, first_key, time) = futures::try_join!(
            client.prepare(&fence),
            client.prepare(EXPECT),
            client.prepare(ABSENT),
            client.prepare(PUT),
            client.prepare(DELETE),
            client.prepare(&own),
            client.prepare(TURNS),
            client.prepare(SETTLE),
            client.prepare(&note),
            client.prepare(GET),
            client.prepare(SCAN),
            client.prepare(FIRST_KEY),
            client.prepare(&time),
        )?;
        Ok(Self { fence, expect, absent, put, delete, own, fence_states, settle, note, get, scan, first_key, time })
    }
}

/// A note about time for all nodes, in a fence row that belongs to no shard: `at` is the time of a node that leads the database's clock,
/// `seq` what that clock showed then. Of leads, which shrink by one part in [`LEAN`], the greatest is kept (see [`crate::clock`]).
/// Both are rounded to milliseconds, so that a node replaces its own note.
fn note() -> String {
    let kept_ms = KEPT_US / 1_000;
    format!(
        "INSERT INTO wayleave_fences AS f (shard, epoch, seq, at) VALUES (-1, 0, $1::int8, $2::int8) ON CONFLICT (shard) DO UPDATE \
         SET seq = excluded.seq, at = excluded.at WHERE f.at < excluded.at AND (excluded.seq - f.seq >= {kept_ms} \
         OR excluded.at - excluded.seq + 2 >= f.at - f.seq - (excluded.seq - f.seq) / {LEAN})"
    )
}

/// The database's time, the nodes' notes about time (see [`note`]), and the store's incarnation. It reads only that one
/// row: the fences of all shards change with every commit, and a scan of them would visit every version that an old
/// snapshot keeps alive.
fn time(incarnation: &str) -> String {
    format!(
        "SELECT {MICROS}, coalesce((SELECT at FROM wayleave_fences WHERE shard = -1), 0)::int8, \
         coalesce((SELECT seq FROM wayleave_fences WHERE shard = -1), 0)::int8, ({incarnation})::int8"
    )
}
