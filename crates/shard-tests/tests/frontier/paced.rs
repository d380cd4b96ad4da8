//! The paced form: URLs are held one by one, the group's delay starts at the hand-out.

use wayleave_core::frontier::request::UrlToFetch;

use crate::prelude::*;
use crate::support::*;

async fn with_urls(hosts: &[&str], each: usize) -> World {
    let world = World::new(4).await;
    for host in hosts {
        let urls: Vec<String> = (0..each).map(|n| format!("http://{host}/{n}")).collect();
        world.add(&urls.iter().map(String::as_str).collect::<Vec<_>>()).await;
    }
    world
}

#[tokio::test(start_paused = true)]
async fn many_queues_come_from_several_shards_and_each_of_them_once() {
    // One shard has most of the hosts: it makes up for what the other shards' shares lack.
    let mut hosts: Vec<String> = (0..60).map(|n| host_in(0, 4, n)).collect();
    hosts.extend((1..4).flat_map(|shard| (0..4).map(move |n| host_in(shard, 4, n))));
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let world = with_urls(&hosts, 2).await;
    let out = world.hand_out(70, 1).await;
    let mut served: Vec<&str> = out.iter().map(|url| &*url.host).collect();
    served.sort_unstable();
    served.dedup();
    assert_eq!((out.len(), served.len()), (70, 70));
    assert_eq!(world.hand_out(70, 1).await.len(), 2, "the others were visited just now");
    assert!(world.hand_out(70, 1).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_known_put_completes_a_held_url() {
    let world = with_urls(&["a.example"], 2).await;
    let out = world.hand_out(1, 2).await;
    let later = Time(world.now().0 + 60_000);
    world.put(vec![known(&out[0].url, None), known(&out[1].url, Some(later))]).await;
    let counts = world.host("a.example").await.counts;
    assert_eq!((counts.queued, counts.reserved, counts.fetched), (1, 0, 1));
    assert_eq!(world.frontier.stats().await.unwrap().holds, 0);
    pass(59_999).await;
    assert!(world.hand_out(1, 1).await.is_empty(), "the end of the old hold changes nothing");
    pass(1).await;
    assert_eq!(texts(&world.hand_out(1, 1).await), [&*out[1].url]);
}

#[tokio::test(start_paused = true)]
async fn a_url_that_was_not_delivered_returns_under_its_own_hold_and_no_other() {
    let world = with_urls(&["a.example"], 1).await;
    world.set_delay("a.example", 0).await;
    let brief = HandOut { hold: Millis(2_000), ..paced(1, 1) };
    let out = world.frontier.hand_out(brief.clone()).await.unwrap();
    let back = |url: &UrlToFetch| undelivered(&url.url, url.held_until.unwrap());
    assert_eq!(world.put(vec![back(&out[0])]).await, [PutOutcome::Updated]);
    let again = world.frontier.hand_out(brief.clone()).await.unwrap();
    assert_eq!((texts(&again), again[0].attempts), (texts(&out), 0), "it is there at once and nothing was tried");
    pass(2_001).await;
    let later = world.frontier.hand_out(brief).await.unwrap();
    assert_eq!(world.put(vec![back(&again[0])]).await, [PutOutcome::Known], "another has it now");
    assert!(world.hand_out(1, 1).await.is_empty());
    world.put(vec![known(&later[0].url, None)]).await;
    // Undelivered URLs of a process that was paused since: the URL is finished, and stays so.
    assert_eq!(world.put(vec![back(&again[0]), back(&later[0])]).await, [PutOutcome::Known, PutOutcome::Known]);
    assert_eq!(world.lookup(&out[0].url).await.unwrap().state, UrlState::Fetched);
    assert!(world.hand_out(1, 1).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_block_a_pause_and_an_inactive_server_hand_out_nothing() {
    let mut world = with_urls(&["a.example"], 3).await;
    let until = Time(world.now().0 + 3_000);
    let block = PaceChanges { blocked_until: Change::Set(until), ..PaceChanges::default() };
    world.set_host("a.example", block).await;
    assert!(world.hand_out(9, 1).await.is_empty());
    pass(3_000).await;
    world.set_host("a.example", paused(true)).await;
    assert!(world.hand_out(9, 1).await.is_empty());
    world.set_host("a.example", paused(false)).await;
    world.frontier.set_active(false).await.unwrap();
    assert!(world.hand_out(9, 1).await.is_empty());
    world.survives_a_restart().await;
    assert!(world.hand_out(9, 1).await.is_empty());
    world.frontier.set_active(true).await.unwrap();
    assert_eq!(world.hand_out(9, 1).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_queue_limit_ends_the_hand_out() {
    let world = with_urls(&["a.example"], 3).await;
    world.set_delay("a.example", 0).await;
    world.frontier.set_queue_limit("DEFAULT".into(), "a.example".into(), Some(1)).await.unwrap();
    let out = world.hand_out(1, 1).await;
    world.put(vec![known(&out[0].url, None)]).await;
    assert!(world.hand_out(1, 1).await.is_empty());
    let standing = world.host("a.example").await.standing;
    assert!(standing.state == State::Idle && standing.reason.contains("limit of 1"), "{standing:?}");
    world.frontier.set_queue_limit("DEFAULT".into(), "a.example".into(), None).await.unwrap();
    assert_eq!(world.hand_out(1, 1).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_reserved_group_gives_the_paced_form_nothing() {
    let world = with_urls(&["a.example"], 3).await;
    let visit = world.next().await.unwrap();
    assert!(world.hand_out(9, 9).await.is_empty());
    world.fetched(&visit).await;
    pass(1_000).await;
    assert_eq!(world.hand_out(9, 9).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn counts_of_active_queues_do_not_drift() {
    let world = with_urls(&["a.example"], 1).await;
    let active = async || world.frontier.crawl("DEFAULT".into()).await.unwrap().active_queues;
    for _ in 0..3 {
        assert_eq!(world.hand_out(1, 1).await.len(), 1);
        assert_eq!(active().await, 1);
        pass(31_000).await;
        assert_eq!(active().await, 1, "a hold that ran out makes no second queue");
    }
    world.put(vec![known("http://a.example/0", None)]).await;
    assert_eq!(active().await, 0);
}

/// A client that inspects a queue by handing it out repeatedly, or a slow crawler, says nothing about its pages.
#[tokio::test(start_paused = true)]
async fn a_hold_that_runs_out_is_no_attempt() {
    let world = World::new(1).await;
    world.add(&["http://a.example/1"]).await;
    for _ in 0..20 {
        let out = world.hand_out(1, 1).await;
        assert_eq!((texts(&out), out[0].attempts), (vec!["http://a.example/1"], 0));
        pass(40_000).await;
    }
    let visit = world.next().await.unwrap();
    world
        .release(&visit, |result| UrlResult { outcome: Outcome::Retry, next_at: Some(world.now()), ..result })
        .await
        .unwrap();
    pass(2_000).await;
    assert_eq!(world.hand_out(1, 1).await[0].attempts, 1, "what was reported counts");
    pass(40_000).await;
    assert_eq!(world.hand_out(1, 1).await[0].attempts, 1);
}
