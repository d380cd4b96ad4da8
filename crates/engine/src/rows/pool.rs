//! A pool of workers.
//! Lifetime: from its first setting until it is deleted and nothing of it is left.
//! Key: shard · 29 · its name. Value: version, owner, settings (recipe first), generation, counters, failures, failures by
//! site, sites that may have something left of it, whether it is being deleted, whether it is paused, when it was created,
//! row version.

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::ids::ShardId;
use wayleave_core::matches::row::Trouble;
use wayleave_core::matches::settings::PullPolicy;
use wayleave_core::matches::{PoolRow, Recipe, RuntimeKind, Settings, Write as CoreWrite};
use wayleave_core::names::PoolName;

use super::field::{self, Field, fields, numbered};
use super::{Kind, key as keys, match_row, worker};
use crate::{Key, Write};

numbered! {
    RuntimeKind: Process, Docker;
    PullPolicy: Never, Missing, Always;
}
fields! {
    PoolRow given name: PoolName => write, read {
        owner, settings, generation, recipe_no, next_worker, next_making, trouble, site_trouble, owed, closing,
        paused, created_at, version,
    }
}
fields! {
    Settings {
        recipe, pull, min, max, buffer, idle, age_max, uses_max, start_max, queue_max, match_max, reservation,
        makers_max,
    }
}
fields!(Recipe { runtime, command, image, env, port, advertise, memory_bytes, cpu_millis, slots });
fields!(Trouble { failures, reason, at, next_making, until });

/// The key of a pool.
#[must_use]
pub fn key(shard: ShardId, pool: &PoolName) -> Key {
    keys::of(shard, Kind::Pool, &[pool.as_bytes()])
}

/// The pool that a key names.
pub fn parse_key(key: &[u8]) -> Result<PoolName, Damaged> {
    read_name(keys::Parts::of(key)?)
}

/// The write of a decision about a pool.
#[must_use]
pub fn encode_write(shard: ShardId, name: &PoolName, write: &CoreWrite) -> Write {
    match write {
        CoreWrite::Pool(row) => Write { key: key(shard, name), value: row.as_deref().map(encode) },
        CoreWrite::Worker(no, row) => {
            Write { key: worker::key(shard, name, *no), value: row.as_deref().map(worker::encode) }
        }
        CoreWrite::Match(client, row) => {
            Write { key: match_row::key(shard, name, client), value: row.as_deref().map(match_row::encode) }
        }
    }
}

/// Encodes a pool.
#[must_use]
pub fn encode(row: &PoolRow) -> Vec<u8> {
    field::encode_with(row, write)
}

/// Decodes a pool. Whatever was written is read, or the whole shard would not open: how many sites there may be is decided when one
/// is noted.
pub fn decode(key: &[u8], bytes: &[u8]) -> Result<PoolRow, Damaged> {
    let mut input = field::fields_of(bytes)?;
    let row = read(parse_key(key)?, &mut input)?;
    if row.settings.recipe.slots == 0 {
        return Err(Damaged("the workers of a pool have no slots"));
    }
    Ok(row)
}

/// A pool's name in a key.
pub(super) fn read_name(name: keys::Parts<'_>) -> Result<PoolName, Damaged> {
    wayleave_core::names::pool(name.text()?).map_err(|_| Damaged("a key has no valid name of a pool"))
}
