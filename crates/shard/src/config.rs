//! Settings of the frontier: plain data, with all defaults in one place.

use std::sync::Arc;
use std::time::Duration;

use wayleave_core::time::Millis;
use wayleave_core::{fleet, limits, placement};
use wayleave_engine::{Entropy, entropy};

use crate::cache::lane_cache::LaneCache;

/// How a process runs the frontier.
#[derive(Clone)]
pub struct Config {
    /// Number of shards of the store; fixed at its creation.
    pub shards: u16,
    /// Maximum number of hosts that this process holds in memory. URLs of further hosts are rejected.
    pub hosts_max: u64,
    /// Upper bound of the computed back-off, where a site sends no `Retry-After`.
    pub backoff_max: Millis,
    /// The hot log is checkpointed when it holds this many bytes.
    pub log_bytes_max: usize,
    /// Memory per host for cached lane prefixes. With many hosts most visits go to queues that were not visited
    /// recently, so the budget grows with the number of hosts.
    pub lane_cache_bytes_per_host: usize,
    /// Lower and upper bound of that budget over all shards.
    pub lane_cache_bytes: (usize, usize),
    /// Rows of held URLs that each shard caches for their completion.
    pub held_cache_rows_max: usize,
    /// Memory for the Bloom filters of all shards.
    pub filter_bytes_max: usize,
    /// Memory for the fingerprints of known URLs, over all shards.
    pub known_cache_bytes_max: usize,
    /// How long puts are held back at a time while a worker waits for a visit; zero turns this off. It pays where puts
    /// saturate the cores, not where they wait for a database.
    pub put_pause_max: Duration,
    /// Resolution of the engine's clock: true time may be ahead of it by up to this much. Zero where time is simulated.
    pub clock_step: Millis,
    /// Listings served concurrently.
    pub listings_max: usize,
    /// Listings that may queue for a permit; further ones are refused.
    pub listings_waiting_max: usize,
    /// How machines are judged.
    pub fleet: fleet::Config,
    /// How built chunks are placed on index servers.
    pub placement: placement::Config,
    /// Source of randomness.
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
            lane_cache_bytes_per_host: 448,
            lane_cache_bytes: (64 * 1024 * 1024, 512 * 1024 * 1024),
            held_cache_rows_max: 4 * 1024,
            filter_bytes_max: 64 * 1024 * 1024,
            known_cache_bytes_max: 16 * 1024 * 1024,
            put_pause_max: Duration::from_millis(20),
            clock_step: Millis(1),
            listings_max: limits::LISTINGS_MAX,
            listings_waiting_max: limits::LISTINGS_WAITING_MAX,
            fleet: fleet::Config::default(),
            placement: placement::Config::default(),
            entropy: Arc::new(entropy::system),
        }
    }

    /// Lane cache budget of one shard with this many hosts.
    pub(crate) fn lane_cache_bytes(&self, hosts: usize) -> usize {
        let (least, most) = self.lane_cache_bytes;
        (self.lane_cache_bytes_per_host * hosts).max(self.share(least)).min(self.share(most))
    }

    /// An empty lane cache with its budget.
    pub(crate) fn lane_cache(&self, hosts: usize) -> LaneCache {
        LaneCache::new(self.lane_cache_bytes(hosts), hosts)
    }

    /// One shard's share of a memory budget.
    pub(crate) fn share(&self, bytes: usize) -> usize {
        bytes / usize::from(self.shards.max(1))
    }
}
