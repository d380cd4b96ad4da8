//! The engine's clock in a simulation: the runtime's time, plus steps of a wall clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tokio::time::Instant;
use wayleave_core::time::Time;
use wayleave_engine::clock::Clock;

/// When every simulation begins.
pub const START: u64 = 1_700_000_000_000;

/// A clock that can be stepped.
#[derive(Clone)]
pub struct SteppedClock {
    since: Instant,
    offset: Arc<AtomicI64>,
}

impl SteppedClock {
    pub fn new() -> Self {
        Self { since: Instant::now(), offset: Arc::default() }
    }

    /// Steps the clock, forward or back.
    pub fn step(&self, ms: i64) {
        self.offset.fetch_add(ms, Ordering::Relaxed);
    }

    /// Milliseconds that actually passed.
    pub fn elapsed(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Clock for SteppedClock {
    fn read(&self) -> Time {
        let shown = (START + self.elapsed()).saturating_add_signed(self.offset.load(Ordering::Relaxed));
        Time(shown)
    }
}
