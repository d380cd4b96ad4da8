//! The heart: a node's own row, renewed by the store's clock. Whoever stops renewing is dead to the others at the row's
//! deadline, and must take itself for dead before that.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use wayleave_core::cluster::NodeRow;
use wayleave_core::time::Millis;
use wayleave_engine::rows::{key, node};
use wayleave_engine::{Batch, Engine, Error, Scan, Write};

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
        let was = old.as_deref().and_then(|value| node::decode(value).ok());
        if !was.is_some_and(|row| row.is_alive(look.now)) {
            self.row.alive_since = look.now;
        }
        if self.row.started_at.0 == 0 {
            self.row.started_at = look.now;
        }
        self.row.expires_at = look.now.after(self.ttl);
        self.row.leaving = leaving;
        let writes = vec![Write { key: key.clone(), value: Some(node::encode(&self.row)) }];
        self.engine.commit(Batch { fences: Vec::new(), expects: vec![(key, old)], writes }).await?;
        Ok(sent + Duration::from_millis(self.ttl.0 - self.ttl.0 / 50))
    }
}
