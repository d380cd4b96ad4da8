//! Adding URLs.

use crate::prelude::*;
use crate::support::*;

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
