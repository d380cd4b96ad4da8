//! What all nodes of a store must agree on.
//! Lifetime: from the first node's start, forever.
//! Key: outside · 16. Value: version, format, secret.

use wayleave_core::codec::{Damaged, Reader, Writer};

use super::{Kind, key as keys};
use crate::Key;

const VERSION: u8 = 1;

/// The format version of the rows that this program writes. A store with a higher one was written by a newer program.
pub const FORMAT: u32 = 1;

/// What all nodes agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterRow {
    /// The format version of the rows in the store.
    pub format: u32,
    /// A shared secret by which nodes authenticate each other.
    pub secret: u128,
}

/// The key of the row.
#[must_use]
pub fn key() -> Key {
    keys::start(keys::OUTSIDE, Kind::Cluster, 0)
}

/// Encodes a row.
#[must_use]
pub fn encode(row: &ClusterRow) -> Vec<u8> {
    let mut out = Writer::with_capacity(24);
    out.byte(VERSION);
    out.number(row.format.into());
    out.raw(&row.secret.to_be_bytes());
    out.into()
}

/// Decodes a row. The format can be read from rows of any later version, so that the error can name it.
///
/// # Errors
/// If the bytes do not decode.
pub fn decode(bytes: &[u8]) -> Result<ClusterRow, Damaged> {
    let mut input = Reader::new(bytes);
    if input.byte()? == 0 {
        return Err(Damaged("a cluster row has an unknown version"));
    }
    let format = input.small()?;
    let secret = input.raw(16)?.try_into().map_err(|_| Damaged("a cluster row is too short"))?;
    Ok(ClusterRow { format, secret: u128::from_be_bytes(secret) })
}
