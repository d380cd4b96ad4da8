//! Deletes a role with its settings. Its epochs are kept: a new role of the same name continues above them, because the
//! systems they fence remember the highest one.

use super::facts::{Decided, Facts, Writes};
use super::refusal::Refusal;
use crate::settings::Change;

/// Decides a deletion. An expired term does not prevent it, even if its primary may continue by agreement: when a whole
/// fleet has died at once, only an operator can help. Fails if the role is not known, has a primary or a standby, or
/// may have a primary that this store does not know of.
pub fn delete(facts: &Facts) -> Result<Decided<()>, Refusal> {
    if facts.row.is_none() {
        return Err(Refusal::UnknownRole(facts.role.to_string()));
    }
    let (row, _) = facts.open()?;
    let in_use = |why: String| Err(Refusal::InUse { role: facts.role.to_string(), why });
    if let Some(term) = row.live(facts.now) {
        let left = term.expires_at.since(facts.now).in_words();
        return in_use(format!("'{}' is its primary for another {left}", term.holder.uuid));
    }
    if let Some(standby) = facts.fresh().next() {
        return in_use(format!("'{}' stands by", standby.candidate.uuid));
    }
    // An operator may override the continue time, but not the time for which a primary may certainly act.
    if facts.changed_until(&row) > facts.now.after(row.longest_to_go_on()) || facts.trusted_at(&row) > facts.now {
        let why = "its last primary may not know yet that its term is over: the store, its clock or this node has just changed";
        return in_use(why.into());
    }
    let mut origin = facts.origin.unwrap_or_default();
    origin.epoch = origin.epoch.max(row.epoch);
    origin.roles = origin.roles.saturating_sub(1);
    let standbys = facts.standbys.iter().map(|standby| (standby.candidate.uuid.clone(), None)).collect();
    Ok(Decided { writes: Writes { row: Change::Clear, origin: Some(origin), standbys }, answer: () })
}
