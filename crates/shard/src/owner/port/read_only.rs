//! Read-only mode: the store refuses changes, for instance because the disk is full. The owner answers reads from the
//! state it loaded under its present epoch, refuses every change up front, and probes the store with an empty commit.
//!
//! Changes are refused before they are decided, so in-memory state stays equal to the store and a refused call costs no
//! reload. Background work (expiry, jobs, checkpoints) is suspended as well.

use std::time::Duration;

use tokio::time::Instant;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_engine::Error;

use crate::owner::port::Port;
use crate::owner::run::TRY_AGAIN_AFTER;

/// Why changes are refused, and when to probe again.
pub(crate) struct ReadOnly {
    why: String,
    probe_at: Instant,
}

impl Port {
    /// Enters read-only mode; the next probe is after `wait`.
    pub fn refuse_changes(&mut self, why: String, wait: Duration) {
        self.refusing = Some(ReadOnly { why, probe_at: Instant::now() + wait });
    }

    /// The refusal for changes while in read-only mode.
    pub fn refusal(&self) -> Option<Refusal> {
        let why = &self.refusing.as_ref()?.why;
        Some(Refusal::Unavailable(format!("the store is read-only at the moment: {why}")))
    }

    /// Time until the next probe.
    pub fn probe_in(&self) -> Option<Duration> {
        let refusing = self.refusing.as_ref()?;
        Some(refusing.probe_at.saturating_duration_since(Instant::now()))
    }

    /// Probes, if due, with an empty commit whether the store accepts changes again.
    pub async fn probe(&mut self) -> Result<(), Error> {
        if self.probe_in().is_none_or(|left| !left.is_zero()) {
            return Ok(());
        }
        let shard = self.shard.0;
        match self.flush().await {
            Ok(()) => {
                self.refusing = None;
                self.readiness.troubles.set(self.shard, None);
                if let Some(left_out) = self.readiness.log.recoveries.line() {
                    tracing::info!(shard, left_out, "the store accepts changes again");
                }
                Ok(())
            }
            // A refused empty commit has changed neither the store nor the memory.
            Err(Error::Unavailable(why)) => {
                self.take_back_seq();
                self.readiness.troubles.set(self.shard, Some(format!("shard {shard} is read-only: {why}")));
                self.refuse_changes(why, TRY_AGAIN_AFTER);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
