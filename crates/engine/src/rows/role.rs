//! A role: its settings, last epoch and last term.
//! Lifetime: from the first heartbeat or setting until deletion.
//! Key: outside · 12 · role name. Value: version, then the row.
//!
//! The key with an empty name is the origin of new roles. Lifetime: as long as the store.

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::ids::{Epoch, Token};
use wayleave_core::metadata::Metadata;
use wayleave_core::names::RoleName;
use wayleave_core::roles::{Agreement, Candidate, Mode, Origin, Peer, RoleRow, RoleSettings, Run, Runs, Term};
use wayleave_core::time::{Millis, Time};

use super::{Kind, key as keys};
use crate::Key;

const VERSION: u8 = 1;

/// The key of a role.
#[must_use]
pub fn key(role: &str) -> Key {
    let mut key = keys::start(keys::OUTSIDE, Kind::Role, role.len());
    key.extend_from_slice(role.as_bytes());
    key
}

/// The key of the origin: a role key with an empty name.
#[must_use]
pub fn origin_key() -> Key {
    key("")
}

/// The role that a key names.
///
/// # Errors
/// If the key does not parse.
pub fn parse_key(key: &[u8]) -> Result<RoleName, Damaged> {
    let mut parts = keys::Parts(key);
    parts.prefix()?;
    std::str::from_utf8(parts.rest()).map(Into::into).map_err(|_| Damaged("a role's name is not UTF-8"))
}

/// Encodes a row.
#[must_use]
pub fn encode(row: &RoleRow) -> Vec<u8> {
    let mut out = Writer::with_capacity(128);
    out.byte(VERSION);
    out.number(row.version);
    out.number(row.settings.ttl.0);
    out.byte(mode_byte(row.settings.mode));
    out.number(row.settings.continue_for.0);
    out.number(row.epoch.0);
    out.number(row.vacant_since.0);
    out.number(row.incarnation);
    out.number(row.quiet_until.0);
    out.bytes(row.released.as_ref().map_or(&[], |token| &token.0));
    out.text(row.avoided.as_deref().unwrap_or_default());
    out.byte(row.term.is_some().into());
    if let Some(term) = &row.term {
        write_candidate(&mut out, &term.holder);
        out.raw(&term.token.0);
        out.number(term.epoch.0);
        out.number(term.granted_at.0);
        out.number(term.renewed_at.0);
        out.number(term.expires_at.0);
        out.byte(term.step_down.into());
        let Agreement { goes_on, told, told_at, heard, counts_from } = term.agreement;
        for number in [goes_on.0, told.0, told_at, heard, counts_from] {
            out.number(number);
        }
    }
    write_runs(&mut out, &row.runs);
    out.into()
}

/// Decodes a row.
///
/// # Errors
/// If the bytes do not decode.
pub fn decode(bytes: &[u8]) -> Result<RoleRow, Damaged> {
    let mut input = Reader::new(bytes);
    if input.byte()? != VERSION {
        return Err(Damaged("the row of a role has an unknown version"));
    }
    let mut row = RoleRow {
        version: input.number()?,
        settings: read_settings(&mut input)?,
        epoch: Epoch(input.number()?),
        term: None,
        vacant_since: Time(input.number()?),
        incarnation: input.number()?,
        quiet_until: Time(input.number()?),
        released: None,
        avoided: None,
        runs: Runs::default(),
    };
    row.released = match input.bytes()? {
        [] => None,
        token => Some(read_token(token)?),
    };
    row.avoided = Some(input.text()?).filter(|uuid| !uuid.is_empty()).map(Into::into);
    if read_flag(&mut input)? {
        row.term = Some(Term {
            holder: read_candidate(&mut input)?,
            token: read_token(input.raw(16)?)?,
            epoch: Epoch(input.number()?),
            granted_at: Time(input.number()?),
            renewed_at: Time(input.number()?),
            expires_at: Time(input.number()?),
            step_down: read_flag(&mut input)?,
            agreement: read_agreement(&mut input)?,
        });
    }
    row.runs = read_runs(&mut input)?;
    Ok(row)
}

fn read_settings(input: &mut Reader<'_>) -> Result<RoleSettings, Damaged> {
    Ok(RoleSettings { ttl: Millis(input.number()?), mode: read_mode(input)?, continue_for: Millis(input.number()?) })
}

fn read_agreement(input: &mut Reader<'_>) -> Result<Agreement, Damaged> {
    Ok(Agreement {
        goes_on: Millis(input.number()?),
        told: Millis(input.number()?),
        told_at: input.number()?,
        heard: input.number()?,
        counts_from: input.number()?,
    })
}

fn write_runs(out: &mut Writer, runs: &Runs) {
    out.number(runs.0.len() as u64);
    for run in &runs.0 {
        out.text(&run.slot);
        out.number(run.epoch.0);
        out.number(run.at.0);
    }
}

fn read_runs(input: &mut Reader<'_>) -> Result<Runs, Damaged> {
    let mut runs = Runs::default();
    // Do not preallocate: decoding ends with the input, however large the claimed count.
    for _ in 0..input.number()? {
        runs.0.push_back(Run { slot: input.text()?.into(), epoch: Epoch(input.number()?), at: Time(input.number()?) });
    }
    Ok(runs)
}

/// Encodes the origin.
#[must_use]
pub fn encode_origin(origin: &Origin) -> Vec<u8> {
    let mut out = Writer::with_capacity(24);
    out.byte(VERSION);
    out.number(origin.epoch.0);
    out.number(origin.roles);
    out.number(origin.incarnation);
    out.number(origin.noticed_at.0);
    out.into()
}

/// Decodes the origin.
///
/// # Errors
/// If the bytes do not decode.
pub fn decode_origin(bytes: &[u8]) -> Result<Origin, Damaged> {
    let mut input = Reader::new(bytes);
    if input.byte()? != VERSION {
        return Err(Damaged("the origin of roles has an unknown version"));
    }
    Ok(Origin {
        epoch: Epoch(input.number()?),
        roles: input.number()?,
        incarnation: input.number()?,
        noticed_at: Time(input.number()?),
    })
}

pub(super) fn write_candidate(out: &mut Writer, candidate: &Candidate) {
    out.text(&candidate.uuid);
    out.text(candidate.address.as_deref().unwrap_or_default());
    out.bytes(candidate.metadata.as_bytes());
    out.byte(candidate.ready.into());
    out.byte(candidate.priority);
    out.maybe(candidate.interval.map(|interval| interval.0));
    out.text(candidate.peer.as_ref().map_or("", |peer| &*peer.address));
    out.raw(candidate.peer.as_ref().map_or(&[], |peer| &peer.secret.0));
}

pub(super) fn read_candidate(input: &mut Reader<'_>) -> Result<Candidate, Damaged> {
    Ok(Candidate {
        uuid: input.text()?.into(),
        address: Some(input.text()?).filter(|address| !address.is_empty()).map(Into::into),
        metadata: Metadata::from_bytes(input.bytes()?.into()).map_err(|_| Damaged("metadata is too large"))?,
        ready: read_flag(input)?,
        priority: input.byte()?,
        interval: input.maybe()?.map(Millis),
        peer: read_peer(input)?,
    })
}

fn read_peer(input: &mut Reader<'_>) -> Result<Option<Peer>, Damaged> {
    match input.text()? {
        "" => Ok(None),
        address => Ok(Some(Peer { address: address.into(), secret: read_token(input.raw(16)?)? })),
    }
}

const fn mode_byte(mode: Mode) -> u8 {
    match mode {
        Mode::Strict => 0,
        Mode::Continue => 1,
    }
}

fn read_mode(input: &mut Reader<'_>) -> Result<Mode, Damaged> {
    match input.byte()? {
        0 => Ok(Mode::Strict),
        1 => Ok(Mode::Continue),
        _ => Err(Damaged("a role has an unknown mode")),
    }
}

fn read_flag(input: &mut Reader<'_>) -> Result<bool, Damaged> {
    match input.byte()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Damaged("a flag is neither yes nor no")),
    }
}

fn read_token(bytes: &[u8]) -> Result<Token, Damaged> {
    bytes.try_into().map(Token).map_err(|_| Damaged("a token is not 16 bytes long"))
}
