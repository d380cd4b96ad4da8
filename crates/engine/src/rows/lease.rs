//! A reservation.
//! Lifetime: from the grant until its release, or the sweep after its deadline.
//! Key: owning shard · 9 · token. Value: version, token, host, holder, times, crawl, its URLs; and where it has them: how
//! many of them were revoked; for a link its chunk and whether its visit is in progress; for a visit that outlived its chunk that
//! chunk; the id of the request that it was granted for; when its host was queued.

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::frontier::request::RequestId;
use wayleave_core::frontier::row::{LeaseRow, Link};
use wayleave_core::ids::{ShardId, Token};

use super::field::{self, Field, codec, fields, sparse};
use super::{Kind, key as keys};
use crate::Key;

sparse!(LeaseRow {
    token, host, holder, granted_at, expires_at, crawl, urls;
    taken_away, link, ended_chunk, request, queued_at,
});
fields!(Link { chunk, visiting });
fields!(RequestId { id, asks });
codec!(LeaseRow);

/// The key of a reservation.
#[must_use]
pub fn key(shard: ShardId, token: Token) -> Key {
    keys::of(shard, Kind::Lease, &[&token.0])
}
