//! The database restarts, crashes, is paused, fails over: nothing acknowledged is lost, nothing is applied twice, time
//! continues.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use wayleave_core::ids::ShardId;
use wayleave_core::time::Time;
use wayleave_engine::suite::harness::{batch, check, fenced, put};
use wayleave_engine::{Engine, Error};
use wayleave_engine_postgres::Postgres;
use wayleave_testbed::Cluster;

use crate::open;
use crate::stream::{Stream, check_stream, commit_until, wait_for};

struct Running {
    engine: Arc<Postgres>,
    stop: Arc<AtomicBool>,
    progress: watch::Receiver<u64>,
    owner: tokio::task::JoinHandle<Stream>,
    /// The latest time; panics if time goes back.
    watch: tokio::task::JoinHandle<Time>,
}

impl Running {
    async fn start(url: &str) -> Self {
        let engine = Arc::new(open(url).await);
        let (stop, (counting, mut progress)) = (Arc::new(AtomicBool::new(false)), watch::channel(0));
        let owner = tokio::spawn(commit_until(Arc::clone(&engine), Arc::clone(&stop), counting));
        let watch = tokio::spawn(watch_time(Arc::clone(&engine), Arc::clone(&stop)));
        wait_for(&mut progress, 20).await;
        Self { engine, stop, progress, owner, watch }
    }

    async fn end(self) -> (Arc<Postgres>, Stream) {
        self.stop.store(true, Ordering::SeqCst);
        let stream = self.owner.await.unwrap();
        self.watch.await.unwrap();
        check_stream(&self.engine, &stream).await;
        (self.engine, stream)
    }
}

async fn watch_time(engine: Arc<Postgres>, stop: Arc<AtomicBool>) -> Time {
    let mut last = engine.now();
    while !stop.load(Ordering::SeqCst) {
        let now = engine.now();
        assert!(now >= last, "time went back from {last:?} to {now:?}");
        last = now;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    last
}

#[tokio::test]
async fn while_the_database_is_gone_callers_hear_so_soon_and_later_ones_at_once() {
    let cluster = Cluster::start().await;
    let engine = open(&cluster.url()).await;
    engine.commit(batch([put(1, "a", "1")])).await.unwrap();
    cluster.stop().await;
    // The connections are known to be dead: nothing is in doubt.
    assert!(matches!(engine.look(&[]).await, Err(Error::Unavailable(_))));
    // Far less than a call may take, which is 10 s.
    for most in [Duration::from_secs(8), Duration::from_secs(4)] {
        let begun = Instant::now();
        let outcome = engine.commit(batch([put(1, "b", "1")])).await;
        assert!(matches!(outcome, Err(Error::Unavailable(_))), "{outcome:?}");
        assert!(begun.elapsed() < most, "{:?}", begun.elapsed());
    }
    cluster.start_again().await;
    engine.commit(batch([put(1, "c", "1")])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_outlive_restarts_and_crashes_of_the_database() {
    let cluster = Cluster::start().await;
    let mut running = Running::start(&cluster.url()).await;
    for round in 0..4 {
        if round % 2 == 0 {
            cluster.stop_immediate().await;
            cluster.start_again().await;
        } else {
            cluster.restart().await;
        }
        wait_for(&mut running.progress, 50).await;
    }
    let (_, stream) = running.end().await;
    assert!(stream.done.len() > 200, "{}", stream.done.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_to_a_synchronous_standby_loses_nothing() {
    let primary = Cluster::start().await;
    let standby = primary.standby().await;
    let url = format!("postgres://postgres@{},{}/postgres", primary.address(), standby.address());
    let mut running = Running::start(&url).await;
    let before = running.engine.look(&[]).await.unwrap();
    assert_eq!(running.engine.durability().synchronous_standbys, "standby");
    primary.stop_immediate().await;
    standby.promote().await;
    wait_for(&mut running.progress, 50).await;
    let after = running.engine.look(&[]).await.unwrap();
    assert!(after.now > before.now);
    assert_ne!(after.incarnation, before.incarnation, "another store has stepped in");
    let (engine, _) = running.end().await;
    let next = open(&url).await;
    assert!(next.now() >= after.now);
    assert!(!next.is_elsewhere(), "a standby that was promoted is no copy");
    drop(engine);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_database_blocks_no_caller_past_its_deadline() {
    let cluster = Cluster::start().await;
    let engine = open(&cluster.url()).await;
    let (epoch, _) = engine.own(ShardId(1), &[]).await.unwrap();
    // A commit that needs a new connection is not even sent.
    engine.commit(batch([put(9, "before", "1")])).await.unwrap();
    cluster.pause().await;
    let start = Instant::now();
    let keys = [vec![1]];
    let (read, commit) =
        tokio::join!(engine.get_many(&keys), engine.commit(fenced([(1, epoch, 1)], [put(1, "a", "1")])));
    assert!(matches!(read, Err(Error::Unavailable(_))), "{read:?}");
    assert!(matches!(commit, Err(Error::OutcomeUnknown(_))), "{commit:?}");
    assert!(start.elapsed() < Duration::from_secs(40), "{:?}", start.elapsed());
    let before = engine.now();
    cluster.resume().await;
    // What was in flight may have been applied, or is applied now, or not at all; the next owner sees which.
    let (_, seq) = engine.own(ShardId(1), &[]).await.unwrap();
    check(&engine, 1, [("a", (seq == 1).then_some("1"))]).await;
    assert!(engine.now() >= before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_database_is_unavailable_until_it_takes_writes_again() {
    let cluster = Cluster::start().await;
    let engine = open(&cluster.url()).await;
    engine.commit(batch([put(1, "a", "1")])).await.unwrap();
    let set = async |value: &str| {
        cluster.sql(&format!("alter system set default_transaction_read_only = {value}")).await;
        cluster.sql("select pg_reload_conf()").await;
    };
    set("on").await;
    let start = Instant::now();
    loop {
        match engine.commit(batch([put(1, "a", "2")])).await {
            // The sessions have not reloaded yet.
            Ok(()) => assert!(start.elapsed() < Duration::from_secs(60)),
            Err(error) => {
                assert!(matches!(&error, Error::Unavailable(why) if why.contains("writes")), "{error}");
                break;
            }
        }
    }
    let owned = engine.own(ShardId(1), &[]).await;
    assert!(matches!(owned, Err(Error::Unavailable(_))), "{owned:?}");
    set("off").await;
    let start = Instant::now();
    while engine.commit(batch([put(1, "a", "3")])).await.is_err() {
        assert!(start.elapsed() < Duration::from_secs(60), "it takes writes again");
    }
    check(&engine, 1, [("a", Some("3"))]).await;
}

/// An operator who cancels a commit while it waits for the standby makes the database report success, with a mere
/// warning: it would be lost in a failover.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_the_standby_does_not_have_is_not_acknowledged() {
    let primary = Cluster::start().await;
    let standby = primary.standby().await;
    let engine = open(&primary.url()).await;
    let (epoch, _) = engine.own(ShardId(1), &[]).await.unwrap();
    standby.pause().await;
    let commit = engine.commit(fenced([(1, epoch, 1)], [put(1, "a", "1")]));
    let commit = tokio::spawn(commit);
    let waits = "select count(*), min(pid) from pg_stat_activity where wait_event = 'SyncRep' and application_name = 'wayleave'";
    let first = wait_for_one(&primary, waits, "").await;
    primary.sql(&format!("select pg_cancel_backend({first})")).await;
    // It is visible now, but the next read of its fence waits for the standby too.
    wait_for_one(&primary, waits, &first).await;
    assert!(!commit.is_finished(), "nothing may be acknowledged that the standby does not have");
    standby.resume().await;
    assert_eq!(commit.await.unwrap(), Ok(()));
    assert_eq!(engine.own(ShardId(1), &[]).await.unwrap().1, 1);
}

/// Waits until exactly one session waits, and not for the same statement as before; returns its process.
async fn wait_for_one(cluster: &Cluster, waits: &str, before: &str) -> String {
    let start = Instant::now();
    let mut seen_none = before.is_empty();
    loop {
        let found = cluster.sql(waits).await;
        let (count, pid) = found.split_once('|').unwrap();
        seen_none |= count == "0" || pid != before;
        if count == "1" && seen_none {
            return pid.to_owned();
        }
        assert!(start.elapsed() < Duration::from_secs(8), "no commit waits for the standby: {found}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_is_no_store() {
    let primary = Cluster::start().await;
    let standby = primary.standby().await;
    drop(open(&primary.url()).await);
    let refused = Postgres::open(&standby.url(), wayleave_engine_postgres::Options::default()).await.err().unwrap();
    assert!(refused.to_string().contains("accepts no writes"), "{refused}");
}
