//! A term of ownership: what became of its commits, and how the owner may go on after one has failed.
//!
//! The owner and the task that answers its callers share it. It decides between two ways to reload:
//!
//! - *Resume* under the present epoch, reading only. Allowed when nothing that failed can have left anything behind, so the
//!   store is exactly where the last acknowledged commit left it. Reads go on while the store refuses changes.
//! - *Own again*, which raises the epoch and so fences out whatever may still arrive. Required in every other case.
//!
//! With commits n and n+1 in flight, and n refused as unavailable:
//!
//! 1. n+1 is refused as unavailable too: both left nothing; resume after n-1.
//! 2. n+1 is fenced by its number, under our own epoch: the store is at n-1, as the fence says; resume after n-1.
//! 3. n+1 is fenced under another epoch: somebody else owns the shard; own again, which the seat decides.
//! 4. n+1 is of unknown outcome: it can only apply on top of n, but we do not rely on that; own again.
//! 5. n+1 succeeds: a store that breaks its contract; n cannot have been refused. The number of the last acknowledged
//!    commit then says n+1, the next commit is fenced, and that is a failure without a refusal before it: own again.
//!
//! All commits in flight are resolved before the owner reloads, so nothing that the new memory does not contain can still
//! be applied. A move that was given up is of unknown outcome, as another shard may still commit it: own again.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;
use wayleave_core::ids::Epoch;
use wayleave_engine::Error;

use crate::shared::readiness::lock;

/// Where a term stands.
pub(crate) struct Term {
    epoch: Epoch,
    /// The number of the last commit that is known to be durable.
    acknowledged: AtomicU64,
    failed: AtomicBool,
    failure: Mutex<Failure>,
    pub told: Notify,
}

#[derive(Default)]
struct Failure {
    /// What the store gave as the reason when it refused something and left nothing behind.
    refused: Option<String>,
    /// Something failed in a way that may have left something behind, or may still do so.
    in_doubt: bool,
}

/// An owner's place in its shard, to go on from without owning it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resume {
    pub epoch: Epoch,
    pub seq: u64,
    /// Why the store refused.
    pub why: String,
}

impl Term {
    pub fn new(epoch: Epoch, seq: u64) -> Self {
        Self {
            epoch,
            acknowledged: AtomicU64::new(seq),
            failed: AtomicBool::new(false),
            failure: Mutex::default(),
            told: Notify::new(),
        }
    }

    /// Whether what the owner has in memory may no longer be what the store has.
    pub fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// A commit was resolved.
    pub fn on_commit(&self, seq: u64, outcome: &Result<(), Error>) {
        match outcome {
            Ok(()) => _ = self.acknowledged.fetch_max(seq, Ordering::AcqRel),
            Err(error) => self.on_failure(error),
        }
    }

    /// A read or a commit failed: the memory must be read again.
    pub fn on_failure(&self, error: &Error) {
        let mut failure = lock(&self.failure);
        match error {
            Error::Unavailable(why) => _ = failure.refused.get_or_insert_with(|| why.clone()),
            Error::Fenced { epoch, .. } if *epoch == self.epoch.0 && failure.refused.is_some() => {}
            _ => failure.in_doubt = true,
        }
        drop(failure);
        self.failed.store(true, Ordering::Release);
        self.told.notify_one();
    }

    /// From where the owner may resume, once nothing of the term is in flight; none if it must own the shard again.
    pub fn resume(&self) -> Option<Resume> {
        let failure = lock(&self.failure);
        let why = failure.refused.clone().filter(|_| !failure.in_doubt)?;
        Some(Resume { epoch: self.epoch, seq: self.acknowledged.load(Ordering::Acquire), why })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fenced(epoch: u64) -> Error {
        Error::Fenced { shard: 1, epoch, seq: 6 }
    }

    fn unavailable() -> Error {
        Error::Unavailable("no room".to_owned())
    }

    fn resume_after(failures: &[Error]) -> Option<u64> {
        let term = Term::new(Epoch(3), 5);
        term.on_commit(6, &Ok(()));
        assert!(!term.is_failed());
        for (seq, error) in (7..).zip(failures) {
            term.on_commit(seq, &Err(error.clone()));
        }
        assert!(term.is_failed());
        term.resume().map(|resume| resume.seq)
    }

    #[test]
    fn an_owner_resumes_only_where_nothing_can_have_been_left_behind() {
        let unknown = || Error::OutcomeUnknown("lost".to_owned());
        assert_eq!(resume_after(&[unavailable()]), Some(6));
        assert_eq!(resume_after(&[unavailable(), unavailable()]), Some(6));
        assert_eq!(resume_after(&[unavailable(), fenced(3)]), Some(6), "fenced by its number alone");
        assert_eq!(resume_after(&[unavailable(), fenced(4)]), None, "another owner");
        assert_eq!(resume_after(&[fenced(3)]), None, "out of step with the store, and nothing was refused");
        assert_eq!(resume_after(&[unavailable(), unknown()]), None);
        assert_eq!(resume_after(&[unknown(), unavailable()]), None);
        assert_eq!(resume_after(&[unavailable(), Error::Conflict]), None);
    }
}
