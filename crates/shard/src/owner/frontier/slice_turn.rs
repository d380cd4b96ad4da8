//! The turn of one shard to work in slices on what no caller waits for. Shards share their threads: if many worked at the same time,
//! every call would wait for a slice of each.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// How often a shard asks again.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// A shard's turn. It keeps it until its work is done.
pub(crate) struct SliceTurn {
    turns: Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
    ask_at: Option<Instant>,
}

impl SliceTurn {
    /// No turn yet.
    pub const fn new(turns: Arc<Semaphore>) -> Self {
        Self { turns, held: None, ask_at: None }
    }

    /// Whether it is the shard's turn; takes it if it is free.
    pub fn take(&mut self) -> bool {
        if self.held.is_none() {
            self.held = Arc::clone(&self.turns).try_acquire_owned().ok();
            self.ask_at = self.held.is_none().then(|| Instant::now() + ASK_AGAIN_AFTER);
        }
        self.held.is_some()
    }

    /// Gives it to another shard.
    pub fn give_back(&mut self) {
        (self.held, self.ask_at) = (None, None);
    }

    /// How long until the shard goes on, or asks again.
    pub fn idle_for(&self) -> Duration {
        self.ask_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_shard_works_at_a_time_and_the_others_ask_again_later() {
        let turns = Arc::new(Semaphore::new(1));
        let (mut one, mut other) = (SliceTurn::new(Arc::clone(&turns)), SliceTurn::new(turns));
        assert_eq!(other.idle_for(), Duration::ZERO);
        assert!(one.take() && one.take() && !other.take());
        assert_eq!((one.idle_for(), other.idle_for()), (Duration::ZERO, ASK_AGAIN_AFTER));
        one.give_back();
        tokio::time::advance(ASK_AGAIN_AFTER).await;
        assert_eq!(other.idle_for(), Duration::ZERO);
        assert!(other.take() && !one.take());
        drop(other);
        assert!(one.take(), "also if the shard was given up");
    }
}
