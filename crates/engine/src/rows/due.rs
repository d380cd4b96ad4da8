//! A queued URL, in queue order.
//! Lifetime: while the URL is queued.
//! Key: birth shard · 7 · host · queue · lane · due time · URL. Value: version, created, whole URL if it was truncated,
//! details.

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::frontier::row::{DueRow, QueuePosition};
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::ids::QueueId;
use wayleave_core::time::Time;

use super::url::{decode_details, encode_details};
use super::{Kind, key as keys};
use crate::Key;

const VERSION: u8 = 1;

/// The key of a queued URL.
#[must_use]
pub fn key(queue: QueueId, position: QueuePosition, url: &[u8]) -> Key {
    let mut key = prefix_with_room(queue, 7 + url.len());
    key.push(position.lane);
    keys::push_time(&mut key, position.due);
    key.extend_from_slice(url);
    key
}

/// The key prefix of a queue.
#[must_use]
pub fn prefix(queue: QueueId) -> Key {
    prefix_with_room(queue, 0)
}

/// The key after the last one of a lane.
#[must_use]
pub fn lane_end(queue: QueueId, lane: u8) -> Key {
    let mut key = prefix_with_room(queue, 1);
    key.push(lane + 1);
    key
}

fn prefix_with_room(queue: QueueId, room: usize) -> Key {
    let mut key = keys::start(queue.host.birth(), Kind::Due, 9 + room);
    keys::push_host(&mut key, queue.host);
    keys::push_queue_no(&mut key, queue.no);
    key
}

/// The part of a key that differs within a lane: due time and URL. Its byte order is row order.
#[must_use]
pub fn within_lane(key: &[u8]) -> &[u8] {
    key.get(keys::PREFIX_BYTES + 9 + 1..).unwrap_or_default()
}

/// The URL and queue position named by that part of a key.
///
/// # Errors
/// If it does not parse.
pub fn parse_within_lane(lane: u8, within: &[u8]) -> Result<(QueuePosition, UrlKey), Damaged> {
    let mut parts = keys::Parts(within);
    let position = QueuePosition { lane, due: Time(parts.number::<6>()?) };
    Ok((position, UrlKey(parts.rest().into())))
}

/// The URL and queue position that a key names.
///
/// # Errors
/// If the key does not parse.
pub fn parse_key(key: &[u8]) -> Result<(QueueId, QueuePosition, UrlKey), Damaged> {
    let mut parts = keys::Parts(key);
    let (shard, _) = parts.prefix()?;
    let queue = parts.queue(shard)?;
    let position = QueuePosition { lane: parts.number::<1>()? as u8, due: Time(parts.number::<6>()?) };
    Ok((queue, position, UrlKey(parts.rest().into())))
}

/// Encodes a row.
#[must_use]
pub fn encode(row: &DueRow) -> Vec<u8> {
    let mut out = Writer::with_capacity(16 + row.details.metadata.as_bytes().len());
    out.byte(VERSION);
    out.number(row.created.0);
    out.text(row.whole.as_deref().unwrap_or_default());
    encode_details(&mut out, &row.details);
    out.into()
}

/// Decodes a row.
///
/// # Errors
/// If the bytes do not decode.
pub fn decode(bytes: &[u8]) -> Result<DueRow, Damaged> {
    let mut input = Reader::new(bytes);
    if input.byte()? != VERSION {
        return Err(Damaged("a due row has an unknown version"));
    }
    let created = Time(input.number()?);
    let whole = Some(input.text()?).filter(|text| !text.is_empty()).map(Into::into);
    Ok(DueRow { created, whole, details: decode_details(&mut input)? })
}
