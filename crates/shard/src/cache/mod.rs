//! In-memory caches that save reads of the store. Every cache is updated by each write of its shard (write-through), so
//! its entries always equal the store.
//!
//! A Bloom filter answers for URLs that were never seen, fingerprints for the URLs added or found last. Due rows at the
//! front of each lane save the scan of a visit, rows of held URLs the read of their completion. A filter that cannot
//! read all URL rows is given up, because it must never call a known URL new.

pub(crate) mod delta;
pub(crate) mod filter;
pub(crate) mod fingerprint;
pub(crate) mod held_cache;
pub(crate) mod known_cache;
pub(crate) mod lane_cache;
pub(crate) mod lane_rows;
