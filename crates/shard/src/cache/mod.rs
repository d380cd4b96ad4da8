//! In-memory caches that save reads of the store. Every cache is updated by each write of its shard (write-through), so
//! its entries always equal the store.

pub(crate) mod delta;
pub(crate) mod filter;
pub(crate) mod fingerprint;
pub(crate) mod held_cache;
pub(crate) mod known_cache;
pub(crate) mod lane_cache;
pub(crate) mod lane_rows;
