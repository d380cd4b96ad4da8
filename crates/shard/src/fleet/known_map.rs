//! The map that the readers of a process share. A map is large, and a change wakes all readers at once: if each of them
//! fetched it from the owner, as many copies of it would be in memory and, from another node, on the wire.
//!
//! Interleavings that could go wrong:
//!
//! 1. A reader gets a map from before its call, although a change was answered before it called: it takes only the
//!    answer to a question that was asked after it came.
//! 2. The reader that asks goes away: its question is dropped with it, and the next reader in line asks.
//! 3. The owner cannot be asked: who shares the question shares the refusal, and does not ask in turn.
//! 4. The map that is kept is no longer the present one: it is sent along as a version, and returned only if the owner says
//!    that it still has this version. A version is never used for two maps.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Mutex;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::placement::Map;

use crate::routing::router::CallResult;

/// The last map, and the number of the question that it answered.
#[derive(Default)]
pub(crate) struct KnownMap {
    /// Questions that were begun.
    asked: AtomicU64,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    number: u64,
    map: Option<Arc<Map>>,
    refused: Option<Refusal>,
}

impl KnownMap {
    /// The present map. `ask` asks the owner for a map of another version than the one given.
    pub async fn present<F>(&self, ask: impl FnOnce(Option<u64>) -> F) -> CallResult<Arc<Map>>
    where
        F: Future<Output = CallResult<Option<Arc<Map>>>>,
    {
        let before = self.asked.load(Ordering::Acquire);
        let mut last = self.last.lock().await;
        if last.number <= before {
            let number = self.asked.fetch_add(1, Ordering::AcqRel) + 1;
            let answer = ask(last.map.as_ref().map(|map| map.version)).await;
            last.number = number;
            last.refused = match answer {
                Ok(newer) => {
                    last.map = newer.or_else(|| last.map.take());
                    None
                }
                Err(refusal) => Some(refusal),
            };
        }
        match (&last.refused, &last.map) {
            (Some(refusal), _) => Err(refusal.clone()),
            (None, Some(map)) => Ok(map.clone()),
            (None, None) => Err(Refusal::Internal("the owner of the map has sent none".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;
    use tokio::sync::Semaphore;

    use super::*;

    fn map(version: u64) -> Arc<Map> {
        Arc::new(Map { version, rows: Vec::new(), missing: Vec::new(), missing_count: 0 })
    }

    /// An owner whose map has a version, and which counts the questions and the maps that it sends.
    #[derive(Default)]
    struct Owner {
        version: AtomicU64,
        questions: AtomicU64,
        maps: AtomicU64,
    }

    impl Owner {
        async fn ask(&self, since: Option<u64>) -> CallResult<Option<Arc<Map>>> {
            self.questions.fetch_add(1, Ordering::AcqRel);
            let version = self.version.load(Ordering::Acquire);
            tokio::task::yield_now().await;
            let newer = (since != Some(version)).then(|| map(version));
            self.maps.fetch_add(newer.is_some().into(), Ordering::AcqRel);
            Ok(newer)
        }

        fn counts(&self) -> (u64, u64) {
            (self.questions.swap(0, Ordering::AcqRel), self.maps.swap(0, Ordering::AcqRel))
        }
    }

    #[tokio::test]
    async fn readers_that_come_together_share_one_question_and_one_map() {
        let (known, owner) = (KnownMap::default(), Owner::default());
        for version in 1..4 {
            owner.version.store(version, Ordering::Release);
            let all = join_all((0..1_000).map(|_| known.present(|since| owner.ask(since)))).await;
            let first = all[0].clone().unwrap();
            assert!(all.iter().all(|map| Arc::ptr_eq(map.as_ref().unwrap(), &first)), "one map for all");
            let (questions, maps) = owner.counts();
            assert!(first.version == version && questions <= 2 && maps == 1, "{questions} {maps}");
        }
    }

    #[tokio::test]
    async fn a_reader_never_gets_a_map_from_before_its_call() {
        let (known, owner) = (KnownMap::default(), Owner::default());
        let gate = Semaphore::new(0);
        let mut early = std::pin::pin!(known.present(async |since| {
            let answer = owner.ask(since).await;
            _ = gate.acquire().await;
            answer
        }));
        // It has asked, and its answer is on the way.
        while owner.questions.load(Ordering::Acquire) == 0 {
            assert!(futures::poll!(&mut early).is_pending());
        }
        owner.version.store(7, Ordering::Release);
        let mut late = std::pin::pin!(known.present(|since| owner.ask(since)));
        assert!(futures::poll!(&mut late).is_pending());
        gate.add_permits(1);
        let (early, late) = tokio::join!(early, late);
        assert_eq!((early.unwrap().version, late.unwrap().version), (0, 7));
    }

    #[tokio::test]
    async fn a_reader_that_goes_away_leaves_its_place_to_the_next() {
        let (known, owner) = (KnownMap::default(), Owner::default());
        {
            let mut gone = std::pin::pin!(known.present(|_| std::future::pending()));
            assert!(futures::poll!(&mut gone).is_pending());
        }
        assert_eq!(known.present(|since| owner.ask(since)).await.unwrap().version, 0);
    }

    #[tokio::test]
    async fn a_refusal_is_shared_and_the_next_question_is_asked_anew() {
        let (known, asked, owner) = (KnownMap::default(), AtomicU64::default(), Owner::default());
        let refuse = |_| async {
            asked.fetch_add(1, Ordering::AcqRel);
            tokio::task::yield_now().await;
            Err(Refusal::Overloaded)
        };
        let all = join_all((0..100).map(|_| known.present(refuse))).await;
        assert!(all.iter().all(|map| *map == Err(Refusal::Overloaded)));
        assert!(asked.load(Ordering::Acquire) <= 2, "{asked:?}");
        assert_eq!(known.present(|since| owner.ask(since)).await.unwrap().version, 0);
    }
}
