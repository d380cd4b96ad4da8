//! URLFrontier: statistics, listings, deletions, single URLs, and what surrounds them.

use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use wayleave_api::urlfrontier::{
    CountUrlParams, DeleteCrawlMessage, Empty, ListUrlParams, LogLevelParams, Pagination, PurgeUrlParams, Stats,
};

use crate::prelude::*;
use crate::urlfrontier::{START, World, ask, info, known, queue, told, world};

fn numbers(stats: &Stats) -> (u64, u32, u64, u64, u64) {
    let counts = &stats.counts;
    (stats.size, stats.in_process, stats.number_of_queues, counts["completed"], counts["active_queues"])
}

#[tokio::test]
async fn stats_count_one_crawl_or_one_queue() {
    let mut world = world().await;
    world.seed("", &["http://a.com/1", "http://a.com/2", "http://b.com/1"]).await;
    world.seed("other", &["http://a.com/9"]).await;
    assert_eq!(world.get(ask("", 9, 1)).await.len(), 2);
    world.put_one(known(info("http://b.com/1", "", ""), 0)).await;
    assert_eq!(numbers(&world.stats("", " ").await), (2, 1, 2, 1, 1));
    assert_eq!(world.stats("", "").await.crawl_id, "DEFAULT");
    assert_eq!(numbers(&world.stats("a.com", "").await), (2, 1, 1, 0, 1));
    assert_eq!(numbers(&world.stats("b.com", "").await), (0, 0, 1, 1, 0));
    assert_eq!(numbers(&world.stats("b.com", "other").await), (0, 0, 0, 0, 0));
    assert_eq!(numbers(&world.stats("nowhere", "").await), (0, 0, 0, 0, 0));
    assert_eq!(numbers(&world.stats("", "nothing").await), (0, 0, 0, 0, 0));
}

#[tokio::test]
async fn completing_twice_counts_once() {
    let mut world = world().await;
    world.seed("", &["http://a.com/1"]).await;
    for _ in 0..2 {
        world.put_one(known(info("http://a.com/1", "", ""), 0)).await;
    }
    assert_eq!(numbers(&world.stats("", "").await), (0, 0, 1, 1, 0));
    world.put_one(known(info("http://a.com/1", "", ""), START + 5)).await;
    assert_eq!(numbers(&world.stats("", "").await), (1, 0, 1, 0, 1));
}

async fn queues(world: &mut World, start: u32, size: u32, include_inactive: bool) -> Vec<String> {
    let params = Pagination { start, size, include_inactive, ..Default::default() };
    let list = world.client.list_queues(params).await.unwrap().into_inner();
    assert_eq!((list.start, list.size as usize, list.crawl_id.as_str()), (start, list.values.len(), "DEFAULT"));
    list.values
}

#[tokio::test]
async fn queues_are_listed_in_pages_that_serving_does_not_stir() {
    let mut world = world().await;
    let urls: Vec<String> = (0..120).map(|no| format!("http://h{no}.com/")).collect();
    world.seed("", &urls.iter().map(String::as_str).collect::<Vec<_>>()).await;
    world.seed("other", &["http://elsewhere.com/"]).await;
    assert_eq!(queues(&mut world, 0, 0, false).await.len(), 100);
    let first = queues(&mut world, 0, 50, false).await;
    assert_eq!(world.get(ask("", 60, 1)).await.len(), 60);
    assert_eq!(queues(&mut world, 0, 50, false).await, first, "a queue whose URLs are all held is still active");
    let mut all = first;
    all.extend(queues(&mut world, 50, 50, false).await);
    all.extend(queues(&mut world, 100, 50, false).await);
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 120);
    assert!(queues(&mut world, 120, 50, false).await.is_empty());
}

#[tokio::test]
async fn inactive_queues_are_listed_only_when_asked_for() {
    let mut world = world().await;
    world.seed("", &["http://done.com/", "http://blocked.com/", "http://open.com/"]).await;
    world.put_one(known(info("http://done.com/", "", ""), 0)).await;
    let block = BlockQueueParams { key: "blocked.com".into(), time: START + 100, ..Default::default() };
    world.client.block_queue_until(block).await.unwrap();
    assert_eq!(queues(&mut world, 0, 9, false).await, ["open.com"]);
    assert_eq!(queues(&mut world, 0, 9, true).await.len(), 3);
}

async fn crawls(world: &mut World) -> Vec<String> {
    world.client.list_crawls(Local::default()).await.unwrap().into_inner().values
}

#[tokio::test]
async fn crawls_are_listed_while_they_have_a_queue() {
    let mut world = world().await;
    let delay = QueueDelayParams { crawl_id: "only settings".into(), ..Default::default() };
    world.client.set_delay(delay).await.unwrap();
    assert!(crawls(&mut world).await.is_empty());
    world.seed("b", &["http://a.com/"]).await;
    world.seed("", &["http://a.com/"]).await;
    assert_eq!(crawls(&mut world).await, ["DEFAULT", "b"]);
    world.client.delete_queue(queue("a.com", "b")).await.unwrap();
    assert_eq!(crawls(&mut world).await, ["DEFAULT"]);
    world.put_one(known(info("http://a.com/", "", ""), 0)).await;
    assert_eq!(crawls(&mut world).await, ["DEFAULT"], "an empty queue is still one");
}

#[tokio::test]
async fn a_node_tells_its_address_and_takes_any_log_level() {
    let mut world = world().await;
    assert_eq!(world.client.list_nodes(Empty {}).await.unwrap().into_inner().values, ["localhost:7071"]);
    let params = LogLevelParams { package: "any.thing".into(), level: 4, local: true };
    assert_eq!(world.client.set_log_level(params).await.unwrap().into_inner(), Empty {});
}

#[tokio::test]
async fn deleting_removes_urls_holds_and_settings() {
    let mut world = world().await;
    world.seed("", &["http://a.com/1", "http://a.com/2", "http://b.com/"]).await;
    world.seed("DEFAULT!", &["http://a.com/1"]).await;
    world.put_one(known(info("http://a.com/1", "", ""), 0)).await;
    let delay = QueueDelayParams { key: "b.com".into(), delay_requestable: 100, ..Default::default() };
    world.client.set_delay(delay).await.unwrap();
    assert_eq!(world.get(ask("", 9, 9)).await.len(), 2);
    assert_eq!(world.client.delete_queue(queue("a.com", "")).await.unwrap().into_inner().value, 2);
    assert_eq!(world.client.delete_queue(queue("a.com", "")).await.unwrap().into_inner().value, 0);
    assert_eq!(world.client.delete_queue(queue("", "")).await.unwrap().into_inner().value, 0);
    world.seed("", &["http://a.com/1"]).await;
    let crawl = |name: &str| DeleteCrawlMessage { value: name.into(), local: false };
    assert_eq!(world.client.delete_crawl(crawl("")).await.unwrap().into_inner().value, 2);
    assert_eq!(world.client.delete_crawl(crawl("nothing")).await.unwrap().into_inner().value, 0);
    assert_eq!(numbers(&world.stats("", "").await), (0, 0, 0, 0, 0));
    assert_eq!(world.stats("", "DEFAULT!").await.size, 1, "a crawl whose name goes on is another crawl");
    world.seed("", &["http://b.com/"]).await;
    assert_eq!(world.get(ask("", 9, 9)).await.len(), 1, "the delay and the visit went with the last queue");
}

async fn status(world: &mut World, url: &str, key: &str) -> Result<wayleave_api::urlfrontier::UrlItem, Code> {
    let request = UrlStatusRequest { url: url.into(), key: key.into(), crawl_id: String::new() };
    world.client.get_url_status(request).await.map(tonic::Response::into_inner).map_err(|status| status.code())
}

#[tokio::test]
async fn a_url_tells_its_date_until_it_is_completed() {
    let mut world = world().await;
    assert_eq!(status(&mut world, "http://a.com/", "").await, Err(Code::NotFound));
    assert_eq!(status(&mut world, "", "").await, Err(Code::InvalidArgument));
    let mut url = info("http://a.com/", "", "");
    url.metadata.insert("m".into(), StringList { values: vec!["v".into()] });
    world.put_one(known(url.clone(), START + 7)).await;
    let found = status(&mut world, "http://a.com/", "").await.unwrap();
    let (date, shown) = told(&found);
    assert_eq!((date, found.id.as_str(), found.creation_date), (START + 7, "", START));
    assert_eq!((shown.key.as_str(), &shown.metadata), ("a.com", &url.metadata));
    assert_eq!(status(&mut world, "http://a.com/", "other").await, Err(Code::NotFound));
    world.put_one(known(url, 0)).await;
    let (date, shown) = told(&status(&mut world, "http://a.com/", "a.com").await.unwrap());
    assert_eq!((date, shown.url.as_str(), shown.metadata.len()), (0, "http://a.com/", 0));
}

async fn listed(world: &mut World, params: ListUrlParams) -> Vec<String> {
    let items = world.client.list_urls(params).await.unwrap().into_inner();
    items.map(|item| told(&item.unwrap()).1.url).collect().await
}

#[tokio::test]
async fn urls_are_listed_by_bytes_within_a_queue_and_filtered() {
    let mut world = world().await;
    world.seed("", &["http://a.com/b", "http://a.com/A", "http://a.com/c", "http://b.com/x"]).await;
    world.seed("other", &["http://a.com/z"]).await;
    world.put_one(known(info("http://a.com/b", "", ""), 0)).await;
    let of = |key: &str| ListUrlParams { key: key.into(), ..Default::default() };
    assert_eq!(listed(&mut world, of("a.com")).await, ["http://a.com/A", "http://a.com/b", "http://a.com/c"]);
    assert_eq!(listed(&mut world, of("")).await.len(), 4);
    assert!(listed(&mut world, of("nowhere")).await.is_empty());
    let part = ListUrlParams { start: 1, size: 1, ..of("a.com") };
    assert_eq!(listed(&mut world, part).await, ["http://a.com/b"]);
    let a = |ignore| ListUrlParams { filter: Some("/a".into()), ignore_case: Some(ignore), ..of("a.com") };
    assert_eq!(listed(&mut world, ListUrlParams { start: 0, ..a(true) }).await.len(), 3, "all have //a");
    let upper = ListUrlParams { filter: Some("m/a".into()), ..a(false) };
    assert!(listed(&mut world, upper.clone()).await.is_empty());
    assert_eq!(listed(&mut world, ListUrlParams { ignore_case: Some(true), ..upper }).await, ["http://a.com/A"]);
    let blank = ListUrlParams { filter: Some(" ".into()), ..of("") };
    assert_eq!(listed(&mut world, blank).await.len(), 4);
    let count = |filter: Option<&str>| CountUrlParams { filter: filter.map(Into::into), ..Default::default() };
    assert_eq!(world.client.count_urls(count(None)).await.unwrap().into_inner().value, 4);
    assert_eq!(world.client.count_urls(count(Some("b"))).await.unwrap().into_inner().value, 2);
}

#[tokio::test]
async fn a_dump_lists_everything_and_can_be_put_back() {
    let mut world = world().await;
    let urls: Vec<String> = (0..2_500).map(|no| format!("http://h{}.com/{no}", no % 7)).collect();
    world.seed("", &urls.iter().map(String::as_str).collect::<Vec<_>>()).await;
    world.put_one(known(info("http://h0.com/0", "", ""), 0)).await;
    let everything = ListUrlParams { size: i32::MAX as u32, ..Default::default() };
    let items = world.client.list_urls(everything).await.unwrap().into_inner();
    let items: Vec<_> = items.map(|item| item.unwrap()).collect().await;
    assert_eq!(items.len(), 2_500);
    world.client.delete_crawl(DeleteCrawlMessage::default()).await.unwrap();
    let acks = world.put(items).await;
    assert!(acks.len() == 2_500 && acks.iter().all(|(_, ack)| *ack == Ack::Ok));
    assert_eq!(numbers(&world.stats("", "").await), (2_499, 0, 7, 1, 7));
}

#[tokio::test]
async fn a_purge_removes_what_is_old_and_keeps_the_queues() {
    let mut world = world().await;
    world.seed("", &["http://a.com/old", "http://b.com/old"]).await;
    world.put_one(known(info("http://b.com/old", "", ""), 0)).await;
    world.pass(2 * 86_400_000);
    world.seed("", &["http://a.com/new"]).await;
    let purge = |days, key: &str| PurgeUrlParams { days, key: key.into(), crawl_id: String::new() };
    assert_eq!(world.client.purge_urls(purge(2, "")).await.unwrap().into_inner().value, 0, "strictly before");
    world.pass(1);
    assert_eq!(world.client.purge_urls(purge(2, "nowhere")).await.unwrap().into_inner().value, 0);
    assert_eq!(world.client.purge_urls(purge(2, "a.com")).await.unwrap().into_inner().value, 1);
    assert_eq!(world.client.purge_urls(purge(2, "")).await.unwrap().into_inner().value, 1);
    assert_eq!(numbers(&world.stats("", "").await), (1, 0, 2, 0, 1));
    assert_eq!(world.get(ask("", 9, 9)).await.len(), 1);
    assert_eq!(world.client.purge_urls(purge(0, "")).await.unwrap().into_inner().value, 1, "held ones, too");
    assert_eq!(numbers(&world.stats("", "").await), (0, 0, 2, 0, 0));
    world.seed("", &["http://a.com/new"]).await;
}

#[tokio::test]
async fn health_tells_that_the_frontier_serves() {
    let world = world().await;
    let mut health = HealthClient::new(world.channel.clone());
    for service in ["", "urlfrontier.URLFrontier"] {
        let request = HealthCheckRequest { service: service.into() };
        assert_eq!(health.check(request).await.unwrap().into_inner().status, 1);
    }
    let error = health.check(HealthCheckRequest { service: "x".into() }).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    let mut watch = health.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(watch.next().await.unwrap().unwrap().status, 1);
}

#[tokio::test]
async fn reflection_names_the_service() {
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
    let world = world().await;
    let message_request = Some(MessageRequest::ListServices(String::new()));
    let request = tonic_reflection::pb::v1::ServerReflectionRequest { message_request, ..Default::default() };
    let mut client = ServerReflectionClient::new(world.channel.clone());
    let answers = client.server_reflection_info(futures::stream::iter([request])).await.unwrap();
    let answer = answers.into_inner().next().await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else { panic!("no list") };
    assert!(list.service.iter().any(|service| service.name == "urlfrontier.URLFrontier"));
}
