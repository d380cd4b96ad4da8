//! A deleted queue whose rows are still to be removed.
//! Lifetime: from the deletion until the last row is removed.
//! Key: owning shard · 11 · host id · queue. Value: empty.

use wayleave_core::codec::Damaged;
use wayleave_core::ids::{HostId, QueueId, ShardId};

use super::{Kind, key as keys};
use crate::Key;

/// The key of a deleted queue.
#[must_use]
pub fn key(shard: ShardId, queue: QueueId) -> Key {
    keys::of(shard, Kind::DeletedQueue, &[&queue.host.0.to_be_bytes(), &keys::queue_no(queue.no)])
}

/// The queue that a key names.
pub fn parse_key(key: &[u8]) -> Result<QueueId, Damaged> {
    let mut parts = keys::Parts::of(key)?;
    let host = HostId(parts.number::<8>()?);
    Ok(QueueId { host, no: parts.number::<3>()? as u32 })
}
