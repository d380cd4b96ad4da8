//! Raises a role's epoch above those granted by another store, because the systems they fence remember the highest one.

use super::facts::{Decided, Facts, Writes};
use super::refusal::Refusal;
use crate::ids::Epoch;

/// Decides that no epoch up to this one is granted any more; creates the role if necessary. A live term keeps its
/// epoch, under which it renews; its successor gets a higher one. Fails if there are too many roles.
pub fn raise_epoch(facts: &Facts, least: Epoch) -> Result<Decided<()>, Refusal> {
    let (mut row, origin) = facts.open()?;
    row.epoch = row.epoch.max(least);
    Ok(Decided { writes: Writes { row: facts.changed(&row), origin, ..Writes::default() }, answer: () })
}
