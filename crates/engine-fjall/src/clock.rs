//! Reads the machine's clocks for the [`Timekeeper`].

use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use wayleave_core::time::Time;

use crate::timekeeper::{Reading, Timekeeper};

/// Warn if the wall clock is further than this behind the store's time.
const BEHIND_WORTH_A_WARNING_MS: u64 = 60_000;

/// The store's clock.
pub(crate) struct Clock(Mutex<Timekeeper>);

impl Clock {
    /// Starts the clock when the store is opened; its last commit was made at `last_committed`.
    pub(crate) fn start(last_committed: Time) -> Self {
        let reading = read();
        let wall_ms = reading.wall_ns / 1_000_000;
        let behind_ms = u128::from(last_committed.0).saturating_sub(wall_ms);
        if behind_ms > u128::from(BEHIND_WORTH_A_WARNING_MS) {
            tracing::warn!(
                clock.behind_ms = u64::try_from(behind_ms).unwrap_or(u64::MAX),
                "the machine's clock is behind the last commit; the store's time goes on from that commit and leans \
                 back slowly, check the machine's clock"
            );
        }
        Self(Mutex::new(Timekeeper::new(reading, last_committed)))
    }

    /// The store's time.
    pub(crate) fn now(&self) -> Time {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).advance(read())
    }
}

fn read() -> Reading {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let boot = clock_gettime(ClockId::Boottime);
    let secs = u128::try_from(boot.tv_sec).unwrap_or(0);
    let nanos = u128::try_from(boot.tv_nsec).unwrap_or(0);
    Reading { wall_ns: wall.as_nanos(), boot_ns: secs * 1_000_000_000 + nanos }
}
