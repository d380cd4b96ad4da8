//! A role goes on above epochs that another store has granted, because those whom they fence out remember the highest one.

use super::facts::{Decided, Facts, Writes};
use super::refusal::Refusal;
use crate::ids::Epoch;

/// Decides that no epoch up to this one is granted any more; a role that is not known is made. A living term keeps its own,
/// which it renews under, and whoever comes after it has a higher one.
///
/// # Errors
/// If there are too many roles.
pub fn raise_epoch(facts: &Facts, least: Epoch) -> Result<Decided<()>, Refusal> {
    let (mut row, origin) = facts.open()?;
    row.epoch = row.epoch.max(least);
    Ok(Decided { writes: Writes { row: facts.changed(&row), origin, ..Writes::default() }, answer: () })
}
