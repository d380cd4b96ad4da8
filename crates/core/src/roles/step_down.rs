//! Step down: an operator asks the primary to release its term. The term stays its own until it releases it: work is
//! never cut off.

use super::facts::{Decided, Facts, Writes};
use super::refusal::Refusal;

/// Marks the live term; the answer to its holder's next heartbeat says so. Fails if the role is not known or has no
/// primary.
pub fn step_down(facts: &Facts) -> Result<Decided<()>, Refusal> {
    if facts.row.is_none() {
        return Err(Refusal::UnknownRole(facts.role.to_string()));
    }
    let (mut row, _) = facts.open()?;
    match row.term.as_mut().filter(|term| term.expires_at > facts.now) {
        None => Err(Refusal::NoPrimary(facts.role.to_string())),
        Some(term) => {
            term.step_down = true;
            Ok(Decided { writes: Writes { row: facts.changed(&row), ..Writes::default() }, answer: () })
        }
    }
}
