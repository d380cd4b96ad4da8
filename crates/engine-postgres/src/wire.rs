//! The database as committers use it, behind a trait of three requests, so that a test can substitute a simulated one.

use std::future::Future;

use tokio_postgres::Row;
use wayleave_core::ids::{Epoch, ShardId};
use wayleave_engine::fences::{FenceState, Fences};

use crate::clock::Clock;
use crate::pool::Pool;
use crate::session::CALL;
use crate::transaction::{self, Attempt, FirstStatement, Locks};
use crate::transaction_batch::TransactionBatch;
use crate::trouble::{Class, Trouble, within};

/// The requests of committers.
pub(crate) trait Database: Send + Sync + 'static {
    /// Tries to commit a transaction.
    fn attempt(&self, group: &TransactionBatch, locks: Locks) -> impl Future<Output = Attempt> + Send;

    /// The fence states of shards.
    fn fence_states(&self, shards: Vec<i32>) -> impl Future<Output = Result<Fences, Trouble>> + Send;

    /// The fence states of shards, once everything that they show is as durable as a commit.
    fn settle(&self, shards: Vec<i32>) -> impl Future<Output = Result<Fences, Trouble>> + Send;
}

/// The real database. Leases and shard ownership have connections of their own: they must not queue behind commits, of
/// which there may be as many as there are connections.
pub(crate) struct Wire {
    /// For commits of owners and roles.
    pub(crate) commits: Pool,
    /// For node leases and seats, and notes about time.
    pub(crate) nodes: Pool,
    /// For taking shards.
    pub(crate) owns: Pool,
    pub(crate) clock: Clock,
}

impl Database for Wire {
    async fn attempt(&self, group: &TransactionBatch, locks: Locks) -> Attempt {
        let pool = if group.about_nodes { &self.nodes } else { &self.commits };
        let session = match pool.lease().await {
            Ok(session) => session,
            // Nothing was sent.
            Err(trouble) => return Attempt::Undone(trouble),
        };
        let attempt = transaction::run(&session, &self.clock, FirstStatement::Fences, group, locks).await;
        let sound = match &attempt {
            Attempt::Done(_) | Attempt::Fenced | Attempt::Conflict | Attempt::Locked(_) => true,
            Attempt::Undone(trouble) => trouble.class() != Class::Lost,
            Attempt::InDoubt(_) => false,
        };
        if sound {
            session.keep();
        }
        attempt
    }

    async fn fence_states(&self, shards: Vec<i32>) -> Result<Fences, Trouble> {
        let session = self.commits.lease().await?;
        let rows = within(CALL, session.client.query(&session.statements.fence_states, &[&shards])).await?;
        session.keep();
        read_turns(&rows)
    }

    /// Seeing a commit is not enough: one whose wait for a standby was cancelled is visible, yet lost in a failover. So
    /// a write follows it.
    async fn settle(&self, shards: Vec<i32>) -> Result<Fences, Trouble> {
        let at = self.clock.now().0.cast_signed();
        let session = self.commits.lease().await?;
        let warnings = session.warnings();
        let rows = within(CALL, session.client.query(&session.statements.settle, &[&shards, &at])).await?;
        if let Some(warning) = session.warned_since(warnings) {
            return Err(Trouble::Warned(warning));
        }
        session.keep();
        read_turns(&rows)
    }
}

fn read_turns(rows: &[Row]) -> Result<Fences, Trouble> {
    let mut fences = Fences::default();
    for row in rows {
        let (shard, epoch, seq): (i32, i64, i64) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let fence_state = FenceState { epoch: Epoch(epoch.cast_unsigned()), seq: seq.cast_unsigned() };
        fences.set(ShardId(u16::try_from(shard).unwrap_or(u16::MAX)), fence_state);
    }
    Ok(fences)
}
