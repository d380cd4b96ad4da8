//! The greatest timeline that was seen. Connections to a server of a lesser one are dropped: it is an old primary that was left running
//! after a failover, and what it says is out of date.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Shared by all connections of a store. Databases without timelines say 0 on all of them.
#[derive(Clone, Default)]
pub(crate) struct Timelines(Arc<AtomicU64>);

impl Timelines {
    /// The greatest one seen.
    pub(crate) fn newest(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Takes note of a connection's timeline. Whether it is the greatest one seen.
    pub(crate) fn admit(&self, timeline: u64) -> bool {
        self.0.fetch_max(timeline, Ordering::AcqRel) <= timeline
    }
}
