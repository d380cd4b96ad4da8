//! The receiving side of the fence: a receiver of guarded writes remembers the highest epoch and refuses lower ones.

use std::sync::atomic::{AtomicU64, Ordering};

/// Remembers the highest epoch seen. A store can do better by checking the epoch in the transaction that applies the
/// write; this is for other receivers, such as a worker that takes orders.
#[derive(Debug, Default)]
pub struct Guard {
    highest: AtomicU64,
}

/// A write of a primary that has been replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("epoch {epoch} is over: epoch {highest} has been seen; the sender is not primary any more")]
pub struct Stale {
    /// The epoch of the write.
    pub epoch: u64,
    /// The highest epoch seen before.
    pub highest: u64,
}

impl Guard {
    /// A guard that has seen `highest`; zero if it is new. The value must survive a restart of the receiver.
    #[must_use]
    pub const fn new(highest: u64) -> Self {
        Self { highest: AtomicU64::new(highest) }
    }

    /// Admits a write if no higher epoch has been seen. Fails if a higher one has been seen: the write must not be
    /// applied.
    pub fn admit(&self, epoch: u64) -> Result<(), Stale> {
        let highest = self.highest.fetch_max(epoch, Ordering::AcqRel);
        if epoch < highest { Err(Stale { epoch, highest }) } else { Ok(()) }
    }

    /// The highest epoch seen.
    #[must_use]
    pub fn highest(&self) -> u64 {
        self.highest.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_a_higher_epoch_was_seen_lower_ones_are_refused() {
        let guard = Guard::default();
        assert_eq!((guard.admit(4), guard.admit(4), guard.admit(6)), (Ok(()), Ok(()), Ok(())));
        assert_eq!(guard.admit(4), Err(Stale { epoch: 4, highest: 6 }));
        assert_eq!((guard.admit(6), guard.highest()), (Ok(()), 6));
        assert!(Guard::new(9).admit(8).is_err());
    }
}
