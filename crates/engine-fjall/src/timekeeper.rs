//! The arithmetic of the store's time, without a clock: readings are arguments.
//!
//! Time starts at the greater of the wall clock and the last commit time, runs with CLOCK_BOOTTIME, which includes
//! suspend, and is slewed towards the wall clock by at most one part in [`SLEW`]. So a step of the wall clock neither
//! expires a live lease nor shortens a delay, and slow drift is still corrected.

use wayleave_core::time::Time;

/// At most 1 ms of correction per this many ms.
const SLEW: u128 = 200;
const NANOS_PER_MILLI: u128 = 1_000_000;

/// Readings of both clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The wall clock: nanoseconds since 1970.
    pub wall_ns: u128,
    /// CLOCK_BOOTTIME: nanoseconds since boot, including suspend.
    pub boot_ns: u128,
}

/// The time of one store.
#[derive(Debug)]
pub(crate) struct Timekeeper {
    now_ns: u128,
    boot_ns: u128,
}

impl Timekeeper {
    /// Starts when the store is opened.
    pub(crate) fn new(reading: Reading, last_committed: Time) -> Self {
        let last_ns = u128::from(last_committed.0) * NANOS_PER_MILLI;
        Self { now_ns: reading.wall_ns.max(last_ns), boot_ns: reading.boot_ns }
    }

    /// The store's time at a reading. Readings may arrive out of order; time is monotonic anyway.
    pub(crate) fn advance(&mut self, reading: Reading) -> Time {
        let elapsed = reading.boot_ns.saturating_sub(self.boot_ns);
        self.boot_ns = self.boot_ns.max(reading.boot_ns);
        let free = self.now_ns.saturating_add(elapsed);
        // The correction is a small fraction of the elapsed time, so time moves forward even at the full slew rate.
        let lean = elapsed / SLEW;
        self.now_ns = reading.wall_ns.clamp(free.saturating_sub(lean), free.saturating_add(lean));
        Time(u64::try_from(self.now_ns / NANOS_PER_MILLI).unwrap_or(Time::NEVER.0)).min(Time::NEVER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Milliseconds on both clocks.
    fn at(wall_ms: u64, boot_ms: u64) -> Reading {
        Reading { wall_ns: u128::from(wall_ms) * NANOS_PER_MILLI, boot_ns: u128::from(boot_ms) * NANOS_PER_MILLI }
    }

    fn check(start: (u64, u64), committed: u64, story: &[((u64, u64), u64)]) {
        let mut keeper = Timekeeper::new(at(start.0, start.1), Time(committed));
        for ((wall, boot), expected) in story {
            assert_eq!(keeper.advance(at(*wall, *boot)), Time(*expected), "at wall {wall}, boot {boot}");
        }
    }

    #[test]
    fn in_step_with_the_wall_it_shows_the_wall() {
        check((1_000_000, 50), 0, &[((1_000_000, 50), 1_000_000), ((1_004_000, 4_050), 1_004_000)]);
    }

    #[test]
    fn a_step_forward_is_followed_only_gently() {
        let hour = 3_600_000;
        check(
            (1_000_000, 0),
            0,
            &[
                ((1_000_000 + hour, 0), 1_000_000),
                ((1_002_000 + hour, 2_000), 1_002_010),
                ((1_004_000 + hour, 4_000), 1_004_020),
            ],
        );
    }

    #[test]
    fn a_step_back_slows_time_but_never_reverses_it() {
        check((1_000_000, 0), 0, &[((500_000, 0), 1_000_000), ((502_000, 2_000), 1_001_990)]);
    }

    #[test]
    fn a_small_drift_is_made_good_and_then_held() {
        check(
            (1_000_000, 0),
            0,
            &[((1_002_004, 2_000), 1_002_004), ((1_004_004, 4_000), 1_004_004), ((1_006_000, 6_000), 1_006_000)],
        );
    }

    #[test]
    fn a_suspend_counts_as_elapsed() {
        let night = 8 * 3_600_000;
        check((1_000_000, 0), 0, &[((1_000_000 + night, night), 1_000_000 + night)]);
    }

    #[test]
    fn a_restart_continues_after_the_last_committed_time() {
        // After a reboot (a small boot clock) the wall clock is ten seconds behind the store.
        check((990_000, 5), 1_000_000, &[((990_000, 5), 1_000_000), ((992_000, 2_005), 1_001_990)]);
    }

    #[test]
    fn a_restart_after_a_pause_starts_at_the_wall() {
        check((5_000_000, 5), 1_000_000, &[((5_000_001, 6), 5_000_001)]);
    }

    #[test]
    fn readings_out_of_order_do_not_turn_it_back() {
        check((1_000_000, 0), 0, &[((1_000_500, 500), 1_000_500), ((1_000_400, 400), 1_000_500)]);
    }

    #[test]
    fn many_short_readings_lean_as_far_as_one_long_one() {
        let mut keeper = Timekeeper::new(at(1_000_000, 0), Time::ZERO);
        let mut last = Time::ZERO;
        for micros in 1..=2_000_000_u128 {
            let reading = Reading { wall_ns: u128::MAX / 2, boot_ns: micros * 1_000 };
            last = keeper.advance(reading);
        }
        assert_eq!(last, Time(1_002_010));
    }
}
