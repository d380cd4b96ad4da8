//! Fairness: groups by how long they are ready, crawls by weight, URLs by priority, and nothing starves.

use std::collections::{HashMap, HashSet};

use crate::prelude::*;
use crate::support::*;

#[tokio::test(start_paused = true)]
async fn f3_the_group_that_became_ready_first_is_served_first() {
    let world = World::new(4).await;
    let hosts: Vec<String> = (0..40).map(|n| format!("h{n}.example")).collect();
    for host in &hosts {
        world.add(&[&format!("http://{host}/")]).await;
        pass(10).await;
    }
    for want in &hosts {
        assert_eq!(&*world.next().await.unwrap().host, want.as_str());
    }
}

#[tokio::test(start_paused = true)]
async fn no_group_waits_for_more_than_one_round_of_the_others() {
    let world = World::new(4).await;
    let hosts: Vec<String> = (0..30).map(|n| format!("h{n}.example")).collect();
    for host in &hosts {
        let urls: Vec<String> = (0..20).map(|n| format!("http://{host}/{n}")).collect();
        world.add(&urls.iter().map(String::as_str).collect::<Vec<_>>()).await;
        world.set_delay(host, 0).await;
    }
    // One worker, all groups always ready: a group is overtaken at most once by each of the others.
    let mut last_turn: HashMap<String, usize> = HashMap::new();
    for turn in 0..600 {
        let visit = world.next().await.unwrap();
        world.fetched(&visit).await;
        if let Some(before) = last_turn.insert(visit.host.to_string(), turn) {
            assert!(turn - before <= hosts.len(), "{} waited {} turns", visit.host, turn - before);
        }
        pass(1).await;
    }
    assert_eq!(last_turn.len(), hosts.len());
    assert!(world.next().await.is_none(), "all 600 URLs are done");
}

#[tokio::test(start_paused = true)]
async fn weights_hold_between_crawls_that_share_no_host() {
    for shards in [1, 8] {
        let world = World::new(shards).await;
        world.set_crawl("heavy", CrawlChanges { weight: Change::Set(1_000), ..CrawlChanges::default() }).await;
        let hosts = (0..1_000).map(|n| of_crawl("light", disc(&format!("http://l{n}.example/"))));
        world.put(hosts.collect()).await;
        pass(10).await;
        let mut puts = Vec::new();
        for host in (0..10).map(|n| format!("w{n}.example")) {
            world.set_delay(&host, 0).await;
            puts.extend((0..100).map(|n| of_crawl("heavy", disc(&format!("http://{host}/{n}")))));
        }
        world.put(puts).await;
        let mut heavy = 0;
        for _ in 0..600 {
            let visit = world.next().await.unwrap();
            heavy += u32::from(&*visit.urls[0].crawl == "heavy");
            world.fetched(&visit).await;
        }
        assert!(heavy >= 598, "{heavy} of 600 turns are the heavy crawl's, over {shards} shards");
        let mut heavy = 0;
        for _ in 0..300 {
            let out = world.frontier.hand_out(HandOut { held_below: None, ..paced(1, 1) }).await.unwrap();
            heavy += u32::from(&*out[0].crawl == "heavy");
        }
        assert!(heavy >= 298, "{heavy} of 300 turns in the paced form, over {shards} shards");
    }
}

/// A shard that is asked for more than it has ready grants everything, whatever the weights, so no shard may be asked for
/// all groups.
#[tokio::test(start_paused = true)]
async fn weights_hold_within_a_call_for_many_groups() {
    for shards in [1, 16] {
        let world = World::new(shards).await;
        world.set_crawl("heavy", CrawlChanges { weight: Change::Set(4), ..CrawlChanges::default() }).await;
        for crawl in ["heavy", "light"] {
            let hosts = (0..600).map(|n| of_crawl(crawl, disc(&format!("http://{crawl}{n}.example/"))));
            world.put(hosts.collect()).await;
        }
        pass(10).await;
        let granted = world.frontier.reserve(want(200, 1)).await.unwrap();
        let heavy = granted.iter().filter(|visit| &*visit.urls[0].crawl == "heavy").count();
        assert_eq!(granted.len(), 200, "{shards} shards");
        assert!((150..=170).contains(&heavy), "{heavy} of 200 visits are the heavy crawl's, over {shards} shards");
        let out = world.frontier.hand_out(HandOut { held_below: None, ..paced(200, 1) }).await.unwrap();
        let heavy = out.iter().filter(|url| &*url.crawl == "heavy").count();
        assert_eq!(out.len(), 200, "{shards} shards");
        assert!((150..=170).contains(&heavy), "{heavy} of 200 queues are the heavy crawl's, over {shards} shards");
    }
}

/// A shard answers a request id it has seen with what it granted before: asked for a second share, it would repeat the
/// first.
#[tokio::test(start_paused = true)]
async fn a_call_with_an_id_for_many_groups_is_granted_each_of_them_once() {
    let world = World::new(8).await;
    let hosts = (0..60).map(|n| of_crawl(["a", "b"][n % 2], disc(&format!("http://h{n}.example/"))));
    world.put(hosts.collect()).await;
    pass(10).await;
    let granted = world.frontier.reserve(want(50, 1).named("r-1")).await.unwrap();
    let tokens: HashSet<_> = granted.iter().map(|visit| visit.token).collect();
    assert_eq!((granted.len(), tokens.len()), (50, 50));
}

#[tokio::test(start_paused = true)]
async fn a_crawl_that_was_away_does_not_catch_up() {
    let world = World::new(1).await;
    world.set_delay("a.example", 0).await;
    let put = |crawl: &'static str| move |n: u32| of_crawl(crawl, disc(&format!("http://a.example/{n}")));
    world.put((0..100).map(put("old")).collect()).await;
    world.put((0..1).map(put("new")).collect()).await;
    for _ in 0..50 {
        let visit = world.next().await.unwrap();
        world.fetched(&visit).await;
    }
    world.put((100..140).map(put("new")).collect()).await;
    let mut old = 0;
    for _ in 0..20 {
        let visit = world.next().await.unwrap();
        old += u32::from(&*visit.urls[0].crawl == "old");
        world.fetched(&visit).await;
    }
    assert!((9..=11).contains(&old), "half of the turns stay with the crawl that was there: {old}");
}

#[tokio::test(start_paused = true)]
async fn priorities_go_first_and_every_tenth_turn_belongs_to_the_lower_ones() {
    let world = World::new(1).await;
    world.set_delay("a.example", 0).await;
    world.put((0..100).map(|n| ranked(&format!("http://a.example/high{n:03}"), 9)).collect()).await;
    world.put((0..10).map(|n| ranked(&format!("http://a.example/low{n}"), 0)).collect()).await;
    let mut turns = String::new();
    for _ in 0..40 {
        let visit = world.next().await.unwrap();
        turns.push(if visit.urls[0].priority == 9 { 'H' } else { 'l' });
        world.fetched(&visit).await;
    }
    assert_eq!(turns, "HHHHHHHHHl".repeat(4));
}

#[tokio::test(start_paused = true)]
async fn f4_a_group_is_queued_by_name_and_its_most_overdue_host_goes_first() {
    let world = World::new(4).await;
    let now = world.now().0;
    let puts = [("c", 300), ("a", 100), ("b", 200)];
    let put = |(host, due)| known(&format!("http://{host}.example/"), Some(Time(now - 1_000 + due)));
    world.put(puts.map(put).into()).await;
    world.set_group("trio", &["a.example", "b.example", "c.example"], delay(0)).await;
    for want in ["a.example", "b.example", "c.example"] {
        let visit = world.next().await.unwrap();
        assert_eq!((&*visit.group, &*visit.host), ("trio", want));
        world.fetched(&visit).await;
    }
}

#[tokio::test(start_paused = true)]
async fn urls_of_one_priority_go_by_due_time() {
    let world = World::new(1).await;
    let now = world.now().0;
    let put = |n: u64| known(&format!("http://a.example/{}", 9 - n), Some(Time(now - 100 + n)));
    world.put((0..9).rev().map(put).collect()).await;
    let visit = world.reserve(1, 9).await.pop().unwrap();
    let order: Vec<String> = (0..9).map(|n| format!("http://a.example/{}", 9 - n)).collect();
    assert_eq!(texts(&visit.urls), order);
}

#[tokio::test(start_paused = true)]
async fn a_visit_is_filled_from_lower_priorities_if_higher_ones_are_not_due() {
    let world = World::new(1).await;
    let later = Time(world.now().0 + 60_000);
    let mut puts = vec![ranked("http://a.example/now", 5), ranked("http://a.example/low", 0)];
    puts.extend((0..9).map(|n| disc_at(&format!("http://a.example/later{n}"), later)));
    world.put(puts).await;
    let visit = world.reserve(1, 2).await.remove(0);
    assert_eq!(texts(&visit.urls), ["http://a.example/now", "http://a.example/low"]);
}

/// Published readiness of one crawl must never hide what other shards have of it.
#[tokio::test(start_paused = true)]
async fn a_reservation_for_one_crawl_finds_it_in_every_shard() {
    let world = World::new(4).await;
    let hosts: Vec<String> = (0..4).map(|shard| host_in(shard, 4, 0)).collect();
    let put = |crawl: &str, n: u32| -> Vec<_> {
        hosts.iter().map(|host| of_crawl(crawl, disc(&format!("http://{host}/{n}")))).collect()
    };
    for host in &hosts {
        world.set_delay(host, 1_000).await;
    }
    // Another crawl without workers has something ready in all shards all the time.
    world.put((0..4).map(|shard| of_crawl("idle", disc(&format!("http://{}/", host_in(shard, 4, 1))))).collect()).await;
    let mine = |queues| HandOut { crawl: Some("mine".into()), held_below: None, ..paced(queues, 1) };
    for round in 0..3 {
        world.put(put("mine", round)).await;
        for _ in &hosts {
            assert_eq!(world.frontier.hand_out(mine(1)).await.unwrap().len(), 1, "round {round}");
        }
        assert!(world.frontier.hand_out(mine(4)).await.unwrap().is_empty(), "all have been visited");
        world.put(put("mine", round + 10)).await;
        assert!(world.frontier.hand_out(mine(4)).await.unwrap().is_empty(), "all rest");
        pass(1_000).await;
        assert_eq!(world.frontier.hand_out(mine(4)).await.unwrap().len(), 4, "all have rested, round {round}");
        pass(1_000).await;
    }
}
