//! One memory budget for all connections: request bodies, calls in progress, unread responses.
//!
//! Without it each connection could stay within its own limits while all of them together exhaust memory. Bytes are
//! counted when they arrive, never when they are announced, because an announcement costs a client nothing. When the
//! budget is exhausted, new requests are refused; existing shares are kept. The last quarter is reserved for small
//! shares, so that a flood of large bodies leaves room for heartbeats.
//!
//! Hand-written because tokio's `Semaphore` keeps no part for small requests and cannot be overdrawn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A share of at most this size may use the last quarter.
const SMALL_BYTES: usize = 64 << 10;

/// The shared budget.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    held: AtomicUsize,
}

impl Budget {
    /// A budget of `bytes` bytes.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self { limit, held: AtomicUsize::new(0) }
    }

    /// The bytes in use.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// An empty share. It takes and returns bytes in multiples of `step`, so that streams of small items rarely touch
    /// the shared counter.
    #[must_use]
    pub fn share(self: &Arc<Self>, step: usize) -> Share {
        Share { budget: Arc::clone(self), step: step.max(1), taken: 0, used: 0 }
    }

    /// A share of this size that leaves the last quarter alone, however small it is; none if too few bytes are left.
    #[must_use]
    pub fn large_share(self: &Arc<Self>, bytes: usize) -> Option<Share> {
        self.take(bytes, false).then(|| Share { budget: Arc::clone(self), step: 1, taken: bytes, used: bytes })
    }

    /// The size of the budget.
    #[must_use]
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// Whether nothing is left, not even for small shares.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.held() >= self.limit
    }

    fn take(&self, bytes: usize, small: bool) -> bool {
        let limit = if small { self.limit } else { self.limit - self.limit / 4 };
        let more = |held: usize| held.checked_add(bytes).filter(|held| *held <= limit);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn give(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// What one body, stream or response holds of the budget. Dropping it returns everything.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    step: usize,
    taken: usize,
    used: usize,
}

impl Share {
    /// Takes bytes; false if too few are left, and then nothing is taken.
    #[must_use]
    pub fn take(&mut self, bytes: usize) -> bool {
        let Some(used) = self.used.checked_add(bytes) else { return false };
        if used > self.taken {
            let more = (used - self.taken).next_multiple_of(self.step);
            if !self.budget.take(more, self.taken + more <= SMALL_BYTES) {
                return false;
            }
            self.taken += more;
        }
        self.used = used;
        true
    }

    /// Takes bytes even beyond the budget: the next request is refused.
    pub fn overdraw(&mut self, bytes: usize) {
        let used = self.used.saturating_add(bytes);
        if used > self.taken {
            let more = (used - self.taken).next_multiple_of(self.step);
            self.budget.held.fetch_add(more, Ordering::Relaxed);
            self.taken += more;
        }
        self.used = used;
    }

    /// Returns bytes.
    pub fn give(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes);
        // One step is kept: a stream will need it again at once.
        let kept = if self.step == 1 { self.used } else { self.used.next_multiple_of(self.step) + self.step };
        if let Some(spare) = self.taken.checked_sub(kept) {
            self.budget.give(spare);
            self.taken = kept;
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.give(self.taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_comes_back_and_no_more_is_taken_than_there_is() {
        let budget = Arc::new(Budget::new(400_000));
        let (mut large, mut other) = (budget.share(1), budget.share(1));
        assert!(large.take(300_000) && !large.take(1), "the last quarter is not for the large");
        assert!(other.take(60_000) && !other.take(10_000), "it would be large then");
        assert_eq!(budget.held(), 360_000);
        large.give(100_000);
        assert!(other.take(10_000));
        drop((large, other));
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn steps_are_taken_and_given_whole_and_nothing_leaks() {
        let budget = Arc::new(Budget::new(1 << 20));
        let mut share = budget.share(1_000);
        for _ in 0..10 {
            assert!(share.take(300));
        }
        assert_eq!(budget.held(), 3_000);
        for _ in 0..10 {
            share.give(300);
        }
        assert_eq!(budget.held(), 1_000, "one step is kept");
        assert!(!share.take(2 << 20) && share.take(900));
        drop(share);
        assert_eq!(budget.held(), 0);
    }
}
