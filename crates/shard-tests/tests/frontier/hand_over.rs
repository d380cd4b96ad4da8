//! Giving a shard up.

use crate::prelude::*;
use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_shard_is_given_up_only_when_its_commits_are_durable() {
    let engine = Arc::new(Memory::stepped(RuntimeClock::new()));
    let config = wayleave_shard::Config::new(1);
    let opening = tokio::spawn({
        let engine = engine.clone();
        async move { open(&engine, &config).await }
    });
    while !opening.is_finished() {
        engine.make_durable(usize::MAX);
        pass(1).await;
    }
    let frontier = opening.await.unwrap();
    let putting = tokio::spawn({
        let frontier = frontier.clone();
        async move { frontier.put(vec![disc("http://a.example/")]).await }
    });
    while engine.waiting() == 0 {
        pass(1).await;
    }
    let closing = tokio::spawn({
        let frontier = frontier.clone();
        async move { frontier.close_shard(ShardId(0)).await }
    });
    pass(1_000).await;
    assert!(!closing.is_finished(), "the next owner would fence out what is under way");
    engine.make_durable(usize::MAX);
    closing.await.unwrap();
    assert_eq!(engine.waiting(), 0);
    assert_eq!(putting.await.unwrap(), [PutOutcome::Added]);
}
