//! Merges around damage: chooses what can be merged beside damaged tables.
//!
//! A level is *stuck* if a merge has met damage in it, or if it has several runs: the strategy of the tree would take only the
//! first of them, and drop tombstones over older rows in the others. Stuck levels are left as they are, and new tables are
//! merged in the levels above, each level into the next one. Stores below some terabytes have such levels above every
//! stuck one. If there are none, because the damage is in a new table, all tables of its level move, in order, onto
//! the next level that has tables.
//!
//! Newer rows stay above older ones, because a step takes whole levels and passes over no table. Tombstones stay, because only a
//! merge into the last level drops them; so a full merge, which is possible once nothing is damaged, removes them.

use crate::lsm::TABLE_BYTES;
use crate::tables::YOUNG_TABLES_DUE;

/// The tree counts the runs of a level in one byte.
const RUNS_MAX: usize = 200;
/// The first level grows to this size, each of the next ones to ten times that of the one above.
const FIRST_BYTES: u64 = TABLE_BYTES * YOUNG_TABLES_DUE as u64;

/// A level of the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Level {
    /// Sequences of tables that do not overlap, the newest first.
    pub(crate) runs: usize,
    pub(crate) bytes: u64,
    /// Whether a merge has met damage in it.
    pub(crate) is_damaged: bool,
}

/// What to do next while a level is stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Merge all tables of two levels into the second.
    Merge { from: u8, to: u8 },
    /// Move all tables of a level above those of another.
    Move { from: u8, to: u8 },
    /// No merge is due.
    Nothing,
    /// New tables can only pile up.
    Stuck,
}

/// What to do next; `None` if no level is stuck.
pub(crate) fn next_step(levels: &[Level]) -> Option<Step> {
    let stuck = levels.iter().enumerate().position(|(at, level)| level.is_damaged || at > 0 && level.runs > 1)?;
    let level = |at: usize| levels.get(at).copied().unwrap_or_default();
    let number = |at: usize| u8::try_from(at).unwrap_or(u8::MAX);
    if stuck <= 1 {
        let below = (stuck + 1..levels.len()).find(|at| level(*at).runs > 0);
        let to = match below {
            // The tree puts all moved tables into one run, and divides that only where it meets others.
            None if level(stuck).runs == 1 => levels.len().saturating_sub(1),
            Some(to) if level(stuck).runs + level(to).runs <= RUNS_MAX => to,
            _ => return Some(Step::Stuck),
        };
        return Some(if to > stuck { Step::Move { from: number(stuck), to: number(to) } } else { Step::Stuck });
    }
    let is_over =
        |at: &usize| level(*at).bytes > FIRST_BYTES.saturating_mul(10u64.saturating_pow(u32::from(number(at - 1))));
    let over = (1..stuck - 1).rev().find(is_over);
    let due = over.or_else(|| (level(0).runs >= usize::from(YOUNG_TABLES_DUE)).then_some(0));
    Some(due.map_or(Step::Nothing, |from| Step::Merge { from: number(from), to: number(from + 1) }))
}

/// The most bytes that the next step can write; `None` if no level is stuck.
pub(crate) fn next_merge_bytes(levels: &[Level]) -> Option<u64> {
    let bytes = |at: u8| levels.get(usize::from(at)).map_or(0, |level| level.bytes);
    match next_step(levels)? {
        Step::Merge { from, to } => Some(bytes(from) + bytes(to)),
        Step::Nothing => Some(bytes(0) + bytes(1)),
        Step::Move { .. } | Step::Stuck => Some(0),
    }
}

#[cfg(test)]
#[path = "around_tests.rs"]
mod tests;
