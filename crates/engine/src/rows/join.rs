//! How often a node has joined, and the format of the store. Every join changes this row in the batch that writes the node's
//! own row, so of two that join at the same time the second one conflicts and looks again: their own rows have different keys
//! and would not. The same holds for a join and a raise of the format.
//! Lifetime: from the first join, forever.
//! Key: outside · 19. Value: version, number of joins, format.
//! Nodes of every format read it: it may only be appended to.

use wayleave_core::codec::Damaged;

use super::{Kind, field, key as keys};
use crate::Key;

/// The key of the row.
#[must_use]
pub fn key() -> Key {
    keys::of(keys::OUTSIDE, Kind::Join, &[])
}

/// Encodes a row.
#[must_use]
pub fn encode(joins: u64, format: u32) -> Vec<u8> {
    field::encode_frozen(&(joins, format))
}

/// Decodes a row: the number of joins, and the format.
pub fn decode(bytes: &[u8]) -> Result<(u64, u32), Damaged> {
    field::decode_frozen(bytes, "the row of joins has an unknown version")
}
