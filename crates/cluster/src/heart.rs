//! The heart: a node's own row, renewed by the store's clock. Whoever stops renewing is dead to the others at the row's
//! deadline, and must take itself for dead before that.

use std::sync::Arc;

use tokio::time::Instant;
use wayleave_core::cluster::NodeRow;
use wayleave_core::time::Millis;
use wayleave_engine::rows::{key, node};
use wayleave_engine::{Engine, Error, Scan};

use crate::claims;

pub(crate) struct Heart {
    pub engine: Arc<dyn Engine>,
    pub row: NodeRow,
    pub ttl: Millis,
}

impl Heart {
    /// Renews the row, or writes it if it is not there. Returns until when this node may take itself for alive: counted
    /// from before the store was asked, less a margin for clocks that run at different rates.
    pub async fn beat(&mut self, leaving: bool) -> Result<Instant, Error> {
        let sent = Instant::now();
        let key = node::key(self.row.id);
        let scan = Scan { from: key.clone(), to: key::after_prefix(&key), limit: 1 };
        let look = self.engine.look(std::slice::from_ref(&scan)).await?;
        let old = look.rows.into_iter().flatten().next().map(|row| row.value);
        let batch = claims::renew(&mut self.row, old, look.now, self.ttl, leaving);
        self.engine.commit(batch).await?;
        Ok(sent + claims::sure_for(self.ttl))
    }
}
