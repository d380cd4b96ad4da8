//! An owner that panics in the middle of its work: callers learn that the outcome is unknown, and the shard is owned
//! again.
//!
//! Where the panic may strike, each with a test: before the turn's first commit; between two commits of a turn (the
//! first is already on its way and counts); while the shard opens; and repeatedly.

use wayleave_core::ids::Epoch;
use wayleave_engine::{Expect, Pending};

use crate::prelude::*;
use crate::support::*;

const URL: &str = "http://a.example/1";

/// A store whose calls make owners panic. With `after`, the commit is passed on first.
struct Trap {
    store: Memory,
    commits: AtomicUsize,
    /// Commits before the panic.
    spared: AtomicUsize,
    opens: AtomicUsize,
    after: AtomicBool,
    owns: AtomicUsize,
}

/// Consumes one of what is left.
fn falls(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1)).is_ok()
}

impl Engine for Trap {
    wayleave_engine::pass_on! { store: now get_many scan_many look }

    fn own<'a>(&'a self, shard: ShardId, expects: &'a [Expect]) -> Pending<'a, (Epoch, u64)> {
        self.owns.fetch_add(1, Ordering::AcqRel);
        assert!(!falls(&self.opens), "a panic on purpose, while the shard opens");
        self.store.own(shard, expects)
    }

    fn commit(&self, batch: Batch) -> Commit {
        let trap = !batch.writes.is_empty() && !falls(&self.spared) && falls(&self.commits);
        if trap && self.after.load(Ordering::Acquire) {
            drop(self.store.commit(batch));
            panic!("a panic on purpose, after the commit was handed on");
        }
        assert!(!trap, "a panic on purpose, before the commit");
        self.store.commit(batch)
    }
}

async fn open() -> (Arc<Trap>, Frontier) {
    let store = Memory::new(RuntimeClock::new());
    let (commits, opens, owns) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let spared = AtomicUsize::new(0);
    let trap = Arc::new(Trap { store, commits, spared, opens, after: AtomicBool::new(false), owns });
    let config = Config { clock_step: Millis(0), ..Config::new(1) };
    let frontier = Frontier::open(trap.clone(), config, &tokio::runtime::Handle::current()).await.unwrap();
    (trap, frontier)
}

#[tokio::test(start_paused = true)]
async fn a_panicked_owner_leaves_unknown_outcomes_and_its_shard_is_reopened() {
    for applied in [false, true] {
        let (trap, frontier) = open().await;
        assert_eq!(frontier.put(vec![disc("http://b.example/")]).await, [PutOutcome::Added]);
        trap.after.store(applied, Ordering::Release);
        trap.commits.store(1, Ordering::Release);
        let outcomes = frontier.put(vec![disc(URL)]).await;
        assert!(matches!(&outcomes[0], PutOutcome::Failed(why) if why.to_string().contains("unknown")), "{outcomes:?}");
        pass(1_000).await;
        let again = frontier.put(vec![disc(URL)]).await;
        assert_eq!(again, [if applied { PutOutcome::Known } else { PutOutcome::Added }]);
        assert_eq!(frontier.put(vec![disc("http://b.example/")]).await, [PutOutcome::Known], "it read the store again");
        assert_eq!(frontier.readiness(), Ok(()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_meets_a_panic_has_an_unknown_outcome() {
    let (trap, frontier) = open().await;
    frontier.put(vec![disc(URL)]).await;
    pass(100).await;
    trap.commits.store(1, Ordering::Release);
    let refused = frontier.reserve(want(1, 1)).await;
    assert!(matches!(refused, Err(Refusal::OutcomeUnknown(_))), "{refused:?}");
    pass(1_000).await;
    assert_eq!(frontier.reserve(want(1, 1)).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_keeps_panicking_restarts_with_back_off_and_says_why() {
    let (trap, frontier) = open().await;
    frontier.put(vec![disc(URL)]).await;
    trap.opens.store(usize::MAX, Ordering::Release);
    trap.commits.store(1, Ordering::Release);
    frontier.put(vec![disc("http://a.example/2")]).await;
    let before = trap.owns.load(Ordering::Acquire);
    pass(1_000).await;
    let refused = frontier.host("a.example".into()).await.unwrap_err();
    assert!(matches!(&refused, Refusal::Unavailable(why) if why.contains("panicked")), "{refused}");
    assert!(frontier.readiness().unwrap_err().contains("panicked"));
    pass(600_000).await;
    let tries = trap.owns.load(Ordering::Acquire) - before;
    assert!((10..40).contains(&tries), "{tries} tries in ten minutes");
    trap.opens.store(0, Ordering::Release);
    pass(60_000).await;
    assert_eq!(frontier.put(vec![disc(URL)]).await, [PutOutcome::Known]);
    assert_eq!(frontier.readiness(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_server_with_an_owner_that_panics_can_be_stopped() {
    let (trap, frontier) = open().await;
    trap.opens.store(usize::MAX, Ordering::Release);
    trap.commits.store(1, Ordering::Release);
    frontier.put(vec![disc(URL)]).await;
    tokio::time::timeout(Duration::from_secs(5), frontier.stop()).await.expect("it waits for no caller");
}

/// A stream keeps its sink open, so it never notices by itself that no answer will come. Where its items may be when
/// the panic strikes: in the part being decided, decided and waiting for their commit, in a later part of the turn, or
/// queued behind a call that is answered first.
#[tokio::test(start_paused = true)]
async fn every_put_of_a_stream_is_answered_once_when_its_owner_panics() {
    for (commits, applied) in [(0, false), (0, true), (1, false), (1, true)] {
        let (trap, frontier) = open().await;
        let (sink, mut parts) = tokio::sync::mpsc::unbounded_channel();
        // Two puts of one URL are decided in two parts.
        let puts: Vec<_> =
            [URL, "http://a.example/2", URL, "http://a.example/3"].map(disc).into_iter().zip(0..).collect();
        trap.after.store(applied, Ordering::Release);
        trap.spared.store(commits, Ordering::Release);
        trap.commits.store(1, Ordering::Release);
        frontier.put_into(puts.into_iter().map(|(put, tag)| (tag, put)).collect(), &sink).await;
        pass(1_000).await;
        let mut outcomes = Vec::new();
        while let Ok(part) = parts.try_recv() {
            outcomes.extend(part);
        }
        outcomes.sort_by_key(|(tag, _)| *tag);
        let tags: Vec<u64> = outcomes.iter().map(|(tag, _)| *tag).collect();
        assert_eq!(tags, [0, 1, 2, 3], "{commits} commits before, {outcomes:?}");
        let failed = outcomes.iter().filter(|(_, outcome)| matches!(outcome, PutOutcome::Failed(_))).count();
        assert!(failed > 0, "{outcomes:?}");
        assert_eq!(frontier.put(vec![disc("http://b.example/")]).await, [PutOutcome::Added], "it continues");
    }
}
