//! The delay between visits, back-off and blocks.

use wayleave_core::limits;

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

/// Waits for the next visit; returns the time since `end`.
async fn gap(world: &World, end: Time) -> (u64, Reservation) {
    loop {
        if let Some(reservation) = world.next().await {
            return (reservation.granted_at.0 - end.0, reservation);
        }
        pass(1).await;
    }
}

async fn gap_after(world: &World, change: impl Fn(UrlResult) -> UrlResult) -> u64 {
    let visit = world.next().await.unwrap();
    let released = world.release(&visit, change).await.unwrap();
    let end = world.now();
    let (gap, visit) = gap(world, end).await;
    assert_eq!(released.ready_at.0 - end.0, gap, "the answer to a release says the truth");
    world.fetched(&visit).await;
    gap
}

#[tokio::test(start_paused = true)]
async fn the_host_then_the_crawl_then_the_server_sets_the_delay_even_if_zero() {
    let world = with_urls(&["a.example"], 20).await;
    world.frontier.set_default_delay(Some(Millis(300))).await.unwrap();
    assert_eq!(gap_after(&world, |r| r).await, 300);
    pass(5_000).await;
    world.set_crawl("DEFAULT", CrawlChanges { delay: Change::Set(Millis(700)), ..CrawlChanges::default() }).await;
    assert_eq!(gap_after(&world, |r| r).await, 700);
    pass(5_000).await;
    world.set_delay("a.example", 0).await;
    assert_eq!(gap_after(&world, |r| r).await, 0);
}

#[tokio::test(start_paused = true)]
async fn the_factor_stretches_the_delay_between_its_bounds() {
    let world = with_urls(&["a.example"], 20).await;
    let changes = PaceChanges {
        delay: Change::Set(Millis(100)),
        factor_milli: Change::Set(2_500),
        delay_min: Change::Set(Millis(500)),
        delay_max: Change::Set(Millis(4_000)),
        ..PaceChanges::default()
    };
    world.set_host("a.example", changes).await;
    for (duration, want) in [(1_000, 2_500), (10, 500), (60_000, 4_000)] {
        pass(10_000).await;
        let took = move |r| UrlResult { duration: Some(Millis(duration)), ..r };
        assert_eq!(gap_after(&world, took).await, want, "a visit of {duration} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn robots_may_ask_for_more_up_to_a_cap() {
    let world = with_urls(&["a.example"], 9).await;
    assert_eq!(gap_after(&world, |r| UrlResult { crawl_delay: Some(Millis(7_000)), ..r }).await, 7_000);
    pass(10_000).await;
    let endless = |r| UrlResult { crawl_delay: Some(Millis(1 << 40)), ..r };
    assert_eq!(gap_after(&world, endless).await, limits::CRAWL_DELAY_MAX.0);
}

#[tokio::test(start_paused = true)]
async fn back_off_doubles_with_jitter_and_is_forgiven_after_a_quiet_time() {
    let world = with_urls(&["a.example"], 9).await;
    let busy = |r| UrlResult { status: Some(429), ..r };
    let mut spans = Vec::new();
    for _ in 0..3 {
        let visit = gap(&world, Time(0)).await.1;
        let released = world.release(&visit, busy).await.unwrap();
        spans.push(released.ready_at.0 - world.now().0);
        pass(spans[spans.len() - 1]).await;
    }
    for (span, base) in spans.iter().zip([60_000, 120_000, 240_000]) {
        assert!((base..=base + base / 10).contains(span), "{span} for {base}");
    }
    pass(limits::BACKOFF_QUIET.0 + 1_000).await;
    let visit = world.next().await.unwrap();
    let released = world.release(&visit, busy).await.unwrap();
    assert!(released.ready_at.0 - world.now().0 <= 66_000, "the earlier ones are forgiven");
}

#[tokio::test(start_paused = true)]
async fn a_delay_that_is_raised_after_a_visit_counts_for_the_next_one() {
    let world = with_urls(&["a.example"], 3).await;
    let visit = world.next().await.unwrap();
    world.fetched(&visit).await;
    let end = world.now();
    pass(500).await;
    world.set_delay("a.example", 9_000).await;
    let (waited, visit) = gap(&world, end).await;
    assert_eq!(waited, 9_000);
    world.fetched(&visit).await;
    let end = world.now();
    world.set_delay("a.example", 200).await;
    assert_eq!(gap(&world, end).await.0, 200, "and one that is lowered too");
}

#[tokio::test(start_paused = true)]
async fn f8_crawls_share_the_pace_of_a_host() {
    let world = with_urls(&["a.example"], 3).await;
    world.put((0..3).map(|n| of_crawl("other", disc(&format!("http://a.example/{n}")))).collect()).await;
    let visit = world.reserve(9, 1).await;
    assert_eq!(visit.len(), 1, "two crawls, one host, one visitor");
    world.fetched(&visit[0]).await;
    let end = world.now();
    let (waited, next) = gap(&world, end).await;
    assert_eq!(waited, 1_000);
    assert_ne!(visit[0].urls[0].crawl, next.urls[0].crawl, "they take turns");
}

#[tokio::test(start_paused = true)]
async fn f12_every_host_has_a_state_a_reason_and_a_time() {
    let world = with_urls(&["a.example"], 2).await;
    let expect = async |state: State, ready_in: Option<u64>| {
        let standing = world.host("a.example").await.standing;
        assert!(!standing.reason.is_empty());
        assert_eq!(standing.state, state, "{standing:?}");
        let now = world.now().0;
        assert_eq!(standing.ready_at.map(|at| at.0.saturating_sub(now)), ready_in, "{standing:?}");
    };
    expect(State::Ready, Some(0)).await;
    let visit = world.next().await.unwrap();
    expect(State::Busy, Some(60_000)).await;
    let until = Time(world.now().0 + 5_000);
    let block = PaceChanges { blocked_until: Change::Set(until), ..PaceChanges::default() };
    world.set_host("a.example", block).await;
    expect(State::Blocked, Some(5_000)).await;
    world.set_host("a.example", paused(true)).await;
    expect(State::Paused, None).await;
    world.set_host("a.example", PaceChanges { blocked_until: Change::Clear, ..paused(false) }).await;
    expect(State::Busy, Some(60_000)).await;
    world.fetched(&visit).await;
    expect(State::Waiting, Some(1_000)).await;
    pass(1_000).await;
    let visit = world.next().await.unwrap();
    world.fetched(&visit).await;
    expect(State::Idle, None).await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_crawl_waits_and_continues() {
    let world = with_urls(&["a.example", "b.example"], 1).await;
    let pause = |paused| CrawlChanges { paused: Change::Set(paused), ..CrawlChanges::default() };
    world.set_crawl("DEFAULT", pause(true)).await;
    assert!(world.reserve(9, 1).await.is_empty() && world.hand_out(9, 1).await.is_empty());
    assert_eq!(world.state("a.example").await, State::Paused);
    world.set_crawl("DEFAULT", pause(false)).await;
    assert_eq!(world.reserve(9, 1).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_reached_page_limit_stops_groups_that_were_ready_before() {
    let world = with_urls(&["a.example", "b.example", "c.example"], 2).await;
    world.set_crawl("DEFAULT", CrawlChanges { pages: Change::Set(1), ..CrawlChanges::default() }).await;
    let visit = world.next().await.unwrap();
    world.fetched(&visit).await;
    // Shards exchange their counts, so the limit holds everywhere once each has had a turn.
    world.frontier.stats().await.unwrap();
    world.frontier.stats().await.unwrap();
    pass(5_000).await;
    assert!(world.reserve(9, 1).await.is_empty(), "one page was all that the crawl may fetch");
    world.set_crawl("DEFAULT", CrawlChanges { pages: Change::Clear, ..CrawlChanges::default() }).await;
    assert_eq!(world.reserve(9, 1).await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn limits_of_a_whole_crawl_are_exact_for_calls_one_after_the_other() {
    let hosts: Vec<String> = (0..12).map(|n| format!("h{n}.example")).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let world = with_urls(&hosts, 1).await;
    let bounds = CrawlChanges { pages: Change::Set(3), urls: Change::Set(15), ..CrawlChanges::default() };
    world.set_crawl("DEFAULT", bounds).await;
    let mut fetched = 0;
    while let Some(visit) = world.next().await {
        world.fetched(&visit).await;
        fetched += 1;
    }
    assert_eq!(fetched, 3, "in twelve hosts of several shards");
    for n in 0..9 {
        world.put(vec![disc(&format!("http://new{n}.example/"))]).await;
    }
    assert_eq!(world.frontier.stats().await.unwrap().urls.total(), 15);
}

#[tokio::test(start_paused = true)]
async fn good_pages_forgive_back_offs_and_the_computed_part_is_bounded() {
    let world = with_urls(&["a.example"], 30).await;
    let busy = |r| UrlResult { status: Some(503), ..r };
    let mut span = 0;
    for _ in 0..6 {
        let visit = gap(&world, Time(0)).await.1;
        let released = world.release(&visit, busy).await.unwrap();
        span = released.ready_at.0 - world.now().0;
        pass(span).await;
    }
    let most = limits::BACKOFF_MAX_DEFAULT.0;
    assert!((most..=most + most / 10).contains(&span), "{span}");
    for _ in 0..3 {
        let visit = gap(&world, Time(0)).await.1;
        world.fetched(&visit).await;
    }
    let visit = gap(&world, Time(0)).await.1;
    let released = world.release(&visit, busy).await.unwrap();
    let span = released.ready_at.0 - world.now().0;
    assert!((60_000..=66_000).contains(&span), "three good pages forgive six back-offs: {span}");
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_of_zero_is_no_leave_to_come_back_at_once() {
    let world = with_urls(&["a.example"], 3).await;
    let visit = world.next().await.unwrap();
    let asked = |r| UrlResult { status: Some(429), retry_after: Some(Millis(0)), ..r };
    let released = world.release(&visit, asked).await.unwrap();
    assert!(released.ready_at.0 - world.now().0 >= 60_000);
}

#[tokio::test(start_paused = true)]
async fn a_back_off_is_explained_also_after_a_restart_and_an_operator_lifts_it() {
    let mut world = with_urls(&["a.example"], 3).await;
    let visit = world.next().await.unwrap();
    let asked = |r| UrlResult { status: Some(503), retry_after: Some(Millis(3_600_000)), ..r };
    world.release(&visit, asked).await.unwrap();
    world.reopen().await;
    let view = world.host("a.example").await;
    assert_eq!(view.standing.state, State::Blocked);
    let reason = view.standing.reason;
    assert!(reason.contains("503") && reason.contains(&*visit.urls[0].url), "{reason}");
    let lift = PaceChanges { blocked_until: Change::Clear, ..PaceChanges::default() };
    world.frontier.set_host("a.example".into(), lift, false, None).await.unwrap();
    pass(1_000).await;
    assert_eq!(world.reserve(9, 1).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_crawl_delay_is_named_and_can_be_forgotten() {
    let world = with_urls(&["a.example"], 3).await;
    let visit = world.next().await.unwrap();
    world.release(&visit, |r| UrlResult { crawl_delay: Some(Millis(50_000)), ..r }).await.unwrap();
    let view = world.host("a.example").await;
    assert_eq!(view.crawl_delay, Some(Millis(50_000)));
    assert!(view.standing.reason.contains("robots.txt"), "{}", view.standing.reason);
    let forget = PaceChanges { crawl_delay: Change::Clear, ..PaceChanges::default() };
    let view = world.frontier.set_host("a.example".into(), forget, false, None).await.unwrap();
    assert_eq!(view.crawl_delay, None);
    pass(1_000).await;
    assert_eq!(world.reserve(9, 1).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_first_visit_gets_the_delay_of_its_crawl() {
    let world = with_urls(&["a.example"], 2).await;
    let slow = CrawlChanges { delay: Change::Set(Millis(10_000)), ..CrawlChanges::default() };
    world.frontier.set_crawl("DEFAULT".into(), slow, false).await.unwrap();
    assert_eq!(world.next().await.unwrap().delay, Millis(10_000));
}
