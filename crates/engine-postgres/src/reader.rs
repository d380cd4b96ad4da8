//! Reads a whole store at one moment, for snapshots and copies: one connection, one `REPEATABLE READ` transaction.
//!
//! It sees what was committed before it began, whatever nodes commit meanwhile. The open transaction keeps old row versions
//! alive, so it should be short-lived.

use std::collections::BTreeMap;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};
use wayleave_core::ids::{Epoch, ShardId};
use wayleave_core::time::Time;
use wayleave_engine::fences::FenceState;
use wayleave_engine::snapshot_file::SnapshotHeader;
use wayleave_engine::{Error, Key, Row};

use crate::open_error::OpenError;
use crate::past_damage::{Readable, past_damage};
use crate::schema;
use crate::session;
use crate::statements::FIRST_KEY;
use crate::target::Target;
use crate::trouble::{Class, Trouble};

/// Plans as in every session, see `vendor.rs`; no time limit, because all is read in one transaction.
const BEGIN: &str = "SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; SET enable_seqscan = off; \
    SET enable_bitmapscan = off; BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SAVEPOINT readable";
/// Without it, a read that fails because a page is damaged would end the transaction.
const GO_ON: &str = "ROLLBACK TO SAVEPOINT readable";

const FENCES: &str = "SELECT shard, epoch, seq, at, (extract(epoch FROM statement_timestamp()) * 1000)::int8 \
    FROM wayleave_fences ORDER BY shard";
const NOW: &str = "SELECT (extract(epoch FROM statement_timestamp()) * 1000)::int8";
const PAGE: &str = "SELECT key, value FROM wayleave_rows WHERE key >= $1::bytea ORDER BY key LIMIT $2::int8";

/// A store at one moment.
pub struct Reader {
    client: Client,
    page: Statement,
    first_key: Statement,
    header: SnapshotHeader,
}

impl Reader {
    /// Opens the store in a database, which must exist. Fails if the database cannot be used, or has no store.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        let target = Target::parse(url)?;
        let sort = |trouble: &Trouble| OpenError::sort(&target, trouble);
        let client = session::bare(&target).await.map_err(|trouble| sort(&trouble))?;
        let shards = schema::find(&client, &target).await?;
        let shards = shards.ok_or_else(|| OpenError::NoStore { place: target.to_string() })?;
        let begun = async {
            client.batch_execute(BEGIN).await?;
            let mut header = SnapshotHeader { shards, ..SnapshotHeader::default() };
            let now: i64 = client.query_one(NOW, &[]).await?.try_get(0)?;
            header.at = Time(now.max(0).cast_unsigned());
            header.fences = read_fences(&client, &mut header.at).await?;
            Ok((client.prepare(PAGE).await?, client.prepare(FIRST_KEY).await?, header))
        };
        let begun: Result<_, tokio_postgres::Error> = begun.await;
        let (page, first_key, header) = begun.map_err(|error| sort(&Trouble::Said(error)))?;
        Ok(Self { client, page, first_key, header })
    }

    /// What a copy must know besides the rows.
    #[must_use]
    pub const fn header(&self) -> &SnapshotHeader {
        &self.header
    }

    /// At most `limit` rows from a key on, in order. Fails if the database fails; [`Error::Corrupt`] if it has lost
    /// rows.
    pub async fn page(&self, from: &[u8], limit: usize) -> Result<Vec<Row>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self.query(&self.page, &[&from, &limit]).await?;
        let row =
            |row: &tokio_postgres::Row| Some(Row { key: row.try_get::<_, Key>(0).ok()?, value: row.try_get(1).ok()? });
        let rows: Option<Vec<Row>> = rows.iter().map(row).collect();
        rows.ok_or_else(|| Error::Corrupt("the database returned rows of another shape".into()))
    }

    /// The next key whose row can be read, if none can be at this one; `end` if there is none before it.
    pub async fn past_damage(&self, from: &[u8], end: &[u8]) -> Result<Key, Error> {
        past_damage(self, (from, end)).await
    }

    async fn query(
        &self,
        statement: &Statement,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<tokio_postgres::Row>, Error> {
        let trouble = match self.client.query(statement, values).await {
            Ok(rows) => return Ok(rows),
            Err(error) => Trouble::Said(error),
        };
        if trouble.class() == Class::Damaged {
            self.client.batch_execute(GO_ON).await.map_err(|error| Trouble::Said(error).unchanged())?;
        }
        Err(trouble.unchanged())
    }
}

impl Readable for Reader {
    async fn first_key(&self, from: &[u8], to: &[u8]) -> Result<Option<Key>, Error> {
        let rows = self.query(&self.first_key, &[&from, &to]).await?;
        let key = rows.first().map(|row| row.try_get(0)).transpose();
        key.map_err(|error| Trouble::Said(error).unchanged())
    }

    async fn first_row(&self, from: &[u8], to: &[u8]) -> Result<Option<Key>, Error> {
        let row = self.page(from, 1).await?.into_iter().next();
        Ok(row.map(|row| row.key).filter(|key| key.as_slice() < to))
    }
}

/// The fences, and the latest time that one of them names.
async fn read_fences(client: &Client, at: &mut Time) -> Result<BTreeMap<ShardId, FenceState>, tokio_postgres::Error> {
    let mut fences = BTreeMap::new();
    for row in client.query(FENCES, &[]).await? {
        let (shard, epoch, seq, last): (i32, i64, i64, i64) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
        *at = (*at).max(Time(last.max(0).cast_unsigned()));
        // One row belongs to no shard: the nodes' notes about time.
        let Ok(shard) = u16::try_from(shard) else { continue };
        fences.insert(ShardId(shard), FenceState { epoch: Epoch(epoch.cast_unsigned()), seq: seq.cast_unsigned() });
    }
    Ok(fences)
}
