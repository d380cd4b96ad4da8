//! The heart: a node's own row, renewed by the store's clock. Whoever stops renewing is dead to the others at the row's
//! deadline, and must take itself for dead before that.

use std::sync::Arc;

use wayleave_core::cluster::NodeRow;
use wayleave_core::time::{Millis, Time};
use wayleave_engine::rows::{key, node};
use wayleave_engine::{Engine, Error, Scan};
use wayleave_shard::{Deadline, Moment};

use crate::{address, claims};

/// Why a row was not renewed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Missed {
    /// The store did not do as asked.
    Store(Error),
    /// Another node has this one's address, was reached there, and removed this one's row.
    Replaced(NodeRow),
}

impl From<Error> for Missed {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

pub(crate) struct LeaseRenewal {
    pub engine: Arc<dyn Engine>,
    pub row: NodeRow,
    pub ttl: Millis,
}

impl LeaseRenewal {
    /// Renews the row, or writes it if it is not there. Returns until when this node may take itself for alive: counted
    /// from before the store was asked, less a margin for clocks that run at different rates.
    pub async fn beat(&mut self, leaving: bool) -> Result<Deadline, Missed> {
        let sent = Moment::now();
        let key = node::key(self.row.id);
        let scan = Scan { from: key.clone(), to: key::after_prefix(&key), limit: 1 };
        let look = self.engine.look(std::slice::from_ref(&scan)).await?;
        let old = look.rows.into_iter().flatten().next().map(|row| row.value);
        let written = self.row.started_at != Time::ZERO;
        if written && old.is_none() {
            // Removed: long after its end, which is no matter, or by a node that took this one for dead.
            let nodes = address::sharing(&*self.engine, &self.row.address, self.row.id).await?;
            if let Some(other) = nodes.into_iter().find(|node| node.lives) {
                return Err(Missed::Replaced(other.row));
            }
        }
        let batch = claims::renew(&mut self.row, old, look.now, self.ttl, leaving);
        self.engine.commit(batch).await?;
        Ok(Deadline::after(sent, claims::sure_for(self.ttl)))
    }
}
