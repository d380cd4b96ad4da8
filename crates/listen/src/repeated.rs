//! Rate-limits repeated log lines: the first at once, then one every so often with the number of suppressed ones.
//!
//! Hand-written because `tracing` limits nothing, and a rate limiter counts neither kinds nor what it suppressed.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The interval between two lines of the same kind.
const EVERY: Duration = Duration::from_secs(30);
/// The number of kinds remembered; the least recently used is evicted.
const KINDS_MAX: usize = 32;

/// Remembers what was logged.
#[derive(Default)]
pub struct Repeated(Mutex<Vec<Kind>>);

struct Kind {
    text: String,
    logged_at: Instant,
    left_out: u64,
}

impl Repeated {
    /// Whether a line of this kind is due, and if so how many were suppressed since the last one.
    pub fn due(&self, kind: &str, now: Instant) -> Option<u64> {
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = kinds.iter_mut().find(|found| found.text == kind) {
            if now.duration_since(found.logged_at) < EVERY {
                found.left_out += 1;
                return None;
            }
            found.logged_at = now;
            return Some(std::mem::take(&mut found.left_out));
        }
        if kinds.len() == KINDS_MAX
            && let Some(oldest) =
                kinds.iter().enumerate().min_by_key(|(_, kind)| kind.logged_at).map(|(place, _)| place)
        {
            kinds.swap_remove(oldest);
        }
        kinds.push(Kind { text: kind.to_owned(), logged_at: now, left_out: 0 });
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_line_is_logged_once_and_then_rarely_with_a_count() {
        let (repeated, start) = (Repeated::default(), Instant::now());
        assert_eq!(repeated.due("full", start), Some(0));
        for ms in 1..1_000 {
            assert_eq!(repeated.due("full", start + Duration::from_millis(ms)), None);
        }
        assert_eq!(repeated.due("other", start), Some(0), "another kind has its own line");
        assert_eq!(repeated.due("full", start + EVERY), Some(999));
        assert_eq!(repeated.due("full", start + EVERY), None);
    }

    #[test]
    fn kinds_without_end_take_no_memory_without_end() {
        let (repeated, start) = (Repeated::default(), Instant::now());
        for n in 0..1_000_u64 {
            assert_eq!(repeated.due(&n.to_string(), start + Duration::from_millis(n)), Some(0));
        }
        assert_eq!(repeated.0.lock().unwrap().len(), KINDS_MAX);
        assert_eq!(repeated.due("999", start + Duration::from_millis(1_000)), None, "the latest are remembered");
    }
}
