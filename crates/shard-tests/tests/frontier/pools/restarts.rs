//! Restarts: requests in every state survive one, and each continues.

use super::*;
use crate::prelude::*;

/// One request in every state there is, as far as this site goes.
async fn every_state(matches: &Matches, site: &Site) {
    // "failed" fails for want of a worker, before any site is there.
    put(matches, "failed", NOW).await.unwrap();
    until("it fails", || async { stage(matches, "failed").await == Some(MatchStage::Failed) }).await;
    let maker = site.serve(matches);
    assert_eq!(put(matches, "vacant", LONG).await.unwrap().unwrap().stage, MatchStage::Matched);
    matches.tell(site.crash(&pool())).await.unwrap();
    for client in ["matched", "left"] {
        assert_eq!(put(matches, client, LONG).await.unwrap().unwrap().stage, MatchStage::Matched);
    }
    assert_eq!(stage(matches, "vacant").await, Some(MatchStage::Vacant));
    // From here on the site hears, and its answers are lost.
    site.lose(&["reserve", "release", "create", "check"]);
    assert_eq!(matches.cancel(pool(), asker("left"), None).await, Ok(true));
    put(matches, "making", NOW).await.unwrap();
    until("a worker is asked", || async { stage(matches, "making").await == Some(MatchStage::Making) }).await;
    for client in ["queued1", "queued2"] {
        put(matches, client, NOW).await.unwrap();
    }
    for (client, want) in
        [("making", MatchStage::Making), ("queued1", MatchStage::Queued), ("queued2", MatchStage::Queued)]
    {
        assert_eq!(stage(matches, client).await, Some(want));
    }
    drop(maker);
}

async fn portrait(matches: &Matches) -> String {
    let (views, next) = matches.matches(&pool(), None, None, 100).await.unwrap();
    assert_eq!(next, None);
    let shown: Vec<_> = views.iter().map(|(client, view)| (client, view.stage, view.version, &view.matched)).collect();
    format!("{shown:#?}{:#?}", matches.workers(pool()).await.unwrap())
}

#[tokio::test(start_paused = true)]
async fn requests_in_every_state_survive_a_restart_and_go_on() {
    let spec = PoolSpec { slots: Some(3), max: Some(2), match_ms_max: Some(30_000), ..spec() };
    let (mut world, mut matches) = world(2, spec).await;
    let site = Site::new("s");
    every_state(&matches, &site).await;
    for _ in 0..2 {
        let before = portrait(&matches).await;
        matches = reopened(&mut world).await;
        assert_eq!(portrait(&matches).await, before, "a restart changed what can be seen");
    }
    assert_eq!(stage(&matches, "failed").await, Some(MatchStage::Failed));
    site.lose(&[]);
    let _maker = site.serve(&matches);
    for client in ["making", "queued1", "queued2", "matched", "vacant"] {
        let view = put(&matches, client, LONG).await.unwrap().unwrap();
        assert_eq!(view.stage, MatchStage::Matched, "{client}: {view:?}");
    }
    until("the slot of the one that left is given back", || async { site.held() == 5 }).await;
    let again = put(&matches, "failed", LONG).await.unwrap().unwrap();
    assert_eq!(again.stage, MatchStage::Failed, "the failure is reported");
    assert_eq!(
        put(&matches, "failed", LONG).await.unwrap().unwrap().stage,
        MatchStage::Matched,
        "then it is queued anew"
    );
    assert_eq!(site.held(), 6);
}

/// The process ends while workers are made, asked and given back, again and again. Workers that run are adopted.
#[tokio::test(start_paused = true)]
async fn restarts_at_any_moment_strand_no_client_and_leak_no_slot() {
    for after in [1, 3, 10, 40, 400] {
        let (mut world, mut matches) = world(2, PoolSpec { slots: Some(4), max: Some(5), ..spec() }).await;
        let site = Site::new("s");
        for _ in 0..4 {
            let maker = site.serve(&matches);
            let puts: Vec<_> = (0..20)
                .map(|n| {
                    let matches = matches.clone();
                    tokio::spawn(async move { put(&matches, &format!("c{n}"), LONG).await })
                })
                .collect();
            pass(after).await;
            matches = reopened(&mut world).await;
            for put in puts {
                // Its answer is true: matched, or not known.
                let answer =
                    tokio::time::timeout(std::time::Duration::from_secs(90), put).await.expect("no call hangs");
                let answer = answer.unwrap();
                let held = |view: &MatchView| view.stage == MatchStage::Matched;
                assert!(answer.as_ref().is_err() || answer.as_ref().is_ok_and(|view| view.as_ref().is_some_and(held)));
            }
            drop(maker);
        }
        let _maker = site.serve(&matches);
        super::crowd(&matches, &site, 20).await;
        assert!(site.workers() <= 5);
    }
}

#[tokio::test(start_paused = true)]
async fn the_label_of_started_workers_never_changes() {
    let (mut world, matches) = world(1, spec()).await;
    let site = Site::new("s");
    let maker = site.serve(&matches);
    put(&matches, "a", LONG).await.unwrap();
    let label = |site: &Site| site.lock().workers.values().next().map(|worker| worker.labels.owner.clone());
    let first = label(&site).unwrap();
    drop(maker);
    matches.cancel(pool(), asker("a"), None).await.unwrap();
    let matches = reopened(&mut world).await;
    let _maker = site.serve(&matches);
    matches.delete_pool(pool()).await.unwrap();
    until("the pool is gone", || async { matches.pool(pool()).await.is_err() }).await;
    matches.set_pool(pool(), settings(spec())).await.unwrap();
    put(&matches, "a", LONG).await.unwrap();
    assert_eq!(label(&site), Some(first));
}
