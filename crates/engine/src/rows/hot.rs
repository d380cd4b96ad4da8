//! Hot rows: shard, crawl, alias, host, member. The shard keeps them in memory and writes each when it changes. The
//! table in the parent module lists their lifetimes and keys; values begin with their version.

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::frontier::row::{AliasRow, CrawlRow, HostRef, HotRow, ShardRow};
use wayleave_core::ids::{CrawlNo, GroupId, HostId, ShardId};
use wayleave_core::settings::{CrawlLimits, CrawlSettings, RetryWaits, Revisit};

use super::field::{self, Field, fields, variants};
use super::{Kind, host, key as keys};
use crate::{Key, Write};

fields!(ShardRow { next_host, next_group, next_crawl, default_delay, active });
fields!(AliasRow given id: GroupId => write_alias, read_alias { name, settings, pace });
fields!(CrawlRow given no: CrawlNo => write_crawl, read_crawl { name, kept, version, settings });
fields!(CrawlSettings { weight, paused, delay, limits, revisit, retry });
fields!(CrawlLimits { urls_per_host, pages_per_host, urls, pages, hosts, depth, attempts });
variants!(Revisit, "a revisit policy is unknown" {
    0 Never,
    1 Fixed(span),
    2 Adaptive { min, max },
});
fields!(RetryWaits { first, most });

/// A hot row as a write.
#[must_use]
pub fn encode(shard: ShardId, row: &HotRow) -> Write {
    let (key, value) = match row {
        HotRow::Shard(row) => (keys::of(shard, Kind::Shard, &[]), Some(field::encode(row))),
        HotRow::Crawl(row) => (crawl_key(shard, row.no), Some(field::encode_with(row, write_crawl))),
        HotRow::CrawlGone(no) => (crawl_key(shard, *no), None),
        HotRow::Alias(row) => (number_key(shard, Kind::Alias, row.id.0), Some(field::encode_with(row, write_alias))),
        HotRow::AliasGone(id) => (number_key(shard, Kind::Alias, id.0), None),
        HotRow::Host(row) => (host_key(shard, row.id), Some(host::encode(row))),
        HotRow::HostGone(id) => (host_key(shard, *id), None),
        HotRow::HostAlias { host, alias } => {
            let key = keys::of(shard, Kind::Member, &[host.as_bytes()]);
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
pub fn parse_host_key(key: &[u8]) -> Result<HostId, Damaged> {
    let mut parts = keys::Parts(key);
    match parts.prefix()? {
        (_, kind) if kind == Kind::Host as u8 => Ok(HostId(parts.number::<8>()?)),
        _ => Err(Damaged("a partial host is stored under the key of another row")),
    }
}

/// Decodes a hot row from its key and value.
pub fn decode(key: &[u8], value: Option<&[u8]>) -> Result<HotRow, Damaged> {
    let mut parts = keys::Parts::of(key)?;
    let fields = value.map(field::fields_of);
    Ok(match keys::kind(key)? {
        Kind::Shard => HotRow::Shard(field::decode(value.ok_or(Damaged("the row of a shard has no value"))?)?),
        Kind::Crawl => {
            let no = CrawlNo(parts.number::<4>()? as u32);
            fields.map_or(Ok(HotRow::CrawlGone(no)), |input| read_crawl(no, &mut input?).map(HotRow::Crawl))?
        }
        Kind::Alias => {
            let id = GroupId(parts.number::<8>()?);
            fields.map_or(Ok(HotRow::AliasGone(id)), |input| read_alias(id, &mut input?).map(HotRow::Alias))?
        }
        Kind::Host => {
            let id = HostId(parts.number::<8>()?);
            value.map_or(Ok(HotRow::HostGone(id)), |value| host::decode(id, value).map(HotRow::Host))?
        }
        Kind::Member => {
            let host = parts.text()?.into();
            HotRow::HostAlias { host, alias: value.map(|name| keys::Parts(name).text()).transpose()?.map(Into::into) }
        }
        _ => return Err(Damaged("a row is not of a hot kind")),
    })
}

fn crawl_key(shard: ShardId, no: CrawlNo) -> Key {
    keys::of(shard, Kind::Crawl, &[&no.0.to_be_bytes()])
}

fn number_key(shard: ShardId, kind: Kind, number: u64) -> Key {
    keys::of(shard, kind, &[&number.to_be_bytes()])
}
