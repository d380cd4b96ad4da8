//! Reservations that wait for one crawl, beside others for other crawls and for any: each group wakes one that can
//! take it, and none sleeps beside a ready group that it could take.

use wayleave_core::names::CrawlName;

use crate::prelude::*;
use crate::support::*;

const WAIT: u64 = 600_000;

fn waiting(crawl: Option<&str>) -> Reserve {
    Reserve { wait: Millis(WAIT), crawl: crawl.map(Into::into), lease: Millis(3_600_000), ..want(1, 1) }
}

fn poll(world: &World, request: Reserve) -> JoinHandle<Vec<Reservation>> {
    let frontier = world.frontier.clone();
    tokio::spawn(async move { frontier.reserve(request).await.unwrap() })
}

fn url(crawl: &str, n: usize) -> wayleave_core::frontier::request::Put {
    of_crawl(crawl, disc(&format!("http://h{n}.example/{crawl}")))
}

#[tokio::test(start_paused = true)]
async fn idle_waiters_of_a_crawl_do_not_look_at_every_group_of_another() {
    const GROUPS: usize = 100;
    let world = World::new(4).await;
    let idle: Vec<_> = (0..1_000).map(|_| poll(&world, waiting(Some("b")))).collect();
    let busy: Vec<_> = (0..GROUPS).map(|_| poll(&world, waiting(Some("a")))).collect();
    pass(10).await;
    let before = world.frontier.looks();
    assert_eq!(before, 1_100);
    for n in 0..GROUPS {
        world.put(vec![url("a", n)]).await;
        pass(10).await;
    }
    assert!(busy.iter().all(JoinHandle::is_finished));
    let looks = world.frontier.looks() - before;
    assert!(looks <= GROUPS as u64 + 2, "{looks} looks for {GROUPS} groups");
    // One group serves the first of the idle ones, and no other looks.
    let before = world.frontier.looks();
    world.put(vec![url("b", GROUPS)]).await;
    pass(3_000).await;
    assert!(idle.first().unwrap().is_finished() && idle.iter().filter(|idle| idle.is_finished()).count() == 1);
    assert!(world.frontier.looks() - before <= 2, "{} looks", world.frontier.looks() - before);
}

/// The first in line takes any crawl, and of several groups the one that is ready longest.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_takes_another_crawls_group_passes_its_wake_up_on() {
    let world = World::new(4).await;
    let [a, b] =
        [("a", 0), ("b", 1)].map(|(crawl, shard)| of_crawl(crawl, disc(&format!("http://{}/", host_in(shard, 4, 0)))));
    let any = poll(&world, waiting(None));
    pass(1).await;
    let of_a = poll(&world, waiting(Some("a")));
    pass(1).await;
    // No task runs between the two: the one for any crawl is woken for a, and finds both.
    world.put(vec![a.clone(), b.clone()]).await;
    pass(10).await;
    assert!(any.is_finished());
    let taken = any.await.unwrap().remove(0).urls[0].crawl.clone();
    assert_eq!(of_a.is_finished(), &*taken == "b", "it took one of {taken}");
    if &*taken == "a" {
        assert!(world.reserve(1, 1).await[0].urls[0].crawl == CrawlName::from("b"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_url_of_a_second_crawl_in_a_ready_group_wakes_a_waiter_of_that_crawl() {
    let world = World::new(1).await;
    world.put(vec![url("a", 0)]).await;
    let waits = poll(&world, waiting(Some("b")));
    pass(10).await;
    assert!(!waits.is_finished());
    world.put(vec![url("b", 0)]).await;
    pass(10).await;
    assert!(waits.is_finished());
}

/// Draws numbers; the same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

const CRAWLS: [&str; 3] = ["a", "b", "c"];

struct Story {
    world: World,
    dice: Dice,
    waiters: Vec<(Option<&'static str>, JoinHandle<Vec<Reservation>>)>,
    visits: Vec<Reservation>,
    urls: usize,
}

impl Story {
    fn crawl(&mut self) -> &'static str {
        CRAWLS[self.dice.roll(CRAWLS.len())]
    }

    fn host(&mut self) -> String {
        format!("h{}.example", self.dice.roll(8))
    }

    async fn add(&mut self) {
        let mut puts = Vec::new();
        for _ in 0..=self.dice.roll(3) {
            self.urls += 1;
            let (url, later) = (format!("http://{}/{}", self.host(), self.urls), self.dice.roll(4) * 7);
            puts.push(of_crawl(self.crawl(), disc_at(&url, self.world.now().after(Millis(later as u64)))));
        }
        self.world.put(puts).await;
    }

    async fn release(&mut self) {
        if !self.visits.is_empty() {
            let at = self.dice.roll(self.visits.len());
            let visit = self.visits.swap_remove(at);
            match self.dice.roll(2) {
                0 => _ = self.world.fetched(&visit).await,
                // Its URLs return.
                _ => {
                    let release = Release { token: visit.token, results: Vec::new(), ready_at: None };
                    self.world.frontier.release(release, Vec::new()).await.unwrap();
                }
            }
        }
    }

    async fn set_crawl(&mut self) {
        let (crawl, dice) = (self.crawl(), self.dice.roll(6));
        let mut changes = CrawlChanges::default();
        match dice {
            0 => changes.paused = Change::Set(true),
            1 | 2 => changes.paused = Change::Set(false),
            3 => changes.weight = Change::Set(3),
            4 => changes.pages = Change::Set(self.urls as u64 / 4),
            _ => changes.pages = Change::Clear,
        }
        self.world.set_crawl(crawl, changes).await;
    }

    async fn set_group(&mut self) {
        let alias = format!("alias{}", self.dice.roll(2));
        match self.dice.roll(3) {
            0 => _ = self.world.frontier.delete_group(alias.as_str().into()).await,
            _ => {
                let (first, second) = (self.host(), self.host());
                let hosts = [first, second].map(|host| host.as_str().into()).to_vec();
                let parallel = self.dice.roll(2) as u32 + 1;
                let changes = PaceChanges { parallel: Change::Set(parallel), ..delay(self.dice.roll(3) as u64 * 5) };
                _ = self.world.frontier.set_group(alias.as_str().into(), Some(hosts), changes, false).await;
            }
        }
    }

    async fn step(&mut self) {
        match self.dice.roll(14) {
            0..4 => self.add().await,
            4..7 => {
                let of = [None, Some("a"), Some("b"), Some("c")][self.dice.roll(4)];
                let wait = [WAIT, WAIT, 5, 20][self.dice.roll(4)];
                let groups = 1 + self.dice.roll(2);
                let urls = self.dice.roll(3);
                let request = Reserve { groups, urls, wait: Millis(wait), ..waiting(of) };
                self.waiters.push((of, poll(&self.world, request)));
            }
            7 if !self.waiters.is_empty() => {
                let at = self.dice.roll(self.waiters.len());
                self.waiters.swap_remove(at).1.abort();
            }
            8..11 => self.release().await,
            11 => self.set_crawl().await,
            12 => self.set_group().await,
            _ => {
                let (host, ms) = (self.host(), self.dice.roll(3) as u64 * 4);
                let pace = if self.dice.roll(3) == 0 { paused(self.dice.roll(2) == 0) } else { delay(ms) };
                self.world.set_host(&host, pace).await;
            }
        }
        if self.dice.roll(3) > 0 {
            pass(self.dice.roll(6) as u64).await;
        }
    }

    /// Those who still wait have nothing to take: a caller that does not wait finds nothing either.
    async fn check(&mut self, what: &str) {
        // Everything that is ready by now is published and announced.
        self.world.frontier.stats().await.unwrap();
        for _ in 0..300 {
            tokio::task::yield_now().await;
        }
        let mut waiters = Vec::new();
        for (of, waiter) in std::mem::take(&mut self.waiters) {
            match waiter.is_finished() {
                true => self.visits.extend(waiter.await.unwrap()),
                false => waiters.push((of, waiter)),
            }
        }
        self.waiters = waiters;
        for of in [None, Some("a"), Some("b"), Some("c")] {
            if self.waiters.iter().any(|(waits, _)| *waits == of) {
                let request = Reserve { wait: Millis(0), ..waiting(of) };
                let missed = self.world.frontier.reserve(request).await.unwrap();
                assert!(missed.is_empty(), "{what}: a waiter for {of:?} sleeps beside {missed:?}");
            }
        }
    }
}

/// Visits, puts, releases, pauses, limits, weights, groups and callers that leave, in random order.
#[tokio::test(start_paused = true)]
async fn no_waiter_sleeps_beside_a_ready_group_of_its_crawl() {
    for seed in 0..60 {
        let shards = [1, 3, 8][seed as usize % 3];
        let world = World::new(shards).await;
        let mut story = Story { world, dice: Dice(seed), waiters: Vec::new(), visits: Vec::new(), urls: 0 };
        for step in 0..120 {
            story.step().await;
            story.check(&format!("seed {seed}, step {step}")).await;
        }
        story.waiters.iter().for_each(|(_, waiter)| waiter.abort());
        story.world.frontier.stop().await;
    }
    tokio::time::advance(Duration::from_millis(1)).await;
}
