//! A heartbeat: acquire the role, renew its term, or stand by. One call does all three, so nobody acts on what it read
//! before.

use super::facts::{Decided, Facts, Writes};
use super::refusal::Refusal;
use super::row::{Candidate, Mode, RoleRow, StandbyRow, Term};
use super::view;
use crate::ids::{Epoch, Token};
use crate::limits;
use crate::names::Uuid;
use crate::time::{Millis, Time};

/// What a candidate says with each heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Itself.
    pub candidate: Candidate,
    /// The token of its term, if it has been given one.
    pub token: Option<Token>,
}

/// What a heartbeat led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// A new term began.
    Acquired,
    /// The term goes on.
    Renewed,
    /// It stands by.
    Standby,
}

/// The answer to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What it led to; the asker is primary unless it stands by.
    pub outcome: Outcome,
    /// The primary's uuid.
    pub holder: Option<Uuid>,
    /// The primary's address.
    pub address: Option<std::sync::Arc<str>>,
    /// The epoch of the living term; without one, the last.
    pub epoch: Epoch,
    /// The term's secret, for its primary alone.
    pub token: Option<Token>,
    /// The role's time to live.
    pub ttl: Millis,
    /// How long the living term still holds by the store's time.
    pub remaining: Millis,
    /// How often the asker should send heartbeats.
    pub interval: Millis,
    /// What to do when the store cannot be reached.
    pub mode: Mode,
    /// An operator wants the asker, which is primary, to let go.
    pub step_down: bool,
    /// How the role stands, in a sentence.
    pub reason: String,
    /// When that changes by time alone.
    pub changes_in: Option<Millis>,
}

/// Decides a heartbeat. `entropy` becomes the token if a term begins.
///
/// # Errors
/// If the candidate's heartbeats are too rare, its uuid is the primary's without the token, or there are too many roles or
/// standbys.
pub fn heartbeat(facts: &Facts, ask: &Ask, entropy: u128) -> Result<Decided<Answer>, Refusal> {
    let (mut row, origin) = facts.open()?;
    check_interval(facts, &row, &ask.candidate)?;
    let outcome = course(facts, &row, ask)?;
    let mut standbys = Vec::new();
    match outcome {
        Outcome::Acquired => acquire(&mut row, &ask.candidate, entropy, facts.now),
        Outcome::Renewed => renew(&mut row, &ask.candidate, facts.now),
        Outcome::Standby => standbys.push(stand_by(facts, &row, &ask.candidate)?),
    }
    if outcome != Outcome::Standby && facts.standbys.iter().any(|s| s.candidate.uuid == ask.candidate.uuid) {
        standbys.push((ask.candidate.uuid.clone(), None));
    }
    standbys.extend(swept(facts, &ask.candidate.uuid));
    let answer = answer(facts, &row, &ask.candidate, outcome);
    Ok(Decided { writes: Writes { row: facts.changed(&row), origin, standbys }, answer })
}

fn check_interval(facts: &Facts, row: &RoleRow, candidate: &Candidate) -> Result<(), Refusal> {
    match candidate.interval.filter(|interval| *interval > row.settings.interval_max()) {
        None => Ok(()),
        Some(interval) => Err(Refusal::IntervalTooLong {
            role: facts.role.to_string(),
            interval_ms: interval.0,
            ttl_ms: row.settings.ttl.0,
        }),
    }
}

/// Which of the three it is.
///
/// Why there is never a second primary: a term begins only where none lives ([`RoleRow::live`] by the store's time), and
/// what is decided here counts only if the row has not changed meanwhile. A term that ran out goes on under its epoch only
/// while its row is still the last one: nobody was primary since, not even by a store that has been replaced.
fn course(facts: &Facts, row: &RoleRow, ask: &Ask) -> Result<Outcome, Refusal> {
    let (now, candidate) = (facts.now, &ask.candidate);
    if ask.token.is_some() && ask.token == row.released {
        // A heartbeat that was overtaken by its own release: who let go must not be made primary by it.
        return Err(facts.not_the_term(row));
    }
    let quiet = row.quiet_until > now;
    let live = row.live(now);
    if let Some(term) = row.term.as_ref().filter(|term| term.holder.uuid == candidate.uuid) {
        let proven = ask.token == Some(term.token);
        // Past a change of store the last epoch is another than the term's: somebody may have had the role since.
        let may_resume = candidate.ready && !term.step_down && term.epoch == row.epoch;
        if proven && (live.is_some() || may_resume) {
            return Ok(Outcome::Renewed);
        }
        if !proven && live.is_some() {
            return Err(Refusal::DuplicateIdentity {
                role: facts.role.to_string(),
                uuid: candidate.uuid.to_string(),
                remaining_ms: term.expires_at.since(now).0,
            });
        }
    }
    let free = live.is_none() && !quiet && candidate.ready;
    let grant = free && view::head_start(facts, row, candidate).is_none();
    Ok(if grant { Outcome::Acquired } else { Outcome::Standby })
}

fn acquire(row: &mut RoleRow, candidate: &Candidate, entropy: u128, now: Time) {
    row.epoch = Epoch(row.epoch.0.saturating_add(1));
    row.avoided = None;
    row.released = None;
    row.term = Some(Term {
        holder: candidate.clone(),
        token: Token(entropy.to_be_bytes()),
        epoch: row.epoch,
        granted_at: now,
        renewed_at: now,
        expires_at: now.after(row.settings.ttl),
        step_down: false,
    });
}

fn renew(row: &mut RoleRow, candidate: &Candidate, now: Time) {
    let ttl = row.settings.ttl;
    // Two renewals within one millisecond are two all the same.
    row.version += 1;
    if let Some(term) = &mut row.term {
        term.holder = candidate.clone();
        term.renewed_at = now;
        // A shorter time to live does not take back what the holder was told.
        term.expires_at = term.expires_at.max(now.after(ttl));
    }
}

fn stand_by(facts: &Facts, row: &RoleRow, candidate: &Candidate) -> Result<(Uuid, Option<StandbyRow>), Refusal> {
    let others = facts.fresh().filter(|standby| standby.candidate.uuid != candidate.uuid).count();
    if others >= limits::STANDBYS_MAX {
        let what = format!("role '{}' has {others} standbys already, which is the limit; stop one of them", facts.role);
        return Err(Refusal::OverLimit(what));
    }
    let expires_at = facts.now.after(row.settings.ttl);
    let standby = StandbyRow { candidate: candidate.clone(), seen_at: facts.now, expires_at };
    Ok((candidate.uuid.clone(), Some(standby)))
}

/// Standbys that are not counted on any more, a few at a time.
fn swept<'a>(facts: &'a Facts, but: &'a str) -> impl Iterator<Item = (Uuid, Option<StandbyRow>)> + 'a {
    let over = facts.standbys.iter().filter(|standby| !standby.is_fresh(facts.now));
    let over = over.map(|standby| standby.candidate.uuid.clone()).filter(move |uuid| **uuid != *but);
    over.take(limits::STANDBYS_SWEPT).map(|uuid| (uuid, None))
}

fn answer(facts: &Facts, row: &RoleRow, candidate: &Candidate, outcome: Outcome) -> Answer {
    let live = row.live(facts.now);
    let own = live.filter(|_| outcome != Outcome::Standby);
    let (reason, changes_in) = view::explain(facts, Some(row), Some(candidate));
    Answer {
        outcome,
        holder: live.map(|term| term.holder.uuid.clone()),
        address: live.and_then(|term| term.holder.address.clone()),
        epoch: live.map_or(row.epoch, |term| term.epoch),
        token: own.map(|term| term.token),
        ttl: row.settings.ttl,
        remaining: live.map_or(Millis(0), |term| term.expires_at.since(facts.now)),
        interval: candidate.interval_under(&row.settings),
        mode: row.settings.mode,
        step_down: own.is_some_and(|term| term.step_down),
        reason,
        changes_in,
    }
}
