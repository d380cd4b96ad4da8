//! The input and output of role decisions.

use super::refusal::Refusal;
use super::row::{Origin, RoleRow, RoleSettings, StandbyRow, Term};
use super::slots::Runs;
use crate::ids::Epoch;
use crate::limits;
use crate::names::{RoleName, Uuid};
use crate::settings::Change;
use crate::time::{Millis, Time};

/// What the store says about one role at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The role's name.
    pub role: RoleName,
    /// Its row.
    pub row: Option<RoleRow>,
    /// Its standbys, including expired ones.
    pub standbys: Vec<StandbyRow>,
    /// What new roles start from.
    pub origin: Option<Origin>,
    /// The store's time at that instant.
    pub now: Time,
    /// Which store it is.
    pub incarnation: u64,
    /// Since when the node that decides knows that time has run evenly. It has not watched the clock before, or saw a step then.
    pub steady_since: Time,
}

/// Rows to write. A compare-and-swap: valid only if every row of the facts that they replace, and the role's own row,
/// is unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// The role's row.
    pub row: Change<RoleRow>,
    /// What new roles start from.
    pub origin: Option<Origin>,
    /// Standbys; `None` removes the row.
    pub standbys: Vec<(Uuid, Option<StandbyRow>)>,
}

/// A decision: the writes, and the answer once they are committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided<A> {
    /// What to write.
    pub writes: Writes,
    /// What to answer.
    pub answer: A,
}

impl Facts {
    /// The standbys that have not expired.
    pub fn fresh(&self) -> impl Iterator<Item = &StandbyRow> {
        self.standbys.iter().filter(|standby| standby.is_fresh(self.now))
    }

    /// The refusal of a token that does not belong to the current term; names the current term.
    pub(super) fn not_the_term(&self, row: &RoleRow) -> Refusal {
        let live = row.live(self.now);
        Refusal::NotTheTerm {
            role: self.role.to_string(),
            epoch: live.map_or(row.epoch, |term| term.epoch).0,
            holder: live.map(|term| term.holder.uuid.to_string()),
            remaining_ms: live.map_or(0, |term| term.expires_at.since(self.now).0),
        }
    }

    /// When the end of the last term can be trusted. One that was renewed before this node began to watch the clock, or before a
    /// step of it, may have expired by a step alone: its holder may rely on the whole term that it was granted. One
    /// that was renewed since counts by the same time on both sides. Nodes that have watched the clock for longer
    /// need not wait, so this is not written down.
    pub(super) fn trusted_at(&self, row: &RoleRow) -> Time {
        let unwatched = row.term.as_ref().is_some_and(|term| term.renewed_at < self.steady_since);
        if unwatched { self.steady_since.after(row.longest_term()) } else { Time::ZERO }
    }

    /// Until when a change of store keeps the role quiet. That period may have ended by a step alone, too, unless a term was granted
    /// since.
    pub(super) fn changed_until(&self, row: &RoleRow) -> Time {
        let unwatched = row.quiet_until.before(row.quiet_for) < self.steady_since;
        let granted_since = row.term.as_ref().is_some_and(|term| term.granted_at >= row.quiet_until);
        if row.quiet_until > Time::ZERO && unwatched && !granted_since {
            row.quiet_until.max(self.steady_since.after(row.quiet_for))
        } else {
            row.quiet_until
        }
    }

    /// Until when nothing is granted.
    pub(super) fn quiet_until(&self, row: &RoleRow) -> Time {
        self.changed_until(row).max(self.trusted_at(row))
    }

    /// The expired term whose primary may continue now, and until when.
    pub(super) fn going_on<'a>(&self, row: &'a RoleRow) -> Option<(&'a Term, Time)> {
        let term = row.term.as_ref().filter(|term| term.expires_at <= self.now)?;
        let goes_on = term.agreement.goes_on;
        let trusted = if goes_on > Millis(0) { self.trusted_at(row).after(goes_on) } else { Time::ZERO };
        let until = term.may_act_until().max(trusted);
        (self.now < until).then_some((term, until))
    }

    /// Since when the role has been vacant, if it is; quiet periods do not count.
    pub(super) fn vacant_since(&self, row: &RoleRow) -> Time {
        row.term.as_ref().map_or(row.vacant_since, |term| term.expires_at).max(self.quiet_until(row))
    }

    /// The role to decide on: the existing one, or a new one.
    pub(super) fn open(&self) -> Result<(RoleRow, Option<Origin>), Refusal> {
        if let Some(row) = &self.row {
            let mut row = row.clone();
            row.notice(self.incarnation, self.now);
            return Ok((row, None));
        }
        let origin = self.enlarged()?;
        let settings = RoleSettings::default();
        // A role created shortly before a change of store may have been lost together with its primary, so a new role
        // of that name observes the same quiet period as the others.
        let quiet = if origin.noticed_at == Time::ZERO { Time::ZERO } else { origin.noticed_at.after(settings.ttl) };
        let row = RoleRow {
            version: 0,
            settings,
            epoch: origin.epoch,
            term: None,
            vacant_since: self.now,
            released: None,
            avoided: None,
            incarnation: self.incarnation,
            quiet_until: quiet,
            quiet_for: settings.ttl,
            runs: Runs::default(),
        };
        Ok((row, Some(origin)))
    }

    /// The origin, with one more role.
    fn enlarged(&self) -> Result<Origin, Refusal> {
        // Without a row, no role was made in the first store: its incarnation is 0 or 1. One that has replaced it may have lost the row
        // together with the first role.
        let begun = Origin { incarnation: self.incarnation.min(1), ..Origin::default() };
        let mut origin = self.origin.unwrap_or(begun);
        if origin.roles >= limits::ROLES_MAX {
            let what =
                format!("there are {} roles already, which is the limit; delete one that is not in use", origin.roles);
            return Err(Refusal::OverLimit(what));
        }
        origin.roles += 1;
        if origin.incarnation != self.incarnation {
            origin.incarnation = self.incarnation;
            origin.noticed_at = self.now;
            origin.epoch = Epoch(origin.epoch.0.saturating_add(limits::ROLE_EPOCHS_SKIPPED));
        }
        Ok(origin)
    }

    /// The row to write: under the next version or a later one that it asks for, unless nothing changed.
    pub(super) fn changed(&self, row: &RoleRow) -> Change<RoleRow> {
        if self.row.as_ref() == Some(row) {
            return Change::Keep;
        }
        let before = self.row.as_ref().map_or(0, |row| row.version);
        Change::Set(RoleRow { version: row.version.max(before + 1), ..row.clone() })
    }
}
