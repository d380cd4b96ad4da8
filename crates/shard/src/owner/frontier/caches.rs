//! The caches of a shard. Every write of the frontier passes through [`Caches::follow`].

use wayleave_core::frontier::row::Write;
use wayleave_core::ids::{QueueId, ShardId};
use wayleave_engine::rows;

use crate::cache::filter::Filter;
use crate::cache::fingerprint::Fingerprinter;
use crate::cache::held_cache::HeldCache;
use crate::cache::known_cache::KnownCache;
use crate::cache::lane_cache::LaneCache;
use crate::config::Config;

/// The caches of a shard.
pub(crate) struct Caches {
    pub lanes: LaneCache,
    pub held: HeldCache,
    pub filter: Filter,
    pub known: KnownCache,
    /// Computes the fingerprints for the filter and the known URLs.
    pub fingerprinter: Fingerprinter,
}

impl Caches {
    pub fn new(config: &Config, hosts: usize) -> Self {
        Self::empty(config, hosts, Fingerprinter::new((config.entropy)() as u64))
    }

    fn empty(config: &Config, hosts: usize, fingerprinter: Fingerprinter) -> Self {
        Self {
            lanes: config.lane_cache(hosts),
            held: HeldCache::new(config.held_cache_rows_max),
            filter: Filter::new(config.share(config.filter_bytes_max)),
            known: KnownCache::new(config.share(config.known_cache_bytes_max)),
            fingerprinter,
        }
    }

    /// Forgets everything, because hosts came from another shard. One that was here before has been served elsewhere since:
    /// its lanes are stale, and URLs may have been removed. Others may have been added: the Bloom filter must read them
    /// before it may answer "new".
    pub fn forget(&mut self, config: &Config, hosts: usize) {
        *self = Self::empty(config, hosts, self.fingerprinter.clone());
    }

    /// Applies writes, and encodes them. `begun`: lanes that were empty.
    pub fn follow(&mut self, shard: ShardId, writes: &[Write], begun: &[(QueueId, u8)]) -> Vec<wayleave_engine::Write> {
        self.held.follow(writes);
        self.known.follow(&self.fingerprinter, writes);
        let rows: Vec<_> = writes.iter().map(|write| rows::encode(shard, write)).collect();
        self.lanes.begin(begun);
        self.lanes.follow(writes, &rows);
        rows
    }
}
