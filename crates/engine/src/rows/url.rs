//! A known URL.
//! Lifetime: from its first put until it is purged or its queue is deleted.
//! Key: birth shard · 6 · host · queue · URL. Value: version, created, flags, then fields by state.

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::frontier::row::{Details, End, QueuePosition, UrlRow, UrlStatus};
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::frontier::view::LastVisit;
use wayleave_core::ids::{QueueId, Token};
use wayleave_core::metadata::Metadata;
use wayleave_core::time::{Millis, Time};

use super::{Kind, key as keys};
use crate::Key;

const VERSION: u8 = 1;
const QUEUED: u8 = 0;
const HELD: u8 = 1;
const RESERVED: u8 = 2;
const FETCHED: u8 = 3;
const GONE: u8 = 4;
const FAILED: u8 = 5;

/// The key of a URL.
#[must_use]
pub fn key(queue: QueueId, url: &[u8]) -> Key {
    let mut key = prefix_with_room(queue, url.len());
    key.extend_from_slice(url);
    key
}

/// The key prefix of a queue's URLs.
#[must_use]
pub fn prefix(queue: QueueId) -> Key {
    prefix_with_room(queue, 0)
}

fn prefix_with_room(queue: QueueId, room: usize) -> Key {
    let mut key = keys::start(queue.host.birth(), Kind::Url, 9 + room);
    keys::push_host(&mut key, queue.host);
    keys::push_queue_no(&mut key, queue.no);
    key
}

/// The URL that a key names.
///
/// # Errors
/// If the key does not parse.
pub fn parse_key(key: &[u8]) -> Result<(QueueId, UrlKey), Damaged> {
    let mut parts = keys::Parts(key);
    let (shard, _) = parts.prefix()?;
    let queue = parts.queue(shard)?;
    Ok((queue, UrlKey(parts.rest().into())))
}

/// Encodes a row.
#[must_use]
pub fn encode(row: &UrlRow) -> Vec<u8> {
    let mut out = Writer::with_capacity(24);
    out.byte(VERSION);
    out.number(row.created.0);
    out.text(row.whole.as_deref().unwrap_or_default());
    match &row.status {
        UrlStatus::Queued(position) => {
            out.byte(QUEUED);
            encode_position(&mut out, *position);
        }
        UrlStatus::Held { until, position, details } => {
            out.byte(HELD);
            out.number(until.0);
            encode_position(&mut out, *position);
            encode_details(&mut out, details);
        }
        UrlStatus::Reserved { token, position, details } => {
            out.byte(RESERVED);
            out.raw(&token.0);
            encode_position(&mut out, *position);
            encode_details(&mut out, details);
        }
        UrlStatus::Done { end, lane, details } => {
            out.byte(match end {
                End::Fetched => FETCHED,
                End::Gone => GONE,
                End::Failed => FAILED,
            });
            out.byte(*lane);
            encode_details(&mut out, details);
        }
    }
    out.into()
}

/// Decodes a row.
///
/// # Errors
/// If the bytes do not decode.
pub fn decode(bytes: &[u8]) -> Result<UrlRow, Damaged> {
    let mut input = Reader::new(bytes);
    if input.byte()? != VERSION {
        return Err(Damaged("a URL row has an unknown version"));
    }
    let created = Time(input.number()?);
    let whole = Some(input.text()?).filter(|text| !text.is_empty()).map(Into::into);
    let status = match input.byte()? {
        QUEUED => UrlStatus::Queued(decode_position(&mut input)?),
        HELD => UrlStatus::Held {
            until: Time(input.number()?),
            position: decode_position(&mut input)?,
            details: decode_details(&mut input)?,
        },
        RESERVED => UrlStatus::Reserved {
            token: Token(input.raw(16)?.try_into().map_err(|_| Damaged("a token is too short"))?),
            position: decode_position(&mut input)?,
            details: decode_details(&mut input)?,
        },
        kind @ FETCHED..=FAILED => {
            let end = [End::Fetched, End::Gone, End::Failed].get(usize::from(kind - FETCHED)).copied();
            let end = end.ok_or(Damaged("an end is unknown"))?;
            UrlStatus::Done { end, lane: input.byte()?, details: decode_details(&mut input)? }
        }
        _ => return Err(Damaged("a URL has an unknown state")),
    };
    Ok(UrlRow { created, whole, status })
}

fn encode_position(out: &mut Writer, position: QueuePosition) {
    out.byte(position.lane);
    out.number(position.due.0);
}

fn decode_position(input: &mut Reader<'_>) -> Result<QueuePosition, Damaged> {
    Ok(QueuePosition { lane: input.byte()?, due: Time(input.number()?) })
}

fn encode_last(out: &mut Writer, last: Option<&LastVisit>) {
    match last {
        None => out.number(0),
        Some(last) => {
            out.number(last.at.0 + 1);
            out.maybe(last.status.map(u64::from));
            out.byte(last.exhausted.into());
        }
    }
}

fn decode_last(input: &mut Reader<'_>) -> Result<Option<LastVisit>, Damaged> {
    let Some(at) = input.maybe()? else { return Ok(None) };
    let status = input.maybe()?.map(|status| status as u16);
    Ok(Some(LastVisit { at: Time(at), status, exhausted: input.byte()? != 0 }))
}

/// Most URLs have none of these; then it is one zero byte.
pub(super) fn encode_details(out: &mut Writer, details: &Details) {
    let Details { attempts, depth, last, interval, digest, metadata } = details;
    let flags = u8::from(*attempts > 0)
        | u8::from(*depth > 0) << 1
        | u8::from(last.is_some()) << 2
        | u8::from(interval.is_some()) << 3
        | u8::from(!metadata.is_empty()) << 4
        | u8::from(digest.is_some()) << 5;
    out.byte(flags);
    if *attempts > 0 {
        out.number((*attempts).into());
    }
    if *depth > 0 {
        out.number((*depth).into());
    }
    if last.is_some() {
        encode_last(out, last.as_ref());
    }
    if let Some(interval) = interval {
        out.number(interval.0);
    }
    if !metadata.is_empty() {
        out.bytes(metadata.as_bytes());
    }
    if let Some(digest) = digest {
        out.text(digest);
    }
}

pub(super) fn decode_details(input: &mut Reader<'_>) -> Result<Details, Damaged> {
    let flags = input.byte()?;
    let has = |bit: u8| flags & (1 << bit) != 0;
    let mut details = Details::default();
    if has(0) {
        details.attempts = input.small()?;
    }
    if has(1) {
        details.depth = input.small()?;
    }
    if has(2) {
        details.last = decode_last(input)?;
    }
    if has(3) {
        details.interval = Some(Millis(input.number()?));
    }
    if has(4) {
        let bytes = input.bytes()?.to_vec();
        details.metadata = Metadata::from_bytes(bytes).map_err(|_| Damaged("metadata is too large"))?;
    }
    if has(5) {
        details.digest = Some(input.text()?.into());
    }
    Ok(details)
}
