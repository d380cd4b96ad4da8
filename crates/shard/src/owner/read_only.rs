//! An owner whose store refuses changes, for instance because the disk is full: it answers reads from the memory that it
//! read under its present epoch, refuses every change at the door, and asks the store now and then with an empty commit.
//!
//! Changes are refused before they are decided, so the memory stays what the store has, and no call costs a reload. Nothing
//! that the owner does by itself (expiry, jobs, writing out the log) is begun either.

use std::time::Duration;

use tokio::time::Instant;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_engine::Error;

use crate::owner::owner_loop::Owner;
use crate::owner::run::TRY_AGAIN_AFTER;

/// Why changes are refused, and when the store is asked again.
pub(crate) struct Refusing {
    why: String,
    probe_at: Instant,
}

impl Owner {
    /// Refuses changes from now on; asks the store again after `wait`.
    pub fn refuse_changes(&mut self, why: String, wait: Duration) {
        self.refusing = Some(Refusing { why, probe_at: Instant::now() + wait });
    }

    /// What callers hear who ask for a change, while changes are refused.
    pub fn refusal(&self) -> Option<Refusal> {
        let why = &self.refusing.as_ref()?.why;
        Some(Refusal::Unavailable(format!("the store refuses changes at the moment: {why}")))
    }

    /// How long until the store is to be asked again.
    pub fn probe_in(&self) -> Option<Duration> {
        let refusing = self.refusing.as_ref()?;
        Some(refusing.probe_at.saturating_duration_since(Instant::now()))
    }

    /// Asks the store with an empty commit whether it takes changes again, if it is time.
    pub async fn probe(&mut self) -> Result<(), Error> {
        if self.probe_in().is_none_or(|left| !left.is_zero()) {
            return Ok(());
        }
        let shard = self.shard.0;
        match self.flush().await {
            Ok(()) => {
                self.refusing = None;
                self.readiness.set_trouble(self.shard, None);
                if let Some(left_out) = self.readiness.log.recoveries.line() {
                    tracing::info!(shard, left_out, "the store takes changes");
                }
                Ok(())
            }
            // An empty commit that was refused has changed neither the store nor the memory.
            Err(Error::Unavailable(why)) => {
                self.take_back_seq();
                self.readiness.set_trouble(self.shard, Some(format!("shard {shard} takes no changes: {why}")));
                self.refuse_changes(why, TRY_AGAIN_AFTER);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
