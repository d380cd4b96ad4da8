//! URLFrontier: where this server differs from the reference, as docs/urlfrontier.md says; and where it once did.

use tonic::Code;
use wayleave_api::urlfrontier::{CountUrlParams, CrawlLimitParams, DeleteCrawlMessage, Pagination, PurgeUrlParams};

use crate::prelude::*;
use crate::urlfrontier::{START, ask, discovered, info, known, queue, told, world, world_with};

/// What is not stored has no commit to wait for.
#[tokio::test]
async fn acknowledgements_come_in_another_order_than_items_and_each_id_once() {
    let mut world = world().await;
    let named = |id: usize, url: &str| UrlItem { id: id.to_string(), ..discovered(info(url, "", "")) };
    let mut items: Vec<UrlItem> = (0..100).map(|n| named(n, &format!("http://h{n}.com/"))).collect();
    items.push(named(100, ""));
    let acks = world.client.put_urls(futures::stream::iter(items)).await.unwrap().into_inner();
    let acks: Vec<_> =
        acks.map(|ack| ack.unwrap()).map(|ack| (ack.id.parse::<usize>().unwrap(), ack.status())).collect().await;
    let order: Vec<usize> = acks.iter().map(|(id, _)| *id).collect();
    assert_ne!(order.last(), Some(&100), "{order:?}");
    let mut sorted = acks.clone();
    sorted.sort_unstable_by_key(|(id, _)| *id);
    let wanted = |id: usize| (id, if id < 100 { Ack::Ok } else { Ack::Skipped });
    assert_eq!(sorted, (0..=100).map(wanted).collect::<Vec<_>>());
}

/// Scrapy's plug-in asks for ten hours: what a killed client held would be away for as long.
#[tokio::test]
async fn no_client_holds_a_url_for_longer_than_the_server_allows() {
    let settings = |hold_max| wayleave_server::Config { hold_max, ..wayleave_server::Config::default() };
    for (hold_max, held_s) in [(Some(Millis(60_000)), 60), (None, 36_000)] {
        let mut world = world_with(settings(hold_max)).await;
        world.seed("", &["http://a.com/"]).await;
        let asked = GetParams { delay_requestable: 36_000, ..ask("", 1, 1) };
        assert_eq!(world.get_texts(asked.clone()).await, ["http://a.com/"]);
        world.pass(held_s * 1_000 - 1);
        assert!(world.get(asked.clone()).await.is_empty(), "{held_s} s are not over");
        world.pass(1_001);
        assert_eq!(world.get_texts(asked).await, ["http://a.com/"], "{held_s} s are over");
    }
}

/// A URL with more metadata than the store takes.
fn heavy(url: &str) -> UrlInfo {
    let mut heavy = info(url, "", "");
    heavy.metadata.insert("m".into(), StringList { values: vec!["v".repeat(70_000)] });
    heavy
}

/// FAIL would have StormCrawler send it again for ever.
#[tokio::test]
async fn a_url_with_too_much_metadata_is_skipped_and_its_neighbours_are_stored() {
    let mut world = world().await;
    assert_eq!(world.put_one(discovered(heavy("http://a.com/1"))).await, Ack::Skipped);
    assert_eq!(world.put_one(known(heavy("http://a.com/1"), START)).await, Ack::Skipped);
    assert_eq!(world.put_one(known(heavy("http://a.com/1"), 0)).await, Ack::Ok, "what is completed keeps none");
    let items = vec![heavy("http://a.com/2"), info("http://a.com/3", "", "")];
    let batch = DiscoveredBatch { id: "b".into(), items };
    let mut acks = world.client.put_discovered(futures::stream::iter([batch])).await.unwrap().into_inner();
    let statuses = acks.next().await.unwrap().unwrap().statuses;
    assert_eq!(statuses, [i32::from(Ack::Skipped), i32::from(Ack::Ok)]);
}

#[tokio::test]
async fn long_urls_and_names_with_control_characters_are_skipped_and_are_not_known() {
    let mut world = world().await;
    let long = format!("http://a.com/{}", "p".repeat(16_000));
    let urls = [&long, "http://a.com/\t", "http://a.com/\n", "http://a.com/\0", "http://a.com/\u{7f}"];
    for url in urls {
        assert_eq!(world.put_one(discovered(info(url, "k", ""))).await, Ack::Skipped, "{url:.30?}");
    }
    let crawl = "c".repeat(256);
    for (key, crawl) in [("k\n", ""), ("k\0", ""), ("k", "c\n"), ("k", &crawl)] {
        assert_eq!(
            world.put_one(discovered(info("http://a.com/", key, crawl))).await,
            Ack::Skipped,
            "{key:?} {crawl:?}"
        );
    }
    let mut status = async |url: &str, key: &str, crawl: &str| {
        let request = UrlStatusRequest { url: url.into(), key: key.into(), crawl_id: crawl.into() };
        world.client.get_url_status(request).await.unwrap_err().code()
    };
    for (url, key, crawl) in [(&*long, "k", ""), ("http://a.com/\n", "", ""), ("u", "k\n", ""), ("u", "k", "c\n")] {
        assert_eq!(status(url, key, crawl).await, Code::NotFound, "{url:.30?} {key:?} {crawl:?}");
    }
    assert_eq!(status("", "", "").await, Code::InvalidArgument, "no queue can be derived");
}

#[tokio::test]
async fn a_crawl_that_cannot_exist_is_an_empty_one() {
    let mut world = world().await;
    let crawl = || "line\nfeed".to_owned();
    let item = Some(get_params::Item::CrawlId(crawl()));
    assert!(world.get(GetParams { item, ..Default::default() }).await.is_empty());
    let stats = world.stats("", &crawl()).await;
    assert_eq!((stats.size, stats.number_of_queues, stats.crawl_id), (0, 0, crawl()));
    let client = &mut world.client;
    let page = Pagination { crawl_id: crawl(), ..Default::default() };
    assert!(client.list_queues(page).await.unwrap().into_inner().values.is_empty());
    let count = CountUrlParams { crawl_id: crawl(), ..Default::default() };
    assert_eq!(client.count_urls(count).await.unwrap().into_inner().value, 0);
    let purge = PurgeUrlParams { crawl_id: crawl(), ..Default::default() };
    assert_eq!(client.purge_urls(purge).await.unwrap().into_inner().value, 0);
    assert_eq!(client.delete_queue(queue("k", &crawl())).await.unwrap().into_inner().value, 0);
    let delete = DeleteCrawlMessage { value: crawl(), local: false };
    assert_eq!(client.delete_crawl(delete).await.unwrap().into_inner().value, 0);
    // What it would have to keep, it refuses.
    let delay = QueueDelayParams { crawl_id: crawl(), delay_requestable: 1, ..Default::default() };
    assert_eq!(client.set_delay(delay).await.unwrap_err().code(), Code::InvalidArgument);
    let limit = CrawlLimitParams { key: "k".into(), crawl_id: crawl(), limit: 1, local: false };
    assert_eq!(client.set_crawl_limit(limit).await.unwrap_err().code(), Code::Unknown);
}

#[tokio::test]
async fn a_block_of_a_host_holds_for_all_crawls() {
    let mut world = world().await;
    world.seed("one", &["http://a.com/1"]).await;
    world.seed("two", &["http://a.com/2"]).await;
    let block = BlockQueueParams { key: "a.com".into(), crawl_id: "one".into(), time: START + 100, local: false };
    world.client.block_queue_until(block).await.unwrap();
    assert!(world.get(ask("two", 9, 9)).await.is_empty());
    world.pass(100_000);
    assert_eq!(world.get(ask("two", 9, 9)).await.len(), 1);
}

/// The reference compares completed URLs with the limit, and hands out any number before the first is completed.
#[tokio::test]
async fn a_crawl_limit_counts_the_visits_and_is_exact() {
    let mut world = world().await;
    let urls: Vec<String> = (0..5).map(|n| format!("http://a.com/{n}")).collect();
    world.seed("", &urls.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let limit = |limit| CrawlLimitParams { key: "a.com".into(), limit, ..Default::default() };
    world.client.set_crawl_limit(limit(2)).await.unwrap();
    let out = world.get(ask("", 1, 5)).await;
    assert_eq!(out.len(), 2);
    for url in out {
        world.put_one(known(url, START)).await;
    }
    world.pass(2_000);
    assert!(world.get(ask("", 1, 5)).await.is_empty(), "a URL that is scheduled again was visited all the same");
    world.client.set_crawl_limit(limit(0)).await.unwrap();
    assert_eq!(world.get(ask("", 1, 5)).await.len(), 5);
}

#[tokio::test]
async fn a_missing_key_is_the_host_as_a_browser_reads_it() {
    let mut world = world().await;
    for (url, key) in [
        ("HTTP://ExAmple.COM./x", "example.com"),
        ("http://user:pw@h.example/", "h.example"),
        ("http://[2001:DB8::1]:8080/", "[2001:db8::1]"),
        ("http://c.org#t", "c.org"),
        ("mailto:a@b", "mailto"),
    ] {
        assert_eq!(world.put_one(discovered(info(url, "", key))).await, Ack::Ok, "{url}");
        let got = world.get(ask(key, 1, 1)).await;
        assert_eq!((got[0].url.as_str(), got[0].key.as_str()), (url, key));
    }
}

#[tokio::test]
async fn a_queue_is_served_by_milliseconds_and_then_by_url() {
    let mut world = world().await;
    for url in ["http://a.com/c", "http://a.com/b"] {
        world.seed("", &[url]).await;
        world.pass(1);
    }
    world.seed("", &["http://a.com/z", "http://a.com/a"]).await;
    let urls: Vec<String> = world.get(ask("", 1, 9)).await.into_iter().map(|info| info.url).collect();
    assert_eq!(urls, ["http://a.com/c", "http://a.com/b", "http://a.com/a", "http://a.com/z"]);
}

#[tokio::test]
async fn a_date_beyond_ten_thousand_years_is_the_last_one_that_is_kept() {
    let mut world = world().await;
    world.put_one(known(info("http://a.com/", "", ""), u64::MAX)).await;
    let request = UrlStatusRequest { url: "http://a.com/".into(), ..Default::default() };
    let (date, _) = told(&world.client.get_url_status(request).await.unwrap().into_inner());
    assert_eq!(date, 281_474_976_710);
}

/// The reference reads numbers as signed, and 2^31 days as a time in the future.
#[tokio::test]
async fn a_purge_of_what_is_older_than_millions_of_years_removes_nothing() {
    let mut world = world().await;
    world.seed("", &["http://a.com/"]).await;
    for (days, count) in [(1 << 31, 0), (u32::MAX, 0), (0, 1)] {
        let purge = PurgeUrlParams { days, ..Default::default() };
        assert_eq!(world.client.purge_urls(purge).await.unwrap().into_inner().value, count, "{days}");
    }
}
