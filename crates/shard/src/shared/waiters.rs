//! Long polls for a group to visit: every group that becomes ready wakes a waiter that can take it.
//!
//! Waiters that take any group are woken first come, first served, one per group. Waiters for one crawl are all woken
//! by every group, because it may be theirs. A wake-up says "check", not "this group is yours", so it may reach a
//! waiter that does not need it:
//!
//! - one that takes another group than the one it was woken for, while a different waiter checked too early to see that
//!   one;
//! - one that is about to leave, with a group it took before, or because of a timeout or a disconnected caller.
//!
//! So a wake-up is owed until its waiter has checked, and a wake-up that is owed or was never received is passed to the
//! next waiter when its waiter leaves. A waiter that leaves with a group wakes the next one if more is ready (see
//! [`Frontier::reserve`]). Hence no wake-up is lost: while a group is ready and a waiter that can take it sleeps, some
//! awake waiter will check after the group became ready, or wakes another.
//!
//! A wake-up that was never received is passed on by tokio's `Notify`; one that is owed, here.
//!
//! [`Frontier::reserve`]: crate::Frontier::reserve

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// All waiters.
#[derive(Default)]
pub(crate) struct Waiters {
    /// Waiters for any group, first come, first served.
    any: Notify,
    /// The number of waiters for any group, queued or awake: more wake-ups are of no use. A waiter is counted before it
    /// checks, and what is ready is published before its wake-up, so one that is not counted yet will see it.
    any_count: AtomicUsize,
    /// Waiters for one crawl only.
    one_crawl: Notify,
}

/// One waiter.
pub(crate) struct Waiter<'a> {
    waiters: &'a Waiters,
    /// Waits for one crawl only.
    one_crawl: bool,
    told: Option<Pin<Box<Notified<'a>>>>,
    /// Was woken and has not checked since.
    owes: bool,
}

impl Waiters {
    /// Adds a waiter; it is queued by [`Waiter::enqueue`].
    pub fn join(&self, one_crawl: bool) -> Waiter<'_> {
        if !one_crawl {
            self.any_count.fetch_add(1, Ordering::SeqCst);
        }
        Waiter { waiters: self, one_crawl, told: None, owes: false }
    }

    /// Wakes waiters for this many groups that became ready.
    pub fn wake(&self, groups: usize) {
        if groups == 0 {
            return;
        }
        self.one_crawl.notify_waiters();
        self.wake_any(groups);
    }

    /// Wakes this many of the waiters for any group.
    pub fn wake_any(&self, groups: usize) {
        for _ in 0..groups.min(self.any_count.load(Ordering::SeqCst)) {
            self.any.notify_one();
        }
    }
}

impl Waiter<'_> {
    /// Whether any group will do.
    pub const fn takes_any(&self) -> bool {
        !self.one_crawl
    }

    /// Queues the waiter. Must be called before checking: whatever becomes ready from then on wakes it. A waiter that
    /// is already queued keeps its position.
    pub fn enqueue(&mut self) {
        if let Some(told) = &mut self.told {
            if !told.as_mut().enable() {
                return;
            }
            self.owes = true;
        }
        let waiters = self.waiters;
        let queue = if self.one_crawl { &waiters.one_crawl } else { &waiters.any };
        let mut told = Box::pin(queue.notified());
        while told.as_mut().enable() {
            // A wake-up that came while all were awake: this waiter is about to check.
            self.owes = true;
            told = Box::pin(queue.notified());
        }
        self.told = Some(told);
    }

    /// The waiter has checked and taken what it could.
    pub const fn checked(&mut self) {
        self.owes = false;
    }

    /// Waits to be woken.
    pub async fn woken(&mut self) {
        if let Some(told) = &mut self.told {
            told.as_mut().await;
            self.told = None;
            self.owes = true;
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        // All other waiters for one crawl were woken by the same group.
        if !self.one_crawl {
            self.waiters.any_count.fetch_sub(1, Ordering::SeqCst);
            if self.owes {
                self.waiters.wake_any(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn queued(waiters: &Waiters, one_crawl: bool) -> Waiter<'_> {
        let mut waiter = waiters.join(one_crawl);
        waiter.enqueue();
        waiter
    }

    fn is_woken(waiter: &mut Waiter<'_>) -> bool {
        waiter.woken().now_or_never().is_some()
    }

    #[test]
    fn each_group_wakes_the_first_in_line_and_all_who_want_one_crawl() {
        let waiters = Waiters::default();
        let [mut first, mut second, mut third] = [false; 3].map(|one_crawl| queued(&waiters, one_crawl));
        let [mut one, mut other] = [true; 2].map(|one_crawl| queued(&waiters, one_crawl));
        waiters.wake(2);
        assert!(is_woken(&mut first) && is_woken(&mut second) && !is_woken(&mut third));
        assert!(is_woken(&mut one) && is_woken(&mut other));
        third.enqueue();
        waiters.wake(1);
        assert!(is_woken(&mut third), "it has kept its place");
    }

    #[test]
    fn who_leaves_before_it_heard_or_looked_leaves_the_wake_up_to_the_next() {
        let waiters = Waiters::default();
        let (first, mut second) = (queued(&waiters, false), queued(&waiters, false));
        waiters.wake(1);
        drop(first);
        assert!(is_woken(&mut second), "the first never heard it");
        let mut third = queued(&waiters, false);
        drop(second);
        assert!(is_woken(&mut third), "the second had not checked");
        third.checked();
        let mut fourth = queued(&waiters, false);
        drop(third);
        assert!(!is_woken(&mut fourth), "the third had");
    }

    #[test]
    fn who_is_woken_again_while_it_looks_leaves_that_to_the_next() {
        let waiters = Waiters::default();
        let (mut first, mut second) = (queued(&waiters, false), queued(&waiters, false));
        waiters.wake(1);
        assert!(is_woken(&mut first));
        let mut busy = queued(&waiters, false);
        drop(second);
        second = queued(&waiters, false);
        waiters.wake(1);
        busy.checked();
        drop(busy);
        assert!(is_woken(&mut second));
    }

    /// (two waiters are awake) (three groups become ready) (both check): no wake-up stays behind for a third one, and
    /// none is lost for those who queue again.
    #[test]
    fn a_wake_up_that_finds_all_awake_reaches_the_next_who_queues() {
        let waiters = Waiters::default();
        let (mut first, mut second) = (queued(&waiters, false), queued(&waiters, false));
        waiters.wake(2);
        assert!(is_woken(&mut first) && is_woken(&mut second));
        waiters.wake(3);
        first.enqueue();
        second.enqueue();
        first.checked();
        second.checked();
        let mut third = queued(&waiters, false);
        assert!(!is_woken(&mut first) && !is_woken(&mut second) && !is_woken(&mut third), "they check anyway");
        drop(first);
        waiters.wake(usize::MAX);
        assert!(is_woken(&mut second) && is_woken(&mut third));
    }
}
