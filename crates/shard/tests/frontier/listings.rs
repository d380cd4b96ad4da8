//! Lists page through everything exactly once.

use std::collections::BTreeSet;

use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::view::{HostFilter, State, UrlFilter, UrlState};
use wayleave_core::settings::{Change, CrawlChanges, PaceChanges};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn every_page_size_shows_each_thing_exactly_once() {
    let world = World::new(4).await;
    let put = |n: usize| of_crawl(["x", "y"][n % 2], disc(&format!("http://h{}.example/{n}", n % 17)));
    world.put((0..500).map(put).collect()).await;
    world.set_group("some", &["h1.example", "h2.example", "h3.example"], PaceChanges::default()).await;
    for limit in [1, 2, 7, 64, 1_000] {
        let urls = world.urls(&UrlFilter::default(), limit).await;
        let distinct: BTreeSet<_> = urls.iter().map(|url| (url.crawl.clone(), url.url.clone())).collect();
        assert_eq!((urls.len(), distinct.len()), (500, 500), "pages of {limit}");
        let hosts = world.hosts(&HostFilter::default(), limit).await;
        let distinct: BTreeSet<_> = hosts.iter().map(|host| host.host.clone()).collect();
        assert_eq!((hosts.len(), distinct.len()), (17, 17), "pages of {limit}");
        let of_x = UrlFilter { crawl: Some("x".into()), contains: Some("/1".into()), ..UrlFilter::default() };
        assert_eq!(world.urls(&of_x, limit).await.len(), 55, "pages of {limit}");
        let one = UrlFilter { host: Some("h2.example".into()), ..UrlFilter::default() };
        assert_eq!(world.urls(&one, limit).await.len(), 30, "pages of {limit}");
    }
    let groups = world.frontier.groups(&HostFilter::default(), None, 100).await.unwrap();
    assert_eq!((groups.items.len(), groups.next), (15, None));
    let mut queues = Vec::new();
    for start in (0..17).step_by(5) {
        queues.extend(world.frontier.queues("x".into(), start, 5, true).await.unwrap());
    }
    assert_eq!((queues.len(), queues.iter().collect::<BTreeSet<_>>().len()), (17, 17));
}

#[tokio::test(start_paused = true)]
async fn filters_by_state_show_what_is_in_that_state() {
    let world = World::new(4).await;
    world.add(&["http://a.example/", "http://b.example/", "http://c.example/"]).await;
    let visit = world.next().await.unwrap();
    let of = |state| HostFilter { state: Some(state), crawl: None };
    assert_eq!(world.hosts(&of(State::Busy), 9).await.len(), 1);
    assert_eq!(world.hosts(&of(State::Ready), 9).await.len(), 2);
    world.fetched(&visit).await;
    let fetched = UrlFilter { state: Some(UrlState::Fetched), ..UrlFilter::default() };
    assert_eq!(world.urls(&fetched, 9).await.len(), 1);
    let all = world.reserve(9, 1).await;
    let (first, second) = (world.frontier.reservations(None, 1).await.unwrap(), all.len());
    let rest = world.frontier.reservations(first.next.as_deref(), 9).await.unwrap();
    assert_eq!((first.items.len() + rest.items.len(), second), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_cursor_that_was_never_given_out_is_refused() {
    let world = World::new(1).await;
    assert_eq!(world.frontier.urls(&UrlFilter::default(), Some("nonsense"), 9).await, Err(Refusal::BadCursor));
    assert_eq!(world.frontier.hosts(&HostFilter::default(), Some("x"), 9).await, Err(Refusal::BadCursor));
}

#[tokio::test(start_paused = true)]
async fn a_crawl_is_finished_when_nothing_of_it_can_be_handed_out() {
    let world = World::new(4).await;
    let limit = CrawlChanges { pages_per_host: Change::Set(1), ..CrawlChanges::default() };
    world.frontier.set_crawl("DEFAULT".into(), limit, false).await.unwrap();
    world.add(&["http://a.example/1", "http://a.example/2", "http://b.example/1"]).await;
    let crawl = || async { world.frontier.crawl("DEFAULT".into()).await.unwrap() };
    assert!(crawl().await.waits_for.unwrap().contains("queued"));
    let visits = world.reserve(9, 1).await;
    assert!(crawl().await.waits_for.unwrap().contains("handed out"));
    for visit in &visits {
        world.fetched(visit).await;
    }
    let view = crawl().await;
    assert_eq!((view.waits_for, view.last_visit_at), (None, Some(world.now())), "one URL is left, over the limit");
    assert_eq!(view.counts.queued, 1);
    world.add(&["http://c.example/1"]).await;
    assert!(crawl().await.waits_for.unwrap().contains("c.example"));
}
