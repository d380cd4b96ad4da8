//! A term of ownership: the outcomes of its commits, and how the owner may continue after one has failed.
//!
//! The owner and the task that sends its answers share it. It chooses between two ways to reload:
//!
//! - *Resume* under the present epoch, by reading only. Allowed if nothing that failed can have left anything behind,
//!   so that the store is exactly where the last acknowledged commit left it. Reads continue while the store refuses
//!   changes.
//! - *Own again*, which raises the epoch and so fences out whatever may still arrive. Required in every other case.
//!
//! With commits n and n+1 in flight, and n refused as unavailable:
//!
//! 1. n+1 is refused as unavailable too: both left nothing; resume after n-1.
//! 2. n+1 is fenced by its sequence number, under our own epoch: the store is at n-1, as the fence says; resume after
//!    n-1.
//! 3. n+1 is fenced under another epoch: another owner has the shard; own again, which the seat decides.
//! 4. n+1 has an unknown outcome: it can only apply on top of n, but we do not rely on that; own again.
//! 5. n+1 succeeds: the store breaks its contract, as n cannot have been refused. The last acknowledged number is then
//!    n+1, the next commit is fenced, and that is a failure without a preceding refusal: own again.
//!
//! All commits in flight are resolved before the owner reloads, so nothing can still be applied that the reloaded state
//! does not contain. A move that timed out has an unknown outcome, because another shard may still commit it: own
//! again.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;
use wayleave_core::ids::Epoch;
use wayleave_engine::Error;

use crate::shared::readiness::lock;

/// The state of a term.
pub(crate) struct Term {
    epoch: Epoch,
    /// Sequence number of the last commit known to be durable.
    acknowledged: AtomicU64,
    failed: AtomicBool,
    failure: Mutex<Failure>,
    pub told: Notify,
}

#[derive(Default)]
struct Failure {
    /// The reason of a refusal that left nothing behind.
    refused: Option<String>,
    /// A failure may have left something behind, or may still do so.
    in_doubt: bool,
    /// Rows could not be read that the owner cannot do without.
    damage: Option<String>,
}

/// The position from which an owner continues without owning its shard again.
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

    /// Whether in-memory state may differ from the store.
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

    /// A read or a commit failed: the state must be reloaded.
    pub fn on_failure(&self, error: &Error) {
        let mut failure = lock(&self.failure);
        match error {
            Error::Unavailable(why) => _ = failure.refused.get_or_insert_with(|| why.clone()),
            Error::Fenced { epoch, .. } if *epoch == self.epoch.0 && failure.refused.is_some() => {}
            Error::Corrupt(cause) => {
                failure.in_doubt = true;
                failure.damage.get_or_insert_with(|| cause.clone());
            }
            _ => failure.in_doubt = true,
        }
        drop(failure);
        self.failed.store(true, Ordering::Release);
        self.told.notify_one();
    }

    /// What could not be read, if that is why the term failed.
    pub fn damage(&self) -> Option<String> {
        lock(&self.failure).damage.clone()
    }

    /// Where the owner may resume once nothing of the term is in flight; `None` if it must own the shard again.
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
