//! A deleted queue whose rows are still to be removed.
//! Lifetime: from the deletion until the last row is removed.
//! Key: owning shard · 11 · host id · queue. Value: empty.

use wayleave_core::codec::Damaged;
use wayleave_core::ids::{HostId, QueueId, ShardId};

use super::{Kind, key as keys};
use crate::Key;

/// The key of a job.
#[must_use]
pub fn key(shard: ShardId, queue: QueueId) -> Key {
    let mut key = keys::start(shard, Kind::Job, 11);
    key.extend_from_slice(&queue.host.0.to_be_bytes());
    keys::push_queue_no(&mut key, queue.no);
    key
}

/// The queue that a key names.
///
/// # Errors
/// If the key does not parse.
pub fn parse_key(key: &[u8]) -> Result<QueueId, Damaged> {
    let mut parts = keys::Parts(key);
    parts.prefix()?;
    let host = HostId(parts.number::<8>()?);
    Ok(QueueId { host, no: parts.number::<3>()? as u32 })
}
