//! The number of hosts that all shards of this process hold. Hosts are kept in memory, so they are limited.

use std::sync::atomic::{AtomicU64, Ordering};

/// The count, including what owners have claimed for puts they are deciding.
#[derive(Default)]
pub(crate) struct HostQuota(AtomicU64);

impl HostQuota {
    /// Claims room for up to `wanted` more hosts; returns what was granted. Claims count at once, so concurrent owners
    /// share what is left and the limit is exact.
    pub fn claim(&self, wanted: u64, limit: u64) -> u64 {
        let room = |count: u64| wanted.min(limit.saturating_sub(count));
        let before = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| Some(count + room(count)));
        room(before.unwrap_or_else(|count| count))
    }

    /// Adjusts the count of one shard.
    pub fn change(&self, before: u64, after: u64) {
        if after >= before {
            self.0.fetch_add(after - before, Ordering::AcqRel);
        } else {
            self.0.fetch_sub(before - after, Ordering::AcqRel);
        }
    }

    /// Whether there is room for this many more.
    pub fn has_room(&self, wanted: u64, limit: u64) -> bool {
        limit.saturating_sub(self.0.load(Ordering::Acquire)) >= wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_that_claim_at_once_share_what_is_left() {
        let count = HostQuota::default();
        assert_eq!((count.claim(6, 10), count.claim(6, 10), count.claim(1, 10)), (6, 4, 0));
        assert!(!count.has_room(1, 10));
        count.change(6, 2);
        assert_eq!((count.has_room(4, 10), count.has_room(5, 10)), (true, false));
        assert_eq!(count.claim(9, 10), 4);
    }
}
