//! Clocks for the memory engine: one that the simulator sets, one that runs by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use wayleave_core::time::{Millis, Time};

/// Tells the time. It may step in either direction; the engine that reads it makes sure that its own time never goes
/// back.
pub trait Clock: Send + Sync + 'static {
    /// What this clock shows.
    fn read(&self) -> Time;
}

/// A clock that stands still until it is told otherwise. Clones show the same time.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// A clock that shows `start`.
    #[must_use]
    pub fn new(start: Time) -> Self {
        Self(Arc::new(AtomicU64::new(start.0)))
    }

    /// Lets `span` pass.
    pub fn advance(&self, span: Millis) {
        self.0.fetch_add(span.0, Ordering::SeqCst);
    }

    /// Steps the clock, forward or back.
    pub fn set(&self, time: Time) {
        self.0.store(time.0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn read(&self) -> Time {
        Time(self.0.load(Ordering::SeqCst))
    }
}

/// The wall clock at its creation plus the time elapsed since: steps of the wall clock do not move it.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: Time,
    since: Instant,
}

impl SystemClock {
    /// A clock that starts at the wall clock's time.
    #[must_use]
    pub fn new() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { start: Time(millis(wall)), since: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn read(&self) -> Time {
        self.start.after(Millis(millis(self.since.elapsed())))
    }
}

fn millis(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
