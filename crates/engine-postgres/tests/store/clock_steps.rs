//! Steps of the database's clock: a function before PostgreSQL's own in the search path gives the time.

use wayleave_core::ids::ShardId;
use wayleave_core::time::{Millis, Time};
use wayleave_engine::Engine;
use wayleave_testbed::Cluster;

use crate::open;

/// An empty database whose clock can be stepped.
async fn stepping_database() -> (Cluster, String, String) {
    let cluster = Cluster::shared().await;
    let url = cluster.fresh_database().await;
    let database = url.rsplit('/').next().unwrap().to_owned();
    let clock = "create schema stepped; \
        create table stepped.clock (ms int8); insert into stepped.clock values (0); \
        create function stepped.statement_timestamp() returns timestamptz language sql stable as \
        'select pg_catalog.statement_timestamp() + (select ms from stepped.clock) * interval ''1 millisecond''';";
    cluster.sql_in(&database, clock).await;
    let path = format!("alter database {database} set search_path = stepped, pg_catalog, public");
    cluster.sql_in(&database, &path).await;
    (cluster, url, database)
}

async fn step(cluster: &Cluster, database: &str, ms: i64) {
    cluster.sql_in(database, &format!("update stepped.clock set ms = ms + {ms}")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_a_time_after_a_forward_step_has_noticed_the_step() {
    const STEP: Millis = Millis(60_000);
    let (cluster, url, database) = stepping_database().await;
    let (one, two) = (open(&url).await, open(&url).await);
    let before = one.look(&[]).await.unwrap();
    assert!(before.steady_since > Time::ZERO, "it knows nothing of the time before its start");
    step(&cluster, &database, 60_000).await;
    let look = one.look(&[]).await.unwrap();
    assert!(look.now >= before.now.after(STEP) && look.steady_since >= before.now.after(STEP));
    assert_eq!(one.look(&[]).await.unwrap().steady_since, look.steady_since, "the clock runs evenly again");
    // The time of a commit of a node that has seen the step, before this one looks at the clock itself.
    let ahead = one.own(ShardId(1), &[]).await.map(|_| one.now()).unwrap();
    two.own(ShardId(1), &[]).await.unwrap();
    assert!(two.now() >= ahead);
    assert!(two.look(&[]).await.unwrap().steady_since >= before.now.after(STEP));
    let fresh = open(&url).await.look(&[]).await.unwrap();
    assert!(fresh.steady_since > look.steady_since, "it has not seen how the clock came to be there");
}

/// The note of a node that leads the clock may be a second old.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_starts_after_a_backward_step_is_not_behind_those_that_lead() {
    let (cluster, url, database) = stepping_database().await;
    let one = open(&url).await;
    step(&cluster, &database, -60_000).await;
    while cluster.sql_in(&database, "select at from wayleave_fences where shard = -1").await.is_empty() {
        one.look(&[]).await.unwrap();
    }
    for _ in 0..6 {
        let before = one.now();
        let look = open(&url).await.look(&[]).await.unwrap();
        assert!(look.now.after(Millis(200)) >= before, "{} ms behind", before.since(look.now).0);
        assert!(look.now <= one.now().after(Millis(200)), "{} ms ahead", look.now.since(one.now()).0);
    }
}
