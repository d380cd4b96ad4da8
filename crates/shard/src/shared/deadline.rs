//! The deadline of a lease, measured by this machine's clocks. Tokio's clock, which tests and the simulator control,
//! stops while the machine is suspended, but leases do not: a deadline is brought forward by the time suspended since
//! it was set.

use std::time::Duration;

use tokio::time::Instant;
use wayleave_engine::clock::suspended;

/// Differences below this are the error of reading two clocks one after the other.
const NOISE: Duration = Duration::from_millis(2);

/// A moment from which a lease is counted.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    at: Instant,
    suspended: Duration,
}

impl Moment {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        Self { at: Instant::now(), suspended: suspended() }
    }
}

/// The end of a lease.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    at: Instant,
    suspended: Duration,
}

impl Deadline {
    /// The end of a lease that is counted from `from`.
    #[must_use]
    pub fn after(from: Moment, span: Duration) -> Self {
        Self { at: from.at + span, suspended: from.suspended }
    }

    /// When it passes if the machine is not suspended again; for timers.
    #[must_use]
    pub fn timer(self) -> Instant {
        let slept = self.slept(suspended());
        self.at.checked_sub(slept).unwrap_or(self.at)
    }

    /// Whether it has passed.
    #[must_use]
    pub fn has_passed(self) -> bool {
        self.has_passed_at(Moment::now())
    }

    fn has_passed_at(self, now: Moment) -> bool {
        self.at <= now.at + self.slept(now.suspended)
    }

    fn slept(self, suspended: Duration) -> Duration {
        Some(suspended.saturating_sub(self.suspended)).filter(|slept| *slept > NOISE).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_the_machine_slept_counts() {
        let set = Moment { at: Instant::now(), suspended: Duration::from_secs(100) };
        let deadline = Deadline::after(set, Duration::from_secs(10));
        let later = |awake_ms: u64, slept_ms: u64| Moment {
            at: set.at + Duration::from_millis(awake_ms),
            suspended: set.suspended + Duration::from_millis(slept_ms),
        };
        assert!(!deadline.has_passed_at(later(9_999, 0)));
        assert!(deadline.has_passed_at(later(10_000, 0)));
        assert!(!deadline.has_passed_at(later(1_000, 8_999)));
        assert!(deadline.has_passed_at(later(1_000, 9_000)), "it slept through the end of its lease");
        assert!(!deadline.has_passed_at(later(9_999, 1)), "clocks are not read at the very same moment");
    }

    #[tokio::test(start_paused = true)]
    async fn it_follows_the_clock_of_tests() {
        let deadline = Deadline::after(Moment::now(), Duration::from_secs(10));
        tokio::time::advance(Duration::from_millis(9_000)).await;
        assert!(!deadline.has_passed());
        tokio::time::advance(Duration::from_millis(1_000)).await;
        assert!(deadline.has_passed());
        assert_eq!(deadline.timer(), Instant::now());
    }
}
