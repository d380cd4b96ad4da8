//! Calls that wait: for a worker, or for a worker's answer. None waits longer than asked, and none hangs.

use wayleave_core::limits::PARKED_MATCHES_MAX;

use super::*;
use crate::prelude::*;

#[tokio::test(start_paused = true)]
async fn a_put_waits_its_time_and_then_returns_its_state() {
    let (_world, matches) = world(2, spec()).await;
    for wait in [0, 100, 12_007] {
        let begun = Instant::now();
        let view = put(&matches, "a", Millis(wait)).await.unwrap().unwrap();
        assert_eq!((view.stage, view.position), (MatchStage::Queued, Some(1)));
        let waited = begun.elapsed();
        assert!(waited >= Duration::from_millis(wait) && waited < Duration::from_millis(wait + 50), "{waited:?}");
        let looked = matches.look(pool(), asker("a"), Millis(wait)).await.unwrap().unwrap();
        assert_eq!(looked.stage, MatchStage::Queued);
    }
}

#[tokio::test(start_paused = true)]
async fn a_put_that_waits_is_answered_as_soon_as_there_is_a_worker() {
    let (_world, matches) = world(2, spec()).await;
    let waiting = tokio::spawn({
        let matches = matches.clone();
        async move { put(&matches, "a", LONG).await }
    });
    let looking = tokio::spawn({
        let matches = matches.clone();
        async move {
            until("it is queued", || async { stage(&matches, "a").await.is_some() }).await;
            matches.look(pool(), asker("a"), LONG).await
        }
    });
    pass(10_000).await;
    assert!(!waiting.is_finished() && !looking.is_finished());
    let site = Site::new("s");
    let begun = Instant::now();
    let _maker = site.serve(&matches);
    for call in [waiting, looking] {
        let view = call.await.unwrap().unwrap().unwrap();
        assert_eq!((view.stage, view.verified), (MatchStage::Matched, true));
    }
    assert!(begun.elapsed() < Duration::from_millis(100), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_new_pool_knows_the_sites_whose_makers_wait() {
    let world = World::new(1).await;
    let matches = Matches::new(world.frontier.clone());
    let site = Site::new("s");
    let _maker = site.serve(&matches);
    pass(7_000).await;
    let begun = Instant::now();
    matches.set_pool(pool(), settings(spec())).await.unwrap();
    assert_eq!(put(&matches, "a", LONG).await.unwrap().unwrap().stage, MatchStage::Matched);
    assert!(begun.elapsed() < Duration::from_millis(100), "{:?}", begun.elapsed());
}

/// The worker's word comes after the request has ended, or never; and the caller of the put may have left.
#[tokio::test(start_paused = true)]
async fn a_put_that_waits_for_a_worker_does_not_requeue_a_cancelled_client() {
    for leaves in [false, true] {
        let (_world, matches) = world(2, spec()).await;
        let site = Site::new("s");
        let _maker = site.serve(&matches);
        assert_eq!(put(&matches, "a", LONG).await.unwrap().unwrap().stage, MatchStage::Matched);
        pass(3_000).await;
        site.lose(&["check"]);
        let waiting = tokio::spawn({
            let matches = matches.clone();
            async move { put(&matches, "a", LONG).await }
        });
        until("the worker is asked", || async { site.seen("check") > 0 }).await;
        if leaves {
            waiting.abort();
            pass(10).await;
        }
        assert_eq!(matches.cancel(pool(), asker("a"), None).await, Ok(true));
        if !leaves {
            assert_eq!(waiting.await.unwrap(), Ok(None));
        }
        pass(20_000).await;
        assert_eq!(stage(&matches, "a").await, None, "it is queued again");
        assert_eq!(site.held(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_put_whose_match_is_cancelled_returns_and_does_not_requeue() {
    for after in [100, 12_000] {
        let (_world, matches) = world(2, spec()).await;
        let waiting = tokio::spawn({
            let matches = matches.clone();
            async move { put(&matches, "a", LONG).await }
        });
        pass(after).await;
        assert_eq!(matches.cancel(pool(), asker("a"), None).await, Ok(true));
        assert_eq!(waiting.await.unwrap(), Ok(None));
        pass(20_000).await;
        assert_eq!(stage(&matches, "a").await, None);
        assert_eq!(matches.cancel(pool(), asker("a"), None).await, Ok(false));
    }
}

#[tokio::test(start_paused = true)]
async fn a_put_that_waits_when_its_worker_dies_gets_another_one() {
    let (_world, matches) = world(2, PoolSpec { slots: Some(1), max: Some(1), ..spec() }).await;
    let site = Site::new("s");
    let _maker = site.serve(&matches);
    put(&matches, "a", LONG).await.unwrap();
    let second = tokio::spawn({
        let matches = matches.clone();
        async move { put(&matches, "b", LONG).await }
    });
    pass(2_000).await;
    assert!(!second.is_finished());
    matches.tell(site.crash(&pool())).await.unwrap();
    assert_eq!(second.await.unwrap().unwrap().unwrap().stage, MatchStage::Matched);
}

#[tokio::test(start_paused = true)]
async fn a_matched_client_is_confirmed_by_its_worker_or_shown_unverified() {
    let (_world, matches) = world(2, spec()).await;
    let site = Site::new("s");
    let _maker = site.serve(&matches);
    let first = put(&matches, "a", LONG).await.unwrap().unwrap();
    pass(2_000).await;
    let checked = site.seen("check");
    let look = || matches.look(pool(), asker("a"), NOW);
    let (one, other) = tokio::join!(look(), put(&matches, "a", NOW));
    for view in [one, other] {
        let view = view.unwrap().unwrap();
        assert!(view.verified && view.matched == first.matched, "{view:?}");
    }
    assert!(site.seen("check") > checked, "the worker is asked");
    site.lose(&["check"]);
    pass(2_000).await;
    let begun = Instant::now();
    let view = look().await.unwrap().unwrap();
    assert!(!view.verified && view.stage == MatchStage::Matched && view.matched == first.matched);
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    site.lose(&[]);
    pass(2_000).await;
    assert!(look().await.unwrap().unwrap().verified);
    // The worker says no: a look says so, and a put queues it again.
    site.lock().workers.values_mut().for_each(|worker| worker.held.clear());
    pass(2_000).await;
    let again = put(&matches, "a", LONG).await.unwrap().unwrap();
    assert!(again.verified && again.stage == MatchStage::Matched);
    assert_ne!(again.matched.unwrap().token, first.matched.unwrap().token);
    assert_eq!(site.held(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_reported_once_to_all_waiters() {
    let (_world, matches) = world(2, PoolSpec { match_ms_max: Some(2_000), ..spec() }).await;
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let matches = matches.clone();
            tokio::spawn(async move { put(&matches, "a", LONG).await })
        })
        .collect();
    for call in waiting {
        let view = call.await.unwrap().unwrap().unwrap();
        assert_eq!(view.stage, MatchStage::Failed, "{view:?}");
        assert!(view.why.to_string().contains("no node can start workers"), "{}", view.why);
    }
    assert_eq!(
        put(&matches, "a", NOW).await.unwrap().unwrap().stage,
        MatchStage::Queued,
        "the next call queues it anew"
    );
}

#[tokio::test(start_paused = true)]
async fn past_the_bound_of_parked_calls_a_call_is_answered_as_things_are() {
    let spec = PoolSpec { queue_max: Some(100_000), match_ms_max: Some(3_600_000), ..spec() };
    let (_world, matches) = world(1, spec).await;
    let waiting: Vec<_> = (0..PARKED_MATCHES_MAX)
        .map(|n| {
            let matches = matches.clone();
            tokio::spawn(async move { put(&matches, &format!("c{n}"), Millis(3_000)).await })
        })
        .collect();
    pass(500).await;
    let begun = Instant::now();
    let view = put(&matches, "late", Millis(3_000)).await.unwrap().unwrap();
    assert_eq!((view.stage, view.position), (MatchStage::Queued, Some(PARKED_MATCHES_MAX + 1)));
    assert!(begun.elapsed() < Duration::from_millis(500));
    // Callers that leave make room, which is looked for every 100 ms.
    waiting.iter().take(10).for_each(tokio::task::JoinHandle::abort);
    pass(100).await;
    let begun = Instant::now();
    put(&matches, "later", Millis(1_000)).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(1_000));
    for call in waiting.into_iter().skip(10) {
        assert_eq!(call.await.unwrap().unwrap().unwrap().stage, MatchStage::Queued);
    }
}
