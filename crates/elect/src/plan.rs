//! The arithmetic of a term: the heartbeat interval, the response timeout, when to stop.

use wayleave_core::time::Millis;

/// Clock drift: quartz is off by 0.005 %, and the kernel adjusts the rate by at most 0.05 % to follow network time;
/// programs that steer it harder (chrony, at start, up to 8 %) are the reason for twenty times that. One percent of a
/// term costs little.
const DRIFT_PART: u64 = 100;
/// Both clocks are read in whole milliseconds, and timers fire slightly late.
const ROUNDING: Millis = Millis(5);
/// The default number of heartbeats per term.
const HEARTBEATS_A_TERM: u64 = 5;
/// The shortest interval: a term that would need more frequent heartbeats is refused.
const INTERVAL_MIN: Millis = Millis(20);
/// The longest response timeout, however long the interval.
const TIMEOUT_MAX: Millis = Millis(5_000);

/// The holder's wishes; T is the server's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Wish {
    /// The interval I between heartbeats; derived from T by default.
    pub interval: Option<Millis>,
    /// How long the work may take to stop. It ends *before* the end of the term.
    pub grace: Millis,
}

/// How a term of length T is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    /// T: how long a term lasts after a heartbeat, by the server's clock.
    pub ttl: Millis,
    /// The allowance for clock drift.
    pub margin: Millis,
    /// How long the work may take to stop.
    pub grace: Millis,
    /// I: a heartbeat is sent at least this often.
    pub interval: Millis,
    /// The response timeout; at most half of I.
    pub timeout: Millis,
}

/// T is too short for these wishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error(
    "the role's T of {} ms is too short: 3 heartbeats of {} ms + 2 answers of {} ms + {} ms for the work to stop + {} ms \
     of margin = {} ms; make T longer (`wayleave roles set`), or the interval or the grace shorter",
    ttl.0, interval.0, timeout.0, grace.0, margin.0, needed.0
)]
pub struct TooTight {
    /// T.
    pub ttl: Millis,
    /// The requested interval between heartbeats, or the shortest.
    pub interval: Millis,
    /// The response timeout.
    pub timeout: Millis,
    /// How long the work may take to stop.
    pub grace: Millis,
    /// The allowance for clock drift.
    pub margin: Millis,
    /// The shortest T that would suffice.
    pub needed: Millis,
}

impl Plan {
    /// The plan for a term of length `ttl`. Fails if the term cannot hold three heartbeats, two response timeouts, the
    /// margin and the grace period: then one lost response would cost the role.
    pub fn new(ttl: Millis, wish: Wish) -> Result<Self, TooTight> {
        let margin = Self::margin(ttl);
        let usable = ttl.0.saturating_sub(margin.0).saturating_sub(wish.grace.0);
        // 3 I + 2 I / 2 = 4 I.
        let fitting = Millis((ttl.0 / HEARTBEATS_A_TERM).min(usable / 4));
        let interval = Millis(wish.interval.unwrap_or(fitting).0.max(INTERVAL_MIN.0));
        let timeout = Millis((interval.0 / 2).clamp(1, TIMEOUT_MAX.0));
        let needed = interval.0.saturating_mul(3).saturating_add(timeout.0.saturating_mul(2));
        if needed > usable {
            let needed = Millis(needed.saturating_add(margin.0).saturating_add(wish.grace.0));
            return Err(TooTight { ttl, interval, timeout, grace: wish.grace, margin, needed });
        }
        Ok(Self { ttl, margin, grace: wish.grace, interval, timeout })
    }

    /// The margin of a term of length `ttl`.
    #[must_use]
    pub const fn margin(ttl: Millis) -> Millis {
        Millis(ttl.0 / DRIFT_PART + ROUNDING.0)
    }

    /// How many consecutive heartbeats may be lost without losing the role, if the next one is answered in time.
    #[must_use]
    pub const fn tolerance(&self) -> u64 {
        let usable = self.ttl.0.saturating_sub(self.margin.0).saturating_sub(self.grace.0);
        (usable.saturating_sub(self.timeout.0) / self.interval.0).saturating_sub(1)
    }
}

impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let secs = |span: Millis| span.0 as f64 / 1_000.0;
        let lost = self.tolerance();
        let s = if lost == 1 { "" } else { "s" };
        write!(f, "T {} s, I {} s: survives {lost} lost heartbeat{s}", secs(self.ttl), secs(self.interval))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(interval: Option<u64>, grace: u64) -> Wish {
        Wish { interval: interval.map(Millis), grace: Millis(grace) }
    }

    #[test]
    fn the_usual_term_survives_three_lost_heartbeats_and_says_so() {
        let plan = Plan::new(Millis(15_000), wish(None, 0)).unwrap();
        assert_eq!((plan.interval, plan.timeout, plan.margin), (Millis(3_000), Millis(1_500), Millis(155)));
        assert_eq!(plan.to_string(), "T 15 s, I 3 s: survives 3 lost heartbeats");
    }

    #[test]
    fn a_grace_makes_heartbeats_more_frequent() {
        let plan = Plan::new(Millis(15_000), wish(None, 5_000)).unwrap();
        assert_eq!(plan.interval, Millis(2_461));
        assert_eq!(plan.tolerance(), 2);
    }

    #[test]
    fn a_term_that_is_too_short_is_refused_with_the_arithmetic() {
        let error = Plan::new(Millis(4_000), wish(Some(1_000), 1_000)).unwrap_err();
        assert_eq!(error.needed, Millis(5_045));
        let text = error.to_string();
        assert!(text.contains("T of 4000 ms") && text.contains("= 5045 ms"), "{text}");
        assert!(Plan::new(error.needed, wish(Some(1_000), 1_000)).is_err(), "the margin grows with T");
        assert!(Plan::new(Millis(5_100), wish(Some(1_000), 1_000)).is_ok());
        assert!(Plan::new(Millis(5_000), wish(None, 5_000)).is_err());
    }

    proptest::proptest! {
        #[test]
        fn every_plan_leaves_room_for_a_lost_heartbeat(ttl in 1_u64..4_000_000, interval in proptest::option::of(1_u64..100_000), grace in 0_u64..60_000) {
            if let Ok(plan) = Plan::new(Millis(ttl), wish(interval, grace)) {
                proptest::prop_assert!(plan.tolerance() >= 1, "{plan:?}");
                proptest::prop_assert!(plan.timeout.0 * 2 <= plan.interval.0);
                proptest::prop_assert!(3 * plan.interval.0 + 2 * plan.timeout.0 + plan.margin.0 + grace <= ttl);
            }
        }
    }
}
