//! A role: its settings, last epoch and last term.
//! Lifetime: from the first heartbeat or setting until deletion.
//! Key: outside · 12 · role name. Value: version of the layout, then the row.
//!
//! Layout 2 adds what lets a primary continue after its term, layout 3 the slots that were run. A row without either is
//! written in the lower layout, so that older nodes can read it.
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
pub(super) const GOING_ON: u8 = 2;
const SLOTS: u8 = 3;

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
    let layout = match row.runs.0.is_empty() {
        false => SLOTS,
        true if needs_going_on(row) => GOING_ON,
        true => VERSION,
    };
    out.byte(layout);
    out.number(row.version);
    out.number(row.settings.ttl.0);
    out.byte(mode_byte(row.settings.mode));
    if layout >= GOING_ON {
        out.number(row.settings.continue_for.0);
    }
    out.number(row.epoch.0);
    out.number(row.vacant_since.0);
    out.number(row.incarnation);
    out.number(row.quiet_until.0);
    out.bytes(row.released.as_ref().map_or(&[], |token| &token.0));
    out.text(row.avoided.as_deref().unwrap_or_default());
    out.byte(row.term.is_some().into());
    if let Some(term) = &row.term {
        write_candidate(&mut out, &term.holder, layout);
        out.raw(&term.token.0);
        out.number(term.epoch.0);
        out.number(term.granted_at.0);
        out.number(term.renewed_at.0);
        out.number(term.expires_at.0);
        out.byte(term.step_down.into());
        if layout >= GOING_ON {
            let Agreement { goes_on, told, told_at, heard, counts_from } = term.agreement;
            for number in [goes_on.0, told.0, told_at, heard, counts_from] {
                out.number(number);
            }
        }
    }
    if layout >= SLOTS {
        write_runs(&mut out, &row.runs);
    }
    out.into()
}

fn needs_going_on(row: &RoleRow) -> bool {
    let usual = RoleSettings::default().continue_for;
    let agreed = |term: &Term| term.agreement != Agreement::default() || term.holder.peer.is_some();
    row.settings.continue_for != usual || row.term.as_ref().is_some_and(agreed)
}

/// Decodes a row.
///
/// # Errors
/// If the bytes do not decode.
pub fn decode(bytes: &[u8]) -> Result<RoleRow, Damaged> {
    let mut input = Reader::new(bytes);
    let layout = read_layout(&mut input)?;
    let mut row = RoleRow {
        version: input.number()?,
        settings: read_settings(&mut input, layout)?,
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
            holder: read_candidate(&mut input, layout)?,
            token: read_token(input.raw(16)?)?,
            epoch: Epoch(input.number()?),
            granted_at: Time(input.number()?),
            renewed_at: Time(input.number()?),
            expires_at: Time(input.number()?),
            step_down: read_flag(&mut input)?,
            agreement: read_agreement(&mut input, layout)?,
        });
    }
    if layout >= SLOTS {
        row.runs = read_runs(&mut input)?;
    }
    Ok(row)
}

/// The layout of a role's or a standby's row.
pub(super) fn read_layout(input: &mut Reader<'_>) -> Result<u8, Damaged> {
    match input.byte()? {
        layout @ VERSION..=SLOTS => Ok(layout),
        _ => Err(Damaged("a row of a role or a standby has an unknown version")),
    }
}

fn read_settings(input: &mut Reader<'_>, layout: u8) -> Result<RoleSettings, Damaged> {
    let (ttl, mode, usual) = (Millis(input.number()?), read_mode(input)?, RoleSettings::default().continue_for);
    Ok(RoleSettings { ttl, mode, continue_for: if layout >= GOING_ON { Millis(input.number()?) } else { usual } })
}

fn read_agreement(input: &mut Reader<'_>, layout: u8) -> Result<Agreement, Damaged> {
    if layout < GOING_ON {
        return Ok(Agreement::default());
    }
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

pub(super) fn write_candidate(out: &mut Writer, candidate: &Candidate, layout: u8) {
    out.text(&candidate.uuid);
    out.text(candidate.address.as_deref().unwrap_or_default());
    out.bytes(candidate.metadata.as_bytes());
    out.byte(candidate.ready.into());
    out.byte(candidate.priority);
    out.maybe(candidate.interval.map(|interval| interval.0));
    if layout >= GOING_ON {
        out.text(candidate.peer.as_ref().map_or("", |peer| &*peer.address));
        out.raw(candidate.peer.as_ref().map_or(&[], |peer| &peer.secret.0));
    }
}

pub(super) fn read_candidate(input: &mut Reader<'_>, layout: u8) -> Result<Candidate, Damaged> {
    Ok(Candidate {
        uuid: input.text()?.into(),
        address: Some(input.text()?).filter(|address| !address.is_empty()).map(Into::into),
        metadata: Metadata::from_bytes(input.bytes()?.into()).map_err(|_| Damaged("metadata is too large"))?,
        ready: read_flag(input)?,
        priority: input.byte()?,
        interval: input.maybe()?.map(Millis),
        peer: read_peer(input, layout)?,
    })
}

fn read_peer(input: &mut Reader<'_>, layout: u8) -> Result<Option<Peer>, Damaged> {
    if layout < GOING_ON {
        return Ok(None);
    }
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
