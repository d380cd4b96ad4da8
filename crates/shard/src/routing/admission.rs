//! Right of way: while somebody waits for a visit, new URLs stand. Whoever fetches pages waits for every visit, and reports
//! of pages go on as well; a stream of new URLs only takes a little longer. Where the cores are busy with URLs coming in, a
//! visit that has to wait its turn at every step takes many times as long as its work.
//!
//! New URLs never stand for longer than a bound, and afterwards they go on for as long as they stood: with any number of
//! visitors they keep half of the time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use wayleave_core::frontier::request::Put;

use crate::message::Message;

/// A visit is likely to be followed by another one for so long.
const LATELY: Duration = Duration::from_millis(200);

/// Who goes first in one process.
pub(crate) struct Admission {
    stand_max: Duration,
    began: Instant,
    /// When the last visit was asked for, in milliseconds since then; 0 if never.
    last_visit: AtomicU64,
    /// What the state says, to be looked at without a lock.
    standing: AtomicBool,
    state: Mutex<State>,
    /// Told when puts may go on.
    over: Notify,
}

#[derive(Default)]
struct State {
    /// Visits that are being waited for.
    visits: usize,
    /// Since when puts stand.
    since: Option<Instant>,
    /// Until then they go on whatever is waited for.
    free_until: Option<Instant>,
}

/// A visit that is being waited for.
pub(crate) struct Awaited<'a>(&'a Admission);

impl Admission {
    /// Puts stand for so long at a time, at most; never, if it is zero.
    pub fn new(stand_max: Duration) -> Self {
        Self {
            stand_max,
            began: Instant::now(),
            last_visit: AtomicU64::new(0),
            standing: AtomicBool::new(false),
            state: Mutex::default(),
            over: Notify::new(),
        }
    }

    /// A visit is waited for until the answer is dropped.
    pub fn await_visit(&self) -> Awaited<'_> {
        let now = Instant::now();
        self.last_visit.store(self.millis(now), Ordering::Relaxed);
        let mut state = self.lock();
        state.visits += 1;
        let free = state.free_until.is_some_and(|until| now < until);
        if !free && !self.stand_max.is_zero() && state.since.is_none() {
            state.since = Some(now);
            self.standing.store(true, Ordering::Release);
        }
        Awaited(self)
    }

    /// Whether a visit has been asked for lately.
    pub fn is_used(&self) -> bool {
        let last = self.last_visit.load(Ordering::Relaxed);
        !self.stand_max.is_zero()
            && last > 0
            && self.millis(Instant::now()).saturating_sub(last) < LATELY.as_millis() as u64
    }

    fn millis(&self, now: Instant) -> u64 {
        1 + now.duration_since(self.began).as_millis() as u64
    }

    /// Until when a message has to stand, at most; none if it may go on.
    pub fn stands(&self, message: &Message) -> Option<Instant> {
        match message {
            Message::Put { items, .. } => self.holds_up(items),
            _ => None,
        }
    }

    /// Waits until puts may go on.
    pub async fn clear(&self, puts: &[(u64, Put)]) {
        while let Some(until) = self.holds_up(puts) {
            self.over(until).await;
        }
    }

    fn holds_up(&self, puts: &[(u64, Put)]) -> Option<Instant> {
        let until = self.until()?;
        puts.iter().any(|(_, put)| put.kind.is_new()).then_some(until)
    }

    /// Waits until puts may go on, which is no later than `until`.
    pub async fn over(&self, until: Instant) {
        let over = self.over.notified();
        if self.standing.load(Ordering::Acquire) {
            _ = tokio::time::timeout_at(until, over).await;
        }
    }

    fn until(&self) -> Option<Instant> {
        if !self.standing.load(Ordering::Acquire) {
            return None;
        }
        let mut state = self.lock();
        let until = state.since? + self.stand_max;
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
            self.standing.store(false, Ordering::Release);
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
    use wayleave_core::frontier::request::PutKind;

    use super::*;
    use crate::message::{new_url, put_of};

    const MS: Duration = Duration::from_millis(1);

    fn new() -> Vec<(u64, Put)> {
        vec![(0, new_url())]
    }

    fn message(items: Vec<(u64, Put)>) -> Message {
        Message::Put { items, sink: mpsc::unbounded_channel().0 }
    }

    #[tokio::test(start_paused = true)]
    async fn new_urls_stand_while_a_visit_is_waited_for() {
        let new_puts = new();
        let way = Admission::new(20 * MS);
        assert!(way.stands(&message(new())).is_none() && !way.is_used());
        let visit = way.await_visit();
        assert!(way.stands(&message(new())).is_some() && way.is_used());
        assert!(
            way.stands(&message(vec![(0, put_of(PutKind::Known { due: None }))])).is_none(),
            "reports of pages never do"
        );
        let mut clear = std::pin::pin!(way.clear(&new_puts));
        assert!(clear.as_mut().now_or_never().is_none());
        tokio::time::advance(3 * MS).await;
        drop(visit);
        assert!(way.stands(&message(new())).is_none());
        clear.await;
        tokio::time::advance(LATELY).await;
        assert!(!way.is_used());
    }

    #[tokio::test(start_paused = true)]
    async fn puts_go_on_for_as_long_as_they_stood() {
        let new_puts = new();
        let way = Admission::new(20 * MS);
        let (long, short) = (way.await_visit(), way.await_visit());
        drop(short);
        assert!(way.stands(&message(new())).is_some(), "another visit is still waited for");
        way.clear(&new_puts).await;
        let stood = Instant::now() - way.began;
        assert!(stood >= 20 * MS && stood < 25 * MS, "{stood:?}");
        drop(long);
        let at_once = way.await_visit();
        assert!(way.stands(&message(new())).is_none(), "now it is their time");
        drop(at_once);
        tokio::time::advance(25 * MS).await;
        let _later = way.await_visit();
        assert!(way.stands(&message(new())).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn with_no_time_to_stand_nobody_does() {
        let new_puts = new();
        let way = Admission::new(Duration::ZERO);
        let _visit = way.await_visit();
        assert!(way.stands(&message(new())).is_none() && !way.is_used());
        way.clear(&new_puts).await;
    }
}
