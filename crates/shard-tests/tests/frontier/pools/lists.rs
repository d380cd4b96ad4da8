//! Listings of pools and matches, and what bounds them.

use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::matches::{self, MatchStage, PoolSpec};
use wayleave_core::names::{ClientName, PoolName};
use wayleave_shard::matches::WorkerReport;

use super::*;

#[tokio::test(start_paused = true)]
async fn pools_of_all_shards_are_listed_by_name_and_page_by_page() {
    let world = World::new(4).await;
    let matches = Matches::new(world.frontier.clone());
    let names: Vec<PoolName> = (0..23).map(|n| format!("pool{n:02}").as_str().into()).collect();
    for name in names.iter().rev() {
        matches.set_pool(name.clone(), settings(spec())).await.unwrap();
    }
    for most in [1, 5, 22, 23, 24, 200] {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let (page, next) = matches.pools(after, most).await.unwrap();
            assert!(page.len() <= most);
            found.extend(page.into_iter().map(|summary| summary.name));
            match next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert_eq!(found, names, "{most} at a time");
    }
}

#[tokio::test(start_paused = true)]
async fn matches_are_listed_by_client_page_by_page_and_by_stage() {
    let (_world, matches) = world(2, PoolSpec { slots: Some(10), max: Some(1), ..spec() }).await;
    let site = Site::new("s");
    let maker = site.serve(&matches);
    let names: Vec<ClientName> = (0..10).map(|n| format!("client {n}/x").as_str().into()).collect();
    for name in &names {
        put(&matches, name, LONG).await.unwrap();
    }
    drop(maker);
    let waiting: Vec<ClientName> = (0..600).map(|n| format!("waits{n:03}").as_str().into()).collect();
    futures::future::join_all(waiting.iter().map(|name| put(&matches, name, NOW))).await;
    let all = || names.iter().chain(&waiting).cloned();
    for (stage, want) in [
        (None, all().collect::<Vec<_>>()),
        (Some(MatchStage::Matched), names.clone()),
        (Some(MatchStage::Queued), waiting.clone()),
        (Some(MatchStage::Failed), Vec::new()),
    ] {
        for most in [7, 100, 1_000] {
            let (mut found, mut after) = (Vec::new(), None);
            loop {
                let (page, next) = matches.matches(&pool(), stage, after, most).await.unwrap();
                assert!(page.len() <= most);
                let leaked = page.iter().any(|(_, view)| view.matched.as_ref().is_some_and(|m| m.token.is_some()));
                assert!(!leaked, "a list shows no tokens");
                found.extend(page.into_iter().map(|(client, _)| client));
                match next {
                    Some(next) => after = Some(next),
                    None => break,
                }
            }
            assert_eq!(found, want, "{stage:?}, {most} at a time");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_does_not_exist_is_named() {
    let (_world, matches) = world(2, spec()).await;
    let unknown = |name: &str| Refusal::Match(matches::Refusal::UnknownPool(name.into()));
    let other = || PoolName::from("other");
    assert_eq!(matches.put(other(), asker("a"), LONG).await, Err(unknown("other")));
    assert_eq!(matches.look(other(), asker("a"), LONG).await, Err(unknown("other")));
    assert_eq!(matches.cancel(other(), asker("a"), None).await, Err(unknown("other")));
    assert_eq!(matches.why(other(), "a".into()).await, Err(unknown("other")));
    assert_eq!(matches.pool(other()).await, Err(unknown("other")));
    assert_eq!(matches.delete_pool(other()).await, Err(unknown("other")));
    assert_eq!(matches.workers(other()).await, Err(unknown("other")));
    assert_eq!(matches.matches(&other(), None, None, 5).await, Err(unknown("other")));
    assert_eq!(matches.look(pool(), asker("a"), NOW).await, Ok(None));
    assert_eq!(matches.why(pool(), "a".into()).await, Ok(None));
    let secret = matches::row::Secret(wayleave_core::ids::Token([1; 16]));
    let report = || WorkerReport {
        worker: "p-1".into(),
        address: "127.0.0.1:9".into(),
        from: [127, 0, 0, 1].into(),
        free: 1,
        run: 1,
        secret,
    };
    assert!(matches!(matches.report(pool(), report()).await, Err(Refusal::Match(_))));
    assert_eq!(matches.report(other(), report()).await, Err(unknown("other")));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_is_known_by_name_keeps_its_client() {
    let (_world, matches) = world(2, spec()).await;
    let by = |who: &str| by(who, "a");
    matches.put(pool(), by("alice"), NOW).await.unwrap();
    let anothers = |refused| assert!(matches!(refused, Refusal::Match(matches::Refusal::AnothersClient(_))));
    anothers(matches.put(pool(), by("bob"), NOW).await.unwrap_err());
    anothers(matches.look(pool(), by("bob"), LONG).await.unwrap_err());
    anothers(matches.cancel(pool(), asker("a"), None).await.unwrap_err());
    assert_eq!(matches.cancel(pool(), by("alice"), None).await, Ok(true));
}
