//! A worker of a pool.
//! Lifetime: from before the order to create it until nothing of it is left. Key: shard · 30 · the pool's name · 0 ·
//! its number (8 bytes). Value: version, site, recipe number, slots, phase with its times and counters, attempt,
//! secret, instance, what it reported, uses, times, where the report of its address came from, reason, row version.

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::ids::ShardId;
use wayleave_core::matches::row::Secret;
use wayleave_core::matches::{Instance, Phase, WorkerNo, WorkerRow};
use wayleave_core::names::PoolName;

use super::field::{self, Field, codec, fields, numbered, wraps};
use super::pool::read_name;
use super::{Kind, key as keys};
use crate::Key;

numbered! {
    Phase: Creating, Restarting, Starting, Running, Draining, Stopping, Exited, Removing;
}
wraps!(Secret);
fields!(Instance { id, started, address });
fields! {
    WorkerRow {
        site, recipe_no, slots, phase, since, deadline, step, tries, run, making, making_since, proven, secret,
        secret_run, instance, used_elsewhere, reported_at, restart_at, uses, created_at, idle_since,
        reported_from, reason, version,
    }
}

codec!(WorkerRow);

/// The key of a worker.
#[must_use]
pub fn key(shard: ShardId, pool: &PoolName, no: WorkerNo) -> Key {
    keys::of(shard, Kind::Worker, &[pool.as_bytes(), b"\0", &no.0.to_be_bytes()])
}

/// The worker that a key names, and its pool.
pub fn parse_key(key: &[u8]) -> Result<(PoolName, WorkerNo), Damaged> {
    let (pool, rest) = split_key(key)?;
    let no = rest.try_into().map_err(|_| Damaged("the number of a worker has a wrong length"))?;
    Ok((pool, WorkerNo(u64::from_be_bytes(no))))
}

/// The pool that a key begins with, whose name has no NUL, and the rest.
pub(super) fn split_key(key: &[u8]) -> Result<(PoolName, &[u8]), Damaged> {
    let rest = keys::Parts::of(key)?.rest();
    let end = rest.iter().position(|byte| *byte == 0).ok_or(Damaged("a key has no name of a pool"))?;
    let (pool, rest) = rest.split_at(end);
    Ok((read_name(keys::Parts(pool))?, rest.get(1..).unwrap_or_default()))
}
