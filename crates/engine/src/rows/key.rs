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

/// A key of a kind with capacity for `room` more bytes.
#[must_use]
pub fn start(shard: ShardId, kind: Kind, room: usize) -> Key {
    let mut key = Vec::with_capacity(PREFIX_BYTES + room);
    key.extend_from_slice(&shard.0.to_be_bytes());
    key.push(kind as u8);
    key
}

/// The kind of the row that a key names.
///
/// # Errors
/// If the key is too short, or no kind has its number.
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
    let mut end = start(shard, last, 0);
    if let Some(kind) = end.last_mut() {
        *kind += 1;
    }
    (start(shard, first, 0), end)
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

/// Appends the number of a host within its birth shard: six bytes.
pub fn push_host(key: &mut Key, host: HostId) {
    let bytes = host.counter().to_be_bytes();
    key.extend_from_slice(bytes.last_chunk::<6>().unwrap_or(&[0; 6]));
}

/// Appends the number of a queue: three bytes.
pub fn push_queue_no(key: &mut Key, no: u32) {
    let bytes = no.to_be_bytes();
    key.extend_from_slice(bytes.last_chunk::<3>().unwrap_or(&[0; 3]));
}

/// Appends a time: six bytes.
pub fn push_time(key: &mut Key, time: Time) {
    let bytes = time.0.min(Time::NEVER.0).to_be_bytes();
    key.extend_from_slice(bytes.last_chunk::<6>().unwrap_or(&[0; 6]));
}

/// Reads the fields of a key in order.
pub struct Parts<'a>(pub &'a [u8]);

impl<'a> Parts<'a> {
    /// The next `N` bytes.
    ///
    /// # Errors
    /// If fewer are left.
    pub fn take<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(Damaged("a key is too short"))?;
        self.0 = rest;
        Ok(*head)
    }

    /// A number of `N` bytes.
    ///
    /// # Errors
    /// If fewer bytes are left.
    pub fn number<const N: usize>(&mut self) -> Result<u64, Damaged> {
        Ok(self.take::<N>()?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    /// The shard and the kind.
    ///
    /// # Errors
    /// If the key is too short.
    pub fn prefix(&mut self) -> Result<(ShardId, u8), Damaged> {
        let shard = ShardId(self.number::<2>()? as u16);
        Ok((shard, self.number::<1>()? as u8))
    }

    /// A queue of the shard that the key begins with.
    ///
    /// # Errors
    /// If the key is too short.
    pub fn queue(&mut self, birth: ShardId) -> Result<QueueId, Damaged> {
        let host = HostId::new(birth, self.number::<6>()?);
        Ok(QueueId { host, no: self.number::<3>()? as u32 })
    }

    /// A time.
    ///
    /// # Errors
    /// If the key is too short.
    pub fn time(&mut self) -> Result<Time, Damaged> {
        Ok(Time(self.number::<6>()?))
    }

    /// The remaining bytes.
    #[must_use]
    pub const fn rest(self) -> &'a [u8] {
        self.0
    }
}
