//! Store failures: callers get a refusal, the shard reloads, nothing acknowledged is lost and nothing is duplicated.

use wayleave_engine::Error;

use crate::prelude::*;
use crate::support::*;

const URL: &str = "http://a.example/1";

#[tokio::test(start_paused = true)]
async fn a_refused_commit_leaves_nothing_and_the_shard_continues() {
    let world = World::new(1).await;
    world.add(&["http://b.example/"]).await;
    pass(100).await;
    world.engine.fail_next(Error::Unavailable("on purpose".to_owned()));
    let outcomes = world.put(vec![disc(URL)]).await;
    assert!(matches!(&outcomes[0], PutOutcome::Failed(why) if why.to_string().contains("on purpose")), "{outcomes:?}");
    assert_eq!(world.lookup(URL).await, None);
    assert_eq!(world.put(vec![disc(URL)]).await, [PutOutcome::Added]);
    assert!(world.lookup("http://b.example/").await.is_some(), "what was acknowledged is still there");
}

#[tokio::test(start_paused = true)]
async fn after_a_lost_answer_the_store_is_asked_what_happened() {
    for (truth, known) in [(LostAnswer::Applied, true), (LostAnswer::Dropped, false)] {
        let world = World::new(1).await;
        world.add(&["http://b.example/"]).await;
        pass(100).await;
        world.engine.lose_next_answer(truth);
        assert!(matches!(&world.put(vec![disc(URL)]).await[0], PutOutcome::Failed(_)));
        assert_eq!(world.lookup(URL).await.is_some(), known, "{truth:?}");
        let again = world.put(vec![disc(URL)]).await;
        assert_eq!(again, [if known { PutOutcome::Known } else { PutOutcome::Added }]);
    }
}

#[tokio::test(start_paused = true)]
async fn f6_a_reservation_whose_answer_was_lost_is_atomic() {
    for truth in [LostAnswer::Applied, LostAnswer::Dropped] {
        let world = World::new(1).await;
        world.add(&[URL]).await;
        pass(100).await;
        world.engine.lose_next_answer(truth);
        let refused = world.frontier.reserve(want(1, 1)).await;
        assert!(matches!(refused, Err(Refusal::OutcomeUnknown(_))), "{refused:?}");
        let made = truth == LostAnswer::Applied;
        let (view, host) = (world.lookup(URL).await.unwrap(), world.state("a.example").await);
        let want = if made { (UrlState::Reserved, State::Busy) } else { (UrlState::Queued, State::Ready) };
        assert_eq!((view.state, host), want);
        pass(62_000).await;
        let again = world.next().await.expect("whatever happened, the URL is offered again");
        assert_eq!(again.urls[0].attempts, u32::from(made));
    }
}

#[tokio::test(start_paused = true)]
async fn a_move_whose_answer_was_lost_leaves_the_host_reachable_in_one_place() {
    for truth in [LostAnswer::Applied, LostAnswer::Dropped] {
        for leave in [false, true] {
            let world = World::new(4).await;
            let (host, alias) = (host_in(1, 4, 0), alias_in(0, 4));
            let url = format!("http://{host}/1");
            world.add(&[&url]).await;
            let hosts = |on: bool| Some(if on { vec![host.as_str().into()] } else { Vec::new() });
            let set =
                |on: bool| world.frontier.set_group(alias.as_str().into(), hosts(on), PaceChanges::default(), false);
            set(leave).await.unwrap();
            pass(100).await;
            world.engine.lose_next_answer(truth);
            assert!(set(!leave).await.is_err(), "the settings stay the same, so the first commit is the move");
            pass(2_000).await;
            let case = format!("{truth:?}, leave: {leave}");
            let view = world.frontier.lookup("DEFAULT".into(), host.as_str().into(), &url).await.unwrap();
            assert_eq!(view.map(|v| v.state), Some(UrlState::Queued), "the URL is not lost: {case}");
            let more = format!("http://{host}/2");
            assert_eq!(world.put(vec![disc(&more)]).await, [PutOutcome::Added], "{case}");
            assert_eq!(world.host(&host).await.counts.queued, 2, "{case}");
            set(true).await.unwrap();
            assert_eq!(&*world.host(&host).await.group, alias.as_str(), "{case}");
            assert_eq!(world.put(vec![disc(&more)]).await, [PutOutcome::Known], "{case}");
            assert_eq!(world.reserve(9, 9).await[0].urls.len(), 2, "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn during_an_outage_callers_are_refused_and_afterwards_served() {
    let world = World::new(4).await;
    world.add(&[URL]).await;
    world.engine.begin_outage("on purpose");
    assert!(matches!(&world.put(vec![disc("http://a.example/2")]).await[0], PutOutcome::Failed(_)));
    assert!(world.frontier.reserve(want(1, 1)).await.is_err());
    pass(3_000).await;
    assert!(world.frontier.readiness().is_err());
    world.engine.end_outage();
    pass(2_000).await;
    assert_eq!(world.frontier.readiness(), Ok(()));
    assert_eq!(world.put(vec![disc("http://a.example/2")]).await, [PutOutcome::Added]);
    let visit = world.reserve(1, 9).await.pop().unwrap();
    assert_eq!(visit.urls.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_poll_that_waits_through_an_outage_is_served_when_it_is_over() {
    let world = World::new(1).await;
    let due = wayleave_core::time::Time(world.now().0 + 5_000);
    world.put(vec![disc_at(URL, due)]).await;
    let frontier = world.frontier.clone();
    let poll = tokio::spawn(async move { frontier.reserve(Reserve { wait: Millis(50_000), ..want(1, 1) }).await });
    pass(1_000).await;
    world.engine.begin_outage("on purpose");
    assert!(matches!(&world.put(vec![disc("http://b.example/2")]).await[0], PutOutcome::Failed(_)));
    // The URL becomes due while no owner is running: only the reload finds its group ready.
    pass(9_000).await;
    world.engine.end_outage();
    let granted = tokio::time::timeout(Duration::from_secs(5), poll).await.expect("the reload wakes who waits");
    assert_eq!(granted.unwrap().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_answer_leaves_before_what_it_says_is_durable() {
    let engine = Memory::stepped(RuntimeClock::new());
    let world_engine = std::sync::Arc::new(engine);
    let config = wayleave_shard::Config::new(2);
    let opening = tokio::spawn({
        let (engine, config) = (world_engine.clone(), config.clone());
        async move { open(&engine, &config).await }
    });
    while !opening.is_finished() {
        world_engine.make_durable(usize::MAX);
        pass(1).await;
    }
    let frontier = opening.await.unwrap();
    let put = tokio::spawn({
        let frontier = frontier.clone();
        async move { frontier.put(vec![disc(URL)]).await }
    });
    pass(1_000).await;
    assert!(!put.is_finished() && world_engine.waiting() > 0, "visible, but not durable: no answer");
    let lookup = tokio::spawn({
        let frontier = frontier.clone();
        async move { frontier.lookup("DEFAULT".into(), host_of(URL), URL).await }
    });
    pass(1_000).await;
    assert!(!lookup.is_finished(), "nor does a reader hear of it");
    world_engine.make_durable(usize::MAX);
    assert_eq!(put.await.unwrap(), [PutOutcome::Added]);
    assert!(lookup.await.unwrap().unwrap().is_some());
    let doomed = tokio::spawn({
        let frontier = frontier.clone();
        async move { frontier.put(vec![disc("http://a.example/2")]).await }
    });
    pass(10).await;
    let after = std::sync::Arc::new(world_engine.crash());
    assert!(matches!(&doomed.await.unwrap()[0], PutOutcome::Failed(_)));
    let reopening = tokio::spawn({
        let (engine, config) = (after.clone(), config.clone());
        async move { open(&engine, &config).await }
    });
    while !reopening.is_finished() {
        after.make_durable(usize::MAX);
        pass(1).await;
    }
    let frontier = reopening.await.unwrap();
    assert!(frontier.lookup("DEFAULT".into(), host_of(URL), URL).await.unwrap().is_some());
    assert!(frontier.lookup("DEFAULT".into(), host_of(URL), "http://a.example/2").await.unwrap().is_none());
}
