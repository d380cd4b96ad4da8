//! Admission control for puts: while a worker waits for a visit, an owner leaves new URLs in its inbox. A worker is
//! blocked on every visit, and results must get through as well, whereas a stream of new URLs only takes a little longer.
//! Where the cores are saturated by ingest, a visit that queues behind puts takes many times its own cost (tail latency).
//!
//! Puts are held back for a bounded time, and then flow for at least as long: under any number of visits they keep half
//! of the time.
//!
//! Two more parts put visits before puts: the inbox gives out calls before puts (`owner/inbox.rs`), and while visits are
//! requested ([`Admission::is_used`]) a gRPC stream hands its puts over in small batches. Each was switched off and
//! measured; bench/README.md has the figures. Holding puts back at the router too, and shorter turns of the owner, made
//! no difference and are gone.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::message::Message;

/// After a visit another one is expected for this long.
const LATELY: Duration = Duration::from_millis(200);

/// The admission control of one process.
pub(crate) struct Admission {
    put_pause_max: Duration,
    began: Instant,
    /// Time of the last visit request, in milliseconds since `began`; 0 if none.
    last_visit: AtomicU64,
    /// Mirrors the state, for checks without the lock.
    holding: AtomicBool,
    state: Mutex<State>,
    /// Notified when puts may proceed.
    over: Notify,
}

#[derive(Default)]
struct State {
    /// Visits in progress.
    visits: usize,
    /// Since when puts are held back.
    since: Option<Instant>,
    /// Until then puts proceed, whatever visits are waiting.
    free_until: Option<Instant>,
}

/// A visit in progress; ends when dropped.
pub(crate) struct Awaited<'a>(&'a Admission);

impl Admission {
    /// Holds puts back for at most `put_pause_max` at a time; zero turns admission control off.
    pub fn new(put_pause_max: Duration) -> Self {
        Self {
            put_pause_max,
            began: Instant::now(),
            last_visit: AtomicU64::new(0),
            holding: AtomicBool::new(false),
            state: Mutex::default(),
            over: Notify::new(),
        }
    }

    /// Registers a visit in progress, until the guard is dropped.
    pub fn await_visit(&self) -> Awaited<'_> {
        let now = Instant::now();
        self.last_visit.store(self.millis(now), Ordering::Relaxed);
        let mut state = self.lock();
        state.visits += 1;
        let free = state.free_until.is_some_and(|until| now < until);
        if !free && !self.put_pause_max.is_zero() && state.since.is_none() {
            state.since = Some(now);
            self.holding.store(true, Ordering::Release);
        }
        Awaited(self)
    }

    /// Whether a visit was requested recently.
    pub fn is_used(&self) -> bool {
        let last = self.last_visit.load(Ordering::Relaxed);
        !self.put_pause_max.is_zero()
            && last > 0
            && self.millis(Instant::now()).saturating_sub(last) < LATELY.as_millis() as u64
    }

    fn millis(&self, now: Instant) -> u64 {
        1 + now.duration_since(self.began).as_millis() as u64
    }

    /// The latest time until which a message is held back; `None` if it may proceed.
    pub fn held_until(&self, message: &Message) -> Option<Instant> {
        match message {
            Message::Put { items, .. } if items.iter().any(|(_, put)| put.kind.is_new()) => self.until(),
            _ => None,
        }
    }

    /// Waits until puts may proceed, at the latest `until`.
    pub async fn wait(&self, until: Instant) {
        let over = self.over.notified();
        if self.holding.load(Ordering::Acquire) {
            _ = tokio::time::timeout_at(until, over).await;
        }
    }

    fn until(&self) -> Option<Instant> {
        if !self.holding.load(Ordering::Acquire) {
            return None;
        }
        let mut state = self.lock();
        let until = state.since? + self.put_pause_max;
        let now = Instant::now();
        if now < until {
            return Some(until);
        }
        self.go_on(&mut state, now);
        None
    }

    fn go_on(&self, state: &mut State, now: Instant) {
        if let Some(since) = state.since.take() {
            state.free_until = Some(now + now.duration_since(since));
            self.holding.store(false, Ordering::Release);
            self.over.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.visits = state.visits.saturating_sub(1);
        if state.visits == 0 {
            self.0.go_on(&mut state, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::sync::mpsc;
    use wayleave_core::frontier::request::{Put, PutKind};

    use super::*;
    use crate::message::{new_url, put_of};

    const MS: Duration = Duration::from_millis(1);

    fn message(put: Put) -> Message {
        Message::Put { items: vec![(0, put)], sink: mpsc::unbounded_channel().0 }
    }

    #[tokio::test(start_paused = true)]
    async fn new_urls_stand_while_a_visit_is_waited_for() {
        let admission = Admission::new(20 * MS);
        let new = message(new_url());
        assert!(admission.held_until(&new).is_none() && !admission.is_used());
        let visit = admission.await_visit();
        let until = admission.held_until(&new).expect("a visit is waited for");
        assert!(admission.is_used());
        assert!(
            admission.held_until(&message(put_of(PutKind::Known { due: None }))).is_none(),
            "reports of pages never do"
        );
        let mut clear = std::pin::pin!(admission.wait(until));
        assert!(clear.as_mut().now_or_never().is_none());
        tokio::time::advance(3 * MS).await;
        drop(visit);
        assert!(admission.held_until(&new).is_none());
        clear.await;
        tokio::time::advance(LATELY).await;
        assert!(!admission.is_used());
    }

    #[tokio::test(start_paused = true)]
    async fn puts_go_on_for_as_long_as_they_stood() {
        let admission = Admission::new(20 * MS);
        let new = message(new_url());
        let (long, short) = (admission.await_visit(), admission.await_visit());
        drop(short);
        while let Some(until) = admission.held_until(&new) {
            admission.wait(until).await;
        }
        let held_for = Instant::now() - admission.began;
        assert!(held_for >= 20 * MS && held_for < 25 * MS, "another visit is still waited for: {held_for:?}");
        drop(long);
        let at_once = admission.await_visit();
        assert!(admission.held_until(&new).is_none(), "now it is their time");
        drop(at_once);
        tokio::time::advance(25 * MS).await;
        let _later = admission.await_visit();
        assert!(admission.held_until(&new).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn with_no_time_to_stand_nobody_does() {
        let admission = Admission::new(Duration::ZERO);
        let _visit = admission.await_visit();
        assert!(admission.held_until(&message(new_url())).is_none() && !admission.is_used());
    }
}
