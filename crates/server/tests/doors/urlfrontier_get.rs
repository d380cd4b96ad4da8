//! URLFrontier: GetURLs.

use wayleave_api::urlfrontier::{Active, AnyCrawlId, CrawlLimitParams};
use wayleave_core::frontier::request::Reserve;

use crate::prelude::*;
use crate::urlfrontier::{START, ask, discovered, info, known, world};

fn any(queues: u32, urls: u32) -> GetParams {
    let item = Some(get_params::Item::AnyCrawlId(AnyCrawlId {}));
    GetParams { item, ..ask("", queues, urls) }
}

fn keyed(key: &str, item: Option<get_params::Item>, urls: u32) -> GetParams {
    GetParams { key: key.into(), item, max_urls_per_queue: urls, ..Default::default() }
}

#[tokio::test]
async fn an_empty_frontier_answers_with_an_empty_stream() {
    let mut world = world().await;
    assert!(world.get(GetParams::default()).await.is_empty());
    assert!(world.get(keyed("nowhere", None, 1)).await.is_empty());
    assert!(world.get(ask("no such crawl", 1, 1)).await.is_empty());
}

#[tokio::test]
async fn a_queue_waits_for_its_delay_in_milliseconds() {
    let mut world = world().await;
    world.seed("", &["http://a.com/1", "http://a.com/2"]).await;
    assert_eq!(world.get(ask("", 1, 1)).await.len(), 1);
    world.pass(999);
    assert!(world.get(ask("", 1, 2)).await.is_empty(), "the default delay is one second");
    world.pass(1);
    assert_eq!(world.get(ask("", 1, 2)).await.len(), 1);
}

#[tokio::test]
async fn due_urls_go_out_by_date_up_to_the_limits() {
    let mut world = world().await;
    for (url, date) in [("http://a.com/c", 5), ("http://a.com/b", 7), ("http://a.com/a", 9), ("http://a.com/x", 0)] {
        world.put_one(known(info(url, "", ""), if date > 0 { START - date } else { START * 1_000 })).await;
    }
    let got: Vec<String> = world.get(ask("", 1, 2)).await.into_iter().map(|info| info.url).collect();
    assert_eq!(got, ["http://a.com/a", "http://a.com/b"]);
    world.pass(1_000);
    assert!(world.get(ask("", 1, 2)).await.is_empty(), "as many as asked for are on hold");
    let rest: Vec<String> = world.get(ask("", 1, 3)).await.into_iter().map(|info| info.url).collect();
    assert_eq!(rest, ["http://a.com/c"], "a date in milliseconds by mistake is just far away");
}

#[tokio::test]
async fn no_limit_means_no_cap_on_holds() {
    let mut world = world().await;
    world.seed("", &["http://a.com/1", "http://a.com/2", "http://a.com/3"]).await;
    assert_eq!(world.get(ask("", 0, 1)).await.len(), 1);
    world.pass(1_000);
    assert_eq!(world.get(ask("", 0, 0)).await.len(), 2);
}

#[tokio::test]
async fn a_hold_ends_at_its_time_and_is_thirty_seconds_by_default() {
    let mut world = world().await;
    world.seed("", &["http://a.com/", "http://b.com/"]).await;
    assert_eq!(world.get(keyed("a.com", None, 1)).await.len(), 1);
    assert_eq!(world.get(GetParams { delay_requestable: 5, ..keyed("b.com", None, 1) }).await.len(), 1);
    world.pass(4_999);
    assert!(world.get(keyed("b.com", None, 1)).await.is_empty());
    world.pass(1);
    assert_eq!(world.get_texts(keyed("b.com", None, 1)).await, ["http://b.com/"]);
    world.pass(24_999);
    assert!(world.get(keyed("a.com", None, 1)).await.is_empty());
    world.pass(1);
    assert_eq!(world.get(keyed("a.com", None, 1)).await.len(), 1, "served again from the very time");
}

#[tokio::test]
async fn a_hold_that_has_ended_is_seen_without_naming_its_queue() {
    let mut world = world().await;
    world.seed("", &["http://a.com/"]).await;
    assert_eq!(world.get(ask("", 1, 1)).await.len(), 1);
    world.pass(30_000);
    assert_eq!(world.get(ask("", 1, 1)).await.len(), 1);
}

#[tokio::test]
async fn at_most_so_many_queues_are_served_and_empty_ones_do_not_count() {
    let mut world = world().await;
    world.seed("", &["http://a.com/", "http://b.com/", "http://c.com/", "http://d.com/"]).await;
    world.put_one(known(info("http://a.com/", "", ""), 0)).await;
    assert_eq!(world.get(ask("", 3, 5)).await.len(), 3);
}

#[tokio::test]
async fn crawls_are_told_apart_and_any_means_any() {
    let mut world = world().await;
    world.seed("", &["http://a.com/"]).await;
    world.seed("my_spider", &["http://b.com/"]).await;
    assert!(world.get(ask("other", 9, 9)).await.is_empty());
    assert_eq!(world.get_texts(ask("my_spider", 9, 9)).await, ["http://b.com/"]);
    assert_eq!(world.get_texts(ask("", 9, 9)).await, ["http://a.com/"], "set but empty is the default crawl");
    world.seed("", &["http://c.com/"]).await;
    world.seed("my_spider", &["http://d.com/"]).await;
    assert_eq!(world.get_texts(any(1, 1)).await.len(), 1);
    assert_eq!(world.get(GetParams::default()).await.len(), 1, "neither member set means any, too");
}

#[tokio::test]
async fn names_with_underscores_are_served() {
    let mut world = world().await;
    let names = ["_DEFAULT_", "foo_bar.com", "a%5Fb"];
    for name in names {
        world.put_one(discovered(info(&format!("http://x/{name}"), name, "my_spider"))).await;
    }
    let mut keys: Vec<String> = world.get(ask("my_spider", 9, 1)).await.into_iter().map(|info| info.key).collect();
    keys.sort();
    assert_eq!(keys, ["_DEFAULT_", "a%5Fb", "foo_bar.com"]);
}

#[tokio::test]
async fn a_key_without_a_crawl_means_the_default_crawl() {
    let mut world = world().await;
    world.seed("", &["http://a.com/1", "http://a.com/2", "http://b.com/"]).await;
    world.seed("other", &["http://a.com/other"]).await;
    assert_eq!(world.get(keyed("a.com", None, 1)).await.len(), 1);
    world.pass(1_000);
    let any = Some(get_params::Item::AnyCrawlId(AnyCrawlId {}));
    assert_eq!(world.get_texts(keyed("a.com", any, 9)).await.len(), 1);
    world.pass(1_000);
    let other = Some(get_params::Item::CrawlId("other".into()));
    assert_eq!(world.get_texts(keyed("a.com", other, 9)).await, ["http://a.com/other"]);
}

#[tokio::test]
async fn nothing_goes_out_while_the_frontier_is_not_active() {
    let mut world = world().await;
    world.seed("", &["http://a.com/"]).await;
    assert!(world.client.get_active(Local::default()).await.unwrap().into_inner().state);
    world.client.set_active(Active { state: false, local: false }).await.unwrap();
    assert!(!world.client.get_active(Local { local: true }).await.unwrap().into_inner().state);
    assert!(world.get(ask("", 1, 1)).await.is_empty());
    world.seed("", &["http://b.com/"]).await;
    world.client.set_active(Active { state: true, local: false }).await.unwrap();
    assert_eq!(world.get(ask("", 9, 9)).await.len(), 2);
    let mut text = String::new();
    world.metrics.render(&mut text);
    assert!(text.contains("frontier_getURLs_calls_total 1\n"), "calls while inactive are not counted: {text}");
    assert!(text.contains("frontier_getURLs_total 2\n"), "{text}");
}

#[tokio::test]
async fn a_delay_of_a_host_is_kept_even_before_its_first_url() {
    let mut world = world().await;
    let delay = |key: &str, crawl: &str, secs| QueueDelayParams {
        key: key.into(),
        crawl_id: crawl.into(),
        delay_requestable: secs,
        local: false,
    };
    world.client.set_delay(delay("a.com", "", 3)).await.unwrap();
    world.seed("", &["http://a.com/1", "http://a.com/2"]).await;
    assert_eq!(world.get(ask("", 1, 1)).await.len(), 1);
    world.pass(2_999);
    assert!(world.get(ask("", 1, 2)).await.is_empty());
    world.pass(1);
    assert_eq!(world.get(ask("", 1, 2)).await.len(), 1);
    world.client.set_delay(delay("a.com", "", u32::MAX)).await.unwrap();
    world.put_one(known(info("http://a.com/1", "", ""), START)).await;
    world.pass(1_000_000_000_000);
    assert!(world.get(ask("", 1, 9)).await.is_empty(), "unsigned numbers are taken as they are");
}

#[tokio::test]
async fn a_delay_without_a_key_is_the_crawls_or_the_servers() {
    let mut world = world().await;
    let delay =
        |crawl: &str, secs| QueueDelayParams { crawl_id: crawl.into(), delay_requestable: secs, ..Default::default() };
    world.seed("fast", &["http://a.com/1", "http://a.com/2"]).await;
    world.seed("slow", &["http://b.com/1", "http://b.com/2"]).await;
    world.client.set_delay(delay("fast", 0)).await.unwrap();
    assert_eq!(world.get(ask("fast", 1, 1)).await.len(), 1);
    assert_eq!(world.get(ask("fast", 1, 2)).await.len(), 1, "delay 0 means at once");
    assert_eq!(world.get(ask("slow", 1, 1)).await.len(), 1);
    assert!(world.get(ask("slow", 1, 2)).await.is_empty(), "another crawl keeps its pace");
    world.client.set_delay(delay("", 0)).await.unwrap();
    assert_eq!(world.get(ask("slow", 1, 2)).await.len(), 1, "a blank crawl sets the server's default");
}

#[tokio::test]
async fn a_blocked_host_waits_and_a_past_time_lifts_the_block() {
    let mut world = world().await;
    let block = |time| BlockQueueParams { key: "a.com".into(), time, ..Default::default() };
    world.client.block_queue_until(block(0)).await.unwrap();
    assert!(world.frontier.host("a.com".into()).await.is_err(), "nothing to remember");
    world.client.block_queue_until(block(START + 10)).await.unwrap();
    world.seed("", &["http://a.com/1"]).await;
    assert!(world.get(ask("", 1, 1)).await.is_empty(), "remembered from before the first URL");
    world.pass(9_999);
    assert!(world.get(ask("", 1, 1)).await.is_empty());
    world.client.block_queue_until(block(START + 99)).await.unwrap();
    world.pass(1);
    assert!(world.get(ask("", 1, 1)).await.is_empty());
    world.client.block_queue_until(block(START + 10)).await.unwrap();
    assert_eq!(world.get(ask("", 1, 1)).await.len(), 1, "a time that has passed lifts it");
    world.client.block_queue_until(BlockQueueParams::default()).await.unwrap();
}

#[tokio::test]
async fn a_queue_at_its_limit_hands_out_no_more() {
    let mut world = world().await;
    world.seed("", &["http://a.com/1", "http://a.com/2"]).await;
    let limit = |key: &str, limit| CrawlLimitParams { key: key.into(), limit, ..Default::default() };
    world.client.set_crawl_limit(limit("a.com", 1)).await.unwrap();
    let first = world.get(ask("", 1, 1)).await.remove(0);
    world.put_one(known(first, 0)).await;
    world.pass(1_000);
    assert!(world.get(ask("", 1, 1)).await.is_empty());
    world.client.set_crawl_limit(limit("a.com", 0)).await.unwrap();
    assert_eq!(world.get(ask("", 1, 1)).await.len(), 1, "0 lifts the limit");
    for key in ["nowhere.com", ""] {
        let error = world.client.set_crawl_limit(limit(key, 1)).await.unwrap_err();
        assert_eq!(error.code(), tonic::Code::Unknown);
    }
}

#[tokio::test]
async fn urls_that_a_client_never_got_are_not_held() {
    let mut world = world().await;
    let urls: Vec<String> = (0..900).map(|no| format!("http://a.com/{no}?{}", "p".repeat(4_000))).collect();
    world.seed("", &urls.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let mut some = world.client.get_urls(ask("", 1, 900)).await.unwrap().into_inner();
    some.next().await.unwrap().unwrap();
    drop(some);
    // The server notices it when it can send no more, and gives the rest back. After the delay they may be visited.
    world.pass(1_000);
    let (lease, wait) = (Millis(60_000), Millis(20_000));
    let visit = Reserve { holder: "h".into(), groups: 1, urls: 1, crawl: None, lease, wait, request: None };
    assert_eq!(world.frontier.reserve(visit).await.unwrap().len(), 1, "all are still on hold");
}
