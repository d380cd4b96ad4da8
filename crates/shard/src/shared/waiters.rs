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
//! [`Frontier::reserve`]: crate::Frontier::reserve

use std::collections::VecDeque;
use std::sync::Mutex;

use tokio::sync::oneshot::{self, error::TryRecvError};

use crate::shared::readiness::lock;

/// All waiters.
#[derive(Default)]
pub(crate) struct Waiters {
    /// Waiters for any group, first come, first served.
    any: Mutex<VecDeque<oneshot::Sender<()>>>,
    /// Waiters for one crawl only.
    one_crawl: Mutex<Vec<oneshot::Sender<()>>>,
}

/// One waiter.
pub(crate) struct Waiter<'a> {
    waiters: &'a Waiters,
    /// Waits for one crawl only.
    one_crawl: bool,
    told: Option<oneshot::Receiver<()>>,
    /// Was woken and has not checked since.
    owes: bool,
}

impl Waiters {
    /// Adds a waiter; it is queued by [`Waiter::enqueue`].
    pub fn join(&self, one_crawl: bool) -> Waiter<'_> {
        Waiter { waiters: self, one_crawl, told: None, owes: false }
    }

    /// Wakes waiters for this many groups that became ready.
    pub fn wake(&self, groups: usize) {
        if groups == 0 {
            return;
        }
        for waiter in lock(&self.one_crawl).drain(..) {
            _ = waiter.send(());
        }
        self.wake_any(groups);
    }

    /// Wakes this many of the waiters for any group.
    pub fn wake_any(&self, groups: usize) {
        let mut waiters = lock(&self.any);
        let mut left = groups;
        while left > 0 {
            let Some(waiter) = waiters.pop_front() else { break };
            left -= usize::from(waiter.send(()).is_ok());
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
        match self.told.as_mut().map(oneshot::Receiver::try_recv) {
            Some(Err(TryRecvError::Empty)) => return,
            Some(Ok(())) => self.owes = true,
            Some(Err(TryRecvError::Closed)) | None => {}
        }
        let (tell, told) = oneshot::channel();
        if self.one_crawl {
            let mut waiters = lock(&self.waiters.one_crawl);
            waiters.retain(|waiter| !waiter.is_closed());
            waiters.push(tell);
        } else {
            let mut waiters = lock(&self.waiters.any);
            waiters.retain(|waiter| !waiter.is_closed());
            waiters.push_back(tell);
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
            _ = told.await;
            self.told = None;
            self.owes = true;
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let unheard = self.told.as_mut().is_some_and(|told| {
            // From here on it does not count as woken.
            told.close();
            told.try_recv().is_ok()
        });
        // All other waiters for one crawl were woken by the same group.
        if !self.one_crawl && (unheard || self.owes) {
            self.waiters.wake_any(1);
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
}
