//! One role as rows of the store: the scans, the decoding, and the writes of a decision.

use wayleave_core::codec::Damaged;
use wayleave_core::ids::Token;
use wayleave_core::limits::STANDBYS_READ;
use wayleave_core::names::RoleName;
use wayleave_core::roles::{Facts, Refusal, RoleRow, StandbyRow, Writes};
use wayleave_core::settings::Change;
use wayleave_core::time::Time;
use wayleave_engine::rows::{role, standby};
use wayleave_engine::{Error, Look, Row, Write};
use wayleave_registry::{Subject, only};

/// All that a decision on a role reads.
pub(crate) fn subject(name: &RoleName) -> Subject {
    let mut subject = shown(name);
    subject.scans.push(only(role::origin_key()));
    subject
}

/// What people see of a role: without the origin, which only decisions need.
pub(crate) fn shown(name: &RoleName) -> Subject {
    let key = role::key(name);
    let scans = vec![only(key.clone()), standby::scan(name, STANDBYS_READ)];
    Subject { key, scans, name: "this role", ends: term_end }
}

/// The end of the present term, which comes by time alone.
fn term_end(look: &Look) -> Option<Time> {
    let row: RoleRow = role::decode(&look.rows.first()?.first()?.value).ok()?;
    row.live(look.now).map(|term| term.expires_at)
}

/// What a look says of a role.
pub(crate) fn read(name: &RoleName, look: &Look) -> Result<Facts, Refusal> {
    let damaged = |error: Damaged| Refusal::Corrupt(format!("role '{name}': {error}"));
    let rows = |scan: usize| -> &[Row] { look.rows.get(scan).map_or(&[], Vec::as_slice) };
    let row = rows(0).first().map(|row| role::decode(&row.value)).transpose().map_err(damaged)?;
    let standbys: Result<Vec<StandbyRow>, Damaged> = rows(1).iter().map(|row| standby::decode(&row.value)).collect();
    let origin = rows(2).first().map(|row| role::decode_origin(&row.value)).transpose().map_err(damaged)?;
    Ok(Facts {
        role: name.clone(),
        row,
        standbys: standbys.map_err(damaged)?,
        origin,
        now: look.now,
        incarnation: look.incarnation,
        steady_since: look.steady_since,
    })
}

/// The rows that a decision writes.
pub(crate) fn rows(name: &RoleName, writes: Writes) -> Vec<Write> {
    let mut rows: Vec<Write> = Vec::new();
    match writes.row {
        Change::Keep => {}
        Change::Clear => rows.push(Write { key: role::key(name), value: None }),
        Change::Set(row) => rows.push(Write { key: role::key(name), value: Some(role::encode(&row)) }),
    }
    if let Some(origin) = writes.origin {
        rows.push(Write { key: role::origin_key(), value: Some(role::encode_origin(&origin)) });
    }
    for (uuid, row) in writes.standbys {
        rows.push(Write { key: standby::key(name, &uuid), value: row.as_ref().map(standby::encode) });
    }
    rows
}

/// Whether the role's last term has this token.
pub(crate) fn term_is(facts: &Facts, token: Token) -> bool {
    facts.row.as_ref().and_then(|row| row.term.as_ref()).is_some_and(|term| term.token == token)
}

/// An engine's error as a refusal.
pub(crate) fn refusal(error: Error) -> Refusal {
    match error {
        Error::Corrupt(what) => Refusal::Corrupt(what),
        Error::OutcomeUnknown(what) => Refusal::OutcomeUnknown(what),
        Error::Unavailable(what) => Refusal::Unavailable(what),
        Error::Conflict | Error::Fenced { .. } => Refusal::Unavailable(error.to_string()),
    }
}
