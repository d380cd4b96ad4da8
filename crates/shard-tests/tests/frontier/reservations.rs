//! Reserving, renewing, releasing, and what happens when a holder is too slow.

use crate::prelude::*;
use crate::support::*;

const URL: &str = "http://a.example/1";

#[tokio::test(start_paused = true)]
async fn f2_taking_a_group_makes_it_busy_in_the_same_decision() {
    let world = World::new(4).await;
    world.add(&[URL, "http://a.example/2"]).await;
    let reservation = world.next().await.unwrap();
    assert_eq!((&*reservation.group, &*reservation.host), ("a.example", "a.example"));
    assert_eq!(reservation.expires_at, Time(world.now().0 + 60_000));
    assert_eq!(world.state("a.example").await, State::Busy);
    assert!(world.next().await.is_none(), "a busy group is not handed out again");
    let view = world.lookup(URL).await.unwrap();
    assert_eq!((view.state, view.held_until), (UrlState::Reserved, Some(reservation.expires_at)));
}

#[tokio::test(start_paused = true)]
async fn results_decide_each_urls_fate_and_unnamed_urls_return_untouched() {
    let world = World::new(1).await;
    let urls: Vec<String> = (0..5).map(|n| format!("http://a.example/{n}")).collect();
    world.add(&urls.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let reservation = world.reserve(1, 5).await.pop().unwrap();
    let result = |n: usize, outcome| UrlResult { outcome, ..fetched(&urls[n]) };
    let results = vec![
        result(0, Outcome::Fetched),
        result(1, Outcome::Gone),
        result(2, Outcome::Failed),
        result(3, Outcome::Retry),
    ];
    let release = Release { token: reservation.token, results, ready_at: None };
    world.frontier.release(release, vec![disc("http://a.example/found")]).await.unwrap();
    let mut states = Vec::new();
    for url in &urls {
        let view = world.lookup(url).await.unwrap();
        states.push((view.state, view.attempts));
    }
    let (queued, wanted) = (UrlState::Queued, [UrlState::Fetched, UrlState::Gone, UrlState::Failed]);
    assert_eq!(states, [(wanted[0], 0), (wanted[1], 0), (wanted[2], 0), (queued, 1), (queued, 0)]);
    assert_eq!(world.lookup(&urls[3]).await.unwrap().due_at, Some(Time(world.now().0 + 240_000)));
    assert!(world.lookup("http://a.example/found").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn f5_a_stale_token_is_refused_and_changes_nothing() {
    let world = World::new(4).await;
    world.add(&[URL]).await;
    let slow = world.next().await.unwrap();
    pass(62_000).await;
    let quick = world.next().await.unwrap();
    assert_eq!(quick.urls[0].attempts, 1);
    let before = world.portrait().await;
    assert_eq!(world.release(&slow, |r| r).await, Err(Refusal::NotCurrent));
    assert_eq!(world.frontier.renew(slow.token, Millis(60_000)).await, Err(Refusal::NotCurrent));
    let refused = world.frontier.begin_release(slow.token, vec![URL.into()]).await;
    assert_eq!(refused, Err(Refusal::NotCurrent));
    for shard in [0, 3, 4, 900] {
        let never = Token::new(ShardId(shard), 77);
        assert_eq!(world.frontier.renew(never, Millis(60_000)).await, Err(Refusal::NotCurrent));
    }
    assert_eq!(world.portrait().await, before);
    world.fetched(&quick).await;
    assert_eq!(world.release(&quick, |r| r).await, Err(Refusal::NotCurrent), "a token works once");
}

#[tokio::test(start_paused = true)]
async fn f1_only_what_has_run_out_returns_and_all_of_it_does() {
    let world = World::new(4).await;
    world.add(&[URL, "http://b.example/1"]).await;
    let short = world.frontier.reserve(Reserve { lease: Millis(1_000), ..want(1, 1) }).await.unwrap().pop().unwrap();
    let long = world.next().await.unwrap();
    pass(999).await;
    assert_eq!(world.frontier.stats().await.unwrap().reservations, 2, "a deadline ahead is never freed");
    pass(1).await;
    assert_eq!(world.frontier.stats().await.unwrap().reservations, 1);
    let view = world.lookup(&short.urls[0].url).await.unwrap();
    assert_eq!((view.state, view.attempts), (UrlState::Queued, 1));
    world.fetched(&long).await;
}

#[tokio::test(start_paused = true)]
async fn f9_a_holder_that_renews_keeps_its_reservation() {
    let world = World::new(4).await;
    world.add(&[URL]).await;
    let lease = Reserve { lease: Millis(1_000), ..want(1, 1) };
    let reservation = world.frontier.reserve(lease).await.unwrap().pop().unwrap();
    for _ in 0..10 {
        pass(900).await;
        let until = world.frontier.renew(reservation.token, Millis(1_000)).await.unwrap();
        assert_eq!(until, Time(world.now().0 + 1_000));
        assert!(world.next().await.is_none());
    }
    world.fetched(&reservation).await;
    assert_eq!(world.lookup(URL).await.unwrap().attempts, 0);
}

#[tokio::test(start_paused = true)]
async fn a_group_may_be_given_several_visitors_and_no_more() {
    let world = World::new(1).await;
    let urls: Vec<String> = (0..9).map(|n| format!("http://a.example/{n}")).collect();
    world.add(&urls.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let changes = PaceChanges { parallel: Change::Set(3), delay: Change::Set(Millis(0)), ..PaceChanges::default() };
    world.set_group("trio", &["a.example"], changes).await;
    let all = world.reserve(9, 1).await;
    assert_eq!(all.len(), 3);
    let mut texts: Vec<_> = all.iter().map(|r| r.urls[0].url.clone()).collect();
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), 3, "no URL twice");
    world.fetched(&all[1]).await;
    assert_eq!(world.reserve(9, 1).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_host_may_be_queued_by_time_alone() {
    let mut world = World::new(4).await;
    let at = Time(world.now().0 + 2_000);
    world.frontier.set_host("bare.example".into(), PaceChanges::default(), false, Some(at)).await.unwrap();
    assert!(world.reserve(1, 0).await.is_empty());
    pass(2_000).await;
    let reservation = world.reserve(1, 0).await.pop().unwrap();
    assert_eq!((&*reservation.host, reservation.urls.len()), ("bare.example", 0));
    let again = Time(world.now().0 + 5_000);
    let release = Release { token: reservation.token, results: Vec::new(), ready_at: Some(again) };
    world.frontier.release(release, Vec::new()).await.unwrap();
    assert_eq!(world.host("bare.example").await.queued_at, Some(again));
    world.survives_a_restart().await;
    pass(5_000).await;
    assert_eq!(&*world.reserve(1, 3).await.pop().unwrap().host, "bare.example");
}

#[tokio::test(start_paused = true)]
async fn a_bare_host_returns_when_its_visitor_dies_also_after_a_restart() {
    for restart in [false, true] {
        let mut world = World::new(4).await;
        world.frontier.set_host("bare.example".into(), delay(0), false, Some(Time(0))).await.unwrap();
        assert_eq!(world.reserve(1, 0).await.len(), 1);
        if restart {
            world.reopen().await;
        }
        pass(61_000).await;
        assert_eq!(world.reserve(1, 0).await.len(), 1, "restarted: {restart}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_wakes_when_a_group_becomes_ready() {
    let world = World::new(4).await;
    let frontier = world.frontier.clone();
    let poll = tokio::spawn(async move { frontier.reserve(Reserve { wait: Millis(30_000), ..want(1, 1) }).await });
    pass(1_000).await;
    let before = world.now();
    world.add(&[URL]).await;
    let granted = poll.await.unwrap().unwrap();
    assert_eq!((granted.len(), world.now()), (1, before));
    let none = world.frontier.reserve(Reserve { wait: Millis(30_000), ..want(1, 1) }).await.unwrap();
    assert_eq!((none.len(), world.now().0), (0, before.0 + 30_000), "an empty answer takes the whole wait");
}

#[tokio::test(start_paused = true)]
async fn a_poller_of_another_crawl_steals_no_wake_up() {
    let world = World::new(4).await;
    let poll = |crawl: Option<&str>| {
        let request = Reserve { wait: Millis(30_000), crawl: crawl.map(Into::into), ..want(1, 1) };
        let frontier = world.frontier.clone();
        tokio::spawn(async move { frontier.reserve(request).await })
    };
    world.set_crawl("other", CrawlChanges::default()).await;
    let (_other, any) = (poll(Some("other")), poll(None));
    pass(1_000).await;
    world.add(&[URL]).await;
    let granted = tokio::time::timeout(Duration::from_secs(1), any).await.expect("the second in line is woken");
    assert_eq!(granted.unwrap().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_reservation_of_one_crawl_serves_that_crawl_alone() {
    let world = World::new(4).await;
    world.put(vec![of_crawl("x", disc(URL)), of_crawl("y", disc("http://b.example/"))]).await;
    let request = Reserve { crawl: Some("y".into()), ..want(9, 9) };
    let granted = world.frontier.reserve(request).await.unwrap();
    assert_eq!((granted.len(), &*granted[0].host), (1, "b.example"));
    let never = Reserve { crawl: Some("never met".into()), ..want(9, 9) };
    assert!(world.frontier.reserve(never).await.unwrap().is_empty());
}

/// A worker that sends digests need not remember the previous content.
#[tokio::test(start_paused = true)]
async fn a_digest_shows_whether_a_page_changed() {
    let mut world = World::new(1).await;
    let revisit = Change::Set(Revisit::Adaptive { min: Millis(1_000_000), max: Millis(100_000_000) });
    world.set_crawl("DEFAULT", CrawlChanges { revisit, ..CrawlChanges::default() }).await;
    world.add(&["http://a.example/1"]).await;
    let same = |digest: &'static str| move |r: UrlResult| UrlResult { digest: Some(digest.into()), ..r };
    let reported = |changed| move |r: UrlResult| UrlResult { changed: Some(changed), ..same("two")(r) };
    let not_modified = |r: UrlResult| UrlResult { status: Some(304), ..r };
    type Report = Box<dyn Fn(UrlResult) -> UrlResult>;
    // What each visit reports, and after how many seconds the page is revisited.
    let visits: Vec<(Report, u64)> = vec![
        (Box::new(same("one")), 1_000),
        (Box::new(same("one")), 1_500),
        (Box::new(same("one")), 2_250),
        (Box::new(not_modified), 3_375),
        (Box::new(same("one")), 5_062),
        (Box::new(same("two")), 2_531),
        (Box::new(reported(true)), 1_265),
        (Box::new(reported(false)), 1_898),
        (Box::new(|r| r), 1_000),
    ];
    for (n, (report, seconds)) in visits.into_iter().enumerate() {
        let visit = world.next().await.unwrap();
        let before = world.now().0;
        world.release(&visit, report).await.unwrap();
        let due = world.lookup("http://a.example/1").await.unwrap().due_at.unwrap();
        assert_eq!((due.0 - before) / 1_000, seconds, "visit {n}");
        pass(due.0 - before).await;
        world.reopen().await;
    }
}
