//! The store's time in this process: the timekeeper, the boot clock, and the notes about both for other nodes.
//!
//! **Notes.** While time leads the store's clock, each node notes both once a second, in one row for all nodes. A node knows that clock
//! only up to the time that its request took, so it notes a smaller lead than it has: a far node a much smaller one. The
//! greatest lead is therefore kept. With "the latest note is kept" this happened each second after a step back:
//!
//! 1. Near node N notes its lead, far node F a smaller one, later.
//! 2. N looks. Its lead is greater than the noted one, so other nodes may lag: its time is not steady (`Timekeeper::compare`), and
//!    it trusts no end of a lease.
//! 3. N notes its lead again, and F its smaller one, until the store has caught up.
//!
//! A note that is kept implies at least what the refused one would have said, at every reading of the store's clock.
//! It must not expire before another one is taken: from half its life on ([`KEPT_US`]) every note is. (N dies) (F's
//! note is refused, just before that) (F notes again, a second later): N's note has a second left.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::Notify;
use wayleave_core::time::Time;

use crate::timekeeper::{LEAN, Sample, Step, Timekeeper};

/// For so long a note keeps those of smaller leads out.
pub(crate) const KEPT_US: u64 = 2_000_000;
/// For so long a note is carried on.
const NOTE_US: u64 = 2 * KEPT_US;

/// The store's clock, as known to this process.
pub(crate) struct Clock {
    keeper: Mutex<Timekeeper>,
    /// Notified when there is something that other nodes must learn.
    pub(crate) news: Notify,
}

/// The time of a node that leads the store's clock, and that clock at the same moment: by the time that others read it, a
/// time alone would be too early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) at: Time,
    pub(crate) store: Time,
}

impl Note {
    /// That node's time when the store's clock shows `store_us`. It is extrapolated for as long as the note of a running node
    /// may be old. A store that was just loaded has a time without a clock.
    pub(crate) fn extrapolated_us(self, store_us: u64) -> u64 {
        if self.store == Time::ZERO {
            return self.at.0.saturating_mul(1_000);
        }
        let elapsed_us = store_us.saturating_sub(self.store.0.saturating_mul(1_000)).min(NOTE_US);
        self.at.0.saturating_mul(1_000).saturating_add(elapsed_us - elapsed_us / LEAN)
    }
}

impl Clock {
    /// Starts at the first response, but not before `floor_us`.
    pub(crate) fn start(first: Sample, floor_us: u64) -> Self {
        Self { keeper: Mutex::new(Timekeeper::new(first, floor_us)), news: Notify::new() }
    }

    /// The store's time.
    pub(crate) fn now(&self) -> Time {
        let keeper = self.lock();
        // Read under the lock, so that readings are in order.
        Time(keeper.at(boot_us()) / 1_000)
    }

    /// Since when the store's time has run evenly, as far as this process has watched.
    pub(crate) fn steady_since(&self) -> Time {
        Time(self.lock().steady_us().div_ceil(1_000))
    }

    /// Takes the store's clock from a response that has just arrived; its request was sent at `sent_us`.
    pub(crate) fn learn(&self, store_us: u64, sent_us: u64) {
        let arrived_us = boot_us();
        self.hear(|keeper| keeper.learn(Sample { store_us, sent_us, arrived_us }));
    }

    /// Raises time to at least that of another node.
    pub(crate) fn raise(&self, at_us: u64) {
        self.hear(|keeper| keeper.raise(at_us, boot_us()));
    }

    /// Compares the lead of this process with the one that an answer has shown as noted: see [`Timekeeper::compare`].
    pub(crate) fn compare(&self, noted_us: u64) {
        self.lock().compare(noted_us, boot_us());
    }

    fn hear(&self, hear: impl FnOnce(&mut Timekeeper) -> Option<Step>) {
        let mut keeper = self.lock();
        let led = keeper.lead(boot_us()).is_some();
        let step = hear(&mut keeper);
        let leads = keeper.lead(boot_us()).is_some();
        drop(keeper);
        if leads && !led {
            self.news.notify_one();
        }
        let Some(Step(step_us)) = step else { return };
        let step_ms = step_us / 1_000;
        if step_us < 0 {
            tracing::warn!(
                clock.step_ms = step_ms,
                "the database's clock stepped back; time goes on, a little slower until that clock has caught up: check \
                 the clocks of the database's machines"
            );
        } else {
            tracing::warn!(
                clock.step_ms = step_ms,
                "the database's clock stepped forward and time follows it; no role changes hands for one time to live: \
                 check the clocks of the database's machines"
            );
        }
    }

    /// The time of this node, if it leads the store's clock and others must know.
    pub(crate) fn note(&self) -> Option<Note> {
        let (at_us, store_us) = self.lock().lead(boot_us())?;
        Some(Note { at: Time(at_us / 1_000), store: Time(store_us.div_ceil(1_000)) })
    }

    fn lock(&self) -> MutexGuard<'_, Timekeeper> {
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// CLOCK_BOOTTIME in microseconds, which includes suspend.
pub(crate) fn boot_us() -> u64 {
    let boot = clock_gettime(ClockId::Boottime);
    let (secs, nanos) = (u64::try_from(boot.tv_sec).unwrap_or(0), u64::try_from(boot.tv_nsec).unwrap_or(0));
    secs * 1_000_000 + nanos / 1_000
}
