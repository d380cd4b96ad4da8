//! Heartbeat: acquire the role, renew the term, or stand by. One call does all three, so no candidate acts on a stale
//! read.
//!
//! The primary is the holder of the last granted term, as long as its deadline has not passed by the store's time.

use std::net::IpAddr;

use super::continue_mode::{self, Agreement, Bid, GoingOn, LastTerm};
use super::facts::{Decided, Facts, Writes};
use super::refusal::Refusal;
use super::row::{Candidate, Mode, RoleRow, StandbyRow, Term};
use super::slots::Run;
use super::view;
use crate::ids::{Epoch, Token};
use crate::limits;
use crate::names::{Slot, Uuid};
use crate::time::{Millis, Time};

/// A candidate's heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeartbeatCall {
    /// Itself.
    pub candidate: Candidate,
    /// The token of its term, if it has been given one.
    pub token: Option<Token>,
    /// From an acting primary: the last version it received, if any.
    pub heard: Option<u64>,
    /// From a standby: take over this term, if it is still the last one and has not been renewed.
    pub take_over: Option<Bid>,
    /// The slot that it wants to run. The role is not granted for a slot that has been run.
    pub slot: Option<Slot>,
    /// The address that it came from, if that is known.
    pub from: Option<IpAddr>,
}

/// Result of a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// A new term started.
    Acquired,
    /// The term was renewed.
    Renewed,
    /// It stands by.
    Standby,
}

/// The answer to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeartbeatReply {
    /// The result; the candidate is primary unless it stands by.
    pub outcome: Outcome,
    /// The primary's uuid.
    pub holder: Option<Uuid>,
    /// The primary's address.
    pub address: Option<std::sync::Arc<str>>,
    /// The epoch of the live term; without one, the last epoch.
    pub epoch: Epoch,
    /// The term's secret, sent to its primary only.
    pub token: Option<Token>,
    /// The role's time to live.
    pub ttl: Millis,
    /// Remaining validity of the live term, by the store's time.
    pub remaining: Millis,
    /// The heartbeat interval to use.
    pub interval: Millis,
    /// What to do when the store cannot be reached.
    pub mode: Mode,
    /// An operator asks this primary to step down.
    pub step_down: bool,
    /// The role's state, in a sentence.
    pub reason: String,
    /// When that changes by time alone.
    pub changes_in: Option<Millis>,
    /// For the primary: whose agreement lets it continue after its term.
    pub going_on: Option<GoingOn>,
    /// For a standby: the term it could take over with an explicit request.
    pub last: Option<LastTerm>,
    /// How the requested slot was run, if it was.
    pub ran: Option<Run>,
}

/// Decides a heartbeat. `entropy` becomes the token if a term starts. Fails if the candidate's heartbeats are too rare,
/// its uuid is the primary's without the token, or there are too many roles or standbys.
pub fn heartbeat(facts: &Facts, ask: &HeartbeatCall, entropy: u128) -> Result<Decided<HeartbeatReply>, Refusal> {
    let (mut row, origin) = facts.open()?;
    check_interval(facts, &row, &ask.candidate)?;
    let outcome = course(facts, &row, ask)?;
    let mut standbys = Vec::new();
    match outcome {
        Outcome::Acquired => acquire(&mut row, &ask.candidate, entropy, facts.now),
        Outcome::Renewed => renew(facts, &mut row, ask),
        // A candidate whose slot has been run has nothing left to do and is not counted as a standby.
        Outcome::Standby if ran(&row, ask).is_some() => {}
        Outcome::Standby => standbys.push(stand_by(facts, &mut row, ask)?),
    }
    if outcome != Outcome::Standby && facts.standbys.iter().any(|s| s.candidate.uuid == ask.candidate.uuid) {
        standbys.push((ask.candidate.uuid.clone(), None));
    }
    standbys.extend(swept(facts, &row, &ask.candidate.uuid, outcome));
    let mut answer = answer(facts, &row, ask, outcome);
    answer.going_on = row.term.as_ref().filter(|_| outcome == Outcome::Renewed && row.has_members()).map(|_| GoingOn {
        version: row.version,
        goes_on: row.settings.goes_on(),
        members: continue_mode::members(facts, &ask.candidate.uuid, &standbys),
    });
    Ok(Decided { writes: Writes { row: facts.changed(&row), origin, standbys }, answer })
}

/// How the requested slot was run, if it was.
fn ran<'a>(row: &'a RoleRow, ask: &HeartbeatCall) -> Option<&'a Run> {
    row.runs.of(ask.slot.as_deref()?)
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

/// Decides between the three outcomes.
///
/// Why there is never a second primary: a term starts only where none is live ([`RoleRow::live`] by the store's time),
/// and the decision takes effect only if the row has not changed (compare-and-swap). An expired term is renewed under
/// its epoch only while its row is still the last one: no other primary was granted since, not even by a store that
/// has been replaced. A term whose primary may continue ([`going_on`]) is taken over only by a member that the
/// primary must have asked, and only in the state in which that member saw it: a request that was overtaken by a
/// renewal is void. A primary that still acts by such an agreement proves that there was no takeover, in any store.
fn course(facts: &Facts, row: &RoleRow, ask: &HeartbeatCall) -> Result<Outcome, Refusal> {
    let (now, candidate) = (facts.now, &ask.candidate);
    if ask.token.is_some() && ask.token == row.released {
        // A heartbeat overtaken by its own release: it must not make the released candidate primary again.
        return Err(facts.not_the_term(row));
    }
    let quiet = facts.quiet_until(row) > now;
    let live = row.live(now);
    if let Some(term) = row.term.as_ref().filter(|term| term.holder.uuid == candidate.uuid) {
        let proven = ask.token == Some(term.token);
        // After a change of store the last epoch differs from the term's: another process may have been primary since.
        let acts = ask.heard.is_some() && term.agreement.goes_on > Millis(0);
        let may_resume = candidate.ready && !term.step_down && (term.epoch == row.epoch || acts);
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
    let bid = facts.going_on(row).is_none_or(|(term, _)| ask.take_over == Some(term.bid()));
    let free =
        live.is_none() && !quiet && candidate.ready && bid && continue_mode::barred(facts, row, candidate).is_none();
    let grant = free && ran(row, ask).is_none() && view::head_start(facts, row, candidate).is_none();
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
        agreement: Agreement::default(),
    });
}

/// Renews the term, but for no less than its holder may still rely on. The time to live was 60 s and is 5 s now:
///
/// 1. A is granted the role for 60 s. The store's clock steps forward by 50 s: the term ends in 10 s by that clock,
///    in 60 s by A's.
/// 2. A renews, and the answer is lost: A still relies on 60 s. The row shows that it was renewed after the step, so other nodes
///    trust the end of the term from now on ([`Facts::trusted_at`]).
/// 3. A is cut off. At the end of the term B is granted the role, 50 s too early.
///
/// So the first renewal after a step moves the end of the term to when it would have been trusted without the renewal.
fn renew(facts: &Facts, row: &mut RoleRow, ask: &HeartbeatCall) {
    let (now, trusted_at) = (facts.now, facts.trusted_at(row));
    let (ttl, goes_on) = (row.settings.ttl, row.settings.goes_on());
    // Two renewals within one millisecond must still differ.
    row.version += 1;
    let Some(term) = &mut row.term else { return };
    term.holder = ask.candidate.clone();
    term.renewed_at = now;
    // A shorter time to live does not shorten the term that the holder was granted. Where others may request the term
    // as they saw it, every renewal must be visible.
    let shows = if term.agreement.goes_on > Millis(0) { term.expires_at.after(Millis(1)) } else { term.expires_at };
    term.expires_at = shows.max(now.after(ttl)).max(trusted_at);
    let counts_from = term.agreement.counts_from;
    term.agreement.announce(goes_on, ask.heard, row.version);
    if counts_from > 0 && ask.heard.is_some_and(|heard| heard >= counts_from) {
        // It acts by a grant of this very store: whatever another store may have lost, there is no other primary.
        (row.quiet_until, row.quiet_for) = (row.quiet_until.min(now), Millis(0));
    }
}

fn stand_by(facts: &Facts, row: &mut RoleRow, ask: &HeartbeatCall) -> Result<(Uuid, Option<StandbyRow>), Refusal> {
    let HeartbeatCall { candidate, from, .. } = ask;
    let mine = |standby: &&StandbyRow| standby.candidate.uuid == candidate.uuid;
    let others = facts.fresh().filter(|standby| !mine(standby)).count();
    let known = facts.standbys.iter().find(mine);
    // A standby that could not be read with the others would be missing from the list sent to the primary.
    let unread = known.is_none() && row.has_members() && facts.standbys.len() >= limits::STANDBYS_READ;
    if others >= limits::STANDBYS_MAX || unread {
        let what = format!("role '{}' has {others} standbys already, which is the limit; stop one of them", facts.role);
        return Err(Refusal::OverLimit(what));
    }
    // A restarted candidate with another peer address may not remember its earlier promises.
    let same = known.filter(|standby| standby.candidate.peer == candidate.peer);
    let joined = match same.map_or(0, |standby| standby.joined) {
        _ if !row.has_members() => 0,
        0 => {
            row.version += 1;
            row.version
        }
        joined => joined,
    };
    let expires_at = facts.now.after(row.settings.ttl);
    let standby = StandbyRow { candidate: candidate.clone(), from: *from, seen_at: facts.now, expires_at, joined };
    Ok((candidate.uuid.clone(), Some(standby)))
}

/// Expired standbys, a few at a time. Those that could take over a term whose primary may continue are removed only by
/// that primary's own heartbeats: however long no store answers, they stay.
fn swept<'a>(
    facts: &'a Facts,
    row: &'a RoleRow,
    but: &'a str,
    outcome: Outcome,
) -> impl Iterator<Item = (Uuid, Option<StandbyRow>)> + 'a {
    let kept = move |standby: &StandbyRow| outcome == Outcome::Standby && row.is_heard(standby);
    let over = facts.standbys.iter().filter(move |standby| !standby.is_fresh(facts.now) && !kept(standby));
    let over = over.map(|standby| standby.candidate.uuid.clone()).filter(move |uuid| **uuid != *but);
    over.take(limits::STANDBYS_SWEPT).map(|uuid| (uuid, None))
}

fn answer(facts: &Facts, row: &RoleRow, ask: &HeartbeatCall, outcome: Outcome) -> HeartbeatReply {
    let (candidate, ran) = (&ask.candidate, ran(row, ask));
    let live = row.live(facts.now);
    let own = live.filter(|_| outcome != Outcome::Standby);
    let (mut reason, mut changes_in) = view::explain(facts, Some(row), Some(candidate));
    if let Some(run) = ran {
        let (slot, epoch, ago) = (&run.slot, run.epoch.0, facts.now.since(run.at).in_words());
        reason = format!("slot '{slot}' was run in epoch {epoch}, {ago} ago; there is nothing left to do; {reason}");
        changes_in = None;
    }
    HeartbeatReply {
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
        going_on: None,
        last: row.term.as_ref().filter(|term| outcome == Outcome::Standby && term.agreement.goes_on > Millis(0)).map(
            |term| LastTerm {
                term: term.bid(),
                remaining: term.expires_at.since(facts.now),
                take_over: ran.is_none() && view::may_take_over(facts, row, candidate),
            },
        ),
        ran: ran.cloned(),
    }
}
