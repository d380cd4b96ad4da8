//! The number of hosts that all shards of this process hold. Hosts are kept in memory, so they are limited.

use std::sync::atomic::{AtomicU64, Ordering};

use wayleave_core::frontier::HostRoom;
use wayleave_core::frontier::put::hosts_full;
use wayleave_core::frontier::refusal::Refusal;

use crate::owner::owner_loop::Owner;

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

impl Owner {
    /// Publishes the number of hosts of this shard.
    pub fn count_hosts(&mut self) {
        let hosts = self.state.host_count() as u64;
        self.readiness.hosts.change(self.hosts_counted, hosts);
        self.hosts_counted = hosts;
        self.state.set_host_room(None);
    }

    /// Claims room for up to `wanted` new hosts, until [`Owner::count_hosts`] is called.
    pub fn claim_hosts(&mut self, wanted: usize) {
        let limit = self.config.hosts_max;
        let left = self.readiness.hosts.claim(wanted as u64, limit);
        self.hosts_counted += left;
        self.state.set_host_room(Some(HostRoom { left, limit }));
    }

    /// Refuses to create hosts for which there is no room.
    pub fn refuse_hosts<'a>(&self, mut hosts: impl Iterator<Item = &'a str>) -> Option<Refusal> {
        let limit = self.config.hosts_max;
        let first = hosts.find(|host| self.state.host_id(host).is_none())?;
        let new = 1 + hosts.filter(|host| self.state.host_id(host).is_none()).count() as u64;
        let full = !self.readiness.hosts.has_room(new, limit);
        full.then(|| Refusal::HostsFull(hosts_full(first, limit)))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // The next owner of the shard counts its hosts again.
        self.readiness.hosts.change(self.hosts_counted, 0);
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
