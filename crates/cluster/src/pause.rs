//! Pausing a simulated process: what happens to one that is stopped and continues later, as if nothing had happened.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wayleave_shard::Broadcast;

/// Whether a process is paused.
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

/// Runs the future, except while the process is paused.
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
