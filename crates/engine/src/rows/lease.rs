//! A reservation.
//! Lifetime: from the grant until its release or the sweep after its deadline.
//! Key: owning shard · 9 · token. Value: version, host, holder, times, crawl, its URLs, from version 2 on how many of them were
//! taken away, and the request that it was granted for, if that has an id.

use wayleave_core::frontier::request::RequestId;
use wayleave_core::frontier::row::LeaseRow;
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::ids::{CrawlNo, HostId, QueueId, ShardId, Token};
use wayleave_core::time::Time;
use wayleave_core::wire::{Damaged, Reader, Writer};

use super::{Kind, key as keys};
use crate::Key;

/// Without URLs that were taken away: most rows are so, and programs from before the second version can read them.
const WHOLE: u8 = 1;
const VERSION: u8 = 2;

/// The key of a reservation.
#[must_use]
pub fn key(shard: ShardId, token: Token) -> Key {
    let mut key = keys::start(shard, Kind::Lease, 16);
    key.extend_from_slice(&token.0);
    key
}

/// A row as bytes.
#[must_use]
pub fn encode(row: &LeaseRow) -> Vec<u8> {
    let mut out = Writer::with_capacity(64);
    out.byte(if row.taken_away == 0 { WHOLE } else { VERSION });
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
    if row.taken_away > 0 {
        out.number(row.taken_away.into());
    }
    // Behind what every program reads, and only where there is one.
    if let Some(request) = &row.request {
        out.text(&request.id);
        out.number(request.asks);
    }
    out.into()
}

/// A row from its bytes.
///
/// # Errors
/// If they are not those of such a row.
pub fn decode(bytes: &[u8]) -> Result<LeaseRow, Damaged> {
    let mut input = Reader::new(bytes);
    let version = input.byte()?;
    if !(WHOLE..=VERSION).contains(&version) {
        return Err(Damaged("a lease row has a version that is not known"));
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
    };
    for _ in 0..input.number()? {
        let queue = QueueId { host: HostId(input.number()?), no: input.small()? };
        row.urls.push((queue, UrlKey(input.bytes()?.into())));
    }
    if version == VERSION {
        row.taken_away = input.small()?;
    }
    if !input.is_empty() {
        let (id, asks) = (input.text()?.into(), input.number()?);
        row.request = Some(Box::new(RequestId { id, asks }));
    }
    Ok(row)
}
