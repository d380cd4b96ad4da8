//! A standby of a role.
//! Lifetime: from its heartbeat until it leaves, takes over, or is found past its deadline.
//! Key: outside · 13 · role name · 0 · uuid. Value: version, then the row.

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::names::Uuid;
use wayleave_core::roles::StandbyRow;
use wayleave_core::time::Time;

use super::ip_address::{read_ip, write_ip};
use super::{Kind, key as keys, role};
use crate::{Key, Scan};

const VERSION: u8 = 1;

/// The key of a standby. Neither role names nor uuids contain a zero byte.
#[must_use]
pub fn key(role: &str, uuid: &str) -> Key {
    let mut key = prefix(role);
    key.extend_from_slice(uuid.as_bytes());
    key
}

/// The standbys of a role.
#[must_use]
pub fn scan(role: &str, limit: usize) -> Scan {
    let from = prefix(role);
    let to = keys::after_prefix(&from);
    Scan { from, to, limit }
}

fn prefix(role: &str) -> Key {
    let mut key = keys::start(keys::OUTSIDE, Kind::Standby, role.len() + 1 + 36);
    key.extend_from_slice(role.as_bytes());
    key.push(0);
    key
}

/// The role name and the uuid that a key names.
///
/// # Errors
/// If the key does not parse.
pub fn parse_key(key: &[u8]) -> Result<(Uuid, Uuid), Damaged> {
    let mut parts = keys::Parts(key);
    parts.prefix()?;
    let text = std::str::from_utf8(parts.rest()).map_err(|_| Damaged("a standby's key is not UTF-8"))?;
    let (role, uuid) = text.split_once('\0').ok_or(Damaged("a standby's key has no uuid"))?;
    Ok((role.into(), uuid.into()))
}

/// Encodes a row.
#[must_use]
pub fn encode(row: &StandbyRow) -> Vec<u8> {
    let mut out = Writer::with_capacity(96);
    out.byte(VERSION);
    out.number(row.seen_at.0);
    out.number(row.expires_at.0);
    role::write_candidate(&mut out, &row.candidate);
    out.number(row.joined);
    write_ip(&mut out, row.from);
    out.into()
}

/// Decodes a row.
///
/// # Errors
/// If the bytes do not decode.
pub fn decode(bytes: &[u8]) -> Result<StandbyRow, Damaged> {
    let mut input = Reader::new(bytes);
    if input.byte()? != VERSION {
        return Err(Damaged("the row of a standby has an unknown version"));
    }
    let (seen_at, expires_at) = (Time(input.number()?), Time(input.number()?));
    let candidate = role::read_candidate(&mut input)?;
    let joined = input.number()?;
    Ok(StandbyRow { candidate, from: read_ip(input.bytes()?)?, seen_at, expires_at, joined })
}
