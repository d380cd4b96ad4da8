//! Batches that wait for rows which other sessions have locked.

use tokio::sync::oneshot;
use wayleave_engine::Batch;
use wayleave_engine::fences::Fences;
use wayleave_engine::rows::key::OUTSIDE;
use wayleave_engine::suite::harness::{fenced, put};

use super::*;

/// A database in which all rows but those of shards are locked.
struct LockedRoles;

impl Database for LockedRoles {
    async fn attempt(&self, group: &TransactionBatch, _: Locks) -> Attempt {
        tokio::time::sleep(Duration::from_millis(20)).await;
        if group.moves.is_empty() { Attempt::Locked("a locked row".into()) } else { Attempt::Done(None) }
    }

    async fn fence_states(&self, _: Vec<i32>) -> Result<Fences, Trouble> {
        Ok(Fences::default())
    }

    async fn settle(&self, _: Vec<i32>) -> Result<Fences, Trouble> {
        Ok(Fences::default())
    }
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_was_locked_out_does_not_wait_behind_thousands_of_roles() {
    let context = Arc::new(CommitContext {
        queue: Queue::default(),
        overlay: Overlay::default(),
        database: LockedRoles,
        down: AtomicBool::new(false),
        locked: Locked::default(),
        locked_of_nodes: Locked::default(),
    });
    let since = Instant::now();
    let send = |batch: Batch| {
        let (answer, answered) = oneshot::channel();
        let (context, pending) = (Arc::clone(&context), Arc::new(PendingBatch::new(batch, answer).unwrap()));
        tokio::spawn(async move { context.wait_for_locks(vec![pending], Serves::Others).await });
        answered
    };
    let swap = |n: u32| {
        let write = put(OUTSIDE.0, &n.to_string(), "1");
        Batch { fences: Vec::new(), expects: vec![(write.key.clone(), None)], writes: vec![write] }
    };
    let roles: Vec<_> = (0..2_000).map(swap).map(send).collect();
    let shard = send(fenced([(1, Epoch(1), 1)], [put(1, "a", "1")]));
    assert_eq!(shard.await.unwrap(), Ok(()));
    assert!(since.elapsed() < Duration::from_millis(100), "{:?}", since.elapsed());
    for role in roles {
        assert!(matches!(role.await.unwrap(), Err(Error::Unavailable(_))));
    }
    assert!(since.elapsed() < PATIENCE_FOR_LOCKS + Duration::from_millis(500), "{:?}", since.elapsed());
}
