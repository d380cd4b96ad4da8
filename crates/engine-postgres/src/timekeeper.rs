//! The store's time between two samples: never ahead of the store while its clock runs evenly, and monotonic.
//!
//! A response carries the store's clock at some moment between request and arrival. Time continues from there by the
//! boot clock, counted from the arrival, so it lags by at most the return trip. If the store's clock steps back (as
//! after a failover to another machine), time does not: it continues, slower by one part in 200, until the store has
//! caught up. If it stood still instead, no lease would end for the duration of the step.
//!
//! **Forward steps.** Each sample bounds the offset of the store's clock from the boot clock from above, by the moment at
//! which its request was sent. Time never advances past the lowest of these bounds, whatever it follows, unless that is
//! reported as a step. So a step cannot be acted on before it is noticed, and a slow sample, whose own bound is loose,
//! neither hides one nor loosens the bounds of earlier samples.

/// While time leads the store, one of this many microseconds is held back. Clocks that run evenly differ by less.
pub(crate) const LEAN: u64 = 200;
/// What time may advance past the bounds without a step. With the rate above it is below the margin that holders of the
/// shortest leases keep.
const FORWARD_US: i64 = 5_000;
/// Without a sample for longer than this, what clocks may drift apart would hide a step: the clock has not been watched.
const WATCHED_US: u64 = 5_000_000;
/// A lead over the store's clock that other nodes must learn of, in microseconds. Network jitter looks like smaller
/// leads.
const LEAD_US: u64 = 10_000;
/// A backward step of the store's clock worth a warning, in microseconds.
const STEP_BACK_US: i64 = 100_000;

/// One sample of the store's clock. All in microseconds; the first by the store's clock, the others by this machine's
/// boot clock.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The store's clock.
    pub store_us: u64,
    /// When the request was sent.
    pub sent_us: u64,
    /// When the response arrived.
    pub arrived_us: u64,
}

/// A step of the store's clock that two samples prove, whatever the network did; positive is forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step(pub i64);

/// Pure: the boot clock is an argument.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Timekeeper {
    /// The time at the anchor, and the boot clock there.
    anchor_us: u64,
    boot_us: u64,
    /// The lead over the store at the anchor.
    lead_us: u64,
    /// Bounds of the offset of the store's clock from the boot clock, at the anchor, by all samples since its last step.
    low: i64,
    high: i64,
    /// The offset that time may have without a step.
    cap: i64,
    /// Since when time has run evenly.
    steady_us: u64,
    /// Whether time led the store's clock, when last compared, by more than other nodes could read.
    leads_alone: bool,
}

impl Timekeeper {
    /// Starts at the first sample, or at the latest time that the store has recorded, whichever is later.
    #[must_use]
    pub fn new(first: Sample, floor_us: u64) -> Self {
        let Sample { store_us, sent_us, arrived_us } = first;
        let anchor_us = store_us.max(floor_us);
        let cap = since(anchor_us, sent_us);
        Self {
            anchor_us,
            boot_us: arrived_us,
            lead_us: anchor_us - store_us,
            low: since(store_us, arrived_us),
            high: since(store_us, sent_us),
            cap,
            steady_us: arrived_us.saturating_add_signed(cap),
            leads_alone: false,
        }
    }

    /// The time at a reading of the boot clock.
    #[must_use]
    pub fn at(&self, boot_us: u64) -> u64 {
        let elapsed = boot_us.saturating_sub(self.boot_us);
        self.anchor_us + elapsed - self.lead_us.min(elapsed / LEAN)
    }

    /// Since when time has run evenly, as far as this process knows: it has watched the store's clock since then. A lease
    /// that was granted or renewed before may be ended early by a step, or by what was not watched.
    #[must_use]
    pub const fn steady_us(&self) -> u64 {
        self.steady_us
    }

    /// Takes a sample. Returns the step that it proves, if any.
    pub fn learn(&mut self, sample: Sample) -> Option<Step> {
        let Sample { store_us, sent_us, arrived_us } = sample;
        let (low, high) = (since(store_us, arrived_us), since(store_us, sent_us));
        let now = self.at(arrived_us);
        let watched = self.widen(arrived_us);
        // A sample that arrived before the anchor is carried forward to it.
        let store = store_us + self.boot_us.saturating_sub(arrived_us);
        self.anchor_us = now.max(store);
        self.lead_us = self.anchor_us - store;
        if high + STEP_BACK_US < self.low {
            let back = high - self.low;
            (self.low, self.high, self.cap) = (low, high, self.offset());
            return Some(Step(back));
        }
        let step = self.bound(low, high);
        let anew = step.is_some() || !watched;
        (self.low, self.high) = if anew { (low, high) } else { (self.low.max(low), self.high.min(high)) };
        if !watched {
            self.begin_to_watch();
        }
        step
    }

    /// The time at a reading of the boot clock, and the latest that the store's clock may show then.
    #[must_use]
    pub fn both(&self, boot_us: u64) -> (u64, u64) {
        let drift = (boot_us.saturating_sub(self.boot_us) / LEAN).cast_signed();
        (self.at(boot_us), boot_us.saturating_add_signed(self.high + drift))
    }

    /// The time and the store's clock at a reading of the boot clock, if that clock is certainly behind.
    #[must_use]
    pub fn lead(&self, boot_us: u64) -> Option<(u64, u64)> {
        let (at_us, store_us) = self.both(boot_us);
        (at_us >= store_us + LEAD_US).then_some((at_us, store_us))
    }

    /// Compares the lead of this process with the one that the store has noted for all nodes. Other nodes grant and renew by a time
    /// that lags until they can read of it, so the ends of what they wrote say nothing here: time is not steady before. What they
    /// decided before the note and write after it is covered by comparing once more.
    pub fn compare(&mut self, noted_us: u64, boot_us: u64) {
        let alone = self.lead(boot_us).is_some_and(|(at_us, store_us)| at_us - store_us >= noted_us + LEAD_US);
        if alone || self.leads_alone {
            self.steady_us = self.steady_us.max(self.at(boot_us));
        }
        self.leads_alone = alone;
    }

    /// Raises time to at least `floor_us`, the time of another node. Returns the step that this is, if it is one.
    pub fn raise(&mut self, floor_us: u64, boot_us: u64) -> Option<Step> {
        let now = self.at(boot_us);
        if floor_us <= now {
            return None;
        }
        let elapsed = boot_us.saturating_sub(self.boot_us);
        self.lead_us = self.lead_us.saturating_sub(elapsed / LEAN) + (floor_us - now);
        let watched = self.widen(boot_us);
        self.anchor_us = floor_us + (self.boot_us - boot_us);
        // The other node's time may lag as well: only the store's clock bounds from above.
        let step = self.bound(self.offset(), self.high);
        if !watched {
            self.begin_to_watch();
        }
        step
    }

    /// Time has just advanced because of something that is at least `low` and at most `high` from the boot clock.
    fn bound(&mut self, low: i64, high: i64) -> Option<Step> {
        // Where time leads the store, the store may catch up.
        let high = high.max(self.offset());
        if low <= self.cap + FORWARD_US {
            self.cap = self.cap.min(high);
            return None;
        }
        let step = low - self.cap;
        self.cap = high;
        // Not earlier than the step, by whatever clock.
        self.steady_us = self.boot_us.saturating_add_signed(high);
        Some(Step(step))
    }

    /// Whatever the clock did meanwhile was not seen.
    fn begin_to_watch(&mut self) {
        self.cap = self.high.max(self.offset());
        self.steady_us = self.steady_us.max(self.boot_us.saturating_add_signed(self.cap));
    }

    /// Moves the anchor's moment. Meanwhile clocks may have drifted apart. Returns whether that is too little to hide a step.
    fn widen(&mut self, boot_us: u64) -> bool {
        let elapsed = boot_us.saturating_sub(self.boot_us);
        let drift = (elapsed / LEAN).cast_signed();
        self.boot_us = self.boot_us.max(boot_us);
        self.low -= drift;
        self.high += drift;
        self.cap += drift;
        elapsed <= WATCHED_US
    }

    fn offset(&self) -> i64 {
        since(self.anchor_us, self.boot_us)
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

    /// An answer that took long is the first after the clock has stepped: by more than the answer took, or by less.
    #[test]
    fn a_step_does_not_hide_behind_an_answer_that_took_long() {
        let mut keeper = Timekeeper::new(sample(1_000 * SECOND, 0, 300), 0);
        assert_eq!(keeper.learn(sample(1_001 * SECOND, SECOND, SECOND + 300)), None);
        let mut other = keeper.clone();
        assert!(keeper.learn(sample(1_007 * SECOND, SECOND, 4 * SECOND)).is_some(), "three seconds are proven");
        let steady = keeper.steady_us();
        assert!(steady >= 1_010 * SECOND, "the clock may have been read at once: {steady}");
        assert_eq!(keeper.learn(sample(1_011 * SECOND, 5 * SECOND, 5 * SECOND + 300)), None, "reported already");
        assert_eq!(keeper.steady_us(), steady);
        // A tenth of a second past the bounds is proven too, whatever else hides.
        let mut third = other.clone();
        assert!(other.learn(sample(1_004 * SECOND + SECOND / 10, SECOND, 4 * SECOND)).is_some());
        // Nothing is proven by what may have been read at the end; time is where it would be without a step.
        assert_eq!(third.learn(sample(1_003 * SECOND, SECOND, 4 * SECOND)), None);
        assert!(third.at(4 * SECOND) <= 1_004 * SECOND);
        assert!(
            third.learn(sample(1_006 * SECOND, 5 * SECOND, 5 * SECOND + 300)).is_some(),
            "bounds have not loosened"
        );
    }

    /// Whatever it follows, time does not advance by more than its bounds in small pieces either.
    #[test]
    fn many_small_steps_are_a_step() {
        let mut keeper = Timekeeper::new(sample(1_000 * SECOND, 0, 300), 0);
        let ahead = (1..100_u64).find(|n| {
            let boot = n * SECOND / 10;
            keeper.learn(sample(1_000 * SECOND + boot + n * 2_000, boot, boot + 300)).is_some()
        });
        assert!(ahead.is_some_and(|n| n < 10), "{ahead:?}");
        let mut keeper = Timekeeper::new(sample(1_000 * SECOND, 0, 300), 0);
        let ahead = (1..100_u64).find(|n| keeper.raise(1_000 * SECOND + 300 + n * 2_000, 300).is_some());
        assert!(ahead.is_some_and(|n| n < 10), "{ahead:?}");
    }

    /// A note of a node whose time lags too, after an answer that took long.
    #[test]
    fn time_that_is_raised_to_less_than_the_stores_clock_does_not_bound_it() {
        let mut keeper = Timekeeper::new(sample(1_000 * SECOND, 0, 4 * SECOND), 0);
        assert_eq!(keeper.raise(1_002 * SECOND, 4 * SECOND), None);
        assert_eq!(keeper.learn(sample(1_005 * SECOND, 5 * SECOND, 5 * SECOND + 300)), None);
    }

    /// Ten minutes without an answer: three seconds look like drift.
    #[test]
    fn a_step_while_nothing_was_heard_counts_as_unwatched() {
        let mut keeper = Timekeeper::new(sample(1_000 * SECOND, 0, 300), 0);
        let mut other = keeper.clone();
        keeper.learn(sample(1_602 * SECOND, 600 * SECOND, 601 * SECOND));
        let steady = keeper.steady_us();
        assert!(steady >= 1_603 * SECOND, "{steady}");
        assert_eq!(keeper.learn(sample(1_604 * SECOND, 602 * SECOND, 602 * SECOND + 300)), None);
        assert_eq!(keeper.steady_us(), steady, "watched from then on");
        other.raise(1_602 * SECOND, 600 * SECOND);
        assert!(other.steady_us() >= 1_602 * SECOND);
    }

    /// 1. (The clock steps back) (another node starts, and renews by it) (this one still leads, and would end that renewal).
    /// 2. (The other one decides) (the lead is noted, and read here) (the other one writes what it decided).
    #[test]
    fn time_is_not_steady_while_its_lead_is_unknown_to_others() {
        let mut keeper = Timekeeper::new(sample(1_000 * SECOND, 0, 300), 0);
        keeper.learn(sample(981 * SECOND, SECOND, SECOND + 300));
        let mut compare = |noted, boot| {
            keeper.compare(noted, boot);
            (keeper.steady_us(), keeper.at(boot))
        };
        for boot in [SECOND + 300, 2 * SECOND] {
            let (steady, now) = compare(0, boot);
            assert_eq!(steady, now);
        }
        let (noted, now) = compare(20 * SECOND, 3 * SECOND);
        assert_eq!(noted, now, "what was decided before the note may be written now");
        assert_eq!(compare(20 * SECOND, 4 * SECOND).0, noted);
        let (steady, now) = compare(10 * SECOND, 5 * SECOND);
        assert_eq!(steady, now, "another node's lead, which is less");
    }

    /// Clocks that differ by less than the rate that is allowed for.
    #[test]
    fn drift_is_no_step() {
        let mut keeper = Timekeeper::new(sample(1_000 * SECOND, 0, 300), 0);
        for n in 1..1_000_u64 {
            let boot = n * SECOND;
            assert_eq!(
                keeper.learn(sample(1_000 * SECOND + boot + n * 1_000, boot, boot + 300 + n % 7 * 50_000)),
                None
            );
        }
    }

    /// The time of another node that was noted after a step which this one has not seen.
    #[test]
    fn time_that_another_node_has_reached_by_a_step_is_a_step() {
        let mut keeper = Timekeeper::new(sample(1_000 * SECOND, 0, 300), 0);
        assert!(keeper.raise(1_011 * SECOND, SECOND).is_some());
        assert!(keeper.steady_us() >= 1_011 * SECOND);
        assert_eq!(keeper.raise(1_012 * SECOND, 2 * SECOND), None);
        assert_eq!(keeper.learn(sample(1_003 * SECOND, 3 * SECOND, 6 * SECOND)), None, "it leads");
        // The other node's time is slower, too.
        assert_eq!(keeper.raise(1_016 * SECOND - 16_000, 6 * SECOND), None);
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
        assert_eq!(keeper.learn(sample(1_001 * SECOND, SECOND, 3 * SECOND)), None);
        assert!(keeper.at(3 * SECOND) >= 1_002 * SECOND);
    }

    #[test]
    fn a_step_back_is_reported_once_and_time_slows_down() {
        let mut keeper = Timekeeper::new(sample(1_000 * SECOND, 0, 100), 0);
        let before = keeper.at(SECOND);
        assert!(
            matches!(keeper.learn(sample(900 * SECOND, SECOND, SECOND + 100)), Some(Step(step)) if step < -99_000_000)
        );
        assert_eq!(keeper.learn(sample(901 * SECOND, 2 * SECOND, 2 * SECOND + 100)), None);
        let after = keeper.at(2 * SECOND + 100);
        assert!(after > before, "{after} {before}");
        // A hundred seconds are made up in about twenty thousand.
        let late = 21_000 * SECOND;
        assert_eq!(keeper.at(late + 50 * SECOND) - keeper.at(late), 50 * SECOND);
        let elapsed = keeper.at(2 * SECOND + 100 + 200 * SECOND) - after;
        assert_eq!(elapsed, 199 * SECOND);
    }

    #[test]
    fn a_step_of_less_than_a_tenth_of_a_second_is_not_worth_a_word() {
        let mut keeper = Timekeeper::new(sample(1_000 * SECOND, 0, 100), 0);
        assert_eq!(keeper.learn(sample(1_001 * SECOND - 90_000, SECOND, SECOND + 100)), None);
        assert!(keeper.learn(sample(1_002 * SECOND - 300_000, 2 * SECOND, 2 * SECOND + 100)).is_some());
    }

    #[test]
    fn a_step_forward_is_followed_and_reported() {
        let mut keeper = Timekeeper::new(sample(1_000 * SECOND, 0, 100), 0);
        let forward = keeper.learn(sample(1_101 * SECOND, SECOND, SECOND + 100));
        assert!(matches!(forward, Some(Step(step)) if step > 99_000_000));
        assert_eq!(keeper.at(SECOND + 100), 1_101 * SECOND);
        // Half a second is enough to end a short lease; network jitter is not.
        assert!(keeper.learn(sample(1_102 * SECOND + SECOND / 2, 2 * SECOND, 2 * SECOND + 100)).is_some());
        assert_eq!(keeper.learn(sample(1_105 * SECOND, 3 * SECOND, 5 * SECOND)), None);
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
