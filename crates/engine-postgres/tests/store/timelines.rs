//! An old primary that is left running after a failover. It takes no more commits, because its synchronous standby
//! has left it, but it would still answer reads.

use std::sync::Arc;

use futures::future::join_all;
use wayleave_core::ids::ShardId;
use wayleave_engine::Engine;
use wayleave_engine::suite::harness::{all, check, fenced, names, put};
use wayleave_testbed::Cluster;

use crate::open;

/// (reads leave connections to the primary behind) (the standby is promoted, the primary continues) (a commit finds its way to the new
/// primary) (reads). The standby comes first in the URL, so new connections go to it as soon as it takes writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_follow_commits_to_a_new_primary_though_the_old_one_answers() {
    let old = Cluster::start().await;
    let new = old.standby().await;
    let url = format!("postgres://postgres@{},{}/postgres", new.address(), old.address());
    let engine = Arc::new(open(&url).await);
    let (epoch, _) = engine.own(ShardId(1), &[]).await.unwrap();
    engine.commit(fenced([(1, epoch, 1)], [put(1, "a", "before")])).await.unwrap();
    join_all((0..8).map(|_| check(&*engine, 1, [("a", Some("before"))]))).await;
    join_all((0..8).map(|_| engine.look(&[]))).await;
    new.promote().await;
    engine.commit(fenced([(1, epoch, 2)], [put(1, "a", "after"), put(1, "b", "after")])).await.unwrap();
    assert_eq!(old.sql("select 1").await, "1", "the old primary still answers");
    for _ in 0..8 {
        check(&*engine, 1, [("a", Some("after"))]).await;
        assert_eq!(names(&*engine, all(1)).await, ["a", "b"]);
        assert_eq!(engine.look(&[all(1)]).await.unwrap().rows[0].len(), 2);
    }
}

/// The old primary comes first in the URL. It is gone for a while, so connections go to the new one; when it is back, as itself and not
/// as a standby, it answers first again and says that it takes writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_returning_old_primary_is_skipped_for_the_greater_timeline() {
    let old = Cluster::start().await;
    let new = old.standby().await;
    let url = format!("postgres://postgres@{},{}/postgres", old.address(), new.address());
    let engine = open(&url).await;
    let (epoch, _) = engine.own(ShardId(1), &[]).await.unwrap();
    engine.commit(fenced([(1, epoch, 1)], [put(1, "a", "before")])).await.unwrap();
    old.stop_immediate().await;
    new.promote().await;
    engine.commit(fenced([(1, epoch, 2)], [put(1, "a", "after")])).await.unwrap();
    old.start_again().await;
    // More at once than there are connections to the new primary: others must be made.
    let checks = (0..8).map(|_| check(&engine, 1, [("a", Some("after"))]));
    join_all(checks).await;
    let range = [all(1)];
    let looks = join_all((0..8).map(|_| engine.look(&range))).await;
    let timelines: Vec<u64> = looks.into_iter().map(|look| look.unwrap().incarnation).collect();
    assert_eq!(timelines, [2; 8]);
}
