//! Lease renewal: a node's own row, renewed by the store's clock. Whoever stops renewing is dead to the others at the row's
//! deadline, and must take itself for dead before that.

use wayleave_core::cluster::NodeRow;
use wayleave_core::time::{Millis, Time};
use wayleave_engine::rows::node;
use wayleave_engine::{Error, Look};
use wayleave_registry::{Decision, News, Registry, Subject, value};
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
    pub registry: Registry,
    pub row: NodeRow,
    pub ttl: Millis,
}

impl LeaseRenewal {
    /// Renews the row, or writes it if it is not there. Returns until when this node may take itself for alive: counted
    /// from before the store was asked, less a margin for clocks that run at different rates.
    pub async fn extend(&mut self, leaving: bool) -> Result<Deadline, Missed> {
        let sent = Moment::now();
        let joined = self.row.started_at != Time::ZERO;
        if !self.renew(leaving, joined).await? {
            // Removed: long after its end, which is no matter, or by a node that took this one for dead.
            let nodes = address::sharing(&self.registry, &self.row.address, self.row.id).await?;
            if let Some(other) = nodes.into_iter().find(|node| node.lives) {
                return Err(Missed::Replaced(other.row));
            }
            self.renew(leaving, false).await?;
        }
        Ok(Deadline::after(sent, claims::sure_for(self.ttl)))
    }

    /// Renews the row. If it must be there and is not, nothing is written, and this is false.
    async fn renew(&mut self, leaving: bool, must_exist: bool) -> Result<bool, Error> {
        let (key, ttl, row) = (node::key(self.row.id), self.ttl, &mut self.row);
        let subject = Subject::row(key.clone(), "the row of this node");
        let decide = |look: &Look, _| {
            let old = value(look, &key).cloned();
            if must_exist && old.is_none() {
                return Decision::keep(false);
            }
            Decision::write(claims::renew(row, old, look.now, ttl, leaving).writes, News::NOBODY, true)
        };
        self.registry.update_here(&subject, decide).await
    }
}
