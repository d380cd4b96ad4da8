//! A hold in the paced form, ordered by its deadline.
//! Lifetime: from the hand-out until the URL is completed or the hold expires.
//! Key: owning shard · 8 · end · host id · queue · URL. Value: empty.

use wayleave_core::codec::Damaged;
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::ids::{HostId, QueueId, ShardId};
use wayleave_core::time::Time;

use super::{Kind, key as keys};
use crate::Key;

/// The key of a hold.
#[must_use]
pub fn key(shard: ShardId, until: Time, queue: QueueId, url: &[u8]) -> Key {
    let (host, no) = (queue.host.0.to_be_bytes(), keys::queue_no(queue.no));
    keys::of(shard, Kind::Hold, &[&keys::time(until), &host, &no, url])
}

/// The first key of the holds that end at a time.
#[must_use]
pub fn from(shard: ShardId, until: Time) -> Key {
    keys::of(shard, Kind::Hold, &[&keys::time(until)])
}

/// The hold that a key names.
pub fn parse_key(key: &[u8]) -> Result<(Time, QueueId, UrlKey), Damaged> {
    let mut parts = keys::Parts::of(key)?;
    let until = parts.time()?;
    let host = HostId(parts.number::<8>()?);
    let queue = QueueId { host, no: parts.number::<3>()? as u32 };
    Ok((until, queue, UrlKey(parts.rest().into())))
}
