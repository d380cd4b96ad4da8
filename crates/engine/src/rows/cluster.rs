//! What all nodes of a store must agree on.
//! Lifetime: from the first node's start, forever.
//! Key: outside · 16. Value: version, secret.
//! Nodes of every format read it: it may only be appended to.

use wayleave_core::codec::Damaged;

use super::{Kind, field, key as keys};
use crate::Key;

/// The key of the row.
#[must_use]
pub fn key() -> Key {
    keys::of(keys::OUTSIDE, Kind::Cluster, &[])
}

/// Encodes the shared secret by which nodes authenticate each other.
#[must_use]
pub fn encode(secret: u128) -> Vec<u8> {
    field::encode_frozen(&secret.to_be_bytes())
}

/// Decodes the secret.
pub fn decode(bytes: &[u8]) -> Result<u128, Damaged> {
    field::decode_frozen(bytes, "a cluster row has an unknown version").map(u128::from_be_bytes)
}
