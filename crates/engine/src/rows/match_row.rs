//! A client's request for a worker of a pool.
//! Lifetime: from when it is queued until it has ended and its reservations are given back.
//! Key: shard · 31 · the pool's name · 0 · the client. Value: version, principal, place in the queue, times, attempts, state,
//! reservations that are being given back, reason, row version.

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::ids::ShardId;
use wayleave_core::matches::row::Leftover;
use wayleave_core::matches::{Booking, MatchRow, MatchState, WorkerNo};
use wayleave_core::names::{ClientName, PoolName};

use super::field::{self, Field, codec, fields, variants, wraps};
use super::worker::split_key;
use super::{Kind, key as keys};
use crate::Key;

wraps!(WorkerNo);
fields!(MatchRow { principal, queue_number, queued_at, deadline, attempts, state, leftovers, reason, version });
fields!(Leftover { booking, until });
fields!(Booking { worker, token, reservation, asked_until });
variants!(MatchState, "a match has an unknown state" {
    0 Queued { not_before },
    1 Making(booking),
    2 Matched { booking, expires_at },
    3 Vacant { until },
    4 Failed { until, retry_at, delivered },
    5 Ended,
});

codec!(MatchRow);

/// The key of a client's request.
#[must_use]
pub fn key(shard: ShardId, pool: &PoolName, client: &ClientName) -> Key {
    keys::of(shard, Kind::Match, &[pool.as_bytes(), b"\0", client.as_bytes()])
}

/// The client that a key names, and its pool.
pub fn parse_key(key: &[u8]) -> Result<(PoolName, ClientName), Damaged> {
    let (pool, client) = split_key(key)?;
    let client = wayleave_core::names::client(keys::Parts(client).text()?)
        .map_err(|_| Damaged("a key has no valid name of a client"))?;
    Ok((pool, client))
}
