//! The store's time between two samples: never ahead of the store while its clock runs evenly, and monotonic.
//!
//! A response carries the store's clock at some moment between request and arrival. Time continues from there by the
//! boot clock, counted from the arrival, so it lags by at most the return trip. If the store's clock steps back (as
//! after a failover to another machine), time does not: it continues, slower by one part in 200, until the store has
//! caught up. If it stood still instead, no lease would end for the duration of the step.

/// While time leads the store, one of this many microseconds is held back.
const LEAN: u64 = 200;
/// A response slower than this bounds the store's clock too loosely: a step may hide in it. Time follows only what earlier bounds
/// allow, and they stay in force until a fast response shows what has become of the clock.
const SLOW_US: u64 = 200_000;
/// A step of the store's clock worth a warning, in microseconds.
const STEP_BACK_US: i64 = 100_000;
const STEP_FORWARD_US: i64 = 250_000;

/// One sample of the store's clock. All in microseconds; the first by the store's clock, the others by this machine's
/// boot clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// The store's clock.
    pub(crate) store_us: u64,
    /// When the request was sent.
    pub(crate) sent_us: u64,
    /// When the response arrived.
    pub(crate) arrived_us: u64,
}

/// A step of the store's clock that two samples prove, whatever the network did; positive is forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step(pub(crate) i64);

/// Pure: the boot clock is an argument.
#[derive(Clone, Debug)]
pub(crate) struct Timekeeper {
    /// The time at the anchor, and the boot clock there.
    anchor_us: u64,
    boot_us: u64,
    /// The lead over the store at the anchor.
    lead_us: u64,
    /// Bounds of (store's clock − boot clock) by the last sample.
    bounds: Option<(i64, i64)>,
}

impl Timekeeper {
    /// Starts at the first sample, or at the latest time that the store has recorded, whichever is later.
    pub(crate) fn new(first: Sample, floor_us: u64) -> Self {
        let mut keeper = Self { anchor_us: 0, boot_us: first.arrived_us, lead_us: 0, bounds: None };
        keeper.learn(first);
        keeper.raise(floor_us, first.arrived_us);
        keeper
    }

    /// The time at a reading of the boot clock.
    pub(crate) fn at(&self, boot_us: u64) -> u64 {
        let elapsed = boot_us.saturating_sub(self.boot_us);
        self.anchor_us + elapsed - self.lead_us.min(elapsed / LEAN)
    }

    /// Takes a sample. Returns the store's clock as far as it is to be believed, and the step that the sample proves, if any.
    pub(crate) fn learn(&mut self, sample: Sample) -> (u64, Option<Step>) {
        let Sample { store_us, sent_us, arrived_us } = sample;
        let (low, high) = (since(store_us, arrived_us), since(store_us, sent_us));
        let is_slow = arrived_us.saturating_sub(sent_us) > SLOW_US;
        let (step, most_us) = match self.bounds {
            Some((_, old_high)) if low > old_high + STEP_FORWARD_US => (Some(Step(low - old_high)), store_us),
            Some((old_low, _)) if high + STEP_BACK_US < old_low => (Some(Step(high - old_low)), store_us),
            // Read by the store at the latest when it arrived.
            Some((_, old_high)) if is_slow => (None, arrived_us.saturating_add_signed(old_high)),
            _ => (None, store_us),
        };
        if step.is_some() || !is_slow || self.bounds.is_none() {
            self.bounds = Some((low, high));
        }
        let believed_us = store_us.min(most_us);
        let now = self.at(arrived_us);
        self.boot_us = self.boot_us.max(arrived_us);
        // A sample that arrived before the anchor is carried forward to it.
        let store = believed_us + self.boot_us.saturating_sub(arrived_us);
        self.anchor_us = now.max(store);
        self.lead_us = self.anchor_us - store;
        (believed_us, step)
    }

    /// The known lead over the store at a reading of the boot clock.
    pub(crate) fn lead(&self, boot_us: u64) -> u64 {
        self.lead_us.saturating_sub(boot_us.saturating_sub(self.boot_us) / LEAN)
    }

    /// Raises time to at least `floor_us`, the time of another node's commit.
    pub(crate) fn raise(&mut self, floor_us: u64, boot_us: u64) {
        let now = self.at(boot_us);
        if floor_us > now {
            self.lead_us = self.lead(boot_us) + (floor_us - now);
            self.anchor_us = floor_us;
            self.boot_us = self.boot_us.max(boot_us);
        }
    }
}

fn since(later_us: u64, earlier_us: u64) -> i64 {
    later_us.cast_signed().saturating_sub(earlier_us.cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn sample(store_us: u64, sent_us: u64, arrived_us: u64) -> Sample {
        Sample { store_us, sent_us, arrived_us }
    }

    fn step((_, step): (u64, Option<Step>)) -> Option<Step> {
        step
    }

    /// A commit that waited for a lock gets the first response after the clock has stepped, by more than it waited or by less.
    #[test]
    fn a_step_does_not_hide_behind_an_answer_that_took_long() {
        let mut keeper = Timekeeper::new(sample(1_000 * SECOND, 0, 300), 0);
        assert!(step(keeper.learn(sample(1_001 * SECOND, SECOND, SECOND + 300))).is_none());
        let mut other = keeper.clone();
        assert!(step(keeper.learn(sample(1_007 * SECOND, SECOND, 4 * SECOND))).is_some(), "three seconds are proven");
        assert!(step(keeper.learn(sample(1_011 * SECOND, 5 * SECOND, 5 * SECOND + 300))).is_none(), "told already");
        // A tenth of a second is not, whatever else hides: it may have been read at the end. Time does not follow it before it is noticed.
        let (believed, hidden) = other.learn(sample(1_004 * SECOND + SECOND / 10, SECOND, 4 * SECOND));
        assert!(hidden.is_none() && believed <= 1_004 * SECOND, "{believed}");
        assert!(other.at(4 * SECOND) <= 1_004 * SECOND);
        assert!(step(other.learn(sample(1_008 * SECOND, 5 * SECOND, 5 * SECOND + 300))).is_some());
        assert_eq!(other.at(5 * SECOND + 300), 1_008 * SECOND);
    }

    #[test]
    fn time_lags_behind_the_store_by_the_way_back() {
        let keeper = Timekeeper::new(sample(1_000 * SECOND, 0, 300), 0);
        assert_eq!(keeper.at(300), 1_000 * SECOND);
        assert_eq!(keeper.at(300 + SECOND), 1_001 * SECOND);
    }

    #[test]
    fn a_slow_answer_is_no_step_and_does_not_turn_time_back() {
        let mut keeper = Timekeeper::new(sample(1_000 * SECOND, 0, 100), 0);
        // Read by the store after one second, but two seconds on the way back.
        assert_eq!(step(keeper.learn(sample(1_001 * SECOND, SECOND, 3 * SECOND))), None);
        assert!(keeper.at(3 * SECOND) >= 1_002 * SECOND);
    }

    #[test]
    fn a_step_back_is_told_once_and_time_goes_on_more_slowly() {
        let mut keeper = Timekeeper::new(sample(1_000 * SECOND, 0, 100), 0);
        let before = keeper.at(SECOND);
        assert!(
            matches!(step(keeper.learn(sample(900 * SECOND, SECOND, SECOND + 100))), Some(Step(step)) if step < -99_000_000)
        );
        assert_eq!(step(keeper.learn(sample(901 * SECOND, 2 * SECOND, 2 * SECOND + 100))), None);
        let after = keeper.at(2 * SECOND + 100);
        assert!(after > before, "{after} {before}");
        // A hundred seconds are made up in about twenty thousand.
        let late = 21_000 * SECOND;
        assert_eq!(keeper.at(late + 50 * SECOND) - keeper.at(late), 50 * SECOND);
        let told = keeper.at(2 * SECOND + 100 + 200 * SECOND) - after;
        assert_eq!(told, 199 * SECOND);
    }

    #[test]
    fn a_step_of_less_than_a_tenth_of_a_second_is_not_worth_a_word() {
        let mut keeper = Timekeeper::new(sample(1_000 * SECOND, 0, 100), 0);
        assert_eq!(step(keeper.learn(sample(1_001 * SECOND - 90_000, SECOND, SECOND + 100))), None);
        assert!(step(keeper.learn(sample(1_002 * SECOND - 300_000, 2 * SECOND, 2 * SECOND + 100))).is_some());
    }

    #[test]
    fn a_step_forward_is_followed_and_told() {
        let mut keeper = Timekeeper::new(sample(1_000 * SECOND, 0, 100), 0);
        let forward = step(keeper.learn(sample(1_101 * SECOND, SECOND, SECOND + 100)));
        assert!(matches!(forward, Some(Step(step)) if step > 99_000_000));
        assert_eq!(keeper.at(SECOND + 100), 1_101 * SECOND);
        // Half a second is enough to end a short lease; network jitter is not.
        assert!(step(keeper.learn(sample(1_102 * SECOND + SECOND / 2, 2 * SECOND, 2 * SECOND + 100))).is_some());
        assert_eq!(step(keeper.learn(sample(1_105 * SECOND, 3 * SECOND, 5 * SECOND))), None);
    }

    #[test]
    fn time_starts_at_the_last_commit_if_the_clock_is_behind_it() {
        let mut keeper = Timekeeper::new(sample(1_000 * SECOND, 0, 100), 1_050 * SECOND);
        assert_eq!(keeper.at(100), 1_050 * SECOND);
        keeper.learn(sample(1_001 * SECOND, SECOND, SECOND + 100));
        assert!(keeper.at(SECOND + 100) > 1_050 * SECOND);
        keeper.raise(1_040 * SECOND, 2 * SECOND);
        let now = keeper.at(2 * SECOND);
        assert!((1_051 * SECOND..1_052 * SECOND).contains(&now), "{now}");
        keeper.raise(2_000 * SECOND, 2 * SECOND);
        assert_eq!(keeper.at(2 * SECOND), 2_000 * SECOND);
    }

    #[test]
    fn answers_out_of_order_do_not_turn_time_back() {
        let mut keeper = Timekeeper::new(sample(1_000 * SECOND, 0, 100), 0);
        keeper.learn(sample(1_002 * SECOND, 2 * SECOND, 2 * SECOND + 100));
        let now = keeper.at(2 * SECOND + 100);
        keeper.learn(sample(1_001 * SECOND, SECOND, SECOND + 100));
        assert!(keeper.at(2 * SECOND + 100) >= now);
    }
}
