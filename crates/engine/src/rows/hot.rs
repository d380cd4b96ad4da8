//! Hot rows: shard, crawl, alias, host, member. The shard keeps them in memory and writes each when it changes. The
//! table in the parent module lists their lifetimes and keys; values begin with their version.

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::frontier::row::{AliasRow, CrawlRow, HostRef, HotRow, ShardRow};
use wayleave_core::ids::{CrawlNo, GroupId, HostId, ShardId};
use wayleave_core::settings::{CrawlLimits, CrawlSettings, RetryWaits, Revisit};
use wayleave_core::time::Millis;

use super::host::{decode_pace, decode_settings, encode_pace, encode_settings};
use super::{Kind, host, key as keys};
use crate::{Key, Write};

const VERSION: u8 = 1;

/// A hot row as a write.
#[must_use]
pub fn encode(shard: ShardId, row: &HotRow) -> Write {
    let (key, value) = match row {
        HotRow::Shard(row) => (keys::start(shard, Kind::Shard, 0), Some(encode_shard(row))),
        HotRow::Crawl(row) => (crawl_key(shard, row.no), Some(encode_crawl(row))),
        HotRow::CrawlGone(no) => (crawl_key(shard, *no), None),
        HotRow::Alias(row) => (number_key(shard, Kind::Alias, row.id.0), Some(encode_alias(row))),
        HotRow::AliasGone(id) => (number_key(shard, Kind::Alias, id.0), None),
        HotRow::Host(row) => (host_key(shard, row.id), Some(host::encode(row))),
        HotRow::HostGone(id) => (host_key(shard, *id), None),
        HotRow::HostAlias { host, alias } => {
            let mut key = keys::start(shard, Kind::Member, host.len());
            key.extend_from_slice(host.as_bytes());
            (key, alias.as_ref().map(|alias| alias.as_bytes().to_vec()))
        }
    };
    Write { key, value }
}

/// A host's row as a write.
#[must_use]
pub fn encode_host(shard: ShardId, row: HostRef<'_>) -> Write {
    let mut out = Writer::with_capacity(64 + row.name.len());
    host::encode_into(&mut out, row);
    Write { key: host_key(shard, row.id), value: Some(out.into()) }
}

/// The key of a host's row.
#[must_use]
pub fn host_key(shard: ShardId, host: HostId) -> Key {
    number_key(shard, Kind::Host, host.0)
}

/// The host that a key names.
///
/// # Errors
/// If the key does not parse.
pub fn parse_host_key(key: &[u8]) -> Result<HostId, Damaged> {
    let mut parts = keys::Parts(key);
    match parts.prefix()? {
        (_, kind) if kind == Kind::Host as u8 => Ok(HostId(parts.number::<8>()?)),
        _ => Err(Damaged("a partial host is stored under the key of another row")),
    }
}

/// Decodes a hot row from its key and value.
///
/// # Errors
/// If the bytes do not decode.
pub fn decode(key: &[u8], value: Option<&[u8]>) -> Result<HotRow, Damaged> {
    let mut parts = keys::Parts(key);
    let (_, kind) = parts.prefix()?;
    let text = |bytes| std::str::from_utf8(bytes).map_err(|_| Damaged("a name is not UTF-8"));
    const SHARD: u8 = Kind::Shard as u8;
    const CRAWL: u8 = Kind::Crawl as u8;
    const ALIAS: u8 = Kind::Alias as u8;
    const HOST: u8 = Kind::Host as u8;
    const MEMBER: u8 = Kind::Member as u8;
    Ok(match (kind, value) {
        (SHARD, Some(value)) => HotRow::Shard(decode_shard(value)?),
        (CRAWL, value) => {
            let no = CrawlNo(parts.number::<4>()? as u32);
            value.map_or(Ok(HotRow::CrawlGone(no)), |value| decode_crawl(no, value))?
        }
        (ALIAS, value) => {
            let id = GroupId(parts.number::<8>()?);
            value.map_or(Ok(HotRow::AliasGone(id)), |value| decode_alias(id, value))?
        }
        (HOST, value) => {
            let id = HostId(parts.number::<8>()?);
            value.map_or(Ok(HotRow::HostGone(id)), |value| host::decode(id, value).map(HotRow::Host))?
        }
        (MEMBER, value) => {
            let host = text(parts.rest())?.into();
            HotRow::HostAlias { host, alias: value.map(text).transpose()?.map(Into::into) }
        }
        _ => return Err(Damaged("a row is not of a hot kind")),
    })
}

fn crawl_key(shard: ShardId, no: CrawlNo) -> Key {
    let mut key = keys::start(shard, Kind::Crawl, 4);
    key.extend_from_slice(&no.0.to_be_bytes());
    key
}

fn number_key(shard: ShardId, kind: Kind, number: u64) -> Key {
    let mut key = keys::start(shard, kind, 8);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

fn encode_shard(row: &ShardRow) -> Vec<u8> {
    let mut out = Writer::default();
    out.byte(VERSION);
    out.number(row.next_host);
    out.number(row.next_group);
    out.number(row.next_crawl.into());
    out.maybe(row.default_delay.map(|m| m.0));
    out.byte(row.active.into());
    out.into()
}

fn decode_shard(bytes: &[u8]) -> Result<ShardRow, Damaged> {
    let mut input = Reader::new(bytes);
    check_version(&mut input)?;
    Ok(ShardRow {
        next_host: input.number()?,
        next_group: input.number()?,
        next_crawl: input.small()?,
        default_delay: input.maybe()?.map(Millis),
        active: input.byte()? != 0,
    })
}

fn encode_alias(row: &AliasRow) -> Vec<u8> {
    let mut out = Writer::default();
    out.byte(VERSION);
    out.text(&row.name);
    encode_settings(&mut out, &row.settings);
    encode_pace(&mut out, &row.pace);
    out.into()
}

fn decode_alias(id: GroupId, bytes: &[u8]) -> Result<HotRow, Damaged> {
    let mut input = Reader::new(bytes);
    check_version(&mut input)?;
    let name = input.text()?.into();
    let settings = decode_settings(&mut input)?;
    Ok(HotRow::Alias(AliasRow { id, name, settings, pace: decode_pace(&mut input)? }))
}

fn encode_crawl(row: &CrawlRow) -> Vec<u8> {
    let CrawlSettings { weight, paused, delay, limits, revisit, retry } = row.settings;
    let mut out = Writer::default();
    out.byte(VERSION);
    out.text(&row.name);
    out.byte(row.kept.into());
    out.number(weight.into());
    out.byte(paused.into());
    out.maybe(delay.map(|m| m.0));
    for limit in [limits.urls_per_host, limits.pages_per_host, limits.urls, limits.pages, limits.hosts] {
        out.maybe(limit);
    }
    out.maybe(limits.depth.map(u64::from));
    out.maybe(limits.attempts.map(u64::from));
    match revisit {
        Revisit::Never => out.byte(0),
        Revisit::Fixed(span) => {
            out.byte(1);
            out.number(span.0);
        }
        Revisit::Adaptive { min, max } => {
            out.byte(2);
            out.number(min.0);
            out.number(max.0);
        }
    }
    out.maybe(retry.first.map(|m| m.0));
    out.maybe(retry.most.map(|m| m.0));
    out.into()
}

fn decode_crawl(no: CrawlNo, bytes: &[u8]) -> Result<HotRow, Damaged> {
    let mut input = Reader::new(bytes);
    check_version(&mut input)?;
    let (name, kept) = (input.text()?.into(), input.byte()? != 0);
    let (weight, paused) = (input.small()?, input.byte()? != 0);
    let delay = input.maybe()?.map(Millis);
    let limits = CrawlLimits {
        urls_per_host: input.maybe()?,
        pages_per_host: input.maybe()?,
        urls: input.maybe()?,
        pages: input.maybe()?,
        hosts: input.maybe()?,
        depth: input.maybe()?.map(|n| n as u32),
        attempts: input.maybe()?.map(|n| n as u32),
    };
    let revisit = match input.byte()? {
        0 => Revisit::Never,
        1 => Revisit::Fixed(Millis(input.number()?)),
        2 => Revisit::Adaptive { min: Millis(input.number()?), max: Millis(input.number()?) },
        _ => return Err(Damaged("a revisit policy is unknown")),
    };
    let retry = RetryWaits { first: input.maybe()?.map(Millis), most: input.maybe()?.map(Millis) };
    let settings = CrawlSettings { weight, paused, delay, limits, revisit, retry };
    Ok(HotRow::Crawl(CrawlRow { no, name, settings, kept }))
}

fn check_version(input: &mut Reader<'_>) -> Result<(), Damaged> {
    if input.byte()? == VERSION { Ok(()) } else { Err(Damaged("a row has an unknown version")) }
}
