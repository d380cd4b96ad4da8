//! The label that marks what pools of a shard have started, so that another installation's workers are told apart.
//! Lifetime: from the first pool of the shard on.
//! Key: shard · 32. Value: version, the label.

use std::sync::Arc;

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::ids::ShardId;

use super::{Kind, key as keys};
use crate::Key;

const VERSION: u8 = 1;

/// The key of the label.
#[must_use]
pub fn key(shard: ShardId) -> Key {
    keys::start(shard, Kind::PoolOwner, 0)
}

/// Encodes the label.
#[must_use]
pub fn encode(label: &str) -> Vec<u8> {
    let mut out = Writer::with_capacity(64);
    out.byte(VERSION);
    out.text(label);
    out.into()
}

/// Decodes the label.
///
/// # Errors
/// If the bytes do not decode.
pub fn decode(bytes: &[u8]) -> Result<Arc<str>, Damaged> {
    let mut input = Reader::new(bytes);
    if input.byte()? != VERSION {
        return Err(Damaged("the label of pools has an unknown version"));
    }
    input.text().map(Arc::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_label_reads_back_and_what_is_cut_off_is_refused() {
        let bytes = encode("0a1b");
        assert_eq!(decode(&bytes), Ok("0a1b".into()));
        assert!((0..bytes.len()).all(|cut| decode(&bytes[..cut]).is_err()));
        assert!(decode(&[9, 0]).is_err(), "an unknown version");
    }
}
