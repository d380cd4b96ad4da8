//! Listings of pools and matches, and what bounds them.

use wayleave_core::names::ClientName;

use super::*;
use crate::prelude::*;

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
