//! Unreachable machines with WARC files, and how long the builder waits for each.
//!
//! A machine that never comes back may have thousands of chunks. If the builder waited for each of them separately,
//! one dead crawler would delay the chunks of all others for hours. So time counts from when the machine went away,
//! for all its chunks together. The nth attempt at a chunk waits until n times the patience have passed since then,
//! and ends at the first try after that. So the machine has as much time before its chunks count as lost as a single
//! chunk gives it.
//!
//! A builder that has reached no other machine since then may be the one that is cut off: it rests between claims.
//! Otherwise it would send the chunks of all crawlers back to be crawled again, faster than others could build them.
//!
//! Interleavings: a machine comes back while a chunk waits for it: the fetch succeeds, and it is forgotten. It comes back
//! and goes away again with no fetch between: it counts as away since the first time only if its last failure is younger
//! than the patience. The pauses between tries, or a try itself, take longer than the patience: the time continues counting, or
//! the chunk would be waited for without end. The builder is restarted: it has forgotten all, and waits anew.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use url::Url;

use crate::limits::{AWAY_MACHINES_MAX, INPUT_ATTEMPTS_MAX, INPUT_PAUSE_MAX};

/// The machines that are out of reach.
#[derive(Debug)]
pub(super) struct Unreachable {
    patience: Duration,
    machines: Mutex<HashMap<String, Absence>>,
    /// When any machine was last reached.
    reached: Mutex<Option<Instant>>,
}

#[derive(Debug, Clone, Copy)]
struct Absence {
    since: Instant,
    last: Instant,
}

impl Unreachable {
    pub fn new(patience: Duration) -> Self {
        Self { patience, machines: Mutex::default(), reached: Mutex::default() }
    }

    /// How long after its last failure a machine counts as away, and the time since its first one continues.
    fn memory(&self) -> Duration {
        self.patience.max(2 * INPUT_PAUSE_MAX)
    }

    /// Whether a machine was out of reach a moment ago.
    pub fn is_unreachable(&self, machine: &str, now: Instant) -> bool {
        self.machines().get(machine).is_some_and(|absence| now < absence.last + self.memory())
    }

    /// Notes a try that began at `begun` and has failed now. Returns until when this attempt continues, given how
    /// many attempts at its chunk have failed before.
    pub fn failed(&self, machine: &str, begun: Instant, now: Instant, attempts: u32) -> Instant {
        let mut machines = self.machines();
        // However long this try took, nothing was heard of the machine meanwhile.
        machines.retain(|name, absence| (if name == machine { begun } else { now }) < absence.last + self.memory());
        if machines.len() >= AWAY_MACHINES_MAX && !machines.contains_key(machine) {
            machines.clear();
        }
        let absence = machines.entry(machine.to_owned()).or_insert(Absence { since: begun, last: now });
        absence.last = now;
        absence.since + self.patience * attempts.saturating_add(1).min(INPUT_ATTEMPTS_MAX)
    }

    /// Notes that a machine can be reached.
    pub fn back(&self, machine: &str, now: Instant) {
        self.machines().remove(machine);
        *self.reached.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }

    /// How long to rest before the next claim, given how many chunks of the last one waited for a machine; none if
    /// not at all. If no machine was reached since one went away that is away still, it may be this builder that is
    /// cut off.
    pub fn rest(&self, waited: bool, now: Instant) -> Option<Duration> {
        let reached = *self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        let machines = self.machines();
        let mut away = machines.values().filter(|absence| now < absence.last + self.memory());
        let cut_off = away.any(|absence| reached.is_none_or(|at| at < absence.since));
        (waited && cut_off).then_some(self.patience)
    }

    fn machines(&self) -> std::sync::MutexGuard<'_, HashMap<String, Absence>> {
        self.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The machine, or bucket, that has a file.
pub(super) fn machine(location: &Url) -> String {
    let host = location.host_str().unwrap_or_default();
    location.port_or_known_default().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);
    const PAUSE: Duration = Duration::from_secs(1);

    /// Tries a chunk of a dead machine until its attempt ends. Returns when that is.
    fn attempt(away: &Unreachable, attempts: u32, mut now: Instant) -> Instant {
        while away.failed("dead:1", now, now, attempts) > now + PAUSE {
            now += PAUSE;
        }
        now
    }

    /// A regression: each chunk waited by itself, thirty seconds three times, and nothing else was built meanwhile.
    #[test]
    fn a_dead_machine_holds_a_builder_up_once_and_not_for_each_of_its_chunks() {
        let (away, begun) = (Unreachable::new(PATIENCE), Instant::now());
        let mut now = begun;
        for attempts in 0..INPUT_ATTEMPTS_MAX {
            for _ in 0..500 {
                now = attempt(&away, attempts, now);
            }
        }
        let held_up = now - begun;
        assert!(held_up <= PATIENCE * INPUT_ATTEMPTS_MAX && held_up > PATIENCE * 2, "{held_up:?}");
    }

    #[test]
    fn a_machine_that_was_back_or_not_asked_for_a_while_is_waited_for_anew() {
        let (away, begun) = (Unreachable::new(PATIENCE), Instant::now());
        let later = attempt(&away, 0, begun);
        assert!(away.is_unreachable("dead:1", later) && !away.is_unreachable("other:1", later));
        assert_eq!(away.failed("dead:1", later, later, 0), begun + PATIENCE);
        away.back("dead:1", later);
        assert!(!away.is_unreachable("dead:1", later));
        assert_eq!(away.failed("dead:1", later, later, 0), later + PATIENCE);
        let much_later = later + PATIENCE;
        assert!(!away.is_unreachable("dead:1", much_later));
        assert_eq!(away.failed("dead:1", much_later, much_later, 0), much_later + PATIENCE);
    }

    /// The fifth attempt follows lost leases: it has no more time than the third.
    #[test]
    fn later_attempts_wait_longer_up_to_the_last_that_counts() {
        let (away, begun) = (Unreachable::new(PATIENCE), Instant::now());
        let until = [0, 1, 2, 4, u32::MAX].map(|attempts| away.failed("dead:1", begun, begun, attempts) - begun);
        assert_eq!(until.map(|until| until.as_secs()), [30, 60, 90, 90, 90]);
    }

    #[test]
    fn a_builder_that_reaches_no_machine_may_be_cut_off_and_rests() {
        let (away, begun) = (Unreachable::new(PATIENCE), Instant::now());
        let at = |pauses: u32| begun + PAUSE * pauses;
        assert_eq!(away.rest(true, at(0)), None, "nothing has failed");
        away.back("live:1", at(0));
        away.failed("dead:1", at(1), at(1), 0);
        assert_eq!(away.rest(true, at(1)), Some(PATIENCE), "the other was reached before");
        assert_eq!(away.rest(false, at(1)), None, "no chunk of this claim was waited for");
        away.back("live:1", at(2));
        assert_eq!(away.rest(true, at(2)), None, "the other is reached since: the first one is dead");
        away.failed("live:1", at(3), at(3), 0);
        assert_eq!(away.rest(true, at(3)), Some(PATIENCE));
        away.back("live:1", at(4));
        away.back("dead:1", at(4));
        assert_eq!(away.rest(true, at(4)), None);
    }

    /// A regression: a machine that no chunk needed any more made the builder rest after every claim.
    #[test]
    fn an_absence_that_is_long_past_is_no_reason_to_rest() {
        let (away, begun) = (Unreachable::new(PATIENCE), Instant::now());
        away.failed("dead:1", begun, begun, 0);
        let last = begun + PATIENCE - PAUSE;
        assert_eq!((away.rest(true, last), away.rest(true, last + PAUSE)), (Some(PATIENCE), None));
    }

    #[test]
    fn machines_are_distinguished_by_host_and_port() {
        let of = |text: &str| machine(&text.parse().unwrap());
        assert_eq!(of("http://127.0.0.1:7081/chunk-1.warc.gz"), "127.0.0.1:7081");
        assert_eq!(of("https://files.example/a/b"), "files.example:443");
        assert_eq!(of("s3://bucket/prefix/a"), "bucket");
    }

    /// A regression: the pauses between tries, or tries that hang, were longer than the patience, so that time never counted.
    #[test]
    fn a_short_patience_ends_although_pauses_and_tries_are_longer() {
        for try_time in [Duration::ZERO, Duration::from_secs(60)] {
            let (away, begun) = (Unreachable::new(Duration::from_secs(4)), Instant::now());
            let (mut now, mut tries) = (begun, 0);
            while away.failed("dead:1", now, now + try_time, 2) > now + try_time {
                now += try_time + INPUT_PAUSE_MAX;
                tries += 1;
                assert!(tries < 10, "it is waited for without end");
            }
        }
    }
}
