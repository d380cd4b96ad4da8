//! What an owner needs to know; plain data with its defaults in one place.

use std::sync::Arc;
use std::time::Duration;

use wayleave_core::limits;
use wayleave_core::time::Millis;
use wayleave_engine::{Entropy, entropy};

use crate::cache::lane_cache::LaneCache;

/// How the frontier is run.
#[derive(Clone)]
pub struct Config {
    /// How many shards the store has; fixed when it was created.
    pub shards: u16,
    /// Hosts that this process holds in memory at most. URLs of further ones are rejected.
    pub hosts_max: u64,
    /// Longest back-off that is computed where a site names no time.
    pub backoff_max: Millis,
    /// Hot rows are written out one by one when this many bytes of them lie packed in the log.
    pub log_bytes_max: usize,
    /// Bytes of memory for each host for the first rows of its queues, so that a visit seldom reads the store: with many
    /// hosts most visits are to queues that were not visited lately.
    pub head_bytes_per_host: usize,
    /// The least and the most of that over all shards.
    pub head_bytes: (usize, usize),
    /// Rows of URLs on hold that each shard keeps in memory for their completion.
    pub recent_rows_max: usize,
    /// Bytes of memory, over all shards, for the filters that spare a read for URLs never seen.
    pub filter_bytes_max: usize,
    /// Bytes of memory, over all shards, for marks of URLs that are certainly known, which spare a read as well.
    pub seen_bytes_max: usize,
    /// For how long at a time new URLs stand while somebody waits for a visit; zero for never. It pays where puts keep
    /// the cores busy, not where they wait for a database.
    pub stand_max: Duration,
    /// What the engine's clock cuts off of the true time, at most; nothing where time is made.
    pub clock_step: Millis,
    /// ListingPermits that are worked on at a time.
    pub listings_max: usize,
    /// ListingPermits that wait for their turn; further ones are refused.
    pub listings_waiting_max: usize,
    /// Random bits.
    pub entropy: Entropy,
}

impl Config {
    /// The defaults for a store of `shards` shards.
    #[must_use]
    pub fn new(shards: u16) -> Self {
        Self {
            shards,
            hosts_max: limits::HOSTS_MAX_DEFAULT,
            backoff_max: limits::BACKOFF_MAX_DEFAULT,
            log_bytes_max: 2 * 1024 * 1024,
            head_bytes_per_host: 448,
            head_bytes: (64 * 1024 * 1024, 512 * 1024 * 1024),
            recent_rows_max: 4 * 1024,
            filter_bytes_max: 64 * 1024 * 1024,
            seen_bytes_max: 16 * 1024 * 1024,
            stand_max: Duration::from_millis(20),
            clock_step: Millis(1),
            listings_max: limits::LISTINGS_MAX,
            listings_waiting_max: limits::LISTINGS_WAITING_MAX,
            entropy: Arc::new(entropy::system),
        }
    }

    /// The memory for the heads of one shard with so many hosts.
    pub(crate) fn head_bytes(&self, hosts: usize) -> usize {
        let (least, most) = self.head_bytes;
        (self.head_bytes_per_host * hosts).max(self.share(least)).min(self.share(most))
    }

    /// No heads yet, with the memory for them.
    pub(crate) fn heads(&self, hosts: usize) -> LaneCache {
        LaneCache::new(self.head_bytes(hosts), hosts)
    }

    /// The part of a memory budget that is one shard's.
    pub(crate) fn share(&self, bytes: usize) -> usize {
        bytes / usize::from(self.shards.max(1))
    }
}
