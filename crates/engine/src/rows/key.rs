//! Keys: shard (2 bytes), kind (1 byte), then the row's name, all big-endian so that byte order is numeric order.

use wayleave_core::codec::Damaged;
use wayleave_core::ids::{HostId, QueueId, ShardId};
use wayleave_core::time::Time;

use super::Kind;
use crate::Key;

/// The shard prefix of rows outside all shards. Stores have fewer shards than this.
pub const OUTSIDE: ShardId = ShardId(u16::MAX);

/// The bytes of shard and kind.
pub const PREFIX_BYTES: usize = 3;

/// A key of a kind with these parts.
#[must_use]
pub fn of(shard: ShardId, kind: Kind, parts: &[&[u8]]) -> Key {
    let mut key = Vec::with_capacity(PREFIX_BYTES + parts.iter().map(|part| part.len()).sum::<usize>());
    key.extend_from_slice(&shard.0.to_be_bytes());
    key.push(kind as u8);
    parts.iter().for_each(|part| key.extend_from_slice(part));
    key
}

/// The kind of the row that a key names. Fails if the key is too short, or no kind has its number.
pub fn kind(key: &[u8]) -> Result<Kind, Damaged> {
    let number = key.get(2).ok_or(Damaged("a key is too short"))?;
    Kind::ALL.get(usize::from(*number)).copied().ok_or(Damaged("a row is of an unknown kind"))
}

/// Whether a row concerns the nodes of a store: their leases, their seats, and what they agree on. Stores may serve
/// these first, because a node that cannot renew its lease gives up its shards.
#[must_use]
pub fn is_about_nodes(key: &[u8]) -> bool {
    let about = [Kind::Node, Kind::Seat, Kind::Cluster, Kind::Join];
    key.starts_with(&OUTSIDE.0.to_be_bytes()) && about.iter().any(|kind| key.get(2) == Some(&(*kind as u8)))
}

/// The key range of a kind in a shard, end exclusive.
#[must_use]
pub fn range(shard: ShardId, first: Kind, last: Kind) -> (Key, Key) {
    let mut end = of(shard, last, &[]);
    if let Some(kind) = end.last_mut() {
        *kind += 1;
    }
    (of(shard, first, &[]), end)
}

/// The first key after every key with this prefix.
#[must_use]
pub fn after_prefix(prefix: &[u8]) -> Key {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![u8::MAX; 64]
}

/// A key with zeros appended up to a length. No key of at least this length sorts between the two.
#[must_use]
pub fn padded(key: &[u8], len: usize) -> Key {
    let mut key = key.to_vec();
    key.resize(key.len().max(len), 0);
    key
}

/// The last bytes of a number.
fn last<const N: usize>(number: u64) -> [u8; N] {
    *number.to_be_bytes().last_chunk().unwrap_or(&[0; N])
}

/// The number of a host within its birth shard.
#[must_use]
pub fn host(host: HostId) -> [u8; 6] {
    last(host.counter())
}

/// The number of a queue.
#[must_use]
pub fn queue_no(no: u32) -> [u8; 3] {
    last(no.into())
}

/// A time.
#[must_use]
pub fn time(time: Time) -> [u8; 6] {
    last(time.0.min(Time::NEVER.0))
}

/// Reads the fields of a key in order.
pub struct Parts<'a>(pub &'a [u8]);

impl<'a> Parts<'a> {
    /// What follows shard and kind.
    pub fn of(key: &'a [u8]) -> Result<Self, Damaged> {
        let mut parts = Self(key);
        parts.prefix()?;
        Ok(parts)
    }

    /// The next `N` bytes.
    pub fn take<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(Damaged("a key is too short"))?;
        self.0 = rest;
        Ok(*head)
    }

    /// A number of `N` bytes.
    pub fn number<const N: usize>(&mut self) -> Result<u64, Damaged> {
        Ok(self.take::<N>()?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    /// The shard and the kind.
    pub fn prefix(&mut self) -> Result<(ShardId, u8), Damaged> {
        let shard = ShardId(self.number::<2>()? as u16);
        Ok((shard, self.number::<1>()? as u8))
    }

    /// A queue of the shard that the key begins with.
    pub fn queue(&mut self, birth: ShardId) -> Result<QueueId, Damaged> {
        let host = HostId::new(birth, self.number::<6>()?);
        Ok(QueueId { host, no: self.number::<3>()? as u32 })
    }

    /// A time.
    pub fn time(&mut self) -> Result<Time, Damaged> {
        Ok(Time(self.number::<6>()?))
    }

    /// The remaining bytes.
    #[must_use]
    pub const fn rest(self) -> &'a [u8] {
        self.0
    }

    /// The remaining bytes as a text.
    pub fn text(self) -> Result<&'a str, Damaged> {
        std::str::from_utf8(self.0).map_err(|_| Damaged("a key is not UTF-8"))
    }
}
