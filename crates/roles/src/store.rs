//! One role as it lies in the store: read with the store's time, written only if nothing has changed.

use wayleave_core::ids::Token;
use wayleave_core::limits::STANDBYS_READ;
use wayleave_core::names::RoleName;
use wayleave_core::roles::{Facts, Origin, Refusal, RoleRow, StandbyRow, Writes};
use wayleave_core::settings::Change;
use wayleave_core::wire::Damaged;
use wayleave_engine::rows::{role, standby};
use wayleave_engine::{Batch, Engine, Error, Expect, Key, Look, Row, Scan, Value, Write};

/// What was read, with the bytes that must still be there when it is changed.
pub(crate) struct Seen {
    pub facts: Facts,
    rows: Vec<Row>,
}

/// The scan of one row.
pub(crate) fn only(key: Key) -> Scan {
    let mut to = key.clone();
    to.push(0);
    Scan { from: key, to, limit: 1 }
}

/// Reads a role.
pub(crate) async fn look(engine: &dyn Engine, name: &RoleName) -> Result<Seen, Error> {
    let scans = [only(role::key(name)), standby::scan(name, STANDBYS_READ), only(role::origin_key())];
    let look = engine.look(&scans).await?;
    let stamp = Look { rows: Vec::new(), ..look };
    let mut rows = look.rows.into_iter();
    let (role, standbys) = (rows.next().unwrap_or_default(), rows.next().unwrap_or_default());
    let origins = rows.next().unwrap_or_default();
    let origin: Option<Result<Origin, Damaged>> = origins.first().map(|row| role::decode_origin(&row.value));
    let origin = origin.transpose().map_err(|error| damaged(name, &error))?;
    let facts = Facts { origin, ..read(name, &role, &standbys, &stamp)? };
    Ok(Seen { facts, rows: [role, origins, standbys].concat() })
}

/// Reads several roles at one moment, for people to look at: without the origin, which only decisions need.
pub(crate) async fn look_many(engine: &dyn Engine, names: &[RoleName]) -> Result<Vec<Facts>, Error> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let scans = |name: &RoleName| [only(role::key(name)), standby::scan(name, STANDBYS_READ)];
    let look = engine.look(&names.iter().flat_map(scans).collect::<Vec<Scan>>()).await?;
    let stamp = Look { rows: Vec::new(), ..look };
    let mut rows = look.rows.into_iter();
    let mut facts = Vec::with_capacity(names.len());
    for name in names {
        let (role, standbys) = (rows.next().unwrap_or_default(), rows.next().unwrap_or_default());
        facts.push(read(name, &role, &standbys, &stamp)?);
    }
    Ok(facts)
}

/// What rows say of a role, at the time and of the store that a look tells.
fn read(name: &RoleName, role: &[Row], standbys: &[Row], look: &Look) -> Result<Facts, Error> {
    let row: Option<RoleRow> =
        role.first().map(|row| role::decode(&row.value)).transpose().map_err(|error| damaged(name, &error))?;
    let standbys: Result<Vec<StandbyRow>, Damaged> = standbys.iter().map(|row| standby::decode(&row.value)).collect();
    Ok(Facts {
        role: name.clone(),
        row,
        standbys: standbys.map_err(|error| damaged(name, &error))?,
        origin: None,
        now: look.now,
        incarnation: look.incarnation,
        stepped_at: look.stepped_at,
    })
}

fn damaged(name: &RoleName, error: &Damaged) -> Error {
    Error::Corrupt(format!("role '{name}': {error}"))
}

impl Seen {
    /// The batch for a decision on what was seen. The role's own row is always among what must not have changed: every
    /// decision hangs on it.
    pub(crate) fn batch(&self, writes: Writes) -> Batch {
        let name = &self.facts.role;
        let mut changes: Vec<Write> = Vec::new();
        match writes.row {
            Change::Keep => {}
            Change::Clear => changes.push(Write { key: role::key(name), value: None }),
            Change::Set(row) => changes.push(Write { key: role::key(name), value: Some(role::encode(&row)) }),
        }
        if let Some(origin) = writes.origin {
            changes.push(Write { key: role::origin_key(), value: Some(role::encode_origin(&origin)) });
        }
        for (uuid, row) in writes.standbys {
            changes.push(Write { key: standby::key(name, &uuid), value: row.as_ref().map(standby::encode) });
        }
        let mut keys: Vec<Key> = changes.iter().map(|write| write.key.clone()).collect();
        keys.push(role::key(name));
        keys.sort_unstable();
        keys.dedup();
        let expects: Vec<Expect> = keys.into_iter().map(|key| (key.clone(), self.value(&key))).collect();
        changes.sort_by(|a, b| a.key.cmp(&b.key));
        Batch { fences: Vec::new(), expects, writes: changes }
    }

    fn value(&self, key: &Key) -> Option<Value> {
        self.rows.iter().find(|row| row.key == *key).map(|row| row.value.clone())
    }

    /// Whether the role's last term has this token.
    pub(crate) fn term_is(&self, token: Token) -> bool {
        self.facts.row.as_ref().and_then(|row| row.term.as_ref()).is_some_and(|term| term.token == token)
    }
}

/// An engine's error as a refusal. `unknown` says that an earlier write of the same call may have counted.
pub(crate) fn refusal(error: Error, unknown: bool) -> Refusal {
    match error {
        Error::Corrupt(what) => Refusal::Corrupt(what),
        Error::OutcomeUnknown(what) => Refusal::OutcomeUnknown(what),
        Error::Unavailable(what) if unknown => Refusal::OutcomeUnknown(what),
        Error::Unavailable(what) => Refusal::Unavailable(what),
        Error::Conflict | Error::Fenced { .. } => {
            Refusal::Unavailable("too many concurrent updates to this role".into())
        }
    }
}
