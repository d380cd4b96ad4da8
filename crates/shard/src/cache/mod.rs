//! What an owner keeps in memory to save reads of the store. Every cache follows the writes of its shard, so that what it holds
//! is exactly what the store holds.

pub(crate) mod delta;
pub(crate) mod filter;
pub(crate) mod fingerprint;
pub(crate) mod held_cache;
pub(crate) mod known_cache;
pub(crate) mod lane_cache;
pub(crate) mod lane_rows;
