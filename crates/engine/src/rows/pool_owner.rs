//! The label of what the pools of a shard have started, which distinguishes another installation's workers. Lifetime:
//! from the first pool of the shard on. Key: shard · 32. Value: version, the label.

use std::sync::Arc;

use wayleave_core::codec::Damaged;
use wayleave_core::ids::ShardId;

use super::{Kind, field, key as keys};
use crate::Key;

/// The key of the label.
#[must_use]
pub fn key(shard: ShardId) -> Key {
    keys::of(shard, Kind::PoolOwner, &[])
}

/// Encodes the label.
#[must_use]
pub fn encode(label: &str) -> Vec<u8> {
    field::encode_with(label, |label, out| out.text(label))
}

/// Decodes the label.
pub fn decode(bytes: &[u8]) -> Result<Arc<str>, Damaged> {
    field::decode(bytes)
}
