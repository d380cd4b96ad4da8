//! Links of a chunk in progress, in slices of a few: a call that changes one link writes its slice, and a renewal writes none.
//! Lifetime: as long as the chunk is in progress. The first slice is part of the chunk's row, and so are all links of a chunk at rest.
//! Key: owning shard · 33 · the chunk id's counter · number of the slice, from 1. Value: version, links.

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::frontier::request::{Outcome, UrlResult};
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::ids::{ChunkId, HostId, QueueId, ShardId, Token};
use wayleave_core::pipeline::row::{LinkRow, LinkState};
use wayleave_core::time::{Millis, Time};

use super::{Kind, key as keys};
use crate::Key;

const VERSION: u8 = 1;

/// Links of a slice: the chunks of most crawlers have no more, and stay one row.
pub const SLICE_LINKS: usize = 16;

/// The key of a slice.
#[must_use]
pub fn key(shard: ShardId, id: ChunkId, slice: u16) -> Key {
    let mut key = keys::start(shard, Kind::ChunkLinks, 8);
    keys::push_host(&mut key, HostId(id.0));
    key.extend_from_slice(&slice.to_be_bytes());
    key
}

/// Encodes a slice.
#[must_use]
pub fn encode(links: &[LinkRow]) -> Vec<u8> {
    let mut out = Writer::with_capacity(64 * links.len());
    out.byte(VERSION);
    out.number(links.len() as u64);
    links.iter().for_each(|link| write_link(&mut out, link));
    out.into()
}

/// Decodes a slice.
///
/// # Errors
/// If the bytes do not decode.
pub fn decode(bytes: &[u8]) -> Result<Vec<LinkRow>, Damaged> {
    let mut input = Reader::new(bytes);
    if input.byte()? != VERSION {
        return Err(Damaged("a row of links has an unknown version"));
    }
    let mut links = Vec::new();
    for _ in 0..input.number()? {
        links.push(read_link(&mut input)?);
    }
    Ok(links)
}

pub(super) fn write_token(out: &mut Writer, token: Option<Token>) {
    out.byte(token.is_some().into());
    if let Some(token) = token {
        out.raw(&token.0);
    }
}

pub(super) fn read_token(input: &mut Reader<'_>) -> Result<Option<Token>, Damaged> {
    if input.byte()? == 0 {
        return Ok(None);
    }
    Ok(Some(Token(input.raw(16)?.try_into().map_err(|_| Damaged("a token is too short"))?)))
}

pub(super) fn write_link(out: &mut Writer, link: &LinkRow) {
    write_token(out, link.lease);
    out.text(&link.host);
    out.number(link.url.0.host.0);
    out.number(link.url.0.no.into());
    out.bytes(&link.url.1.0);
    out.maybe(link.replaced_by.map(u64::from));
    match &link.state {
        LinkState::Crawling => out.byte(0),
        LinkState::Error(digest) => {
            out.byte(1);
            out.number(*digest);
        }
        LinkState::Crawled(result) => {
            out.byte(2);
            write_result(out, result);
        }
        LinkState::Returned => out.byte(3),
        LinkState::Left => out.byte(4),
    }
}

pub(super) fn read_link(input: &mut Reader<'_>) -> Result<LinkRow, Damaged> {
    let lease = read_token(input)?;
    let host = input.text()?.into();
    let queue = QueueId { host: HostId(input.number()?), no: input.small()? };
    let url = (queue, UrlKey(input.bytes()?.into()));
    let replaced_by = input.maybe()?.map(u32::try_from).transpose().map_err(|_| Damaged("a link is out of range"))?;
    let state = match input.byte()? {
        0 => LinkState::Crawling,
        1 => LinkState::Error(input.number()?),
        2 => LinkState::Crawled(Box::new(read_result(input)?)),
        3 => LinkState::Returned,
        4 => LinkState::Left,
        _ => return Err(Damaged("a link is in an unknown state")),
    };
    Ok(LinkRow { lease, host, url, state, replaced_by })
}

fn write_result(out: &mut Writer, result: &UrlResult) {
    out.maybe(result.status.map(u64::from));
    for span in [result.duration, result.crawl_delay, result.retry_after] {
        out.maybe(span.map(|span| span.0));
    }
    out.maybe(result.bytes);
    out.maybe(result.next_at.map(|at| at.0));
    out.byte(result.changed.map_or(0, |changed| 1 + u8::from(changed)));
    out.text(result.digest.as_deref().unwrap_or_default());
}

fn read_result(input: &mut Reader<'_>) -> Result<UrlResult, Damaged> {
    let status = input.maybe()?.map(u16::try_from).transpose().map_err(|_| Damaged("a status is out of range"))?;
    let mut spans = [None; 3];
    for span in &mut spans {
        *span = input.maybe()?.map(Millis);
    }
    let [duration, crawl_delay, retry_after] = spans;
    let bytes = input.maybe()?;
    let next_at = input.maybe()?.map(Time);
    let changed = match input.byte()? {
        0 => None,
        flag => Some(flag > 1),
    };
    let digest = Some(input.text()?).filter(|digest| !digest.is_empty()).map(Into::into);
    let fetched = UrlResult::new("", Outcome::Fetched);
    Ok(UrlResult { status, duration, bytes, crawl_delay, retry_after, next_at, changed, digest, ..fetched })
}

/// Links as properties draw them.
#[cfg(test)]
pub(super) mod testing {
    use proptest::prelude::*;

    use super::*;

    pub fn token() -> impl Strategy<Value = Option<Token>> {
        prop::option::of(any::<[u8; 16]>().prop_map(Token))
    }

    pub fn time() -> impl Strategy<Value = Time> {
        (0..1u64 << 48).prop_map(Time)
    }

    fn result() -> impl Strategy<Value = UrlResult> {
        let numbers = (any::<Option<u16>>(), any::<Option<u32>>(), any::<Option<u32>>(), any::<Option<u32>>());
        (numbers, prop::option::of(time()), any::<Option<bool>>(), prop::option::of("[a-f]{1,9}")).prop_map(
            |((status, duration, bytes, retry), next_at, changed, digest)| UrlResult {
                status,
                duration: duration.map(|span| Millis(span.into())),
                bytes: bytes.map(Into::into),
                retry_after: retry.map(|span| Millis(span.into())),
                next_at,
                changed,
                digest: digest.map(Into::into),
                ..UrlResult::new("", Outcome::Fetched)
            },
        )
    }

    pub fn link() -> impl Strategy<Value = LinkRow> {
        let state = prop_oneof![
            Just(LinkState::Crawling),
            Just(LinkState::Returned),
            Just(LinkState::Left),
            any::<u64>().prop_map(LinkState::Error),
            result().prop_map(|result| LinkState::Crawled(Box::new(result))),
        ];
        (token(), any::<(u64, u32)>(), any::<Vec<u8>>(), state, any::<Option<u32>>()).prop_map(
            |(lease, (host, no), key, state, replaced_by)| {
                let url = (QueueId { host: HostId(host), no }, UrlKey(key.into()));
                LinkRow { lease, host: "h.example".into(), url, state, replaced_by }
            },
        )
    }
}
