//! Long polls: every group that becomes ready wakes a waiter that can take it.
//!
//! How a waiter could sleep next to a ready group, each with a test:
//! 1. A is woken for a group of shard 0, B for one of shard 1. B takes the group of shard 0, which has been ready
//!    longer. A checked before shard 1 had published anything, finds nothing and sleeps; no one is woken for shard 1's
//!    group again.
//! 2. A is woken for a group and leaves before it has taken it.
//! 3. A is woken for a second group while it takes a first one, and leaves with the first.
//! 4. A node that is heard for the first time counts as one group, however many are ready there.
//!
//! Those that wait for one crawl are in `crawl_waits`.

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use crate::prelude::*;
use crate::support::*;

const WAIT: u64 = 60_000;

fn waiting(crawl: Option<&str>) -> Reserve {
    Reserve { wait: Millis(WAIT), crawl: crawl.map(Into::into), lease: Millis(3_600_000), ..want(1, 1) }
}

/// A waiter that records what it got, and after how long.
fn poll(world: &World, request: Reserve) -> JoinHandle<(Option<Reservation>, u64)> {
    let (frontier, began) = (world.frontier.clone(), Instant::now());
    tokio::spawn(async move {
        let got = frontier.reserve(request).await.unwrap().pop();
        (got, began.elapsed().as_millis() as u64)
    })
}

/// Checks that each waiter got a host of its own, and none later than `by`.
async fn all_served(waiters: Vec<JoinHandle<(Option<Reservation>, u64)>>, by: u64) {
    let count = waiters.len();
    let (mut hosts, mut late) = (BTreeSet::new(), 0);
    for waiter in waiters {
        let (got, after) = waiter.await.unwrap();
        late += usize::from(after > by || got.is_none());
        hosts.extend(got.map(|got| got.host));
    }
    assert_eq!((hosts.len(), late), (count, 0), "hosts handed out, and waiters that slept on");
}

fn urls(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("http://h{n}.example/")).collect()
}

#[tokio::test(start_paused = true)]
async fn as_many_hosts_as_waiters_put_at_once_serve_them_all_at_once() {
    for shards in [1, 4, 16] {
        for crawl in [None, Some("DEFAULT")] {
            let world = World::new(shards).await;
            let waiters: Vec<_> = (0..50).map(|_| poll(&world, waiting(crawl))).collect();
            pass(10).await;
            world.put(urls(50).iter().map(|url| disc(url)).collect()).await;
            all_served(waiters, 20).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn groups_that_become_ready_by_time_or_by_a_release_serve_all_who_wait() {
    let world = World::new(8).await;
    let (now, all) = (world.now(), urls(50));
    let (by_time, by_release) = all.split_at(25);
    for url in by_release {
        world.set_delay(&host_of(url), 1_000).await;
    }
    world.put(by_release.iter().map(|url| disc(url)).collect()).await;
    world.put(by_release.iter().map(|url| disc(&format!("{url}2"))).collect()).await;
    let visits = world.reserve(25, 1).await;
    assert_eq!(visits.len(), 25);
    world.put(by_time.iter().map(|url| disc_at(url, now.after(Millis(1_000)))).collect()).await;
    let waiters: Vec<_> = (0..50).map(|n| poll(&world, waiting([None, Some("DEFAULT")][n % 2]))).collect();
    for visit in &visits {
        world.fetched(visit).await;
    }
    all_served(waiters, 1_100).await;
}

#[tokio::test(start_paused = true)]
async fn who_goes_away_after_it_was_woken_leaves_the_group_to_the_next() {
    let world = World::new(4).await;
    // Woken, and dropped before it has checked: its future is not polled again.
    let mut first = Box::pin(world.frontier.reserve(waiting(None)));
    assert!(first.as_mut().now_or_never().is_none());
    let second = poll(&world, waiting(None));
    pass(10).await;
    world.add(&["http://a.example/"]).await;
    pass(10).await;
    drop(first);
    all_served(vec![second], 100).await;
    // The same, dropped while it asks a shard that has nothing for it.
    let mut first = Box::pin(world.frontier.reserve(waiting(None)));
    assert!(first.as_mut().now_or_never().is_none());
    let others: Vec<_> = (0..2).map(|_| poll(&world, waiting(None))).collect();
    pass(10).await;
    world.add(&["http://b.example/", "http://c.example/"]).await;
    drop(first);
    all_served(others, 100).await;
}

/// Three groups become ready one after the other, in three shards; a caller that does not wait takes the first.
#[tokio::test(start_paused = true)]
async fn a_waiter_woken_for_a_second_group_leaves_it_to_the_next() {
    let world = World::new(4).await;
    let [z, x, y] = [2, 0, 1].map(|shard| format!("http://{}/", host_in(shard, 4, 0)));
    let mut waiters = [0; 2].map(|_| Box::pin(world.frontier.reserve(waiting(None))));
    let [a, b] = &mut waiters;
    assert!(a.as_mut().now_or_never().is_none() && b.as_mut().now_or_never().is_none());
    for url in [&z, &x] {
        world.add(&[url]).await;
        pass(1).await;
    }
    // Both are woken and ask the shard of z first, behind the caller that takes it.
    let mut other = Box::pin(world.frontier.reserve(want(1, 1)));
    assert!(other.as_mut().now_or_never().is_none());
    assert!(a.as_mut().now_or_never().is_none() && b.as_mut().now_or_never().is_none());
    // y wakes a once more, which then takes x and leaves.
    world.add(&[&y]).await;
    assert_eq!(&*other.await.unwrap()[0].host, &*host_of(&z));
    let began = Instant::now();
    let (first, second) = tokio::join!(a, b);
    let hosts = [first, second].map(|got| got.unwrap().pop().map(|got| got.host));
    assert_eq!(hosts, [Some(host_of(&x)), Some(host_of(&y))]);
    assert_eq!(began.elapsed().as_millis(), 0, "no waiter slept on");
}

/// The first in line is woken for y, while it looks, and takes x, which has been ready longer. The last one, asleep in line,
/// is not woken by y itself.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_takes_another_group_leaves_its_own_to_the_next() {
    let world = World::new(4).await;
    let [z, x, y] = [2, 0, 1].map(|shard| format!("http://{}/", host_in(shard, 4, 0)));
    let mut waiters = [0; 3].map(|_| Box::pin(world.frontier.reserve(waiting(None))));
    let [a, b, late] = &mut waiters;
    assert!([&mut *a, &mut *b, &mut *late].into_iter().all(|one| one.as_mut().now_or_never().is_none()));
    for url in [&z, &x] {
        world.add(&[url]).await;
        pass(1).await;
    }
    let mut other = Box::pin(world.frontier.reserve(want(1, 1)));
    assert!([&mut *a, &mut *b].into_iter().all(|one| {
        // In front of each of them at the shard of z.
        other.as_mut().now_or_never();
        one.as_mut().now_or_never().is_none()
    }));
    world.add(&[&y]).await;
    assert!(late.as_mut().now_or_never().is_none(), "it sleeps");
    let began = Instant::now();
    let mut all: FuturesUnordered<_> = waiters.into_iter().collect();
    let mut hosts = Vec::new();
    for _ in 0..2 {
        hosts.push(all.next().await.unwrap().unwrap().pop().map(|got| got.host));
    }
    // The last one gets y, unless the second one, which is awake, finds it first.
    hosts.sort();
    let mut both = [Some(host_of(&x)), Some(host_of(&y))];
    both.sort();
    assert_eq!(hosts, both);
    assert_eq!(began.elapsed().as_millis(), 0, "no waiter slept on");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_comes_and_goes_steals_no_wake_up() {
    let world = World::new(4).await;
    let waiters: Vec<_> = (0..20).map(|_| poll(&world, waiting(None))).collect();
    for n in 0..40 {
        let short = poll(&world, Reserve { wait: Millis(n % 3), ..waiting(None) });
        world.add(&[&format!("http://h{n}.example/")]).await;
        if n % 2 == 0 {
            short.abort();
        }
        pass(1).await;
    }
    pass(10).await;
    let left = waiters.iter().filter(|waiter| !waiter.is_finished()).count();
    let ready = world.frontier.stats().await.unwrap().ready;
    assert!(left == 0 || ready == 0, "{left} sleep while {ready} groups are ready");
    tokio::time::advance(Duration::from_millis(WAIT)).await;
}
