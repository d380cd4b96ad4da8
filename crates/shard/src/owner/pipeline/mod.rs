//! The chunks of a shard, owner's side. Links of a chunk are leases of the frontier, so every call reaches the frontier through
//! [`Links`], which commits what was decided about both as one batch. It must not know fleet, placement or pools.

mod announce;
mod chunk_claims;
pub(crate) mod chunk_rows;
mod chunk_slices;
mod chunk_view;
mod chunks;
mod retention;
mod service;

pub(crate) use service::{Links, Pipeline};
