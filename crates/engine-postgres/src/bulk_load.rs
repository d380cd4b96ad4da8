//! Fills a new store with sorted rows, for copies, restored snapshots and salvaged stores.
//!
//! While the table `wayleave_loading` exists, no node opens the store. It is created first and dropped last, and names what
//! is being loaded and by whom. Rows are committed page by page in key order, so an interrupted load of the same rows continues
//! after the greatest key; a load of other rows begins anew.
//!
//! An earlier load may not have ended, only be slow. The later one takes its place: it enters itself as the writer, and each
//! page, and the end, locks this entry and applies only if it still names its own writer. What may happen at the same time:
//!
//! 1. A page of the earlier load is being written: the later one waits for its lock on the entry, and then finds the page's rows.
//! 2. The later one has entered itself: pages of the earlier one write nothing, and fail.
//! 3. The later one ends between its entry and the removal of other rows: until these are gone the entry names no
//!    rows, so that no load continues with them.

use tokio_postgres::{Client, Error, Statement};
use wayleave_core::ids::ShardId;
use wayleave_engine::snapshot_file::SnapshotHeader;
use wayleave_engine::{Key, Row, entropy};

use crate::identity;
use crate::open_error::OpenError;
use crate::schema;
use crate::session;
use crate::target::Target;
use crate::trouble::Trouble;

/// Commits of pages need not be durable one by one: the last one is, and all before it with it.
const SESSION: &str = "SET synchronous_commit = off; SET statement_timeout = 0";
const MARK: &str = "CREATE TABLE wayleave_loading (one bool PRIMARY KEY, what text NOT NULL, writer text NOT NULL)";
const ENTER: &str = "INSERT INTO wayleave_loading (one, what, writer) VALUES (true, $1, $2) ON CONFLICT (one) DO UPDATE \
    SET what = excluded.what, writer = excluded.writer";
const GO_ON: &str = "UPDATE wayleave_loading SET writer = $2 WHERE what = $1";
const NAME: &str = "UPDATE wayleave_loading SET what = $1 WHERE writer = $2";
const IS_MINE: &str = "SELECT what FROM wayleave_loading WHERE writer = $1 FOR UPDATE";
const PUT: &str = "WITH mine AS (SELECT 1 FROM wayleave_loading WHERE writer = $3 FOR UPDATE) \
    INSERT INTO wayleave_rows (key, value) SELECT k, v FROM mine, unnest($1::bytea[], $2::bytea[]) AS w (k, v)";
const FENCES: &str = "INSERT INTO wayleave_fences (shard, epoch, seq, at) \
    SELECT s, e, n, $4::int8 FROM unnest($1::int4[], $2::int8[], $3::int8[]) AS w (s, e, n)";

/// A store that is being filled.
pub struct BulkLoad {
    client: Client,
    target: Target,
    put: Statement,
    writer: String,
    header: SnapshotHeader,
    after: Option<Key>,
}

impl BulkLoad {
    /// Begins to fill the store in a database. `what` identifies the rows: an interrupted load of the same rows is
    /// resumed. Fails if the database has a store, or cannot be used.
    pub async fn create(url: &str, header: &SnapshotHeader, what: &str) -> Result<Self, OpenError> {
        let target = Target::parse(url)?;
        let client = session::bare(&target).await.map_err(|trouble| OpenError::sort(&target, &trouble))?;
        let writer = format!("{:032x}", entropy::system());
        let begun = begin(&client, &target, header, (what, &writer)).await;
        let after = begun.map_err(|error| OpenError::sort(&target, &Trouble::Said(error)))??;
        let put = client.prepare(PUT).await.map_err(|error| OpenError::sort(&target, &Trouble::Said(error)))?;
        Ok(Self { client, target, put, writer, header: header.clone(), after })
    }

    /// The last row that an interrupted load has left.
    #[must_use]
    pub const fn after(&self) -> Option<&Key> {
        self.after.as_ref()
    }

    /// Adds rows, each with a greater key than the one before. Fails if the database fails, or a later load has taken
    /// the place of this one.
    pub async fn write(&mut self, rows: &[Row]) -> Result<(), OpenError> {
        let (keys, values): (Vec<&[u8]>, Vec<&[u8]>) = rows.iter().map(|row| (&*row.key, &*row.value)).unzip();
        match self.client.execute(&self.put, &[&keys, &values, &self.writer]).await {
            Ok(written) if written == rows.len() as u64 => Ok(()),
            Ok(_) => Err(self.superseded()),
            Err(error) => Err(OpenError::sort(&self.target, &Trouble::Said(error))),
        }
    }

    fn superseded(&self) -> OpenError {
        OpenError::Superseded { place: self.target.to_string() }
    }

    /// Completes the store: from now on nodes can open it. Fails if the database fails, or a later load has taken the
    /// place of this one.
    pub async fn finish(self) -> Result<(), OpenError> {
        let finish = async {
            self.client.batch_execute("BEGIN; SET LOCAL synchronous_commit = on").await?;
            if self.client.query_opt(IS_MINE, &[&self.writer]).await?.is_none() {
                self.client.batch_execute("ROLLBACK").await?;
                return Ok(false);
            }
            let at = self.header.at.0.cast_signed();
            // The shard -1 has the nodes' notes about time: no clock starts behind the original's.
            let mut fences: Vec<(i32, i64, i64)> = vec![(-1, 0, 0)];
            fences.extend(self.header.fences.iter().map(|(ShardId(shard), fence)| {
                (i32::from(*shard), fence.epoch.0.cast_signed(), fence.seq.cast_signed())
            }));
            let shards: Vec<i32> = fences.iter().map(|fence| fence.0).collect();
            let epochs: Vec<i64> = fences.iter().map(|fence| fence.1).collect();
            let numbers: Vec<i64> = fences.iter().map(|fence| fence.2).collect();
            self.client.execute(FENCES, &[&shards, &epochs, &numbers, &at]).await?;
            self.client.batch_execute(identity::NOWHERE).await?;
            self.client.batch_execute("DROP TABLE wayleave_loading; COMMIT").await?;
            // The planner has seen the table empty.
            self.client.batch_execute("ANALYZE wayleave_rows").await?;
            Ok(true)
        };
        match finish.await {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.superseded()),
            Err(error) => Err(OpenError::sort(&self.target, &Trouble::Said(error))),
        }
    }
}

async fn begin(
    client: &Client,
    target: &Target,
    header: &SnapshotHeader,
    (what, writer): (&str, &str),
) -> Result<Result<Option<Key>, OpenError>, Error> {
    client.batch_execute(SESSION).await?;
    let exists = "SELECT count(*) FROM information_schema.tables WHERE table_schema = ANY (current_schemas(false)) \
        AND table_name = $1";
    let exists = async |table: &str| -> Result<bool, Error> {
        Ok(client.query_one(exists, &[&table]).await?.try_get::<_, i64>(0)? > 0)
    };
    if exists("wayleave_loading").await? {
        if exists("wayleave_rows").await? && client.execute(GO_ON, &[&what, &writer]).await? > 0 {
            let last = client.query_opt("SELECT key FROM wayleave_rows ORDER BY key DESC LIMIT 1", &[]).await?;
            return last.map(|row| row.try_get(0)).transpose().map(Ok);
        }
        // The remains of another load.
        client.execute(ENTER, &[&"", &writer]).await?;
        client.batch_execute("DROP TABLE IF EXISTS wayleave_rows, wayleave_fences, wayleave_format").await?;
    } else {
        if exists("wayleave_format").await? {
            return Ok(Err(OpenError::NotEmpty { place: target.to_string() }));
        }
        client.batch_execute(MARK).await?;
        // A node that creates its store meanwhile either sees the mark, or is seen here.
        if exists("wayleave_format").await? {
            client.batch_execute("DROP TABLE wayleave_loading").await?;
            return Ok(Err(OpenError::NotEmpty { place: target.to_string() }));
        }
        client.execute(ENTER, &[&"", &writer]).await?;
    }
    schema::create(client, header.shards).await?;
    if client.execute(NAME, &[&what, &writer]).await? == 0 {
        return Ok(Err(OpenError::Superseded { place: target.to_string() }));
    }
    Ok(Ok(None))
}
