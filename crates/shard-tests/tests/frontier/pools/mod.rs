//! Pools and matches through the handle: batches, restarts, failed commits, moves.

mod durability;
mod embedded;
mod herds;
mod lists;
mod moves;
mod restarts;
pub mod site;
mod waiting;

use wayleave_core::matches::{Asker, MatchView, Settings};
use wayleave_shard::matches::Matches;

pub use self::site::Site;
use crate::prelude::*;
use crate::support::*;

pub const NOW: Millis = Millis(0);
/// Long enough for everything that is not stuck.
pub const LONG: Millis = Millis(60_000);

pub fn spec() -> PoolSpec {
    PoolSpec {
        command: vec!["worker".into()],
        slots: Some(2),
        max: Some(3),
        idle_ms: Some(60_000),
        reservation_ms: Some(600_000),
        ..PoolSpec::default()
    }
}

pub fn settings(spec: PoolSpec) -> Settings {
    spec.check().unwrap()
}

pub fn asker(client: &str) -> Asker {
    Asker { client: client.into(), principal: None }
}

/// A client whose caller is known by name.
pub fn by(principal: &str, client: &str) -> Asker {
    Asker { client: client.into(), principal: Some(principal.into()) }
}

pub fn pool() -> PoolName {
    "p".into()
}

/// A client's put.
pub async fn put(matches: &Matches, client: &str, wait: Millis) -> Result<Option<MatchView>, Refusal> {
    matches.put(pool(), asker(client), wait).await
}

pub async fn stage(matches: &Matches, client: &str) -> Option<MatchStage> {
    matches.why(pool(), client.into()).await.unwrap().map(|view| view.stage)
}

/// Waits until something holds. Time advances by itself.
pub async fn until<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) {
    for _ in 0..2_000 {
        if holds().await {
            return;
        }
        pass(50).await;
    }
    panic!("never: {what}");
}

pub async fn world(shards: u16, spec: PoolSpec) -> (World, Matches) {
    let world = World::new(shards).await;
    let matches = Matches::new(world.frontier.clone());
    matches.set_pool(pool(), settings(spec)).await.unwrap();
    (world, matches)
}

/// Many clients at once, on any store: everyone gets a worker, and every slot that is booked is one client's.
pub async fn crowd(matches: &Matches, site: &Site, clients: usize) {
    let puts = (0..clients).map(|n| {
        let matches = matches.clone();
        tokio::spawn(async move { put(&matches, &format!("c{n}"), LONG).await })
    });
    let puts: Vec<_> = puts.collect();
    for put in puts {
        let view = put.await.unwrap().unwrap().expect("it was not cancelled");
        assert_eq!(view.stage, MatchStage::Matched, "{view:?}");
        assert!(view.verified && view.matched.is_some_and(|matched| matched.token.is_some()));
    }
    assert_eq!(site.held(), clients, "slots booked = clients matched");
    let view = matches.pool(pool()).await.unwrap();
    assert_eq!((view.matched, view.waiting), (clients, 0));
}

#[tokio::test(start_paused = true)]
async fn clients_that_come_at_once_share_turns_and_all_get_a_worker() {
    let engine = super::faulty::Faulty::new();
    let frontier = engine.open(4).await;
    let matches = Matches::new(frontier.clone());
    let spec = PoolSpec { slots: Some(10), max: Some(20), makers_max: Some(200), ..spec() };
    matches.set_pool(pool(), settings(spec)).await.unwrap();
    let site = Site::new("s");
    let _maker = site.serve(&matches);
    crowd(&matches, &site, 200).await;
    let commits = engine.commits.lock().unwrap().len();
    assert!(commits < 200, "{commits} commits for 200 clients with three changes each");
    assert_eq!(site.workers(), 20);
    let leave = (0..200).map(|n| matches.cancel(pool(), asker(&format!("c{n}")), None));
    assert!(futures::future::join_all(leave).await.into_iter().all(|left| left == Ok(true)));
    until("all slots are given back", || async { site.held() == 0 }).await;
    until("idle workers are stopped", || async { site.workers() == 0 }).await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_is_deleted_drains_first_and_may_come_again() {
    let (_world, matches) = world(2, spec()).await;
    let site = Site::new("s");
    let _maker = site.serve(&matches);
    assert_eq!(put(&matches, "a", LONG).await.unwrap().unwrap().stage, MatchStage::Matched);
    assert!(matches.delete_pool(pool()).await.unwrap().closing);
    assert!(put(&matches, "b", NOW).await.is_err(), "it takes no more");
    pass(5_000).await;
    assert_eq!(site.workers(), 1, "a busy worker is not stopped");
    assert_eq!(matches.cancel(pool(), asker("a"), None).await, Ok(true));
    until("the pool is gone", || async { matches.pool(pool()).await.is_err() }).await;
    assert_eq!(site.workers(), 0);
    let unknown = put(&matches, "a", NOW).await;
    let named = Refusal::Match(wayleave_core::matches::Refusal::RemovedPool("p".into()));
    assert_eq!(unknown, Err(named));
    matches.set_pool(pool(), settings(spec())).await.unwrap();
    assert_eq!(put(&matches, "a", LONG).await.unwrap().unwrap().stage, MatchStage::Matched);
}

#[tokio::test(start_paused = true)]
async fn every_site_gets_its_own_orders_and_pools_of_a_shard_share_a_poll() {
    let (_world, matches) = world(1, PoolSpec { slots: Some(1), max: Some(6), ..spec() }).await;
    matches.set_pool("q".into(), settings(spec())).await.unwrap();
    let sites = [Site::new("s"), Site::new("t")];
    let _makers: Vec<_> = sites.iter().map(|site| site.serve(&matches)).collect();
    for n in 0..6 {
        assert_eq!(put(&matches, &format!("c{n}"), LONG).await.unwrap().unwrap().stage, MatchStage::Matched);
    }
    let other = matches.put("q".into(), asker("c0"), LONG).await.unwrap().unwrap();
    assert_eq!(other.stage, MatchStage::Matched);
    assert!(sites.iter().all(|site| site.workers() >= 3), "a site fails on an order that is not for it");
    assert_eq!(sites.iter().map(Site::held).sum::<usize>(), 7);
    let shown = matches.why(pool(), "c0".into()).await.unwrap().unwrap();
    assert_eq!(shown.matched.unwrap().token, None, "an operator sees no tokens");
}

#[tokio::test(start_paused = true)]
async fn a_maker_cannot_speak_for_clients_and_operators() {
    use wayleave_core::matches::Input;
    let (_world, matches) = world(1, spec()).await;
    put(&matches, "a", NOW).await.unwrap();
    let cancel = Input::Cancel { asker: asker("a"), token: None };
    let inputs = [Input::Delete, cancel, Input::Put(asker("b")), Input::Set(Box::new(settings(spec())))];
    matches.tell(inputs.into_iter().map(|input| (pool(), input)).collect()).await.unwrap();
    matches.tell(vec![("unknown".into(), Input::Tick)]).await.unwrap();
    assert!(!matches.pool(pool()).await.unwrap().closing);
    assert_eq!((stage(&matches, "a").await, stage(&matches, "b").await), (Some(MatchStage::Queued), None));
}

/// The frontier of a world, opened again.
pub async fn reopened(world: &mut World) -> Matches {
    world.reopen().await;
    Matches::new(world.frontier.clone())
}
