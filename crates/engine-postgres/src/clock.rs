//! The store's time in this process: the timekeeper, the boot clock, and the notes about both for other nodes.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::Notify;
use wayleave_core::time::Time;

use crate::timekeeper::{Sample, Step, Timekeeper};

/// A lead over the store's clock that other nodes must learn of, in microseconds. Network jitter looks like smaller
/// leads.
const LEAD_US: u64 = 10_000;

/// The store's clock, as known to this process.
pub(crate) struct Clock {
    state: Mutex<State>,
    /// Notified when there is something that other nodes must learn.
    pub(crate) news: Notify,
}

struct State {
    keeper: Timekeeper,
    /// When the store's clock was last seen to step forward, by this or another node; zero if never.
    stepped_at: Time,
    /// The part of it that the store is known to have recorded.
    noted: Time,
}

/// A note for other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) stepped_at: Time,
    /// The local time if it leads the store's clock, else zero.
    pub(crate) at: Time,
}

impl Clock {
    /// Starts at the first response, but not before the latest commit.
    pub(crate) fn start(first: Sample, last_commit: Time) -> Self {
        let keeper = Timekeeper::new(first, last_commit.0.saturating_mul(1_000));
        let state = State { keeper, stepped_at: Time::ZERO, noted: Time::ZERO };
        Self { state: Mutex::new(state), news: Notify::new() }
    }

    /// The store's time.
    pub(crate) fn now(&self) -> Time {
        let state = self.lock();
        // Read under the lock, so that readings are in order.
        Time(state.keeper.at(boot_us()) / 1_000)
    }

    /// When the store's clock was last seen to step forward.
    pub(crate) fn stepped_at(&self) -> Time {
        self.lock().stepped_at
    }

    /// Takes the store's clock from a response that has just arrived; its request was sent at `sent_us`. Returns it as far as it is to
    /// be believed: a step must be noticed before anything is decided by the time after it.
    pub(crate) fn learn(&self, store_us: i64, sent_us: u64) -> Time {
        let mut state = self.lock();
        let arrived_us = boot_us();
        let sample = Sample { store_us: store_us.max(0).cast_unsigned(), sent_us, arrived_us };
        let (believed_us, step) = state.keeper.learn(sample);
        let believed = Time(believed_us / 1_000);
        let Some(Step(step_us)) = step else { return believed };
        if step_us > 0 {
            state.stepped_at = Time(state.keeper.at(arrived_us) / 1_000);
        }
        drop(state);
        self.news.notify_one();
        let step_ms = step_us / 1_000;
        if step_us < 0 {
            tracing::warn!(
                clock.step_ms = step_ms,
                "the database's clock stepped back; time goes on, a little slower until that clock has caught up: check \
                 the clocks of the database's machines"
            );
        } else {
            tracing::warn!(
                clock.step_ms = step_ms,
                "the database's clock stepped forward and time follows it; no role changes hands for one time to live: \
                 check the clocks of the database's machines"
            );
        }
        believed
    }

    /// Raises time to at least that of another node's commit.
    pub(crate) fn raise(&self, at: Time) {
        let mut state = self.lock();
        let boot_us = boot_us();
        let led = state.keeper.lead(boot_us) >= LEAD_US;
        state.keeper.raise(at.0.saturating_mul(1_000), boot_us);
        if !led && state.keeper.lead(boot_us) >= LEAD_US {
            self.news.notify_one();
        }
    }

    /// Another node has recorded a step.
    pub(crate) fn hear_step(&self, stepped_at: Time) {
        let mut state = self.lock();
        state.stepped_at = state.stepped_at.max(stepped_at);
        state.noted = state.noted.max(stepped_at);
    }

    /// What other nodes must learn and the store does not record yet.
    pub(crate) fn note(&self) -> Option<Note> {
        let state = self.lock();
        let boot_us = boot_us();
        let leads = state.keeper.lead(boot_us) >= LEAD_US;
        let at = if leads { Time(state.keeper.at(boot_us) / 1_000) } else { Time::ZERO };
        (leads || state.stepped_at > state.noted).then_some(Note { stepped_at: state.stepped_at, at })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// CLOCK_BOOTTIME in microseconds, which includes suspend.
pub(crate) fn boot_us() -> u64 {
    let boot = clock_gettime(ClockId::Boottime);
    let (secs, nanos) = (u64::try_from(boot.tv_sec).unwrap_or(0), u64::try_from(boot.tv_nsec).unwrap_or(0));
    secs * 1_000_000 + nanos / 1_000
}
