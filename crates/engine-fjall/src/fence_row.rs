//! The fence row: the one row per shard that this engine keeps for itself.
//!
//! Lifetime: from the shard's first owner, forever. Rewritten with every flush; later changes are in the journal.
//! Key: shard (2 bytes, big-endian) · kind 0.
//! Value: version 1 (1 byte) · epoch · sequence number of the last commit · time of that commit (8 bytes each,
//! big-endian).

use wayleave_core::ids::{Epoch, ShardId};
use wayleave_core::time::Time;
use wayleave_engine::fences::FenceState;
use wayleave_engine::{Key, Value, Write};

const KIND: u8 = 0;
const VERSION: u8 = 1;

/// A shard's fence state and the time of its last commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FenceRow {
    pub(crate) fence: FenceState,
    pub(crate) at: Time,
}

/// Whether a key is reserved for this engine.
pub(crate) fn is_own_key(key: &[u8]) -> bool {
    matches!(key, [_, _, KIND, ..])
}

/// The key of a shard's fence row.
pub(crate) fn key(shard: ShardId) -> Key {
    let [high, low] = shard.0.to_be_bytes();
    vec![high, low, KIND]
}

impl FenceRow {
    /// The write that stores this row.
    pub(crate) fn write(self, shard: ShardId) -> Write {
        Write { key: key(shard), value: Some(self.encode()) }
    }

    fn encode(self) -> Value {
        let mut value = vec![VERSION];
        for number in [self.fence.epoch.0, self.fence.seq, self.at.0] {
            value.extend_from_slice(&number.to_be_bytes());
        }
        value
    }

    /// Decodes the row; `None` if the bytes are invalid.
    pub(crate) fn decode(value: &[u8]) -> Option<Self> {
        let numbers: &[u8; 24] = value.strip_prefix(&[VERSION])?.try_into().ok()?;
        let (epoch, rest) = numbers.split_first_chunk::<8>()?;
        let (seq, rest) = rest.split_first_chunk::<8>()?;
        let at: &[u8; 8] = rest.try_into().ok()?;
        let fence = FenceState { epoch: Epoch(u64::from_be_bytes(*epoch)), seq: u64::from_be_bytes(*seq) };
        Some(Self { fence, at: Time(u64::from_be_bytes(*at)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_reads_back_and_keeps_its_layout() {
        let row = FenceRow { fence: FenceState { epoch: Epoch(2), seq: 0x0102_0304_0506_0708 }, at: Time(77) };
        let write = row.write(ShardId(0x0a0b));
        assert_eq!(write.key, [0x0a, 0x0b, 0]);
        let value = write.value.unwrap();
        let layout = [1, 0, 0, 0, 0, 0, 0, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 77];
        assert_eq!(value, layout);
        assert_eq!(FenceRow::decode(&value), Some(row));
    }

    #[test]
    fn another_version_or_length_is_no_row() {
        let value = FenceRow { fence: FenceState::default(), at: Time::ZERO }.encode();
        let mut newer = value.clone();
        newer[0] = 2;
        for bad in [&newer[..], &value[..24], &[&value[..], &[0]].concat(), &[]] {
            assert_eq!(FenceRow::decode(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn only_keys_of_kind_0_are_the_engines() {
        assert!(is_own_key(&[0, 1, 0]) && is_own_key(&[0xff, 0xff, 0, 1]));
        for other in [&[0, 1, 1][..], &[0, 1], &[0, 1, 2, 0], &[]] {
            assert!(!is_own_key(other), "{other:?}");
        }
    }
}
