//! Release: on a clean stop the primary ends its term and a standby leaves. Waiting candidates can proceed at once.

use super::facts::{Decided, Facts, Writes};
use super::refusal::Refusal;
use super::slots::Run;
use crate::ids::{Epoch, Token};
use crate::names::{Slot, Uuid};
use crate::time::Millis;

/// What a releasing candidate was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Was {
    /// The holder of the last term.
    Primary,
    /// A standby.
    Standby,
    /// Neither: there was nothing to release.
    Nobody,
}

/// The answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released {
    /// What it was.
    pub was: Was,
    /// The last epoch of the role.
    pub epoch: Epoch,
}

/// Decides a release. It is bound to the term: the token of another term changes nothing. Idempotent. A slot that the
/// holder has run is recorded with it: see [`super::slots`]. Fails if the role is not known, or the token is not that
/// of the present term.
pub fn release(
    facts: &Facts,
    uuid: &Uuid,
    token: Option<Token>,
    slot: Option<&Slot>,
) -> Result<Decided<Released>, Refusal> {
    if facts.row.is_none() {
        return Err(Refusal::UnknownRole(facts.role.to_string()));
    }
    let (mut row, _) = facts.open()?;
    let not_the_term = facts.not_the_term(&row);
    let epoch = row.term.as_ref().map_or(row.epoch, |term| term.epoch);
    let mut writes = Writes::default();
    let mut was = Was::Nobody;
    if facts.standbys.iter().any(|standby| standby.candidate.uuid == *uuid) {
        writes.standbys.push((uuid.clone(), None));
        was = Was::Standby;
    }
    match row.term.take_if(|term| term.holder.uuid == *uuid) {
        Some(term) => {
            let over = term.expires_at <= facts.now;
            if token != Some(term.token) {
                // A standby with the uuid of an expired term may leave; it releases nothing.
                if over && was == Was::Standby && token.is_none() {
                    return Ok(Decided { writes, answer: Released { was, epoch } });
                }
                if !over && token.is_none() {
                    let (role, uuid) = (facts.role.to_string(), uuid.to_string());
                    let remaining_ms = term.expires_at.since(facts.now).0;
                    return Err(Refusal::TokenMissing { role, uuid, remaining_ms });
                }
                return Err(not_the_term);
            }
            // A primary that could continue after its term may have done so until now.
            let gone_on = term.agreement.goes_on > Millis(0);
            row.vacant_since = if gone_on { facts.now } else { term.expires_at.min(facts.now) };
            if let Some(slot) = slot {
                row.runs.record(Run { slot: slot.clone(), epoch: term.epoch, at: facts.now });
            }
            row.released = Some(term.token);
            row.avoided = term.step_down.then_some(term.holder.uuid);
            writes.row = facts.changed(&row);
            was = Was::Primary;
        }
        // The slot was run, by this caller or another, which is all it needs to know.
        None if slot.is_some_and(|slot| row.runs.of(slot).is_some()) => {}
        None if slot.is_some() => return Err(not_the_term),
        None if token.is_some() && token == row.released => was = Was::Primary,
        None if token.is_some() && was == Was::Nobody => return Err(not_the_term),
        None => {}
    }
    Ok(Decided { writes, answer: Released { was, epoch } })
}
