//! Operator settings of a role.

use super::facts::{Decided, Facts, Writes};
use super::refusal::Refusal;
use super::row::{Mode, RoleSettings};
use crate::limits;
use crate::settings::Change;
use crate::time::Millis;

/// Changes to [`RoleSettings`]; a cleared setting returns to its default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoleChanges {
    /// See [`RoleSettings::ttl`].
    pub ttl: Change<Millis>,
    /// See [`RoleSettings::mode`].
    pub mode: Change<Mode>,
    /// See [`RoleSettings::continue_for`].
    pub continue_for: Change<Millis>,
}

impl RoleChanges {
    fn apply(&self, settings: &mut RoleSettings) {
        let usual = RoleSettings::default();
        let (mut ttl, mut mode, mut goes_on) = (Some(settings.ttl), Some(settings.mode), Some(settings.continue_for));
        self.ttl.apply(&mut ttl);
        self.mode.apply(&mut mode);
        self.continue_for.apply(&mut goes_on);
        *settings = RoleSettings {
            ttl: ttl.unwrap_or(usual.ttl),
            mode: mode.unwrap_or(usual.mode),
            continue_for: goes_on.unwrap_or(usual.continue_for),
        };
    }
}

/// Decides a change of settings; creates the role if necessary. A live term keeps its length: a new time to live
/// takes effect with its next renewal, and so does a new continue time. Fails if a present candidate's heartbeats are
/// too rare for the new time to live, or there are too many roles.
pub fn set(facts: &Facts, changes: &RoleChanges) -> Result<Decided<()>, Refusal> {
    let (mut row, origin) = facts.open()?;
    changes.apply(&mut row.settings);
    let holder = row.live(facts.now).map(|term| &term.holder);
    let mut present = holder.into_iter().chain(facts.fresh().map(|standby| &standby.candidate));
    let late = present.find_map(|c| c.interval.filter(|i| *i > row.settings.interval_max()).map(|i| (&c.uuid, i)));
    if let Some((uuid, interval)) = late {
        return Err(Refusal::TtlTooShort {
            role: facts.role.to_string(),
            ttl_ms: row.settings.ttl.0,
            uuid: uuid.to_string(),
            interval_ms: interval.0,
        });
    }
    debug_assert!(row.settings.ttl.0 >= limits::ROLE_TTL_MS_MIN, "checked at the door");
    Ok(Decided { writes: Writes { row: facts.changed(&row), origin, ..Writes::default() }, answer: () })
}
