//! A crawler's progress so far, for people.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use wayleave_api::reservations::Outcome;

use super::visit::Visited;
use crate::limits::HOSTS_COUNTED_MAX;

/// Numbers of a crawler.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pages fetched.
    pub pages: u64,
    /// URLs that could not be fetched, or are to be tried again.
    pub errors: u64,
    /// Hosts visited; at most a hundred thousand are distinguished.
    pub hosts: u64,
    /// Bytes received.
    pub bytes: u64,
    /// Found links that were not followed, because they lead out of scope.
    pub out_of_scope: u64,
    /// URLs that were not fetched because their addresses may not be called.
    pub refused: u64,
    /// Chunks or visits completed.
    pub done: u64,
    /// Chunks or visits whose lease was lost, or that failed.
    pub lost: u64,
}

/// Counts, from many tasks.
#[derive(Debug, Default)]
pub struct Tally(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    counts: Counts,
    hosts: HashSet<String>,
    /// Tasks that have a chunk or visit.
    busy: usize,
    /// What the others wait for.
    waits_for: Option<String>,
}

impl Tally {
    /// The numbers now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let held = self.held();
        Counts { hosts: held.hosts.len() as u64, ..held.counts }
    }

    /// What it waits for, if it has nothing in hand.
    #[must_use]
    pub fn waits_for(&self) -> Option<String> {
        let held = self.held();
        held.waits_for.clone().filter(|_| held.busy == 0)
    }

    /// A task has begun to work.
    pub(super) fn begin(&self) {
        let mut held = self.held();
        held.busy += 1;
        held.waits_for = None;
    }

    /// It has nothing in hand any more.
    pub(super) fn end(&self) {
        self.held().busy -= 1;
    }

    /// There is nothing to claim, for this reason.
    pub(super) fn wait_for(&self, why: String) {
        self.held().waits_for = Some(why);
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A result that the server has taken.
    pub(super) fn result(&self, host: &str, visited: &Visited) {
        let Visited { result, out_of_scope, refused } = visited;
        let mut held = self.held();
        let Held { counts, hosts, .. } = &mut *held;
        if result.outcome == Outcome::Fetched {
            counts.pages += 1
        } else {
            counts.errors += 1
        }
        counts.bytes += result.bytes.unwrap_or_default();
        counts.out_of_scope += *out_of_scope as u64;
        counts.refused += u64::from(*refused);
        if hosts.len() < HOSTS_COUNTED_MAX && !hosts.contains(host) {
            hosts.insert(host.to_owned());
        }
    }

    pub(super) fn done(&self) {
        self.held().counts.done += 1;
    }

    pub(super) fn lost(&self) {
        self.held().counts.lost += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_waited_for_is_the_latest_and_nothing_during_work() {
        let tally = Tally::default();
        for why in ["due in 58 s", "due in 48 s"] {
            tally.wait_for(why.to_owned());
            assert_eq!(tally.waits_for().as_deref(), Some(why));
        }
        tally.begin();
        tally.wait_for("1 URL is handed out".to_owned());
        assert_eq!(tally.waits_for(), None);
        tally.end();
    }
}
