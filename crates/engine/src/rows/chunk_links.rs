//! Links of a chunk in progress, in slices of a few: a call that changes one link writes its slice, and a renewal writes none.
//! Lifetime: as long as the chunk is in progress. The first slice is part of the chunk's row, and so are all links of a chunk at rest.
//! Key: owning shard · 33 · the chunk id's counter · number of the slice, from 1. Value: version, links.

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::frontier::request::{Outcome, UrlResult};
use wayleave_core::ids::{ChunkId, HostId, QueueId, ShardId};
use wayleave_core::pipeline::row::{LinkRow, LinkState};

use super::field::{self, Field, fields, or_empty, variants, write_list};
use super::{Kind, key as keys};
use crate::Key;

fields!(LinkRow { lease, host, url, replaced_by, state });
fields!(QueueId { host, no });
// Its URL and its outcome are those of its link.
fields!(UrlResult {
    status, duration, crawl_delay, retry_after, bytes, next_at, changed, digest as or_empty,
} from Self::new("", Outcome::Fetched));
variants!(LinkState, "a link is in an unknown state" {
    0 Crawling,
    1 Error(digest),
    2 Crawled(result),
    3 Left,
    4 LeftFetched,
});

/// Links of a slice: the chunks of most crawlers have no more, and stay one row.
pub const SLICE_LINKS: usize = 16;

/// The key of a slice.
#[must_use]
pub fn key(shard: ShardId, id: ChunkId, slice: u16) -> Key {
    keys::of(shard, Kind::ChunkLinks, &[&keys::host(HostId(id.0)), &slice.to_be_bytes()])
}

/// Encodes a slice.
#[must_use]
pub fn encode(links: &[LinkRow]) -> Vec<u8> {
    field::encode_with(links, write_list)
}

/// Decodes a slice.
pub fn decode(bytes: &[u8]) -> Result<Vec<LinkRow>, Damaged> {
    field::decode(bytes)
}
