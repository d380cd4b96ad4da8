//! Adding URLs.

use wayleave_core::frontier::request::{Put, PutKind, PutOutcome};
use wayleave_core::frontier::view::UrlState;
use wayleave_core::settings::{Change, CrawlChanges};
use wayleave_core::time::Time;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_url_is_added_once_also_within_one_batch() {
    let world = World::new(4).await;
    let puts = ["http://a.example/1", "http://a.example/2", "http://a.example/1", "http://b.example/1"];
    let outcomes = world.put(puts.map(disc).into()).await;
    assert_eq!(outcomes, [PutOutcome::Added, PutOutcome::Added, PutOutcome::Known, PutOutcome::Added]);
    assert_eq!(world.put(vec![disc(puts[1])]).await, [PutOutcome::Known]);
    let view = world.lookup(puts[0]).await.unwrap();
    assert_eq!((view.state, view.attempts, &*view.host), (UrlState::Queued, 0, "a.example"));
    assert_eq!(world.frontier.stats().await.unwrap().urls.queued, 3);
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_a_batch_has_made_is_known_to_the_rest_of_it() {
    let world = World::new(1).await;
    let (one, two) = ("http://a.example/1", "http://a.example/2");
    // The second lookup of `two` decides everything before it; `one` was looked up when its queue did not exist.
    let outcomes = world.put([one, two, two, one, one].map(disc).into()).await;
    use PutOutcome::{Added, Known};
    assert_eq!(outcomes, [Added, Added, Known, Known, Known]);
    assert_eq!(world.host("a.example").await.counts.queued, 2);
}

#[tokio::test(start_paused = true)]
async fn a_url_that_is_due_before_the_others_of_its_batch_is_served_first() {
    let world = World::new(1).await;
    let late = Time(world.now().0 + 9_000);
    let soon = Time(world.now().0 + 1_000);
    world.put(vec![disc_at("http://a.example/1", late)]).await;
    world.put(vec![disc_at("http://a.example/2", soon), disc_at("http://a.example/3", late)]).await;
    pass(1_000).await;
    assert_eq!(texts(&world.next().await.unwrap().urls), ["http://a.example/2"]);
}

#[tokio::test(start_paused = true)]
async fn crawls_keep_the_same_url_apart() {
    let world = World::new(4).await;
    let url = "http://a.example/1";
    let outcomes = world.put(vec![of_crawl("x", disc(url)), of_crawl("y", disc(url))]).await;
    assert_eq!(outcomes, [PutOutcome::Added, PutOutcome::Added]);
    assert_eq!(world.lookup(url).await, None, "the default crawl has never met it");
}

#[tokio::test(start_paused = true)]
async fn a_known_put_updates_what_is_there_and_finishes_it_without_a_time() {
    let world = World::new(1).await;
    let url = "http://a.example/1";
    assert_eq!(world.put(vec![known(url, Some(Time(5)))]).await, [PutOutcome::Added]);
    let later = Time(world.now().0 + 5_000);
    assert_eq!(world.put(vec![known(url, Some(later))]).await, [PutOutcome::Updated]);
    assert_eq!(world.lookup(url).await.unwrap().due_at, Some(later));
    assert!(world.next().await.is_none());
    assert_eq!(world.put(vec![known(url, None)]).await, [PutOutcome::Updated]);
    assert_eq!(world.lookup(url).await.unwrap().state, UrlState::Fetched);
    let counts = world.host("a.example").await.counts;
    assert_eq!((counts.queued, counts.fetched), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_url_that_is_due_later_waits_and_a_past_time_means_now() {
    let world = World::new(1).await;
    let at = Time(world.now().0 + 3_000);
    world.put(vec![disc_at("http://a.example/1", at), disc_at("http://b.example/1", Time(1))]).await;
    let first = world.next().await.unwrap();
    assert_eq!(&*first.host, "b.example");
    assert!(world.next().await.is_none());
    pass(3_000).await;
    assert_eq!(&*world.next().await.unwrap().host, "a.example");
}

#[tokio::test(start_paused = true)]
async fn limits_of_a_crawl_reject_what_is_over_them_and_say_why() {
    let world = World::new(4).await;
    let changes = CrawlChanges { urls_per_host: Change::Set(1), depth: Change::Set(2), ..CrawlChanges::default() };
    world.set_crawl("DEFAULT", changes).await;
    let deep = Put { kind: PutKind::Discovered { at: None, priority: 5, depth: 3 }, ..disc("http://b.example/") };
    let outcomes = world.put(vec![disc("http://a.example/1"), disc("http://a.example/2"), deep]).await;
    assert_eq!(outcomes[0], PutOutcome::Added);
    for (outcome, word) in outcomes[1..].iter().zip(["limit of 1", "depth 3"]) {
        assert!(matches!(outcome, PutOutcome::Rejected(why) if why.contains(word)), "{outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_very_long_url_is_kept_whole() {
    let world = World::new(1).await;
    let url = format!("http://a.example/{}", "x".repeat(4_000));
    world.add(&[&url]).await;
    let reservation = world.next().await.unwrap();
    assert_eq!(*reservation.urls[0].url, url);
    world.fetched(&reservation).await;
    assert_eq!(world.lookup(&url).await.unwrap().state, UrlState::Fetched);
}

#[tokio::test(start_paused = true)]
async fn an_update_keeps_the_depth_of_a_url_wherever_it_is() {
    let world = World::new(1).await;
    world.set_delay("a.example", 0).await;
    let deep = |url: &str| Put { kind: PutKind::Discovered { at: None, priority: 7, depth: 3 }, ..disc(url) };
    let urls = ["http://a.example/1", "http://a.example/2", "http://a.example/3"];
    world.put(urls.map(deep).into()).await;
    assert_eq!(world.hand_out(1, 1).await.len(), 1);
    assert_eq!(world.reserve(1, 1).await.len(), 1);
    let later = Some(Time(world.now().0 + 1_000));
    world.put(urls.map(|url| known(url, later)).into()).await;
    for url in urls {
        let view = world.lookup(url).await.unwrap();
        assert_eq!((view.depth, view.priority, view.due_at), (3, 7, later), "{url}");
    }
}
