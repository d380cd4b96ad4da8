//! Hosts are kept in memory, so they are limited; very long URLs are distinguished by their full text.

use wayleave_core::frontier::row::Write;
use wayleave_engine::rows;
use wayleave_engine::rows::url;

use crate::prelude::*;
use crate::support::*;

async fn with_hosts_max(hosts_max: u64) -> World {
    let engine = Arc::new(Memory::new(RuntimeClock::new()));
    let config = Config { hosts_max, ..Config::new(4) };
    let frontier = open(&engine, &config).await;
    World { engine, frontier, config }
}

fn why(outcome: &PutOutcome) -> &str {
    match outcome {
        PutOutcome::Rejected(why) => why,
        other => panic!("not rejected: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_takes_no_more_hosts_than_it_may_and_refuses_none_that_it_has() {
    let mut world = with_hosts_max(5).await;
    let puts = (0..40).map(|n| disc(&format!("http://h{n}.example/1"))).collect();
    let outcomes = world.put(puts).await;
    let added: Vec<usize> = (0..40).filter(|n| outcomes[*n] == PutOutcome::Added).collect();
    assert_eq!(added.len(), 5, "over all shards: {outcomes:?}");
    for outcome in outcomes.iter().filter(|outcome| **outcome != PutOutcome::Added) {
        let why = why(outcome);
        assert!(why.contains("holds 5 hosts") && why.contains("--hosts-max"), "{why}");
    }
    world.reopen().await;
    for n in 0..40 {
        let outcome = world.put(vec![disc(&format!("http://h{n}.example/2"))]).await.remove(0);
        assert_eq!(outcome == PutOutcome::Added, added.contains(&n), "{n}: {outcome:?}");
        let known = world.put(vec![known(&format!("http://h{n}.example/3"), None)]).await.remove(0);
        assert_eq!(known == PutOutcome::Added, added.contains(&n), "{n}: {known:?}");
    }
    let set = world.frontier.set_host("new.example".into(), delay(1), false, None).await;
    assert!(matches!(&set, Err(Refusal::HostsFull(why)) if why.contains("--hosts-max")), "{set:?}");
    let hosts = Some(vec!["new.example".into()]);
    let group = world.frontier.set_group("village".into(), hosts, PaceChanges::default(), false).await;
    assert!(matches!(group, Err(Refusal::HostsFull(_))), "{group:?}");
    let old = format!("h{}.example", added[0]);
    world.set_delay(&old, 7).await;
    world.set_group("village", &[&old], PaceChanges::default()).await;
    world.set_group("village", &[], PaceChanges::default()).await;
    world.frontier.delete_queue("DEFAULT".into(), format!("h{}.example", added[1]).as_str().into()).await.unwrap();
    assert_eq!(world.put(vec![disc("http://new.example/")]).await, [PutOutcome::Added], "one is gone");
}

#[tokio::test(start_paused = true)]
async fn a_crawl_counts_once_however_many_shards_have_it() {
    let mut world = World::new(4).await;
    world.set_crawl("everywhere", CrawlChanges::default()).await;
    let here = |n: usize| Put { crawl: "here".into(), ..disc(&format!("http://h{n}.example/")) };
    world.put((0..20).map(here).collect()).await;
    let counted = async |world: &World| world.frontier.stats().await.unwrap().crawls;
    assert_eq!(counted(&world).await, 2);
    world.reopen().await;
    assert_eq!(counted(&world).await, 2, "after a restart");
    for n in 0..19 {
        let host = format!("h{n}.example");
        world.frontier.delete_queue("here".into(), host.as_str().into()).await.unwrap();
    }
    assert_eq!(counted(&world).await, 2, "one queue is left");
    world.frontier.delete_queue("here".into(), "h19.example".into()).await.unwrap();
    assert_eq!(counted(&world).await, 1);
    world.frontier.delete_crawl("everywhere".into()).await.unwrap();
    assert_eq!(counted(&world).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_crawl_takes_no_more_hosts_than_it_may_and_refuses_none_that_it_has() {
    let mut world = World::new(4).await;
    world.set_crawl("DEFAULT", CrawlChanges { hosts: Change::Set(3), ..CrawlChanges::default() }).await;
    world.reopen().await;
    let mut added = 0;
    for n in 0..20 {
        let url = format!("http://h{n}.example/1");
        match world.put(vec![disc(&url)]).await.remove(0) {
            PutOutcome::Added => added += 1,
            outcome => {
                let why = why(&outcome);
                assert!(why.contains("limit of 3 hosts") && why.contains("limits.hosts"), "{why}");
                assert_eq!(world.put(vec![of_crawl("other", disc(&url))]).await, [PutOutcome::Added]);
            }
        }
    }
    assert_eq!(added, 3);
    assert_eq!(world.put(vec![disc("http://h0.example/2")]).await, [PutOutcome::Added]);
}

/// Keys of long URLs end in a hash; a collision is made by changing the full URL in the row.
#[tokio::test(start_paused = true)]
async fn a_long_url_is_not_taken_for_another_one_with_the_same_key() {
    let world = World::new(1).await;
    let mine = format!("http://a.example/{}", "x".repeat(2_000));
    let other = format!("http://a.example/{}", "y".repeat(2_000));
    world.add(&[&mine]).await;
    assert_eq!(world.put(vec![disc(&mine)]).await, [PutOutcome::Known]);
    let (from, to) = key::range(ShardId(0), Kind::Url, Kind::Url);
    let row = world.engine.scan_many(&[Scan { from, to, limit: 9 }]).await.unwrap().remove(0).remove(0);
    let (queue, key) = url::parse_key(&row.key).unwrap();
    let mut changed = url::decode(&row.value).unwrap();
    changed.whole = Some(other.as_str().into());
    let write = rows::encode(ShardId(0), &Write::Url(queue, key, Some(changed)));
    world.engine.commit(Batch { writes: vec![write], ..Batch::default() }).await.unwrap();
    for put in [disc(&mine), known(&mine, None)] {
        let outcome = world.put(vec![put]).await.remove(0);
        assert!(why(&outcome).contains("has the same key"), "{outcome:?}");
    }
    assert_eq!(world.lookup(&mine).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_reservation_never_holds_more_pages_than_a_limit_leaves() {
    let world = World::new(1).await;
    let limit = CrawlChanges { pages_per_host: Change::Set(3), ..CrawlChanges::default() };
    world.frontier.set_crawl("DEFAULT".into(), limit, false).await.unwrap();
    world
        .add(
            &(0..9)
                .map(|n| format!("http://a.example/{n}"))
                .collect::<Vec<_>>()
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>(),
        )
        .await;
    let first = world.reserve(1, 2).await.pop().unwrap();
    assert_eq!(first.urls.len(), 2);
    world.fetched(&first).await;
    pass(1_000).await;
    let second = world.reserve(1, 1_000).await.pop().unwrap();
    assert_eq!(second.urls.len(), 1, "two of three are fetched");
    // Released unfetched, so its page can be handed out again.
    world
        .frontier
        .release(Release { token: second.token, results: Vec::new(), ready_at: None }, Vec::new())
        .await
        .unwrap();
    pass(1_000).await;
    let third = world.reserve(1, 1_000).await.pop().unwrap();
    assert_eq!(third.urls.len(), 1);
    world.fetched(&third).await;
    pass(10_000).await;
    assert_eq!(world.reserve(1, 1).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_visited_again_counts_again_also_after_a_restart() {
    let mut world = World::new(1).await;
    let revisit = Change::Set(Revisit::Fixed(Millis(5_000)));
    let changes = CrawlChanges { pages_per_host: Change::Set(3), revisit, ..CrawlChanges::default() };
    world.frontier.set_crawl("DEFAULT".into(), changes, false).await.unwrap();
    world.add(&["http://a.example/1"]).await;
    for _ in 0..3 {
        let visit = world.next().await.unwrap();
        world.fetched(&visit).await;
        pass(10_000).await;
        world.reopen().await;
    }
    assert_eq!(world.next().await, None, "three pages were fetched");
}

#[tokio::test(start_paused = true)]
async fn a_groups_limit_bounds_its_hosts_together() {
    let world = World::new(4).await;
    let (hosts, alias) = ([host_in(0, 4, 0), host_in(1, 4, 1)], alias_in(2, 4));
    for host in &hosts {
        world.add(&[&format!("http://{host}/1"), &format!("http://{host}/2"), &format!("http://{host}/3")]).await;
    }
    let limit = PaceChanges { limit: Change::Set(4), ..PaceChanges::default() };
    world.set_group(&alias, &[&hosts[0], &hosts[1]], limit).await;
    let mut fetched = 0;
    for _ in 0..20 {
        for visit in world.reserve(9, 9).await {
            fetched += visit.urls.len();
            world.fetched(&visit).await;
        }
        pass(2_000).await;
    }
    assert_eq!(fetched, 4);
    let reason = world.group(&alias).await.standing.reason;
    assert!(reason.contains("limit of 4 pages") && reason.contains(&alias), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn a_page_that_comes_after_its_hold_counts_too() {
    let world = World::new(1).await;
    let limit = CrawlChanges { pages_per_host: Change::Set(1), ..CrawlChanges::default() };
    world.frontier.set_crawl("DEFAULT".into(), limit, false).await.unwrap();
    world.add(&["http://a.example/1", "http://a.example/2"]).await;
    let out = world.hand_out(1, 1).await;
    pass(60_000).await;
    let known = PutKind::Known { due: None };
    world.put(vec![Put { kind: known, ..disc(&out[0].url) }]).await;
    pass(60_000).await;
    assert_eq!(world.hand_out(1, 1).await, [], "one page was fetched");
}

#[tokio::test(start_paused = true)]
async fn a_crawl_that_may_fetch_again_wakes_all_its_hosts() {
    let world = World::new(1).await;
    let limit = CrawlChanges { pages: Change::Set(1), ..CrawlChanges::default() };
    world.frontier.set_crawl("DEFAULT".into(), limit, false).await.unwrap();
    world.add(&["http://a.example/1"]).await;
    let visit = world.next().await.unwrap();
    world.fetched(&visit).await;
    world.add(&["http://b.example/1"]).await;
    assert_eq!(world.next().await, None, "the crawl has fetched its page");
    let tomorrow = PutKind::Known { due: Some(Time(world.now().0 + 86_400_000)) };
    world.put(vec![Put { kind: tomorrow, ..disc("http://a.example/1") }]).await;
    assert_eq!(world.next().await, None, "a page that is to be visited again has been fetched all the same");
    world.set_crawl("DEFAULT", CrawlChanges { pages: Change::Set(2), ..CrawlChanges::default() }).await;
    assert_eq!(*world.next().await.unwrap().host, *"b.example");
}
