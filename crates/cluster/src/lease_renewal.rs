//! Lease renewal: a node's own row, renewed by the store's clock. Whoever stops renewing is dead to the others at the row's
//! deadline, and must take itself for dead before that.

use std::collections::BTreeSet;

use wayleave_core::cluster::NodeRow;
use wayleave_core::ids::NodeId;
use wayleave_core::time::Millis;
use wayleave_engine::rows::{join, node};
use wayleave_engine::{Error, Look};
use wayleave_registry::{Decision, News, Registry, Subject, value};
use wayleave_shard::{Deadline, Moment};

use crate::claims;

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

/// What became of a row that was to be created.
pub(crate) enum Creation {
    /// It is there, and the node may take itself for alive until then.
    Done(Deadline),
    /// Nothing was written: this living node has the address.
    Taken(NodeRow),
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
            return Ok(Deadline::after(sent, claims::sure_for(self.ttl)));
        }
        // Removed: long after its end, which is no matter, or by a node that took this one for dead.
        match self.create(leaving, &BTreeSet::new()).await? {
            Creation::Done(deadline) => Ok(deadline),
            Creation::Taken(other) => Err(Missed::Replaced(other)),
        }
    }

    /// Creates the row, unless a living node that is not in `silent` has the address.
    pub async fn create(&mut self, leaving: bool, silent: &BTreeSet<NodeId>) -> Result<Creation, Error> {
        let sent = Moment::now();
        let (ttl, row) = (self.ttl, &mut self.row);
        let scans = claims::join_scans();
        let subject = Subject { key: join::key(), scans, name: "the joins of nodes", ends: |_| None };
        let decide = |look: &Look, _| match claims::join(look, row, silent, ttl, leaving) {
            Ok(Ok(writes)) => Decision::write(writes, News::NOBODY, Ok(None)),
            Ok(Err(taken)) => Decision::keep(Ok(Some(taken))),
            Err(damaged) => Decision::keep(Err(Error::Corrupt(damaged.to_string()))),
        };
        let taken = self.registry.update_here(&subject, decide).await??;
        Ok(taken.map_or_else(|| Creation::Done(Deadline::after(sent, claims::sure_for(ttl))), Creation::Taken))
    }

    /// Renews the row. If it is not there, nothing is written, and this is false.
    async fn renew(&mut self, leaving: bool) -> Result<bool, Error> {
        let (key, ttl, row) = (node::key(self.row.id), self.ttl, &mut self.row);
        let subject = Subject::row(key.clone(), "the row of this node");
        let decide = |look: &Look, _| match value(look, &key).cloned() {
            None => Decision::keep(false),
            old => Decision::write(claims::renew(row, old, look.now, ttl, leaving).writes, News::NOBODY, true),
        };
        self.registry.update_here(&subject, decide).await
    }
}
