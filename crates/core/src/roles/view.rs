//! Read-only view of a role: the primary or none, why, and when that changes. Never a primary whose term has expired.

use std::sync::Arc;

use super::continue_mode;
use super::facts::Facts;
use super::row::{Candidate, Mode, RoleRow, RoleSettings, StandbyRow};
use super::slots::Run;
use crate::ids::Epoch;
use crate::metadata::Metadata;
use crate::names::{RoleName, Uuid};
use crate::time::{Millis, Time};

/// A role as callers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleView {
    /// Its name.
    pub role: RoleName,
    /// The primary, if there is one now.
    pub primary: Option<PrimaryView>,
    /// Its state, in a sentence; never empty.
    pub reason: String,
    /// When that changes by time alone.
    pub changes_in: Option<Millis>,
    /// The epoch of the live term; without one, the last epoch.
    pub epoch: Epoch,
    /// The time to live of a term.
    pub ttl: Millis,
    /// What a primary does that cannot reach the store.
    pub mode: Mode,
    /// How long it continues after its term at most, where the mode allows it.
    pub continue_for: Millis,
    /// The version of its row; 0 if there is none.
    pub version: u64,
    /// The last slot that was run, if any.
    pub last_run: Option<Run>,
    /// Its standbys, without expired ones.
    pub standbys: Vec<StandbyView>,
}

/// A primary, without its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrimaryView {
    /// Its uuid.
    pub uuid: Uuid,
    /// Where it is reached.
    pub address: Option<Arc<str>>,
    /// Metadata for callers.
    pub metadata: Metadata,
    /// Its epoch.
    pub epoch: Epoch,
    /// When its term began.
    pub granted_at: Time,
    /// When its last heartbeat came.
    pub renewed_at: Time,
    /// Remaining validity of its term.
    pub remaining: Millis,
    /// Whether it reports itself ready.
    pub ready: bool,
    /// 0 to 9, 9 first.
    pub priority: u8,
    /// Its heartbeat interval.
    pub interval: Millis,
    /// Whether it was asked to step down.
    pub step_down: bool,
}

/// A standby.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandbyView {
    /// Its uuid.
    pub uuid: Uuid,
    /// Where it would be reached.
    pub address: Option<Arc<str>>,
    /// Metadata for callers.
    pub metadata: Metadata,
    /// Whether it could take over now.
    pub ready: bool,
    /// 0 to 9, 9 first.
    pub priority: u8,
    /// When its last heartbeat came.
    pub seen_at: Time,
    /// How long it still counts.
    pub remaining: Millis,
}

/// The role as the facts show it.
#[must_use]
pub fn view(facts: &Facts) -> RoleView {
    let (row, now) = (facts.row.as_ref(), facts.now);
    let settings = row.map_or_else(RoleSettings::default, |row| row.settings);
    let live = row.and_then(|row| row.live(now));
    let primary = live.map(|term| PrimaryView {
        uuid: term.holder.uuid.clone(),
        address: term.holder.address.clone(),
        metadata: term.holder.metadata.clone(),
        epoch: term.epoch,
        granted_at: term.granted_at,
        renewed_at: term.renewed_at,
        remaining: term.expires_at.since(now),
        ready: term.holder.ready,
        priority: term.holder.priority,
        interval: term.holder.interval_under(&settings),
        step_down: term.step_down,
    });
    let (reason, changes_in) = explain(facts, row, None);
    let last = row.map_or_else(Epoch::default, |row| row.epoch);
    RoleView {
        role: facts.role.clone(),
        epoch: live.map_or(last, |term| term.epoch),
        primary,
        reason,
        changes_in,
        ttl: settings.ttl,
        mode: settings.mode,
        continue_for: settings.continue_for,
        version: row.map_or(0, |row| row.version),
        last_run: row.and_then(|row| row.runs.last()).cloned(),
        standbys: facts.fresh().map(|standby| standby_view(standby, now)).collect(),
    }
}

fn standby_view(standby: &StandbyRow, now: Time) -> StandbyView {
    let candidate = &standby.candidate;
    StandbyView {
        uuid: candidate.uuid.clone(),
        address: candidate.address.clone(),
        metadata: candidate.metadata.clone(),
        ready: candidate.ready,
        priority: candidate.priority,
        seen_at: standby.seen_at,
        remaining: standby.expires_at.since(now),
    }
}

/// The standby that precedes `candidate` while the vacancy is young, and until when.
///
/// The rule: any ready candidate may take a vacant role, but one with a lower priority than a ready standby must first
/// give that standby one interval, at most a quarter of the time to live. A candidate that was asked to step down comes
/// after all others. The bound depends only on the start of the vacancy, which is fixed while it lasts. So any ready
/// candidate is granted the role a quarter of the time to live after that start, whatever the preferred standby does.
pub(super) fn head_start(facts: &Facts, row: &RoleRow, candidate: &Candidate) -> Option<(Uuid, Time)> {
    let rank = |c: &Candidate| (row.avoided.as_ref() != Some(&c.uuid), c.priority);
    let first = facts
        .fresh()
        .map(|standby| &standby.candidate)
        .filter(|other| other.uuid != candidate.uuid && other.ready && rank(other) > rank(candidate))
        .max_by_key(|other| rank(other))?;
    let span = first.interval_under(&row.settings).min(row.settings.interval_max());
    let until = facts.vacant_since(row).after(span);
    (until > facts.now).then(|| (first.uuid.clone(), until))
}

/// Whether the candidate would be granted the expired term if it asked.
pub(super) fn may_take_over(facts: &Facts, row: &RoleRow, candidate: &Candidate) -> bool {
    let open = facts.going_on(row).is_some() && facts.quiet_until(row) <= facts.now && candidate.ready;
    open && continue_mode::barred(facts, row, candidate).is_none() && head_start(facts, row, candidate).is_none()
}

/// The role's state and when that changes, for `asker` or for everyone.
pub(super) fn explain(facts: &Facts, row: Option<&RoleRow>, asker: Option<&Candidate>) -> (String, Option<Millis>) {
    let now = facts.now;
    let Some(row) = row else {
        return ("nobody has asked for this role yet; the first ready candidate's heartbeat takes it".into(), None);
    };
    if let Some(term) = row.live(now) {
        let left = term.expires_at.since(now);
        let asked = if term.step_down { "; it was asked to step down" } else { "" };
        let (uuid, epoch) = (&term.holder.uuid, term.epoch.0);
        let text = format!("'{uuid}' is primary in epoch {epoch} for {} more unless it renews{asked}", left.in_words());
        return (text, Some(left));
    }
    if row.incarnation != facts.incarnation {
        return (
            "another store has stepped in; the next heartbeat begins a quiet time in which nothing is granted".into(),
            None,
        );
    }
    let quiet_until = facts.quiet_until(row);
    if quiet_until > now {
        let left = quiet_until.since(now);
        let why = if quiet_until > row.quiet_until {
            "the store's clock stepped forward, or this server has just started: the last term may have run out too early"
        } else {
            "another store has stepped in and may have lost what was granted last"
        };
        return (format!("{why}: nothing is granted for {} more", left.in_words()), Some(left));
    }
    vacancy(facts, row, asker)
}

fn vacancy(facts: &Facts, row: &RoleRow, asker: Option<&Candidate>) -> (String, Option<Millis>) {
    let now = facts.now;
    let ended = match &row.term {
        Some(term) => {
            format!("the term of '{}' ran out {} ago", term.holder.uuid, now.since(term.expires_at).in_words())
        }
        None if row.released.is_some() => {
            format!("the last term was released {} ago", now.since(row.vacant_since).in_words())
        }
        None => "nobody has held this role yet".into(),
    };
    if let Some(asker) = asker {
        if !asker.ready {
            return (format!("{ended}; you are not ready, so it is not given to you"), None);
        }
        if let Some((why, until)) = continue_mode::barred(facts, row, asker) {
            let left = until.since(now);
            let text = format!("{ended}; it may go on by its standbys' agreement for {} more: {why}", left.in_words());
            return (text, Some(left));
        }
        if let Some((uuid, until)) = head_start(facts, row, asker) {
            let left = until.since(now);
            return (format!("{ended}; '{uuid}' comes first and has {} more to take it", left.in_words()), Some(left));
        }
    }
    let ready = facts.fresh().filter(|standby| standby.candidate.ready).count();
    if let Some((_, until)) = facts.going_on(row) {
        let left = until.since(now);
        let able = || facts.standbys.iter().filter(|standby| row.is_heard(standby));
        let here = able().filter(|standby| standby.is_fresh(now)).count();
        let text = format!(
            "{ended}; it may go on by its standbys' agreement for {} more; of {} that could take over before, {here} are here",
            left.in_words(),
            able().count()
        );
        return (text, Some(left));
    }
    let next = match ready {
        0 => "no standby is ready; the first ready candidate's heartbeat takes it".to_owned(),
        n => format!("ready standbys: {n}; the next heartbeat of one takes it"),
    };
    (format!("{ended}; {next}"), None)
}
