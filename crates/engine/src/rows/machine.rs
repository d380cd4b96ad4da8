//! A machine of the fleet.
//! Lifetime: from its registration until it is deleted.
//! Key: shard 0 · 23 · its name. Value: version, type, address, where its reports come from, capacity, row, version
//! text, token, whether it was presented, the three columns, the cause, times, failures, where else its reports come
//! from, whether it is written off, its report interval.

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::fleet::{
    Cause, Desired, Judged, Kind as MachineKind, MachineRow, Reported, RowNo, Write as CoreWrite,
};
use wayleave_core::ids::ShardId;
use wayleave_core::names::MachineId;

use super::field::{self, Field, codec, fields, numbered, wraps};
use super::{Kind, key as keys};
use crate::{Key, Write};

numbered! {
    MachineKind: Crawler, Builder, Server;
    Desired: Online, Paused, Drain;
    Reported: Online, Waiting, Paused, Error;
    Judged: Healthy, Suspect, Failed, Probation;
    Cause: Well, Silent, SaidError, Probes, Returned;
}
wraps!(RowNo);
fields! {
    MachineRow {
        kind, address, from, capacity, row, version, token, confirmed, desired, reported, judged, cause,
        judged_at, failures, seen_at, registered_at, also_from, written_off, report_interval,
    }
}

codec!(MachineRow);

/// The key of a machine.
#[must_use]
pub fn key(shard: ShardId, id: &MachineId) -> Key {
    name_key(shard, Kind::Machine, id)
}

/// The machine that a key names.
pub fn parse_key(key: &[u8]) -> Result<MachineId, Damaged> {
    read_name(keys::Parts::of(key)?)
}

/// The write of a decision about the fleet.
#[must_use]
pub fn encode_write(shard: ShardId, write: &CoreWrite) -> Write {
    let CoreWrite::Machine(id, row) = write;
    Write { key: key(shard, id), value: row.as_ref().map(encode) }
}

/// A key that ends in a machine's name.
pub(super) fn name_key(shard: ShardId, kind: Kind, id: &MachineId) -> Key {
    keys::of(shard, kind, &[id.as_bytes()])
}

/// A machine's name at the end of a key.
pub(super) fn read_name(key: keys::Parts<'_>) -> Result<MachineId, Damaged> {
    match key.text() {
        Ok("") | Err(_) => Err(Damaged("a key has no readable name of a machine")),
        Ok(name) => Ok(name.into()),
    }
}
