//! A term as the guarded work sees it: is it valid, until when, and must the work stop?

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::watch;
use wayleave_core::time::Millis;

use crate::clock::{Clock, Moment};
use crate::watchdog::Watch;

/// One term as primary. Only an election creates one; clones share it.
#[derive(Clone, Debug)]
pub struct Term(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    epoch: u64,
    uuid: String,
    clock: Arc<dyn Clock>,
    /// The end of the term, as a moment; zero once it has ended early.
    until: AtomicU64,
    /// Whether the work of the slot is done.
    slot_run: AtomicBool,
    stopping: watch::Sender<bool>,
    ends: watch::Sender<Moment>,
    /// The number of holds.
    holds: watch::Sender<usize>,
    /// The watchdog's entry, while the work may be running.
    watch: OnceLock<Weak<Watch>>,
}

/// Work that outlives the future of its term. As long as a hold exists, the term's work counts as running: the role is
/// neither released nor led again, and the watchdog watches it.
#[derive(Debug)]
pub struct Hold {
    term: Term,
    _watch: Option<Arc<Watch>>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.term.0.holds.send_modify(|holds| *holds = holds.saturating_sub(1));
    }
}

/// Permission for one guarded action now, in this epoch. Only [`Term::check`] creates one.
#[derive(Debug)]
pub struct Permit<'term> {
    term: &'term Term,
    left: Millis,
}

/// The term is over: this process is no longer primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the term with epoch {epoch} is over; stop, another may be primary")]
pub struct Over {
    /// The epoch of the term.
    pub epoch: u64,
}

impl Term {
    pub(crate) fn new(epoch: u64, until: Moment, uuid: &str, clock: Arc<dyn Clock>) -> Self {
        let (stopping, ends) = (watch::Sender::new(false), watch::Sender::new(until));
        let (until, slot_run) = (AtomicU64::new(until.0), AtomicBool::new(false));
        let (holds, watch) = (watch::Sender::new(0), OnceLock::new());
        Self(Arc::new(Inner { epoch, uuid: uuid.to_owned(), clock, until, slot_run, stopping, ends, holds, watch }))
    }

    /// The fencing token of this term: every write carries it.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.0.epoch
    }

    /// The uuid under which this process holds it.
    #[must_use]
    pub fn uuid(&self) -> &str {
        &self.0.uuid
    }

    /// The current end of the term, by this machine's boot clock.
    #[must_use]
    pub fn until(&self) -> Moment {
        Moment(self.0.until.load(Ordering::Acquire))
    }

    /// The remaining time; zero if the term is over.
    #[must_use]
    pub fn left(&self) -> Duration {
        Duration::from_millis(self.until().since(self.0.clock.now()).0)
    }

    /// Permission for one guarded action, if the term is valid by the clock *now*. It does not extend to later: a
    /// process may be paused between this check and the write, which is why the write carries the epoch. Fails if the
    /// term is over.
    pub fn check(&self) -> Result<Permit<'_>, Over> {
        let left = self.until().since(self.0.clock.now());
        if left.0 == 0 {
            return Err(Over { epoch: self.epoch() });
        }
        Ok(Permit { term: self, left })
    }

    /// Marks the work of the slot as done ([`Options::slot`](crate::Options::slot)). The release that follows the end
    /// of the work records it; the election's result says whether it did.
    pub fn mark_slot_run(&self) {
        self.0.slot_run.store(true, Ordering::Release);
    }

    pub(crate) fn is_slot_run(&self) -> bool {
        self.0.slot_run.load(Ordering::Acquire)
    }

    /// Waits until the work must stop; the remaining term is for finishing.
    pub async fn stopping(&self) {
        _ = self.0.stopping.subscribe().wait_for(|stopping| *stopping).await;
    }

    /// Keeps the term's work counted as running after its future has ended or was cancelled: for processes and threads
    /// that may survive it. Drop the hold when they are gone.
    #[must_use]
    pub fn hold(&self) -> Hold {
        self.0.holds.send_modify(|holds| *holds += 1);
        Hold { term: self.clone(), _watch: self.0.watch.get().and_then(Weak::upgrade) }
    }

    /// Waits until there is no hold.
    pub(crate) async fn let_go(&self) {
        _ = self.0.holds.subscribe().wait_for(|holds| *holds == 0).await;
    }

    pub(crate) fn set_watch(&self, watch: &Arc<Watch>) {
        _ = self.0.watch.set(Arc::downgrade(watch));
    }

    /// The end of the term, each time it moves.
    #[must_use]
    pub fn ends(&self) -> watch::Receiver<Moment> {
        self.0.ends.subscribe()
    }

    pub(crate) fn move_end(&self, until: Moment) {
        // A term that has been ended stays ended.
        let moved = |old: u64| (old != 0).then_some(until.0);
        if self.0.until.fetch_update(Ordering::AcqRel, Ordering::Acquire, moved).is_ok() {
            self.0.ends.send_replace(until);
        }
    }

    pub(crate) fn ask_to_stop(&self) {
        self.0.stopping.send_replace(true);
    }

    pub(crate) fn end(&self) {
        self.0.until.store(0, Ordering::Release);
        self.ask_to_stop();
    }
}

impl Permit<'_> {
    /// The epoch to send along.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.term.epoch()
    }

    /// The remaining time at the check: an upper bound for the timeout of the guarded call.
    #[must_use]
    pub const fn left(&self) -> Millis {
        self.left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::BootClock;

    #[test]
    fn a_term_expires_by_the_clock_without_a_message() {
        let clock = Arc::new(BootClock);
        let long = Term::new(7, clock.now().after(Millis(60_000)), "me", clock.clone());
        assert_eq!(long.check().unwrap().epoch(), 7);
        assert!(long.check().unwrap().left() > Millis(50_000));
        let past = Term::new(8, clock.now(), "me", clock);
        assert_eq!(past.check().unwrap_err(), Over { epoch: 8 });
    }

    #[test]
    fn a_late_acknowledgement_does_not_bring_an_ended_term_back() {
        let clock = Arc::new(BootClock);
        let term = Term::new(7, clock.now().after(Millis(60_000)), "me", clock.clone());
        term.end();
        term.move_end(clock.now().after(Millis(60_000)));
        assert!(term.check().is_err());
    }
}
