//! Which node owns a shard.
//! Lifetime: from the shard's first assignment to a node.
//! Key: outside · 15 · shard. Value: version, node; no node if it is unassigned.
//! Nodes of every format read it, and expect it byte for byte.

use wayleave_core::codec::Damaged;
use wayleave_core::ids::{NodeId, ShardId};

use super::{Kind, field, key as keys};
use crate::{Key, Scan};

/// The key of a shard's seat.
#[must_use]
pub fn key(shard: ShardId) -> Key {
    keys::of(keys::OUTSIDE, Kind::Seat, &[&shard.0.to_be_bytes()])
}

/// The scan of the seats of `shards` shards.
#[must_use]
pub fn all(shards: u16) -> Scan {
    let (from, to) = keys::range(keys::OUTSIDE, Kind::Seat, Kind::Seat);
    Scan { from, to, limit: shards.into() }
}

/// The shard that a key names.
pub fn parse_key(key: &[u8]) -> Result<ShardId, Damaged> {
    Ok(ShardId(keys::Parts::of(key)?.number::<2>()? as u16))
}

/// Encodes a row.
#[must_use]
pub fn encode(node: Option<NodeId>) -> Vec<u8> {
    field::encode_frozen(&node.map(|node| node.0.to_be_bytes()))
}

/// Decodes a row.
pub fn decode(bytes: &[u8]) -> Result<Option<NodeId>, Damaged> {
    let node = field::decode_frozen::<Option<_>>(bytes, "a seat row has an unknown version")?;
    Ok(node.map(|node| NodeId(u64::from_be_bytes(node))))
}
