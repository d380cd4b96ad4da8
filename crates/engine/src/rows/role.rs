//! A role: its settings, last epoch and last term.
//! Lifetime: from the first heartbeat or setting until deletion.
//! Key: outside · 12 · role name. Value: version, then the row.
//!
//! The key with an empty name is the origin of new roles. Lifetime: as long as the store.

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::names::RoleName;
use wayleave_core::roles::{Agreement, Candidate, Mode, Origin, Peer, RoleRow, RoleSettings, Run, Runs, Term};

use super::field::{self, Field, codec, fields, or_empty, variants, wraps};
use super::{Kind, key as keys};
use crate::Key;

fields! {
    RoleRow {
        version, settings, epoch, vacant_since, incarnation, quiet_until, quiet_for, released, avoided as
        or_empty, term, runs,
    }
}
fields!(RoleSettings { ttl, mode, continue_for });
variants!(Mode, "a role has an unknown mode" {
    0 Strict,
    1 Continue,
});
fields!(Term { holder, token, epoch, granted_at, renewed_at, expires_at, step_down, agreement });
fields!(Agreement { goes_on, announced, announced_at, heard, counts_from });
wraps!(Runs);
fields!(Run { slot, epoch, at });
fields!(Origin { epoch, roles, incarnation, noticed_at });
fields!(Peer { address, secret });
fields!(Candidate { uuid, address as or_empty, metadata, ready, priority, interval, peer });

codec!(RoleRow);

/// The key of a role.
#[must_use]
pub fn key(role: &str) -> Key {
    keys::of(keys::OUTSIDE, Kind::Role, &[role.as_bytes()])
}

/// The key of the origin: a role key with an empty name.
#[must_use]
pub fn origin_key() -> Key {
    key("")
}

/// The role that a key names.
pub fn parse_key(key: &[u8]) -> Result<RoleName, Damaged> {
    keys::Parts::of(key)?.text().map(Into::into)
}

/// Encodes the origin.
#[must_use]
pub fn encode_origin(origin: &Origin) -> Vec<u8> {
    field::encode(origin)
}

/// Decodes the origin.
pub fn decode_origin(bytes: &[u8]) -> Result<Origin, Damaged> {
    field::decode(bytes)
}
