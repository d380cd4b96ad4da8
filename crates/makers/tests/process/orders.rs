//! Concurrent events while orders are carried out.

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use wayleave_core::matches::{Effect, Exit, Input, Order, WorkerNo};
use wayleave_core::time::Time;
use wayleave_makers::runtime::Ended;

use super::scripted::{answer, create, instance, list, order, start};
use super::support::{eventually, key, labels};

#[tokio::test]
async fn a_repeated_order_is_not_started_twice_and_the_next_step_waits_for_it() {
    let (maker, runtime, pools) = start();
    (0..3).for_each(|_| pools.order("a", create(1)));
    runtime.called("create a/1").await;
    pools.order("a", Effect::Stop(order(1, 2, "127.0.0.1:1")));
    // Another worker's order, and all that it needs, come after them.
    pools.order("a", Effect::Stop(order(2, 1, "127.0.0.1:1")));
    pools
        .hears("another worker's stop", |_, news| matches!(news, Input::Stopped { step, .. } if step.worker.0 == 2))
        .await;
    assert_eq!(runtime.calls(), ["create a/1", "stop a/2"]);
    runtime.may_create.add_permits(1);
    runtime.called("stop a/1").await;
    let calls = runtime.calls();
    let place = |what: &str| calls.iter().position(|call| call == what);
    assert!(place("created a/1") < place("stop a/1"), "{calls:?}");
    pools
        .hears("the worker is stopped", |_, news| matches!(news, Input::Stopped { step, .. } if step.worker.0 == 1))
        .await;
    pools.order("a", Effect::Stop(order(1, 2, "127.0.0.1:1")));
    let again = || async { (runtime.calls().iter().filter(|call| *call == "stop a/1").count() == 2).then_some(()) };
    eventually("a step that is over may be ordered again", again).await;
    assert_eq!(runtime.calls().iter().filter(|call| *call == "create a/1").count(), 1);
    maker.stop().await;
}

/// A create may wait for an image for as long as its pool lets it.
#[tokio::test]
async fn a_removal_ends_the_making_of_its_worker() {
    for unknown in [false, true] {
        let (maker, runtime, pools) = start();
        pools.order("a", create(1));
        pools.order("a", create(2));
        runtime.called("create a/1").await;
        runtime.called("create a/2").await;
        pools.order(
            "a",
            match unknown {
                false => Effect::Remove(order(1, 2, "127.0.0.1:1")),
                true => Effect::RemoveUnknown { site: "here".into(), labels: labels(1) },
            },
        );
        runtime.called("remove a/1").await;
        runtime.may_create.add_permits(2);
        runtime.called("created a/2").await;
        pools.hears("the other one is made", |_, news| matches!(news, Input::Made { result: Ok(_), .. })).await;
        assert!(!runtime.calls().contains(&"created a/1".to_owned()), "{:?}", runtime.calls());
        let made = |news: &Input| matches!(news, Input::Made { step, .. } if step.worker.0 == 1);
        assert!(!pools.reports().iter().any(|(_, news)| made(news)), "what was given up is not reported");
        maker.stop().await;
    }
}

/// Two polls may be answered in another order than the one in which their orders were given.
#[tokio::test]
async fn an_order_that_comes_after_one_for_a_later_step_is_not_carried_out() {
    let (maker, runtime, pools) = start();
    runtime.may_create.add_permits(3);
    pools.order("a", Effect::Remove(order(1, 2, "127.0.0.1:1")));
    pools.hears("it is removed", |_, news| matches!(news, Input::Removed { .. })).await;
    pools.order("a", create(1));
    pools.order("a", Effect::Await(order(1, 1, "127.0.0.1:1")));
    pools.order("a", create(2));
    pools
        .hears("the other one is made", |_, news| matches!(news, Input::Made { step, .. } if step.worker.0 == 2))
        .await;
    // Whatever was begun before the Maker was stopped is done now.
    maker.stop().await;
    assert_eq!(runtime.calls(), ["remove a/1", "create a/2", "created a/2"]);
}

#[tokio::test]
async fn a_pool_takes_only_permits_of_its_own() {
    let (maker, runtime, pools) = start();
    (1..=100).for_each(|worker| pools.order("a", create(worker)));
    pools.order("b", create(1));
    runtime.called("create b/1").await;
    eventually("the limit of concurrent orders", || async {
        (runtime.under_way.load(Ordering::SeqCst) == 33).then_some(())
    })
    .await;
    runtime.may_create.add_permits(101);
    eventually("all are made", || async { (pools.reports().len() == 101).then_some(()) }).await;
    assert_eq!(runtime.most.load(Ordering::SeqCst), 33, "32 of one pool, and the one of the other");
    maker.stop().await;
}

#[tokio::test]
async fn a_worker_that_ends_or_changes_step_is_no_longer_awaited() {
    let (maker, runtime, pools) = start();
    // A port that takes connections and never answers.
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = mute.local_addr().unwrap().to_string();
    pools.order("browsers", Effect::Await(order(1, 2, &address)));
    pools.order("browsers", Effect::Await(order(2, 2, &address)));
    mute.set_nonblocking(true).unwrap();
    let taken = Mutex::new(Vec::new());
    let both = || async {
        taken.lock().unwrap().extend(mute.accept());
        (taken.lock().unwrap().len() == 2).then_some(())
    };
    eventually("both are awaited", both).await;
    let ended = Ended { worker: key(1), instance: instance(), exit: Exit::Clean };
    runtime.ends.lock().unwrap().as_ref().unwrap().try_send(ended).unwrap();
    pools.order("browsers", Effect::Stop(order(2, 3, &address)));
    pools
        .hears("the exit", |_, news| matches!(news, Input::Exited { worker: WorkerNo(1), exit: Exit::Clean, .. }))
        .await;
    pools.hears("the stop", |_, news| matches!(news, Input::Stopped { .. })).await;
    // The same step, ordered again, is carried out: nothing awaits that worker any more.
    let address = answer().await;
    let again = || async {
        pools.order("browsers", Effect::Await(order(1, 2, &address)));
        pools.reports().iter().any(|(_, news)| matches!(news, Input::Listening { result: Ok(()), .. })).then_some(())
    };
    eventually("it listens", again).await;
    let failed = |news: &Input| matches!(news, Input::Listening { result: Err(_), .. });
    assert!(!pools.reports().iter().any(|(_, news)| failed(news)), "nothing is reported of what was given up");
    maker.stop().await;
}

#[tokio::test]
async fn news_that_a_pool_refuses_is_sent_again_and_does_not_block_other_pools() {
    let (maker, _, pools) = start();
    pools.refused.lock().unwrap().insert("broken".into(), 3);
    pools.order("broken", Effect::Stop(order(1, 1, "x")));
    pools.order("broken", Effect::Stop(order(2, 1, "x")));
    pools.order("well", Effect::Stop(order(1, 1, "x")));
    pools.hears("the other pool's news", |pool, _| &**pool == "well").await;
    eventually("both in the end", || async { (pools.reports().len() == 3).then_some(()) }).await;
    maker.stop().await;
}

#[tokio::test]
async fn a_failed_list_reports_nothing_and_another_sites_order_is_ignored() {
    let (maker, runtime, pools) = start();
    runtime.cannot_list.store(true, Ordering::SeqCst);
    pools.order("a", list());
    let elsewhere = Order { site: "elsewhere".into(), ..order(1, 1, "x") };
    pools.order("a", Effect::Stop(elsewhere));
    pools.order("a", Effect::Stop(order(2, 1, "x")));
    pools.hears("the stop here", |_, news| matches!(news, Input::Stopped { .. })).await;
    assert_eq!((runtime.calls(), pools.reports().len()), (vec!["stop a/2".to_owned()], 1));
    runtime.cannot_list.store(false, Ordering::SeqCst);
    pools.order("a", list());
    pools.hears("the list", |_, news| matches!(news, Input::Listed { since: Time(7), .. })).await;
    maker.stop().await;
}
