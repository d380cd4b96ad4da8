//! What a crawler has done so far, for people.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

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
    /// Hosts visited; at most a hundred thousand are told apart.
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
pub struct Tally(Mutex<(Counts, HashSet<String>)>);

impl Tally {
    /// The numbers now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Counts { hosts: held.1.len() as u64, ..held.0 }
    }

    /// A result that the server has taken.
    pub(super) fn result(&self, host: &str, visited: &Visited) {
        let Visited { result, out_of_scope, refused } = visited;
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (counts, hosts) = &mut *held;
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.done += 1;
    }

    pub(super) fn lost(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.lost += 1;
    }
}
