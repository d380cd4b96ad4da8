//! What all nodes of a store must agree on.
//! Lifetime: from the first node's start, forever.
//! Key: outside · 16. Value: version, secret.

use wayleave_core::codec::{Damaged, Reader, Writer};

use super::{Kind, key as keys};
use crate::Key;

const VERSION: u8 = 1;

/// The key of the row.
#[must_use]
pub fn key() -> Key {
    keys::start(keys::OUTSIDE, Kind::Cluster, 0)
}

/// Encodes the shared secret by which nodes authenticate each other.
#[must_use]
pub fn encode(secret: u128) -> Vec<u8> {
    let mut out = Writer::with_capacity(17);
    out.byte(VERSION);
    out.raw(&secret.to_be_bytes());
    out.into()
}

/// Decodes the secret.
///
/// # Errors
/// If the bytes do not decode.
pub fn decode(bytes: &[u8]) -> Result<u128, Damaged> {
    let mut input = Reader::new(bytes);
    if input.byte()? != VERSION {
        return Err(Damaged("a cluster row has an unknown version"));
    }
    let secret = input.raw(16)?.try_into().map_err(|_| Damaged("a cluster row is too short"))?;
    Ok(u128::from_be_bytes(secret))
}
