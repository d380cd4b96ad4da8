//! Failures to make workers: back-off, and a breaker that opens after several in a row.

use super::chance::Chance;
use super::row::{Phase, Trouble};
use super::state::State;
use crate::limits::{BREAKER_FAILURES, MAKING_BACKOFF_BASE, MAKING_BACKOFF_MAX, MATCHES_AT_ONCE_MAX};
use crate::time::{Millis, Time};

impl State {
    /// Counts a failure.
    pub(super) fn count_failure(&mut self, why: &str, chance: &mut Chance<'_>) {
        let failures = self.pool.trouble.as_ref().map_or(0, |trouble| trouble.failures).saturating_add(1);
        let doubled = MAKING_BACKOFF_BASE.0.saturating_mul(1 << (failures - 1).min(20));
        let wait = chance.about(Millis(doubled.min(MAKING_BACKOFF_MAX.0)));
        let until = self.now.after(wait);
        self.pool.trouble =
            Some(Trouble { failures, reason: why.into(), at: self.now, next_making: self.pool.next_making, until });
        self.dirty.pool = true;
    }

    /// A worker that was made by the present recipe after the last failure works: so does the recipe. One that was made
    /// before proves nothing, because the image may have been deleted since.
    pub(super) fn prove_recipe(&mut self, made: Time, recipe_no: u32) {
        let after = self.pool.trouble.as_ref().is_some_and(|trouble| made > trouble.at);
        if after && recipe_no == self.pool.recipe_no {
            self.pool.trouble = None;
            self.dirty.pool = true;
        }
    }

    /// Whether nothing may be made now.
    pub(super) fn backs_off(&self) -> Option<&Trouble> {
        self.pool.trouble.as_ref().filter(|trouble| self.now < trouble.until)
    }

    /// Whether the breaker has opened. Once the back-off is over, one worker is tried.
    pub(super) fn is_broken(&self) -> bool {
        self.pool.trouble.as_ref().is_some_and(|trouble| trouble.failures >= BREAKER_FAILURES)
    }

    /// Whether those that wait need not wait: the breaker is open, and no worker is there or awaited.
    pub(super) fn is_hopeless(&self) -> bool {
        let lives = |phase: Phase| phase.is_making() || phase == Phase::Running;
        self.is_broken() && self.backs_off().is_some() && !self.workers.values().any(|worker| lives(worker.row.phase))
    }

    pub(super) fn hopeless_reason(&self) -> String {
        let Some(trouble) = &self.pool.trouble else { return String::new() };
        format!("no worker can be started; {} attempts failed, the last one: {}", trouble.failures, trouble.reason)
    }

    /// Fails those that wait for nothing.
    pub(super) fn fail_the_hopeless(&mut self) {
        let why = match () {
            () if self.pool.closing => "the pool is being deleted".to_owned(),
            () if self.is_hopeless() => self.hopeless_reason(),
            () => return,
        };
        for _ in 0..MATCHES_AT_ONCE_MAX {
            let Some(client) = self.queue.first() else { return };
            let Some(known) = self.matches.get(&client).cloned() else { return };
            self.fail_match(&client, known, &why);
        }
        self.more |= !self.queue.is_empty();
    }
}
