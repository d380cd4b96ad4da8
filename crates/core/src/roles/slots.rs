//! Slots: scheduled work to be run once, on whichever machine gets to it. A slot is a name, such as a date. A role
//! remembers the slots that were run, and a candidate that asks for one of those learns so and is never granted the
//! role.
//!
//! The record changes in one way only: the holder of a term releases it and names the slot, in the same
//! compare-and-swap of the same row. Interleavings that could run a slot twice, and why they do not:
//!
//! - *Two machines start at once.* Both want the same term; one gets it. The other is granted a term only after the
//!   first one has ended, and the write that ended it by a release records the slot.
//! - *The release and the grant to a standby race.* Both replace the row that they read, so one of them is decided
//!   again: the grant then sees the slot, or the release finds that the term is another's and is refused.
//! - *The answer to the release is lost.* It is retried: the token of the last released term, or the slot in the row,
//!   shows that it was applied.
//! - *A heartbeat is overtaken by its own release.* Its token is refused and it starts no term.
//! - *A machine comes late, after other slots.* The last [`limits::ROLE_SLOTS_KEPT`] slots are remembered, not just
//!   one.
//! - *A runner is paused past its term.* Its command is killed before the term ends; its token no longer names a term.
//!
//! A slot *is* run again if its run left no record: the command failed or was stopped, its machine died, or no server
//! heard of its end before another candidate was granted the role. Such a run looks like one that died just before
//! its end. A store that lost acknowledged writes may have lost a record too, and deleting the role forgets all of
//! them.

use std::collections::VecDeque;

use super::row::RoleRow;
use crate::ids::Epoch;
use crate::limits;
use crate::names::Slot;
use crate::time::Time;

/// A slot that was run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its name.
    pub slot: Slot,
    /// The term in which it was run.
    pub epoch: Epoch,
    /// When that was recorded.
    pub at: Time,
}

/// The slots that a role remembers, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs(pub VecDeque<Run>);

impl Runs {
    /// The run of a slot, if it is remembered.
    #[must_use]
    pub fn of(&self, slot: &str) -> Option<&Run> {
        self.0.iter().find(|run| *run.slot == *slot)
    }

    /// The latest run.
    #[must_use]
    pub fn last(&self) -> Option<&Run> {
        self.0.back()
    }

    /// Records a run, and drops the oldest beyond the limit. A slot that is already recorded stays as it is.
    pub(super) fn record(&mut self, run: Run) {
        if self.of(&run.slot).is_some() {
            return;
        }
        self.0.push_back(run);
        while self.0.len() > limits::ROLE_SLOTS_KEPT {
            self.0.pop_front();
        }
    }

    /// Whether `after` may follow in a row: nothing changed, or the holder of `before`'s term released it with one more
    /// run.
    #[must_use]
    pub(crate) fn may_become(before: &RoleRow, after: &RoleRow) -> bool {
        let (old, new) = (&before.runs.0, &after.runs.0);
        if old == new {
            return true;
        }
        let Some((run, kept)) = new.iter().next_back().map(|run| (run, new.len() - 1)) else { return false };
        let grown = old.iter().skip(old.len().saturating_sub(kept)).eq(new.iter().take(kept));
        let forgets = old.len() > kept && new.len() < limits::ROLE_SLOTS_KEPT;
        let own = before.term.as_ref().is_some_and(|term| term.epoch == run.epoch) && after.term.is_none();
        own && grown && !forgets && before.runs.of(&run.slot).is_none()
    }
}
