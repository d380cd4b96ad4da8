//! The grants of a crawl's page limit, by shard.
//! Lifetime: while the crawl has a page limit, in a store of several nodes.
//! Key: outside · 18 · crawl name. Value: version, number of shards, then shard, epoch and pages of each.

use std::collections::BTreeMap;

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::frontier::page_ledger::{PageGrant, PageLedger};
use wayleave_core::ids::{Epoch, ShardId};
use wayleave_core::names::CrawlName;

use super::{Kind, key as keys};
use crate::Key;

const VERSION: u8 = 1;

/// The key of a crawl's ledger.
#[must_use]
pub fn key(crawl: &CrawlName) -> Key {
    let mut key = keys::start(keys::OUTSIDE, Kind::PageLedger, crawl.len());
    key.extend_from_slice(crawl.as_bytes());
    key
}

/// The crawl that a key names.
///
/// # Errors
/// If the key does not parse.
pub fn parse_key(key: &[u8]) -> Result<CrawlName, Damaged> {
    let mut parts = keys::Parts(key);
    parts.prefix()?;
    std::str::from_utf8(parts.rest()).map(CrawlName::from).map_err(|_| Damaged("a crawl's name is not UTF-8"))
}

/// Encodes a row.
#[must_use]
pub fn encode(ledger: &PageLedger) -> Vec<u8> {
    let mut out = Writer::with_capacity(8 + ledger.0.len() * 8);
    out.byte(VERSION);
    out.number(ledger.0.len() as u64);
    for (shard, grant) in &ledger.0 {
        out.number(shard.0.into());
        out.number(grant.epoch.0);
        out.number(grant.pages);
    }
    out.into()
}

/// Decodes a row.
///
/// # Errors
/// If the bytes do not decode.
pub fn decode(bytes: &[u8]) -> Result<PageLedger, Damaged> {
    let mut input = Reader::new(bytes);
    if input.byte()? != VERSION {
        return Err(Damaged("a page ledger row has an unknown version"));
    }
    let mut shards = BTreeMap::new();
    for _ in 0..input.number()? {
        let shard = ShardId(input.small()?);
        let grant = PageGrant { epoch: Epoch(input.number()?), pages: input.number()? };
        shards.insert(shard, grant);
    }
    Ok(PageLedger(shards))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_round_trips_and_refuses_what_is_cut_off() {
        let grant = |shard, epoch, pages| (ShardId(shard), PageGrant { epoch: Epoch(epoch), pages });
        let ledger = PageLedger([grant(0, 7, 0), grant(300, 1, u64::MAX)].into());
        let bytes = encode(&ledger);
        assert_eq!(parse_key(&key(&"news".into())), Ok("news".into()));
        assert_eq!(decode(&bytes), Ok(ledger));
        assert_eq!(decode(&encode(&PageLedger::default())), Ok(PageLedger::default()));
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut]).is_err(), "{cut} bytes");
        }
    }
}
