//! Lease renewal: a node's own row, renewed by the store's clock. A node that stops renewing is dead to the others at
//! the row's deadline, and must take itself for dead before that.

use std::collections::BTreeSet;

use wayleave_core::cluster::NodeRow;
use wayleave_core::ids::NodeId;
use wayleave_core::time::Millis;
use wayleave_engine::rows::{join, node};
use wayleave_engine::{Error, Look};
use wayleave_registry::{Decision, News, Registry, Subject, value};
use wayleave_shard::{Deadline, Moment};

use crate::cluster_rows::{self, Refused};
use crate::join_error::JoinError;

/// Why a row was not renewed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Missed {
    /// The store did not do as asked.
    Store(Error),
    /// The row is gone, and the node may not join again.
    Out(JoinError),
}

impl From<Error> for Missed {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

/// What became of a row that was to be created.
pub(crate) enum Creation {
    /// It is there, and the node may take itself for alive until then.
    Done(Deadline),
    /// Nothing was written.
    Refused(Refused),
}

pub(crate) struct LeaseRenewal {
    pub registry: Registry,
    pub row: NodeRow,
    pub ttl: Millis,
}

impl LeaseRenewal {
    /// Renews the row, or creates it again if it is not there. Returns until when this node may take itself for alive: counted
    /// from before the store was asked, less a margin for clocks that run at different rates.
    pub async fn extend(&mut self, leaving: bool) -> Result<Deadline, Missed> {
        let sent = Moment::now();
        if self.renew(leaving).await? {
            return Ok(Deadline::after(sent, cluster_rows::sure_for(self.ttl)));
        }
        // Removed: long after its end, which is no matter, or by a node that took this one for dead.
        match self.create(leaving, &BTreeSet::new()).await? {
            Creation::Done(deadline) => Ok(deadline),
            Creation::Refused(Refused::Newer(found)) => Err(Missed::Out(self.newer(found))),
            // That node was reached there, and removed this one's row.
            Creation::Refused(Refused::Taken(NodeRow { id, address, name, .. })) => {
                Err(Missed::Out(JoinError::Replaced { address: address.into(), name: name.into(), id }))
            }
        }
    }

    /// The error for a store with a format that this node does not know.
    pub fn newer(&self, found: u32) -> JoinError {
        JoinError::Newer { found, known: self.row.format }
    }

    /// Creates the row, unless a living node that is not in `silent` has the address, or the store's format is not known.
    pub async fn create(&mut self, leaving: bool, silent: &BTreeSet<NodeId>) -> Result<Creation, Error> {
        let sent = Moment::now();
        let (ttl, row) = (self.ttl, &mut self.row);
        let scans = cluster_rows::join_scans();
        let subject = Subject { key: join::key(), scans, name: "the joins of nodes", ends: |_| None };
        let decide = |look: &Look, _| match cluster_rows::join(look, row, silent, ttl, leaving) {
            Ok(Ok(writes)) => Decision::write(writes, News::NOBODY, Ok(None)),
            Ok(Err(refused)) => Decision::keep(Ok(Some(refused))),
            Err(damaged) => Decision::keep(Err(Error::Corrupt(damaged.to_string()))),
        };
        let refused = self.registry.update_here(&subject, decide).await??;
        Ok(refused
            .map_or_else(|| Creation::Done(Deadline::after(sent, cluster_rows::sure_for(ttl))), Creation::Refused))
    }

    /// Renews the row. If it is not there, nothing is written, and this is false.
    async fn renew(&mut self, leaving: bool) -> Result<bool, Error> {
        let (key, ttl, row) = (node::key(self.row.id), self.ttl, &mut self.row);
        let subject = Subject::row(key.clone(), "the row of this node");
        let decide = |look: &Look, _| match value(look, &key).cloned() {
            None => Decision::keep(false),
            old => Decision::write(cluster_rows::renew(row, old, look.now, ttl, leaving).writes, News::NOBODY, true),
        };
        self.registry.update_here(&subject, decide).await
    }
}
