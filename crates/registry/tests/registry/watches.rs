//! Watches: woken by hints of this process and of others, by time, and by the poll if a hint was lost.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use wayleave_core::limits::WATCH_POLL;
use wayleave_core::time::{Millis, Time};
use wayleave_engine::clock::Clock;
use wayleave_engine::memory::{LostAnswer, Memory};
use wayleave_engine::{Engine, Error};
use wayleave_registry::{News, Registry, Subject, Watch};
use wayleave_testbed::Cluster;

use crate::support::{
    Late, add, link, memory, number, only, open, put, read, record, two_in_memory, two_over_postgres, unpolled,
};

/// A bound for tests on a real database, which must not hang. Without polls nothing happens until then.
const BOUND: Duration = Duration::from_secs(60);

/// The next look's number.
async fn next(watch: &mut Watch) -> u64 {
    let sight = timeout(BOUND, watch.next()).await.expect("never woken").unwrap();
    number(sight.look(), "n")
}

#[tokio::test(start_paused = true)]
async fn a_hint_wakes_waiters_here_and_on_a_linked_node_without_polling() {
    let start = Instant::now();
    woken_by_hints(two_in_memory()).await;
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hint_wakes_waiters_of_a_linked_node_over_one_database() {
    woken_by_hints(two_over_postgres().await).await;
}

async fn woken_by_hints(engines: [Arc<dyn Engine>; 2]) {
    let [here, there] = engines.map(unpolled);
    link(&here, &there);
    let (mut mine, mut other) = (here.watch(&record("n")), there.watch(&record("n")));
    assert_eq!((next(&mut mine).await, next(&mut other).await), (0, 0), "the first look comes at once");
    here.update(record("n"), add("n")).await.unwrap();
    assert_eq!((next(&mut mine).await, next(&mut other).await), (1, 1));
    here.write(only(put("n", 5)), News::EVERYWHERE).await.unwrap();
    assert_eq!((next(&mut mine).await, next(&mut other).await), (5, 5));
}

#[tokio::test(start_paused = true)]
async fn a_hint_that_comes_while_the_watcher_looks_is_not_lost() {
    let start = Instant::now();
    hint_during_a_look(two_in_memory()).await;
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hint_that_comes_while_the_watcher_looks_at_the_database_is_not_lost() {
    hint_during_a_look(two_over_postgres().await).await;
}

/// (the watcher reads the old row) (the other node writes) (the hint arrives) (the watcher gets its answer).
async fn hint_during_a_look([writer, watcher]: [Arc<dyn Engine>; 2]) {
    let late = Late::new(watcher);
    let (here, there) = (unpolled(writer), unpolled(late.clone()));
    link(&here, &there);
    let mut watch = there.watch(&record("n"));
    late.looks.subscribe().wait_for(|looks| *looks == 1).await.unwrap();
    here.update(record("n"), add("n")).await.unwrap();
    late.open.send_replace(true);
    // The first look shows the row as it was before the write.
    while next(&mut watch).await == 0 {}
    assert_eq!(*late.looks.borrow(), 2, "the hint asks for one more look");
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_was_lost_wakes_those_who_may_see_it() {
    let engine = memory();
    let (here, there) = (unpolled(engine.clone()), unpolled(engine.clone()));
    link(&here, &there);
    let mut watch = there.watch(&record("n"));
    assert_eq!(next(&mut watch).await, 0);
    let start = Instant::now();
    engine.lose_next_answer(LostAnswer::Applied);
    here.write(only(put("n", 1)), News::OTHERS).await.unwrap_err();
    assert_eq!((next(&mut watch).await, start.elapsed()), (1, Duration::ZERO));
    engine.begin_outage("the cable is out");
    here.write(only(put("n", 2)), News::OTHERS).await.unwrap_err();
    assert!(timeout(Duration::from_secs(1), watch.next()).await.is_err(), "nothing was changed");
}

#[tokio::test(start_paused = true)]
async fn a_change_whose_hint_was_lost_is_found_by_the_poll() {
    let start = Instant::now();
    found_by_the_poll(two_in_memory()).await;
    assert_eq!(start.elapsed(), Duration::from_millis(WATCH_POLL.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_in_the_database_whose_hint_was_lost_is_found_by_the_poll() {
    found_by_the_poll(two_over_postgres().await).await;
}

async fn found_by_the_poll(engines: [Arc<dyn Engine>; 2]) {
    // The nodes are not linked.
    let [here, there] = engines.map(Registry::new);
    let mut watch = there.watch(&record("n"));
    assert_eq!(next(&mut watch).await, 0);
    here.update(record("n"), add("n")).await.unwrap();
    while next(&mut watch).await == 0 {}
}

#[tokio::test(start_paused = true)]
async fn a_watcher_learns_of_a_store_outage_and_the_watch_continues() {
    let engine = memory();
    let registry = Registry::new(engine.clone());
    let mut watch = registry.watch(&record("n"));
    assert_eq!(next(&mut watch).await, 0);
    engine.begin_outage("the cable is out");
    let ended = watch.next().await;
    assert!(matches!(&ended, Err(Error::Unavailable(why)) if why.contains("cable")), "{ended:?}");
    engine.end_outage();
    registry.update(record("n"), add("n")).await.unwrap();
    assert_eq!(next(&mut watch).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_learns_of_a_database_outage_and_the_watch_continues() {
    let cluster = Cluster::start().await;
    let registry = Registry::new(open(&cluster.fresh_database().await).await);
    let mut watch = registry.watch(&record("n"));
    assert_eq!(next(&mut watch).await, 0);
    cluster.stop_immediate().await;
    let ended = timeout(BOUND, async { while watch.next().await.is_ok() {} }).await;
    assert!(ended.is_ok(), "it sleeps beside a store that is gone");
    cluster.start_again().await;
    let back = async { while watch.next().await.is_err() {} };
    timeout(BOUND, back).await.expect("the watch has ended");
    assert_eq!(read(&registry, "n").await, 0);
}

/// A store whose clock follows the test's paused one.
struct Running(Instant);

impl Clock for Running {
    fn read(&self) -> Time {
        Time(1_000_000).after(Millis(self.0.elapsed().as_millis() as u64))
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_lease_is_looked_at_when_it_comes_without_any_poll() {
    let registry = unpolled(Arc::new(Memory::new(Running(Instant::now()))));
    let lease = Subject { ends: |_| Some(Time(1_005_000)), ..record("n") };
    let mut watch = registry.watch(&lease);
    let start = Instant::now();
    let first = watch.next().await.unwrap();
    assert!(first.now() < Time(1_005_000));
    let second = watch.next().await.unwrap();
    assert!(second.look().now >= Time(1_005_000), "{:?}", second.look().now);
    assert!(start.elapsed() <= Duration::from_millis(5_010), "{:?}", start.elapsed());
}
