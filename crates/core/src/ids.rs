//! Numeric ids. Strings are turned into ids at the API boundary and stay ids inside.

use serde::{Deserialize, Serialize};

/// A partition of the groups, with a single writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShardId(pub u16);

/// Fencing token: the number of a shard's owner or a role's term. It grows with every change of holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Epoch(pub u64);

/// A Wayleave process. Random per start, so that a restarted node is not taken for the one that died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u64);

impl std::fmt::Display for NodeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Permanent host id: the shard it was born in (16 bits) and that shard's durable counter (48 bits).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostId(pub u64);

/// Permanent queue id: its host, and a number within the host that is never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct QueueId {
    /// The host that the queue belongs to.
    pub host: HostId,
    /// Its number within the host.
    pub no: u32,
}

/// Permanent chunk id: the shard that it draws its links from (16 bits) and that shard's durable counter (48 bits).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChunkId(pub u64);

/// Permanent alias id: the shard and that shard's durable counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupId(pub u64);

/// A crawl within one shard. Each shard numbers its crawls independently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CrawlNo(pub u32);

impl CrawlNo {
    /// A host that is queued without URLs.
    pub const NONE: Self = Self(u32::MAX);
}

impl HostId {
    const COUNTER_BITS: u32 = 48;

    /// The id of the host that `shard` counted as `counter`.
    #[must_use]
    pub const fn new(shard: ShardId, counter: u64) -> Self {
        Self(((shard.0 as u64) << Self::COUNTER_BITS) | (counter & ((1 << Self::COUNTER_BITS) - 1)))
    }

    /// The shard that the host was born in.
    #[must_use]
    pub const fn birth(self) -> ShardId {
        ShardId((self.0 >> Self::COUNTER_BITS) as u16)
    }

    /// The counter value of its birth shard.
    #[must_use]
    pub const fn counter(self) -> u64 {
        self.0 & ((1 << Self::COUNTER_BITS) - 1)
    }
}

impl ChunkId {
    /// The id of the chunk that `shard` counted as `counter`.
    #[must_use]
    pub const fn new(shard: ShardId, counter: u64) -> Self {
        Self(HostId::new(shard, counter).0)
    }

    /// The shard that made it, in the store that it was made in.
    #[must_use]
    pub const fn shard(self) -> ShardId {
        HostId(self.0).birth()
    }

    /// The counter value of the shard that made it.
    #[must_use]
    pub const fn counter(self) -> u64 {
        HostId(self.0).counter()
    }

    /// The shard to ask for it in a store of this many shards: the one that made it. An id that this store cannot
    /// have made leads to a shard that does not know it.
    #[must_use]
    pub const fn home(self, shards: u16) -> ShardId {
        let made_by = self.shard().0;
        if made_by < shards || shards == 0 { ShardId(made_by) } else { ShardId(made_by % shards) }
    }
}

impl std::fmt::Display for ChunkId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The secret of a lease: random bits, prefixed with the granting shard for a reservation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Token(pub [u8; 16]);

/// The text is not a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a token: send it as it was issued, 22 characters of A-Z, a-z, 0-9, _ and -")]
pub struct BadToken;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

impl Token {
    /// A token of `shard` from random bits supplied by the caller.
    #[must_use]
    pub const fn new(shard: ShardId, entropy: u128) -> Self {
        let mut bytes = entropy.to_be_bytes();
        let [high, low] = shard.0.to_be_bytes();
        bytes[0] = high;
        bytes[1] = low;
        Self(bytes)
    }

    /// The shard that granted it.
    #[must_use]
    pub const fn shard(&self) -> ShardId {
        ShardId(u16::from_be_bytes([self.0[0], self.0[1]]))
    }

    /// Parses the text form. Fails if the text is not 22 characters of the URL-safe alphabet.
    pub fn parse(text: &str) -> Result<Self, BadToken> {
        let text = text.as_bytes();
        if text.len() != 22 {
            return Err(BadToken);
        }
        let mut value: u128 = 0;
        let mut last = 0;
        for byte in text {
            let digit = ALPHABET.iter().position(|a| a == byte).ok_or(BadToken)?;
            last = digit;
            // The first 21 digits fill 126 bits; the last one carries the remaining two.
            value = (value << 6) | digit as u128;
        }
        if last & 0b1111 != 0 {
            return Err(BadToken);
        }
        // 132 bits were shifted through 128: the four highest ones dropped out of the first digit.
        Self::from_shifted(text, value)
    }

    fn from_shifted(text: &[u8], value: u128) -> Result<Self, BadToken> {
        let first = text.first().and_then(|b| ALPHABET.iter().position(|a| a == b)).ok_or(BadToken)?;
        let value = (value >> 4) | ((first as u128) << 122);
        Ok(Self(value.to_be_bytes()))
    }
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = u128::from_be_bytes(self.0);
        let mut text = [0u8; 22];
        for (i, place) in text.iter_mut().enumerate() {
            let digit = if i < 21 { (value >> (122 - 6 * i)) & 63 } else { (value & 3) << 4 };
            *place = ALPHABET.get(digit as usize).copied().unwrap_or(b'A');
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

/// A token is a secret: logs show only its first characters.
impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Token({:.6}…)", self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn a_token_reads_back_from_its_text(shard: u16, entropy: u128) {
            let token = Token::new(ShardId(shard), entropy);
            proptest::prop_assert_eq!(Token::parse(&token.to_string()), Ok(token));
            proptest::prop_assert_eq!(token.shard(), ShardId(shard));
        }
    }

    #[test]
    fn a_text_with_stray_bits_or_signs_is_no_token() {
        for bad in ["", "abc", "AAAAAAAAAAAAAAAAAAAAAB", "AAAAAAAAAAAAAAAAAAAA!A", "AAAAAAAAAAAAAAAAAAAAAAA"] {
            assert_eq!(Token::parse(bad), Err(BadToken), "{bad}");
        }
    }

    #[test]
    fn a_chunk_is_at_home_in_every_store_and_in_its_own_shard_if_there_is_one() {
        let id = ChunkId::new(ShardId(13), 7);
        assert_eq!((id.home(16), id.home(14), id.counter()), (ShardId(13), ShardId(13), 7));
        assert_eq!((id.home(13), id.home(4), id.home(1)), (ShardId(0), ShardId(1), ShardId(0)));
    }

    #[test]
    fn a_host_id_keeps_its_birth_shard() {
        let id = HostId::new(ShardId(513), 77);
        assert_eq!((id.birth(), id.counter()), (ShardId(513), 77));
    }
}
