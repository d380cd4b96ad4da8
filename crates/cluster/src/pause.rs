//! Standing still: what becomes of a process that is stopped and goes on later, as if nothing had been.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wayleave_shard::Broadcast;

/// Whether a process stands still.
#[derive(Clone, Default)]
pub(crate) struct Pause {
    still: Arc<AtomicBool>,
    changed: Broadcast,
}

impl Pause {
    pub fn set(&self, still: bool) {
        self.still.store(still, Ordering::Release);
        self.changed.notify();
    }

    async fn until(&self, still: bool) {
        let mut changed = self.changed.subscribe();
        while self.still.load(Ordering::Acquire) != still {
            changed.changed().await;
        }
    }
}

/// Does the work, except while the process stands still.
pub(crate) async fn unless_paused(still: Pause, work: impl Future<Output = ()>) {
    tokio::pin!(work);
    loop {
        still.until(false).await;
        tokio::select! {
            biased;
            () = still.until(true) => {}
            () = &mut work => return,
        }
    }
}
