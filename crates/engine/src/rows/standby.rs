//! A standby of a role.
//! Lifetime: from its heartbeat until it leaves, takes over, or is found past its deadline.
//! Key: outside · 13 · role name · 0 · uuid. Value: version, then the row.

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::names::Uuid;
use wayleave_core::roles::StandbyRow;

use super::field::{self, Field, codec, fields};
use super::{Kind, key as keys};
use crate::{Key, Scan};

fields!(StandbyRow { seen_at, expires_at, candidate, joined, from });

codec!(StandbyRow);

/// The key of a standby. Neither role names nor uuids contain a zero byte.
#[must_use]
pub fn key(role: &str, uuid: &str) -> Key {
    keys::of(keys::OUTSIDE, Kind::Standby, &[role.as_bytes(), b"\0", uuid.as_bytes()])
}

/// The standbys of a role.
#[must_use]
pub fn scan(role: &str, limit: usize) -> Scan {
    let from = key(role, "");
    let to = keys::after_prefix(&from);
    Scan { from, to, limit }
}

/// The role name and the uuid that a key names.
pub fn parse_key(key: &[u8]) -> Result<(Uuid, Uuid), Damaged> {
    let (role, uuid) = keys::Parts::of(key)?.text()?.split_once('\0').ok_or(Damaged("a standby's key has no uuid"))?;
    Ok((role.into(), uuid.into()))
}
