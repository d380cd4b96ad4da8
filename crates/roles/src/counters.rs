//! Counters of one process, and totals that are read from the store on demand.

use std::sync::atomic::{AtomicU64, Ordering};

use wayleave_core::roles::{HeartbeatReply, Outcome, Refusal};

/// Counts of calls by result, since the start of the process.
#[derive(Debug, Default)]
pub struct Counters {
    /// Heartbeats that began a term.
    pub acquired: AtomicU64,
    /// Heartbeats that renewed one.
    pub renewed: AtomicU64,
    /// Heartbeats of standbys.
    pub standby: AtomicU64,
    /// Heartbeats that were refused for their content.
    pub refused: AtomicU64,
    /// Heartbeats that the store could not serve.
    pub failed: AtomicU64,
    /// Terms released.
    pub released: AtomicU64,
    /// Decisions that would have broken law 6 and were not written: must stay at zero.
    pub unlawful: AtomicU64,
}

impl Counters {
    pub(crate) fn on_heartbeat(&self, answer: &Result<HeartbeatReply, Refusal>) {
        let counter = match answer {
            Ok(answer) => match answer.outcome {
                Outcome::Acquired => &self.acquired,
                Outcome::Renewed => &self.renewed,
                Outcome::Standby => &self.standby,
            },
            Err(Refusal::Unavailable(_) | Refusal::OutcomeUnknown(_) | Refusal::Corrupt(_)) => &self.failed,
            Err(_) => &self.refused,
        };
        raise(counter);
    }
}

pub(crate) fn raise(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Totals of the roles of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// All roles.
    pub roles: u64,
    /// Those with a primary.
    pub primaries: u64,
    /// Standbys that could take over.
    pub standbys_ready: u64,
    /// Standbys that could not.
    pub standbys_not_ready: u64,
    /// Roles whose primary has no ready standby.
    pub unguarded: u64,
}
