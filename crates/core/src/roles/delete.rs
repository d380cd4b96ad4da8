//! A role is taken away, with its settings. Its epochs are not: a role of the same name goes on above them, because those
//! whom they fence out remember the highest one.

use super::facts::{Decided, Facts, Writes};
use super::refusal::Refusal;
use crate::settings::Change;

/// Decides a deletion. A term that ran out does not prevent it, though its primary may go on by agreement: where a whole fleet has
/// died at once, the word of an operator is all that helps.
///
/// # Errors
/// If the role is not known, or somebody has it, stands by, or may have it without this store's knowledge.
pub fn delete(facts: &Facts) -> Result<Decided<()>, Refusal> {
    if facts.row.is_none() {
        return Err(Refusal::UnknownRole(facts.role.to_string()));
    }
    let (row, _) = facts.open()?;
    let in_use = |why: String| Err(Refusal::InUse { role: facts.role.to_string(), why });
    if let Some(term) = row.live(facts.now) {
        let left = term.expires_at.since(facts.now).told();
        return in_use(format!("'{}' is its primary for another {left}", term.holder.uuid));
    }
    if let Some(standby) = facts.fresh().next() {
        return in_use(format!("'{}' stands by", standby.candidate.uuid));
    }
    // What an operator may pass over is the time for which a primary may go on, not that for which one may surely act.
    if row.quiet_until > facts.now.after(row.longest_to_go_on()) {
        return in_use("another store has stepped in and may have lost who its primary is".into());
    }
    let mut origin = facts.origin.unwrap_or_default();
    origin.epoch = origin.epoch.max(row.epoch);
    origin.roles = origin.roles.saturating_sub(1);
    let standbys = facts.standbys.iter().map(|standby| (standby.candidate.uuid.clone(), None)).collect();
    Ok(Decided { writes: Writes { row: Change::Clear, origin: Some(origin), standbys }, answer: () })
}
