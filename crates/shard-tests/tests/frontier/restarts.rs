//! What a restart must not forget.

use crate::prelude::*;
use crate::support::*;

#[tokio::test(start_paused = true)]
async fn f10_control_and_lease_state_is_durable() {
    let mut world = World::new(4).await;
    world.config.log_bytes_max = 500;
    world.reopen().await;
    let hosts = ["a.example", "b.example", "c.example", "d.example", "e.example", "f.example"];
    let urls: Vec<String> = (0..60).map(|n| format!("http://{}/{n}", hosts[n % 6])).collect();
    world.add(&urls.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let later = Time(world.now().0 + 500_000);
    let changes = PaceChanges {
        delay: Change::Set(Millis(4_321)),
        factor_milli: Change::Set(1_500),
        delay_min: Change::Set(Millis(10)),
        delay_max: Change::Set(Millis(9_000)),
        limit: Change::Set(40),
        ..PaceChanges::default()
    };
    world.set_host("a.example", changes).await;
    world.set_host("b.example", PaceChanges { blocked_until: Change::Set(later), ..PaceChanges::default() }).await;
    world.set_host("c.example", paused(true)).await;
    world.set_group("pair", &["d.example", "e.example"], delay(2_222)).await;
    world.frontier.set_default_delay(Some(Millis(1_234))).await.unwrap();
    let limits = CrawlChanges { weight: Change::Set(7), pages: Change::Set(999), ..CrawlChanges::default() };
    world.set_crawl("DEFAULT", limits).await;
    world.frontier.set_queue_limit("DEFAULT".into(), "f.example".into(), Some(3)).await.unwrap();
    world.frontier.set_host("g.example".into(), PaceChanges::default(), false, Some(later)).await.unwrap();
    world.survives_a_restart().await;

    let visits = world.reserve(2, 2).await;
    assert_eq!(visits.len(), 2);
    world.survives_a_restart().await;
    let asked = |r| UrlResult { retry_after: Some(Millis(70_000)), crawl_delay: Some(Millis(5_000)), ..r };
    world.release(&visits[0], asked).await.unwrap();
    world.survives_a_restart().await;
    assert!(!world.frontier.hand_out(HandOut { held_below: None, ..paced(9, 3) }).await.unwrap().is_empty());
    world.frontier.set_active(false).await.unwrap();
    world.survives_a_restart().await;
    let until = world.frontier.renew(visits[1].token, Millis(600_000)).await.unwrap();
    world.survives_a_restart().await;
    pass(40_000).await;
    assert_eq!(world.frontier.reservations(None, 9).await.unwrap().items[0].expires_at, until);
    world.survives_a_restart().await;
    let release = Release { token: visits[1].token, results: Vec::new(), ready_at: Some(later) };
    world.frontier.release(release, Vec::new()).await.unwrap();
    world.frontier.delete_queue("DEFAULT".into(), "f.example".into()).await.unwrap();
    world.frontier.delete_group("pair".into()).await.unwrap();
    world.survives_a_restart().await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_expired_while_stopped_returns_at_the_next_start() {
    let mut world = World::new(4).await;
    world.add(&["http://a.example/1"]).await;
    let visit = world.next().await.unwrap();
    world.frontier.stop().await;
    pass(100_000).await;
    world.reopen().await;
    let again = world.next().await.unwrap();
    assert_eq!((again.urls[0].attempts, &again.urls[0].url), (1, &visit.urls[0].url));
}

#[tokio::test(start_paused = true)]
async fn a_known_url_stays_known_over_a_restart_while_the_filter_still_learns() {
    let mut world = World::new(4).await;
    let urls: Vec<String> = (0..2_500).map(|n| format!("http://h{}.example/{n}", n % 5)).collect();
    let puts: Vec<_> = urls.iter().map(|url| disc(url)).collect();
    world.put(puts.clone()).await;
    for learn_ms in [0, 1, 5_000] {
        world.reopen().await;
        pass(learn_ms).await;
        let known = world.put(puts.clone()).await;
        let new = known.iter().filter(|o| **o != wayleave_core::frontier::request::PutOutcome::Known).count();
        assert_eq!(new, 0, "after {learn_ms} ms of learning");
    }
}
