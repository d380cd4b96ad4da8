//! A reservation.
//! Lifetime: from the grant until its release, or the sweep after its deadline.
//! Key: owning shard · 9 · token. Value: version, form, token, host, holder, times, crawl, its URLs; how many of
//! them were revoked, unless it is whole; of a link its chunk and whether its visit goes on; of a visit whose chunk ended
//! before it that chunk; then the id of the request that it was granted for, if there is one.

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::frontier::request::RequestId;
use wayleave_core::frontier::row::{LeaseRow, Link};
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::ids::{ChunkId, CrawlNo, HostId, QueueId, ShardId, Token};
use wayleave_core::time::Time;

use super::{Kind, key as keys};
use crate::Key;

const VERSION: u8 = 1;
/// Without revoked URLs, as most are.
const WHOLE: u8 = 0;
/// With revoked URLs.
const REVOKED: u8 = 1;
/// A link of a chunk.
const LINK: u8 = 2;
/// A visit that was a link of a chunk which has ended.
const ENDED: u8 = 3;

/// The key of a reservation.
#[must_use]
pub fn key(shard: ShardId, token: Token) -> Key {
    let mut key = keys::start(shard, Kind::Lease, 16);
    key.extend_from_slice(&token.0);
    key
}

/// Encodes a row.
#[must_use]
pub fn encode(row: &LeaseRow) -> Vec<u8> {
    let mut out = Writer::with_capacity(64);
    let form = match (row.link, row.ended_chunk) {
        (Some(_), _) => LINK,
        (None, Some(_)) => ENDED,
        (None, None) if row.taken_away > 0 => REVOKED,
        (None, None) => WHOLE,
    };
    out.raw(&[VERSION, form]);
    out.raw(&row.token.0);
    out.number(row.host.0);
    out.text(&row.holder);
    out.number(row.granted_at.0);
    out.number(row.expires_at.0);
    out.number(row.crawl.0.into());
    out.maybe(row.queued_at.map(|at| at.0));
    out.number(row.urls.len() as u64);
    for (queue, key) in &row.urls {
        out.number(queue.host.0);
        out.number(queue.no.into());
        out.bytes(&key.0);
    }
    if form != WHOLE {
        out.number(row.taken_away.into());
    }
    if let Some(link) = row.link {
        out.number(link.chunk.0);
        out.byte(link.visiting.into());
    } else if let Some(chunk) = row.ended_chunk {
        out.number(chunk.0);
    }
    if let Some(request) = &row.request {
        out.text(&request.id);
        out.number(request.asks);
    }
    out.into()
}

/// Decodes a row.
///
/// # Errors
/// If the bytes do not decode.
pub fn decode(bytes: &[u8]) -> Result<LeaseRow, Damaged> {
    let mut input = Reader::new(bytes);
    if input.byte()? != VERSION {
        return Err(Damaged("a lease row has an unknown version"));
    }
    let form = input.byte()?;
    if form > ENDED {
        return Err(Damaged("a lease row has an unknown form"));
    }
    let mut row = LeaseRow {
        token: Token(input.raw(16)?.try_into().map_err(|_| Damaged("a token is too short"))?),
        host: HostId(input.number()?),
        holder: input.text()?.into(),
        granted_at: Time(input.number()?),
        expires_at: Time(input.number()?),
        crawl: CrawlNo(input.small()?),
        queued_at: input.maybe()?.map(Time),
        urls: Vec::new(),
        taken_away: 0,
        request: None,
        link: None,
        ended_chunk: None,
    };
    for _ in 0..input.number()? {
        let queue = QueueId { host: HostId(input.number()?), no: input.small()? };
        row.urls.push((queue, UrlKey(input.bytes()?.into())));
    }
    if form != WHOLE {
        row.taken_away = input.small()?;
    }
    if form == LINK {
        row.link = Some(Link { chunk: ChunkId(input.number()?), visiting: input.byte()? != 0 });
    } else if form == ENDED {
        row.ended_chunk = Some(ChunkId(input.number()?));
    }
    if !input.is_empty() {
        let (id, asks) = (input.text()?.into(), input.number()?);
        row.request = Some(Box::new(RequestId { id, asks }));
    }
    Ok(row)
}
