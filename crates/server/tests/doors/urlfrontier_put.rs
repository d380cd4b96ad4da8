//! URLFrontier: PutURLs and PutDiscovered.

use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::prelude::*;
use crate::urlfrontier::{START, ask, discovered, info, known, told, world};

fn named(mut item: UrlItem, id: &str) -> UrlItem {
    item.id = id.into();
    item
}

fn acks(wanted: &[(&str, Ack)]) -> Vec<(String, Ack)> {
    wanted.iter().map(|(id, ack)| ((*id).to_owned(), *ack)).collect()
}

#[tokio::test]
async fn every_item_is_acknowledged_by_its_id_or_url() {
    let mut world = world().await;
    let new = |url: &str| discovered(info(url, "", ""));
    let got = world
        .put(vec![named(new("http://a.com/1"), "same"), named(new("http://a.com/2"), "same"), new("http://b.com/")])
        .await;
    assert_eq!(got, acks(&[("http://b.com/", Ack::Ok), ("same", Ack::Ok), ("same", Ack::Ok)]));
}

#[tokio::test]
async fn what_cannot_be_stored_is_skipped() {
    let mut world = world().await;
    let long = "k".repeat(256);
    let items = vec![
        named(discovered(info("", "", "")), "no key"),
        named(discovered(info("http://a.com/", &long, "")), "long key"),
        named(UrlItem::default(), "neither discovered nor known"),
        named(discovered(info("", "key", "")), "url may be empty"),
        named(discovered(info("http://a.com/", &"ü".repeat(255), "")), "255 characters"),
    ];
    let wanted = [
        ("255 characters", Ack::Ok),
        ("long key", Ack::Skipped),
        ("neither discovered nor known", Ack::Skipped),
        ("no key", Ack::Skipped),
        ("url may be empty", Ack::Ok),
    ];
    assert_eq!(world.put(items).await, acks(&wanted));
}

#[tokio::test]
async fn a_discovered_url_that_is_known_changes_nothing() {
    let mut world = world().await;
    let url = || info("http://a.com/", "", "");
    assert_eq!(world.put_one(discovered(url())).await, Ack::Ok);
    assert_eq!(world.put_one(discovered(url())).await, Ack::Skipped);
    assert_eq!(world.put_one(known(url(), 0)).await, Ack::Ok);
    assert_eq!(world.put_one(discovered(url())).await, Ack::Skipped, "completed is known too");
    assert!(world.get(ask("", 1, 1)).await.is_empty());
    assert_eq!(world.put_one(discovered(info("http://a.com/", "other key", ""))).await, Ack::Ok);
    assert_eq!(world.put_one(discovered(info("http://a.com/", "", "other crawl"))).await, Ack::Ok);
}

#[tokio::test]
async fn a_known_url_is_created_scheduled_or_completed() {
    let mut world = world().await;
    let mut url = info("http://a.com/", "", "");
    url.metadata.insert("m".into(), StringList { values: vec!["1".into(), "2".into()] });
    assert_eq!(world.put_one(known(url.clone(), START + 10)).await, Ack::Ok);
    assert!(world.get(ask("", 1, 1)).await.is_empty(), "not due");
    world.pass(10_000);
    let got = world.get(ask("", 1, 1)).await;
    assert_eq!(got.len(), 1, "due at its very second");
    assert_eq!((got[0].key.as_str(), got[0].crawl_id.as_str()), ("a.com", "DEFAULT"));
    assert_eq!(got[0].metadata, url.metadata);
    assert_eq!(world.put_one(known(url, 0)).await, Ack::Ok);
    world.pass(100_000);
    assert!(world.get(ask("", 1, 1)).await.is_empty());
    let stats = world.stats("", "").await;
    assert_eq!((stats.size, stats.in_process, stats.counts["completed"]), (0, 0, 1));
}

#[tokio::test]
async fn a_known_update_ends_the_hold_at_once() {
    let mut world = world().await;
    world.seed("", &["http://a.com/"]).await;
    assert_eq!(world.get(ask("", 1, 1)).await.len(), 1);
    world.pass(1_000);
    assert!(world.get(ask("", 1, 1)).await.is_empty(), "on hold");
    world.put_one(known(info("http://a.com/", "", ""), START)).await;
    assert_eq!(world.stats("", "").await.in_process, 0);
    assert_eq!(world.get(ask("", 1, 1)).await.len(), 1);
}

#[tokio::test]
async fn the_servers_own_creation_date_is_kept() {
    let mut world = world().await;
    let mut item = discovered(info("http://a.com/", "", ""));
    item.creation_date = 5;
    world.put_one(item).await;
    world.pass(5_000);
    world.put_one(known(info("http://a.com/", "", ""), START + 100)).await;
    let request = UrlStatusRequest { url: "http://a.com/".into(), ..Default::default() };
    let status = world.client.get_url_status(request).await.unwrap().into_inner();
    assert_eq!((told(&status).0, status.creation_date), (START + 100, START));
}

#[tokio::test]
async fn a_stream_stays_open_until_the_client_closes_it() {
    let mut world = world().await;
    let (send, items) = tokio::sync::mpsc::unbounded_channel();
    let mut acks = world.client.put_urls(UnboundedReceiverStream::new(items)).await.unwrap().into_inner();
    for no in 0..3 {
        send.send(discovered(info(&format!("http://a.com/{no}"), "", ""))).unwrap();
        assert_eq!(acks.next().await.unwrap().unwrap().status(), Ack::Ok);
    }
    assert!(acks.next().now_or_never().is_none());
    drop(send);
    assert!(acks.next().await.is_none());
}

#[tokio::test]
async fn a_long_stream_is_acknowledged_to_its_last_item() {
    let mut world = world().await;
    let items = (0..5_000).map(|no| discovered(info(&format!("http://h{}.com/{no}", no % 97), "", ""))).collect();
    let acks = world.put(items).await;
    assert_eq!(acks.len(), 5_000);
    assert!(acks.windows(2).all(|pair| pair[0].0 < pair[1].0), "each once");
    assert_eq!(world.stats("", "").await.size, 5_000);
}

#[tokio::test]
async fn work_that_was_taken_is_done_though_the_client_goes() {
    let mut world = world().await;
    let (send, items) = tokio::sync::mpsc::unbounded_channel();
    let mut acks = world.client.put_urls(UnboundedReceiverStream::new(items)).await.unwrap().into_inner();
    send.send(discovered(info("http://a.com/1", "", ""))).unwrap();
    acks.next().await.unwrap().unwrap();
    drop((send, acks));
    assert_eq!(world.put_one(discovered(info("http://a.com/1", "", ""))).await, Ack::Skipped);
}

#[tokio::test]
async fn a_batch_has_one_status_for_each_url_in_order() {
    let mut world = world().await;
    world.seed("", &["http://a.com/known"]).await;
    let urls = ["http://a.com/1", "http://a.com/known", "", "http://b.com/1", "http://a.com/1"];
    let items = urls.iter().map(|url| info(url, "", "")).collect();
    let batches = vec![
        DiscoveredBatch { id: "batch-1".into(), items },
        DiscoveredBatch { id: "probe".into(), items: Vec::new() },
    ];
    let got = world.client.put_discovered(stream::iter(batches)).await.unwrap().into_inner();
    let mut got: Vec<_> = got.map(|ack| ack.unwrap()).collect().await;
    got.sort_by(|a, b| a.id.cmp(&b.id));
    assert_eq!(got.len(), 2);
    let wanted = [Ack::Ok, Ack::Skipped, Ack::Skipped, Ack::Ok, Ack::Skipped];
    assert_eq!(got[0].statuses().collect::<Vec<_>>(), wanted);
    assert_eq!((got[1].id.as_str(), got[1].statuses.len()), ("probe", 0));
}

#[tokio::test]
async fn more_batches_than_the_window_are_all_acknowledged() {
    let mut world = world().await;
    let batch = |no: usize| DiscoveredBatch {
        id: no.to_string(),
        items: (0..100).map(|at| info(&format!("http://h{at}.com/{no}"), "", "")).collect(),
    };
    let acks = world.client.put_discovered(stream::iter((0..60).map(batch))).await.unwrap().into_inner();
    let ids: std::collections::BTreeSet<String> = acks
        .map(|ack| {
            let ack = ack.unwrap();
            assert!(ack.statuses().all(|status| status == Ack::Ok));
            ack.id
        })
        .collect()
        .await;
    assert_eq!(ids.len(), 60);
    assert_eq!(world.stats("", "").await.size, 6_000);
}

#[tokio::test]
async fn a_message_over_the_limit_is_refused_as_a_matter_of_resources() {
    let mut world = world().await;
    let items = vec![info(&format!("http://a.com/{}", "p".repeat(5 * 1024 * 1024)), "", "")];
    let batch = DiscoveredBatch { id: "b".into(), items };
    let mut acks = world.client.put_discovered(stream::iter([batch])).await.unwrap().into_inner();
    assert_eq!(acks.next().await.unwrap().unwrap_err().code(), tonic::Code::ResourceExhausted);
}
