//! The newest timeline seen. Connections to a server with an older one are dropped: it is an old primary that was left
//! running after a failover, and its data is stale.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Shared by all connections of a store. Databases without timelines always report 0.
#[derive(Clone, Default)]
pub(crate) struct Timelines(Arc<AtomicU64>);

impl Timelines {
    /// The newest timeline seen.
    pub(crate) fn newest(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Records a connection's timeline; false if it is older than the newest.
    pub(crate) fn admit(&self, timeline: u64) -> bool {
        self.0.fetch_max(timeline, Ordering::AcqRel) <= timeline
    }
}
