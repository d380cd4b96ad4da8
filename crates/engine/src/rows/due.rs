//! A queued URL, in queue order.
//! Lifetime: while the URL is queued.
//! Key: birth shard · 7 · host · queue · lane · due time · URL. Value: version, created, whole URL if it was truncated,
//! details.

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::frontier::row::{DueRow, QueuePosition};
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::ids::QueueId;
use wayleave_core::time::Time;

use super::field::{self, Field, codec, fields, or_empty};
use super::{Kind, key as keys};
use crate::Key;

fields!(DueRow { created, whole as or_empty, details });
codec!(DueRow);

/// The key of a queued URL.
#[must_use]
pub fn key(queue: QueueId, position: QueuePosition, url: &[u8]) -> Key {
    with_prefix(queue, &[position.lane], &keys::time(position.due), url)
}

/// The key prefix of a queue.
#[must_use]
pub fn prefix(queue: QueueId) -> Key {
    with_prefix(queue, &[], &[], &[])
}

/// The key after the last one of a lane.
#[must_use]
pub fn lane_end(queue: QueueId, lane: u8) -> Key {
    with_prefix(queue, &[lane + 1], &[], &[])
}

fn with_prefix(queue: QueueId, lane: &[u8], due: &[u8], url: &[u8]) -> Key {
    let (host, no) = (keys::host(queue.host), keys::queue_no(queue.no));
    keys::of(queue.host.birth(), Kind::Due, &[&host, &no, lane, due, url])
}

/// The part of a key that differs within a lane: due time and URL. Its byte order is row order.
#[must_use]
pub fn within_lane(key: &[u8]) -> &[u8] {
    key.get(keys::PREFIX_BYTES + 9 + 1..).unwrap_or_default()
}

/// The URL and queue position named by that part of a key.
pub fn parse_within_lane(lane: u8, within: &[u8]) -> Result<(QueuePosition, UrlKey), Damaged> {
    let mut parts = keys::Parts(within);
    let position = QueuePosition { lane, due: Time(parts.number::<6>()?) };
    Ok((position, UrlKey(parts.rest().into())))
}

/// The URL and queue position that a key names.
pub fn parse_key(key: &[u8]) -> Result<(QueueId, QueuePosition, UrlKey), Damaged> {
    let mut parts = keys::Parts(key);
    let (shard, _) = parts.prefix()?;
    let queue = parts.queue(shard)?;
    let position = QueuePosition { lane: parts.number::<1>()? as u8, due: Time(parts.number::<6>()?) };
    Ok((queue, position, UrlKey(parts.rest().into())))
}

/// The URL and queue position that follow a key without a row: where a scan continues behind damage.
pub fn parse_place(key: &[u8]) -> Result<(QueueId, QueuePosition, UrlKey), Damaged> {
    parse_key(&keys::padded(key, keys::PREFIX_BYTES + 16))
}
