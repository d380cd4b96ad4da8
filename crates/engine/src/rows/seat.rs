//! Which node owns a shard.
//! Lifetime: from the shard's first assignment to a node.
//! Key: outside · 15 · shard. Value: version, node; no node if it is unassigned.

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::ids::{NodeId, ShardId};

use super::{Kind, key as keys};
use crate::{Key, Scan};

const VERSION: u8 = 1;

/// The key of a shard's seat.
#[must_use]
pub fn key(shard: ShardId) -> Key {
    let mut key = keys::start(keys::OUTSIDE, Kind::Seat, 2);
    key.extend_from_slice(&shard.0.to_be_bytes());
    key
}

/// The scan of the seats of `shards` shards.
#[must_use]
pub fn all(shards: u16) -> Scan {
    let (from, to) = keys::range(keys::OUTSIDE, Kind::Seat, Kind::Seat);
    Scan { from, to, limit: shards.into() }
}

/// The shard that a key names.
///
/// # Errors
/// If the key does not parse.
pub fn parse_key(key: &[u8]) -> Result<ShardId, Damaged> {
    let mut parts = keys::Parts(key);
    parts.prefix()?;
    Ok(ShardId(parts.number::<2>()? as u16))
}

/// Encodes a row.
#[must_use]
pub fn encode(node: Option<NodeId>) -> Vec<u8> {
    let mut out = Writer::with_capacity(12);
    out.byte(VERSION);
    out.byte(node.is_some().into());
    out.number(node.map_or(0, |node| node.0));
    out.into()
}

/// Decodes a row.
///
/// # Errors
/// If the bytes do not decode.
pub fn decode(bytes: &[u8]) -> Result<Option<NodeId>, Damaged> {
    let mut input = Reader::new(bytes);
    if input.byte()? != VERSION {
        return Err(Damaged("a seat row has an unknown version"));
    }
    let taken = input.byte()? != 0;
    let node = NodeId(input.number()?);
    Ok(taken.then_some(node))
}
