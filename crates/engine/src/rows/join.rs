//! How often a node has joined. Every join changes this row in the batch that writes the node's own row, so of two that
//! join at the same time the second one conflicts and looks again: their own rows have different keys and would not.
//! Lifetime: from the first join, forever.
//! Key: outside · 19. Value: version, number of joins.

use wayleave_core::codec::{Damaged, Reader, Writer};

use super::{Kind, key as keys};
use crate::Key;

const VERSION: u8 = 1;

/// The key of the row.
#[must_use]
pub fn key() -> Key {
    keys::start(keys::OUTSIDE, Kind::Join, 0)
}

/// Encodes a row.
#[must_use]
pub fn encode(joins: u64) -> Vec<u8> {
    let mut out = Writer::with_capacity(4);
    out.byte(VERSION);
    out.number(joins);
    out.into()
}

/// Decodes a row.
///
/// # Errors
/// If the bytes do not decode.
pub fn decode(bytes: &[u8]) -> Result<u64, Damaged> {
    let mut input = Reader::new(bytes);
    if input.byte()? != VERSION {
        return Err(Damaged("the row of joins has an unknown version"));
    }
    input.number()
}
