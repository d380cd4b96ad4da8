//! The retry policy: attempts, back-off and jitter.
//!
//! Hand-written because a pause depends on the server's Retry-After, and an upload counts only attempts without progress.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// The longest Retry-After that is honoured.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// The number of attempts, and the back-off between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The maximum number of attempts including the first; streams count only those without progress.
    pub attempts: u32,
    /// The first pause; each further one is twice as long.
    pub base: Duration,
    /// The longest pause.
    pub max: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { attempts: 5, base: Duration::from_millis(100), max: Duration::from_secs(5) }
    }
}

impl Retry {
    /// No second attempt.
    pub const NEVER: Self = Self { attempts: 1, base: Duration::ZERO, max: Duration::ZERO };

    /// At least this many attempts, unless retries are disabled.
    pub(crate) fn at_least(mut self, attempts: usize) -> Self {
        if self.attempts > 1 {
            self.attempts = self.attempts.max(u32::try_from(attempts).unwrap_or(u32::MAX));
        }
        self
    }

    /// The pause after the attempt `attempt` (from 1): between half and all of an exponentially growing time, so that
    /// clients do not retry in step, and never less than the server asks for.
    #[must_use]
    pub(crate) fn pause(&self, attempt: u32, retry_after: Option<Duration>) -> Duration {
        let doubled = self.base.saturating_mul(1 << attempt.saturating_sub(1).min(20)).min(self.max);
        let half = doubled / 2;
        let jitter = half.mul_f64((random() >> 11) as f64 / (1_u64 << 53) as f64);
        (half + jitter).max(retry_after.unwrap_or_default().min(RETRY_AFTER_MAX))
    }
}

/// A random number without a generator: the standard library seeds each hasher's keys.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_vary() {
        let retry = Retry { attempts: 9, base: Duration::from_millis(100), max: Duration::from_millis(1_000) };
        for (attempt, most) in [(1, 100), (2, 200), (3, 400), (4, 800), (5, 1_000), (60, 1_000)] {
            for _ in 0..50 {
                let pause = retry.pause(attempt, None).as_millis();
                assert!((most / 2..=most).contains(&pause), "{attempt}: {pause}");
            }
        }
        let pauses: std::collections::HashSet<Duration> = (0..20).map(|_| retry.pause(5, None)).collect();
        assert!(pauses.len() > 1, "no jitter");
    }

    #[test]
    fn there_is_an_attempt_for_every_server_unless_there_is_to_be_only_one() {
        assert_eq!(Retry::default().at_least(9).attempts, 9);
        assert_eq!(Retry::default().at_least(2), Retry::default());
        assert_eq!(Retry::NEVER.at_least(9), Retry::NEVER);
    }

    #[test]
    fn the_servers_wish_counts_up_to_a_bound() {
        let retry = Retry::default();
        assert_eq!(retry.pause(1, Some(Duration::from_secs(3))), Duration::from_secs(3));
        assert_eq!(retry.pause(1, Some(Duration::from_secs(3_600))), RETRY_AFTER_MAX);
    }
}
