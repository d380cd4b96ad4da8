//! Nothing leaves before it is durable: no answer, no order. And failed commits leave nothing behind.

use wayleave_core::matches::Effect;
use wayleave_engine::Error;

use super::*;
use crate::prelude::*;

const SHARD: ShardId = ShardId(0);

/// A store whose commits become durable only on demand.
async fn stepped(engine: &Arc<Memory>) -> Frontier {
    let config = wayleave_shard::Config::new(1);
    let opening = tokio::spawn({
        let engine = engine.clone();
        async move { open(&engine, &config).await }
    });
    while !opening.is_finished() {
        engine.make_durable(usize::MAX);
        pass(1).await;
    }
    opening.await.unwrap()
}

/// Makes everything durable until a call is answered.
async fn settle<T: Send + 'static>(engine: &Memory, call: impl Future<Output = T> + Send + 'static) -> T {
    let call = tokio::spawn(call);
    while !call.is_finished() {
        engine.make_durable(usize::MAX);
        pass(1).await;
    }
    call.await.unwrap()
}

fn poll(matches: &Matches, site: &Site, wait: u64) -> tokio::task::JoinHandle<wayleave_shard::matches::Orders> {
    let (matches, name) = (matches.clone(), site.name.clone());
    tokio::spawn(async move { matches.orders(SHARD, name, RuntimeKind::Process, Millis(wait)).await.unwrap() })
}

/// A pool, and a site that is known to it and has listed that it has nothing.
async fn introduce(engine: &Memory, matches: &Matches, site: &Site) {
    let set = matches.clone();
    settle(engine, async move { set.set_pool(pool(), settings(spec())).await.unwrap() }).await;
    for _ in 0..2 {
        let (matches, site) = (matches.clone(), site.clone());
        settle(engine, async move {
            let orders = poll(&matches, &site, 50).await.unwrap();
            let inputs = orders.into_iter().filter_map(|(pool, effect)| site.run(pool, effect)).collect();
            matches.tell(inputs).await.unwrap();
        })
        .await;
    }
}

/// Every order of a life from a cold start to a release is handed out only once the rows that it follows from are durable.
#[tokio::test(start_paused = true)]
async fn no_order_is_handed_out_and_no_answer_given_before_its_write_is_durable() {
    let engine = Arc::new(Memory::stepped(RuntimeClock::new()));
    let matches = Matches::new(stepped(&engine).await);
    let site = Site::new("s");
    introduce(&engine, &matches, &site).await;
    let putting = tokio::spawn({
        let matches = matches.clone();
        async move { put(&matches, "a", LONG).await }
    });
    let mut steps = Vec::new();
    while !putting.is_finished() {
        let mut polling = poll(&matches, &site, 5_000);
        pass(20).await;
        assert!(engine.waiting() > 0, "something is on its way after {steps:?}");
        assert!((&mut polling).now_or_never().is_none(), "handed out too early: after {steps:?}");
        assert!(!putting.is_finished(), "answered too early: after {steps:?}");
        engine.make_durable(usize::MAX);
        pass(20).await;
        if putting.is_finished() {
            break;
        }
        let orders = polling.await.unwrap();
        steps.extend(orders.iter().map(|(_, effect)| effect.kind()));
        let inputs: Vec<_> = orders.into_iter().filter_map(|(pool, effect)| site.run(pool, effect)).collect();
        let telling = tokio::spawn({
            let matches = matches.clone();
            async move { matches.tell(inputs).await }
        });
        pass(20).await;
        assert!(!telling.is_finished(), "taken in too early: after {steps:?}");
    }
    assert_eq!(putting.await.unwrap().unwrap().unwrap().stage, MatchStage::Matched);
    assert_eq!(steps, ["create", "await", "reserve"]);
    // The client leaves: the order to give the slot back follows its row.
    let polling = poll(&matches, &site, 4_000);
    let cancelling = tokio::spawn({
        let matches = matches.clone();
        async move { matches.cancel(pool(), asker("a"), None).await }
    });
    pass(100).await;
    assert!(!polling.is_finished() && !cancelling.is_finished());
    engine.make_durable(usize::MAX);
    assert_eq!(cancelling.await.unwrap(), Ok(true));
    let orders = polling.await.unwrap();
    assert!(matches!(orders.as_slice(), [(_, Effect::Release(_))]), "{orders:?}");
}

/// What was decided in a turn whose commit is lost with the machine is as if it had never been.
#[tokio::test(start_paused = true)]
async fn a_crash_before_the_commit_leaves_no_order_behind() {
    let engine = Arc::new(Memory::stepped(RuntimeClock::new()));
    let matches = Matches::new(stepped(&engine).await);
    let site = Site::new("s");
    introduce(&engine, &matches, &site).await;
    let polling = poll(&matches, &site, 5_000);
    pass(10).await;
    let putting = tokio::spawn({
        let matches = matches.clone();
        async move { put(&matches, "a", NOW).await }
    });
    pass(10).await;
    assert!(engine.waiting() > 0 && !polling.is_finished(), "a worker is to be made");
    let after = Arc::new(engine.crash());
    assert!(putting.await.unwrap().is_err());
    let orders = polling.await;
    let made = |orders: &Vec<(_, Effect)>| orders.iter().any(|(_, effect)| matches!(effect, Effect::Create(_)));
    assert!(!orders.is_ok_and(|orders| made(&orders)), "nothing was made durable, so nothing is made");
    let matches = Matches::new(stepped(&after).await);
    let look = matches.clone();
    let view = settle(&after, async move { look.why(pool(), "a".into()).await }).await;
    assert_eq!(view, Ok(None));
    assert_eq!(settle(&after, async move { matches.workers(pool()).await }).await, Ok(Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_failed_commit_is_reported_to_its_callers_and_the_pool_reloaded() {
    let unavailable = || Error::Unavailable("on purpose".to_owned());
    let (world, matches) = world(1, spec()).await;
    put(&matches, "before", NOW).await.unwrap();
    let parked = tokio::spawn({
        let matches = matches.clone();
        async move { put(&matches, "before", LONG).await }
    });
    pass(100).await;
    world.engine.fail_next(unavailable());
    let refused = put(&matches, "a", NOW).await;
    assert!(matches!(&refused, Err(Refusal::Unavailable(why)) if why.contains("on purpose")), "{refused:?}");
    assert_eq!(stage(&matches, "a").await, None, "nothing was changed");
    assert_eq!(stage(&matches, "before").await, Some(MatchStage::Queued), "what was answered is there");
    assert!(!parked.is_finished(), "who waited goes on waiting");
    let view = put(&matches, "a", NOW).await.unwrap().unwrap();
    assert_eq!((view.stage, view.position), (MatchStage::Queued, Some(2)));
    let site = Site::new("s");
    let _maker = site.serve(&matches);
    assert_eq!(parked.await.unwrap().unwrap().unwrap().stage, MatchStage::Matched);
    assert_eq!(put(&matches, "a", LONG).await.unwrap().unwrap().stage, MatchStage::Matched);
    assert_eq!(site.held(), 2);
}

/// Commits fail at any moment, with and without effect: no call hangs, every client gets a worker, and no slot is
/// lost.
#[tokio::test(start_paused = true)]
async fn every_client_ends_with_one_slot_after_any_failed_commit() {
    for fault in 0..3 {
        for after in 0..12 {
            let (world, matches) = world(1, PoolSpec { slots: Some(1), max: Some(6), ..spec() }).await;
            let site = Site::new("s");
            let _maker = site.serve(&matches);
            let puts: Vec<_> = (0..5)
                .map(|n| {
                    let matches = matches.clone();
                    tokio::spawn(async move {
                        let client = format!("c{n}");
                        loop {
                            // "Unavailable" and "outcome unknown" ask the client to try again.
                            match put(&matches, &client, LONG).await {
                                Ok(Some(view)) if view.stage == MatchStage::Matched => return,
                                Ok(view) => panic!("{view:?}"),
                                Err(Refusal::Unavailable(_) | Refusal::OutcomeUnknown(_)) => pass(50).await,
                                Err(refusal) => panic!("{refusal:?}"),
                            }
                        }
                    })
                })
                .collect();
            pass(after).await;
            match fault {
                0 => world.engine.fail_next(Error::Unavailable("on purpose".to_owned())),
                1 => world.engine.lose_next_answer(LostAnswer::Applied),
                _ => world.engine.lose_next_answer(LostAnswer::Dropped),
            }
            // A commit comes at the latest with this one.
            _ = put(&matches, "last", NOW).await;
            for put in puts {
                let done = tokio::time::timeout(std::time::Duration::from_secs(120), put).await;
                done.expect("no call hangs").unwrap();
            }
            _ = matches.cancel(pool(), asker("last"), None).await;
            until("slots booked = clients matched", || async { site.held() == 5 }).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_store_refuses_changes_matches_are_shown_and_none_is_made() {
    let engine = crate::faulty::Faulty::new();
    let matches = Matches::new(engine.open(1).await);
    matches.set_pool(pool(), settings(spec())).await.unwrap();
    let site = Site::new("s");
    let maker = site.serve(&matches);
    let view = put(&matches, "a", LONG).await.unwrap().unwrap();
    matches.put(pool(), by("alice", "alices"), LONG).await.unwrap();
    drop(maker);
    engine.set_full(true);
    assert!(put(&matches, "b", NOW).await.is_err());
    pass(100).await;
    let shown = matches.look(pool(), asker("a"), LONG).await.unwrap().unwrap();
    assert_eq!((shown.stage, shown.matched, shown.verified), (MatchStage::Matched, view.matched, false));
    let anothers = matches.look(pool(), by("bob", "alices"), NOW).await;
    assert!(matches!(anothers, Err(Refusal::Match(_))), "not to other clients: {anothers:?}");
    let polled = matches.orders(SHARD, "s".into(), RuntimeKind::Process, Millis(1_000)).await;
    assert!(matches!(polled, Err(Refusal::Unavailable(_))), "{polled:?}");
    assert!(put(&matches, "b", LONG).await.is_err(), "it fails without a wait");
    engine.set_full(false);
    let _maker = site.serve(&matches);
    pass(2_000).await;
    assert_eq!(put(&matches, "b", LONG).await.unwrap().unwrap().stage, MatchStage::Matched);
}
