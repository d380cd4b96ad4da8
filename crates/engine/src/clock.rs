//! Clocks for the memory engine: one that the simulator sets and one that runs. Also measures how long the machine was
//! suspended, which ordinary timers do not count but leases do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, Timespec, clock_gettime};
use wayleave_core::time::{Millis, Time};

/// A clock. It may step in either direction; the engine that reads it keeps its own time monotonic.
pub trait Clock: Send + Sync + 'static {
    /// The current reading.
    fn read(&self) -> Time;
}

/// A clock that advances only on request. Clones share the same time.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// A clock that shows `start`.
    #[must_use]
    pub fn new(start: Time) -> Self {
        Self(Arc::new(AtomicU64::new(start.0)))
    }

    /// Advances the clock by `span`.
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

/// The wall clock at its creation plus the time elapsed since, suspends included: steps of the wall clock do not move it.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: Time,
    since: Duration,
}

impl SystemClock {
    /// A clock that starts at the wall clock's time.
    #[must_use]
    pub fn new() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { start: Time(millis(wall)), since: boot() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn read(&self) -> Time {
        self.start.after(Millis(millis(boot().saturating_sub(self.since))))
    }
}

/// How long this machine has been suspended since boot. A deadline on an ordinary timer has passed earlier by as much
/// as this has grown.
#[must_use]
pub fn suspended() -> Duration {
    let awake = || span(clock_gettime(ClockId::Monotonic));
    let mut best = (Duration::MAX, Duration::ZERO);
    // A preemption between the two readings would look like a suspend.
    for _ in 0..TRIES {
        let (before, boot, after) = (awake(), boot(), awake());
        best = best.min((after.saturating_sub(before), boot.saturating_sub(after)));
        if best.0 < CLOSE {
            break;
        }
    }
    best.1
}

/// Two clock readings this close count as simultaneous.
const CLOSE: Duration = Duration::from_micros(100);
const TRIES: usize = 20;

/// The time since this machine was started, suspends included.
fn boot() -> Duration {
    span(clock_gettime(ClockId::Boottime))
}

fn span(time: Timespec) -> Duration {
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn millis(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
