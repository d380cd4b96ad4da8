//! The line of those who wait for a group to visit: every group that is ready wakes a waiter that can take it.
//!
//! Who takes any group is woken in the order of coming, one for each group that becomes ready. Who wants one crawl alone is woken by
//! every group, for it may be theirs. A wake-up says "look", not "this group is yours", so it may reach one who does not need it:
//!
//! - one who takes another group than the one it was woken for, while somebody else looked too early to see that;
//! - one who is about to leave with a group that it took before, or because its time is up or its caller has gone.
//!
//! So a wake-up is owed until its waiter has looked, and what is owed or was never heard goes to the next in line when a waiter
//! leaves. Who leaves with a group wakes the next one if there is more to take (see [`Frontier::reserve`]). Then, while a group is
//! ready and a waiter that can take it sleeps, somebody is awake who will look after the group became ready, or wakes another.
//!
//! [`Frontier::reserve`]: crate::Frontier::reserve

use std::collections::VecDeque;
use std::sync::Mutex;

use tokio::sync::oneshot::{self, error::TryRecvError};

use crate::shared::readiness::lock;

/// All who wait.
#[derive(Default)]
pub(crate) struct Waiters {
    /// Who takes any group, first come, first served.
    any: Mutex<VecDeque<oneshot::Sender<()>>>,
    /// Who wants one crawl alone.
    picky: Mutex<Vec<oneshot::Sender<()>>>,
}

/// One who waits.
pub(crate) struct Waiter<'a> {
    line: &'a Waiters,
    /// Whether not every group will do.
    picky: bool,
    told: Option<oneshot::Receiver<()>>,
    /// Woken, and has not looked since.
    owes: bool,
}

impl Waiters {
    /// One more who waits; it is in line once it stands there.
    pub fn join(&self, picky: bool) -> Waiter<'_> {
        Waiter { line: self, picky, told: None, owes: false }
    }

    /// So many groups have become ready.
    pub fn wake(&self, groups: usize) {
        if groups == 0 {
            return;
        }
        for waiter in lock(&self.picky).drain(..) {
            _ = waiter.send(());
        }
        self.wake_any(groups);
    }

    /// Wakes so many of those who take any group.
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
    /// Whether every group will do.
    pub const fn takes_any(&self) -> bool {
        !self.picky
    }

    /// Stands in line, before it looks: what becomes ready from now on wakes it. It keeps the place that it has.
    pub fn stand(&mut self) {
        match self.told.as_mut().map(oneshot::Receiver::try_recv) {
            Some(Err(TryRecvError::Empty)) => return,
            Some(Ok(())) => self.owes = true,
            Some(Err(TryRecvError::Closed)) | None => {}
        }
        let (tell, told) = oneshot::channel();
        if self.picky {
            let mut waiters = lock(&self.line.picky);
            waiters.retain(|waiter| !waiter.is_closed());
            waiters.push(tell);
        } else {
            let mut waiters = lock(&self.line.any);
            waiters.retain(|waiter| !waiter.is_closed());
            waiters.push_back(tell);
        }
        self.told = Some(told);
    }

    /// It has looked, and taken what there was for it.
    pub const fn looked(&mut self) {
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
            // From here on nobody counts it as woken.
            told.close();
            told.try_recv().is_ok()
        });
        // All others who want one crawl alone were woken by the same group.
        if !self.picky && (unheard || self.owes) {
            self.line.wake_any(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn standing(line: &Waiters, picky: bool) -> Waiter<'_> {
        let mut waiter = line.join(picky);
        waiter.stand();
        waiter
    }

    fn is_woken(waiter: &mut Waiter<'_>) -> bool {
        waiter.woken().now_or_never().is_some()
    }

    #[test]
    fn each_group_wakes_the_first_in_line_and_all_who_want_one_crawl() {
        let line = Waiters::default();
        let [mut first, mut second, mut third] = [false; 3].map(|picky| standing(&line, picky));
        let [mut one, mut other] = [true; 2].map(|picky| standing(&line, picky));
        line.wake(2);
        assert!(is_woken(&mut first) && is_woken(&mut second) && !is_woken(&mut third));
        assert!(is_woken(&mut one) && is_woken(&mut other));
        third.stand();
        line.wake(1);
        assert!(is_woken(&mut third), "it has kept its place");
    }

    #[test]
    fn who_leaves_before_it_heard_or_looked_leaves_the_wake_up_to_the_next() {
        let line = Waiters::default();
        let (first, mut second) = (standing(&line, false), standing(&line, false));
        line.wake(1);
        drop(first);
        assert!(is_woken(&mut second), "the first never heard it");
        let mut third = standing(&line, false);
        drop(second);
        assert!(is_woken(&mut third), "the second had not looked");
        third.looked();
        let mut fourth = standing(&line, false);
        drop(third);
        assert!(!is_woken(&mut fourth), "the third had");
    }

    #[test]
    fn who_is_woken_again_while_it_looks_leaves_that_to_the_next() {
        let line = Waiters::default();
        let (mut first, mut second) = (standing(&line, false), standing(&line, false));
        line.wake(1);
        assert!(is_woken(&mut first));
        let mut busy = standing(&line, false);
        drop(second);
        second = standing(&line, false);
        line.wake(1);
        busy.looked();
        drop(busy);
        assert!(is_woken(&mut second));
    }
}
