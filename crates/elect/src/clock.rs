//! The clock by which terms are measured: it includes suspend.
//!
//! `std::time::Instant` is CLOCK_MONOTONIC on Linux, which stops during suspend: a laptop or virtual machine that wakes
//! up would believe that its term is fresh. CLOCK_BOOTTIME does not stop, and steps of the wall clock do not affect it.

use std::pin::Pin;
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};
use wayleave_core::time::Millis;

/// A point in time of this machine's boot clock, in milliseconds. Meaningless on another machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

impl Moment {
    /// This moment plus a span.
    #[must_use]
    pub const fn after(self, span: Millis) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// This moment less a span, never before the boot.
    #[must_use]
    pub const fn before(self, span: Millis) -> Self {
        Self(self.0.saturating_sub(span.0))
    }

    /// The span since an earlier moment; zero if it is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }

    /// As the kernel represents it.
    pub(crate) fn timespec(self) -> Timespec {
        let secs = i64::try_from(self.0 / 1_000).unwrap_or(i64::MAX);
        let nanos = i64::try_from(self.0 % 1_000 * 1_000_000).unwrap_or(0);
        Timespec { tv_sec: secs, tv_nsec: nanos }
    }
}

/// A wait for a moment.
pub type Wait<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A clock and its timers: the machine's, or one controlled by a test.
pub trait Clock: Send + Sync + std::fmt::Debug + 'static {
    /// The current moment, rounded down.
    fn now(&self) -> Moment;

    /// Waits until that moment by this clock, also across a suspend.
    fn sleep_until(&self, at: Moment) -> Wait<'_>;
}

/// The machine's CLOCK_BOOTTIME.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

/// How often a wait checks the clock. The runtime's timers stop during suspend; after it, a wait is late by at most
/// this.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

impl Clock for BootClock {
    fn now(&self) -> Moment {
        let now = clock_gettime(ClockId::Boottime);
        let secs = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
        Moment(secs.saturating_mul(1_000).saturating_add(nanos / 1_000_000))
    }

    fn sleep_until(&self, at: Moment) -> Wait<'_> {
        Box::pin(async move {
            while self.now() < at {
                let left = Duration::from_millis(at.since(self.now()).0);
                tokio::time::sleep(left.min(LOOK_AGAIN)).await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_ends_when_its_moment_has_come_and_not_before() {
        let clock = BootClock;
        let at = clock.now().after(Millis(40));
        clock.sleep_until(at).await;
        let late = clock.now().since(at).0;
        assert!(clock.now() >= at && late < 2_000, "{late} ms late");
        // A moment in the past is not waited for.
        clock.sleep_until(Moment(0)).await;
        clock.sleep_until(at).await;
    }

    #[test]
    fn the_boot_clock_is_the_kernels() {
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        let now = BootClock.now().0 as f64 / 1_000.0;
        assert!((now - uptime).abs() < 5.0, "{now} s by the clock, {uptime} s up");
    }
}
