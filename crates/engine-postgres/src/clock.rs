//! The store's time in this process: the timekeeper, the machine's boot clock, and a word when the store's clock stepped.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::time::{ClockId, clock_gettime};
use wayleave_core::time::Time;

use crate::timekeeper::{Sample, Step, Timekeeper};

/// The store's clock as this process knows it.
pub(crate) struct Clock(Mutex<Timekeeper>);

impl Clock {
    /// Starts at the first answer, and not before the latest commit.
    pub(crate) fn start(first: Sample, last_commit: Time) -> Self {
        Self(Mutex::new(Timekeeper::new(first, last_commit.0.saturating_mul(1_000))))
    }

    /// The store's time.
    pub(crate) fn now(&self) -> Time {
        let keeper = self.lock();
        // Read inside the lock, so that readings come in order.
        Time(keeper.at(boot_us()) / 1_000)
    }

    /// Takes in what the store's clock showed in an answer that has just arrived to a question sent at `sent_us`.
    pub(crate) fn learn(&self, store_us: i64, sent_us: u64) {
        let mut keeper = self.lock();
        let sample = Sample { store_us: store_us.max(0).cast_unsigned(), sent_us, arrived_us: boot_us() };
        let step = keeper.learn(sample);
        drop(keeper);
        if let Some(Step(step_us)) = step {
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
                    "the database's clock stepped forward and time follows it: check the clocks of the database's machines"
                );
            }
        }
    }

    /// Somebody has committed at this time.
    pub(crate) fn raise(&self, at: Time) {
        let mut keeper = self.lock();
        keeper.raise(at.0.saturating_mul(1_000), boot_us());
    }

    fn lock(&self) -> MutexGuard<'_, Timekeeper> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Microseconds on the clock that runs through a suspend.
pub(crate) fn boot_us() -> u64 {
    let boot = clock_gettime(ClockId::Boottime);
    let (secs, nanos) = (u64::try_from(boot.tv_sec).unwrap_or(0), u64::try_from(boot.tv_nsec).unwrap_or(0));
    secs * 1_000_000 + nanos / 1_000
}
