//! The grants of a crawl's page limit, by shard.
//! Lifetime: while the crawl has a page limit, in a store of several nodes.
//! Key: outside · 18 · crawl name. Value: version, number of shards, then shard, epoch and pages of each.

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::frontier::page_ledger::{PageGrant, PageLedger};
use wayleave_core::names::CrawlName;

use super::field::{self, Field, codec, fields, wraps};
use super::{Kind, key as keys};
use crate::Key;

wraps!(PageLedger);
fields!(PageGrant { epoch, pages });

codec!(PageLedger);

/// The key of a crawl's ledger.
#[must_use]
pub fn key(crawl: &CrawlName) -> Key {
    keys::of(keys::OUTSIDE, Kind::PageLedger, &[crawl.as_bytes()])
}

/// The crawl that a key names.
pub fn parse_key(key: &[u8]) -> Result<CrawlName, Damaged> {
    keys::Parts::of(key)?.text().map(CrawlName::from)
}
