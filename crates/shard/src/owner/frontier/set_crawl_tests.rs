//! Settings and deletions of one crawl that arrive in other orders than they were decided in.

use std::sync::Arc;

use wayleave_core::frontier::request::{Put, PutKind, Reserve};
use wayleave_core::frontier::view::CrawlPart;
use wayleave_core::metadata::Metadata;
use wayleave_core::settings::Change;
use wayleave_engine::Memory;
use wayleave_engine::clock::ManualClock;

use super::*;
use crate::ask::StateQuery;
use crate::{Config, Frontier};

const SHARDS: u16 = 4;

async fn frontier() -> Frontier {
    let engine = Arc::new(Memory::new(ManualClock::new(Time(1_000_000))));
    Frontier::open(engine, Config::new(SHARDS), &tokio::runtime::Handle::current()).await.unwrap()
}

fn paused() -> CrawlChanges {
    CrawlChanges { paused: Change::Set(true), ..CrawlChanges::default() }
}

/// Whether each shard knows of the crawl.
async fn known(router: &Router, crawl: &CrawlName) -> Vec<bool> {
    let all: Vec<ShardId> = (0..SHARDS).map(ShardId).collect();
    let parts: Vec<Option<CrawlPart>> = router.ask_all(&all, StateQuery::Crawl(crawl.clone())).await.unwrap();
    parts.iter().map(Option::is_some).collect()
}

#[tokio::test]
async fn settings_that_arrive_after_a_later_deletion_do_not_recreate_the_crawl() {
    let frontier = frontier().await;
    let (router, crawl) = (&frontier.router, CrawlName::from("c"));
    let (first, others) = router.home_and_others(&crawl);
    let decide = |again| CrawlChange::Decide { crawl: crawl.clone(), changes: Some((paused(), false)), again };
    let set: CrawlSet = router.ask(first, decide(false)).await.unwrap();
    frontier.delete_crawl(crawl.clone()).await.unwrap();
    let CrawlSet { settings, version, round, .. } = set;
    let follow = CrawlChange::Follow { crawl: crawl.clone(), settings, version, round };
    router.ask_all::<u64>(&others, follow).await.unwrap();
    assert_eq!(known(router, &crawl).await, [false; SHARDS as usize]);
    let settle = CrawlChange::Settle { crawl: crawl.clone(), version, used: None };
    assert!(!router.ask::<CrawlSettled>(first, settle).await.unwrap().in_force, "the home asks for another round");
    let anew: CrawlSet = router.ask(first, decide(true)).await.unwrap();
    assert!(anew.settings.paused && anew.version > version, "in which the changes are decided on again");
}

#[tokio::test]
async fn a_deletion_that_arrives_after_later_settings_leaves_them() {
    let frontier = frontier().await;
    let (router, crawl) = (&frontier.router, CrawlName::from("c"));
    let (first, others) = router.home_and_others(&crawl);
    frontier.set_crawl(crawl.clone(), CrawlChanges::default(), false).await.unwrap();
    let delete = |number| AdminChange::DeleteCrawl { crawl: crawl.clone(), number };
    let (_, number): (u64, Time) = router.ask(first, delete(None)).await.unwrap();
    frontier.set_crawl(crawl.clone(), paused(), false).await.unwrap();
    router.ask_all::<(u64, Time)>(&others, delete(Some(number))).await.unwrap();
    assert_eq!(known(router, &crawl).await, [true; SHARDS as usize]);
    assert!(frontier.crawl(crawl).await.unwrap().settings.paused);
}

/// A change that goes round again is decided once.
#[tokio::test]
async fn a_change_that_is_repeated_does_not_overwrite_a_later_one() {
    let frontier = frontier().await;
    let (router, crawl) = (&frontier.router, CrawlName::from("c"));
    let (first, _) = router.home_and_others(&crawl);
    let decide = |again| CrawlChange::Decide { crawl: crawl.clone(), changes: Some((paused(), true)), again };
    let first_round: CrawlSet = router.ask(first, decide(false)).await.unwrap();
    let later = CrawlChanges { paused: Change::Set(false), weight: Change::Set(7), ..CrawlChanges::default() };
    frontier.set_crawl(crawl.clone(), later, false).await.unwrap();
    let second_round: CrawlSet = router.ask(first, decide(true)).await.unwrap();
    assert!(second_round.version > first_round.version);
    assert_eq!((second_round.settings.paused, second_round.settings.weight), (false, 7));
}

#[tokio::test]
async fn a_crawl_that_is_set_and_deleted_at_once_is_on_all_shards_or_none() {
    let frontier = frontier().await;
    for n in 0..200 {
        let crawl = CrawlName::from(format!("c{n}"));
        frontier.set_crawl(crawl.clone(), CrawlChanges::default(), false).await.unwrap();
        let set = async {
            for _ in 0..n % 40 {
                tokio::task::yield_now().await;
            }
            frontier.router.set_crawl(&crawl, Some((paused(), false))).await.unwrap();
        };
        let ((), deleted) = tokio::join!(set, frontier.delete_crawl(crawl.clone()));
        deleted.unwrap();
        let known = known(&frontier.router, &crawl).await;
        assert!(known.iter().all(|one| *one == known[0]), "round {n}: {known:?}");
    }
}

/// Three pages.
fn three() -> CrawlChanges {
    CrawlChanges { pages: Change::Set(3), ..CrawlChanges::default() }
}

/// A URL of a host in a shard.
fn put(crawl: &CrawlName, shard: ShardId, n: usize, kind: PutKind) -> Put {
    let host = (0..).map(|n| format!("h{n}.example")).find(|host| home(host, SHARDS) == shard).unwrap();
    let url = format!("http://{host}/{n}").into();
    Put { url, host: host.into(), crawl: crawl.clone(), kind, metadata: Metadata::default() }
}

fn fetched(crawl: &CrawlName, shard: ShardId, n: usize) -> Put {
    put(crawl, shard, n, PutKind::Known { due: None })
}

/// So many questions about the crawl that puts of the same turn are decided between two of them.
async fn look_often(router: &Router, shard: ShardId, crawl: &CrawlName) {
    let looks = (0..70).map(|_| router.ask::<Option<CrawlPart>>(shard, StateQuery::Crawl(crawl.clone())));
    futures::future::join_all(looks).await.into_iter().for_each(|seen| drop(seen.unwrap()));
}

/// How many of five URLs in a shard are handed out.
async fn handed_out(frontier: &Frontier, crawl: &CrawlName, shard: ShardId) -> usize {
    let queued = |n| put(crawl, shard, n, PutKind::Discovered { at: None, priority: 5, depth: 0 });
    frontier.put((0..5).map(queued).collect()).await;
    let (lease, wait) = (Millis(60_000), Millis(0));
    let crawl = Some(crawl.clone());
    let ask = Reserve { holder: "worker".into(), groups: 9, urls: 5, crawl, lease, wait, request: None };
    frontier.reserve(ask).await.unwrap().iter().map(|one| one.urls.len()).sum()
}

/// What went wrong once: what the new crawl had used was given back with what the old one had, and as many pages were handed out beyond
/// the limit.
#[tokio::test]
async fn a_crawl_that_is_deleted_and_made_anew_in_one_turn_counts_its_pages() {
    let frontier = frontier().await;
    let (router, crawl) = (&frontier.router, CrawlName::from("c"));
    let (first, others) = router.home_and_others(&crawl);
    let here = others[0];
    frontier.set_crawl(crawl.clone(), three(), false).await.unwrap();
    frontier.put(vec![fetched(&crawl, here, 0)]).await;
    let delete = |number| AdminChange::DeleteCrawl { crawl: crawl.clone(), number };
    let (_, number): (u64, Time) = router.ask(first, delete(None)).await.unwrap();
    let decide = CrawlChange::Decide { crawl: crawl.clone(), changes: Some((three(), false)), again: false };
    let CrawlSet { settings, version, round, .. } = router.ask(first, decide).await.unwrap();
    let follow = || CrawlChange::Follow { crawl: crawl.clone(), settings, version, round };
    router.ask_all::<u64>(&others[1..], follow()).await.unwrap();
    // The owner finds all of that in its inbox.
    let (deleted, followed, ..) = tokio::join!(
        router.ask::<(u64, Time)>(here, delete(Some(number))),
        router.ask::<u64>(here, follow()),
        look_often(router, here, &crawl),
        frontier.put(vec![fetched(&crawl, here, 1), fetched(&crawl, here, 2)]),
    );
    assert_eq!((deleted.unwrap().0, followed.unwrap()), (1, 0));
    assert_eq!(handed_out(&frontier, &crawl, others[1]).await, 1, "two of three pages are used");
}

/// What went wrong once: what it had used was never given back.
#[tokio::test]
async fn a_crawl_that_is_made_and_deleted_in_one_turn_leaves_no_pages_used() {
    let frontier = frontier().await;
    let (router, crawl) = (&frontier.router, CrawlName::from("c"));
    let (first, others) = router.home_and_others(&crawl);
    let here = others[0];
    let decide = CrawlChange::Decide { crawl: crawl.clone(), changes: Some((three(), false)), again: false };
    let CrawlSet { settings, version, round, .. } = router.ask(first, decide).await.unwrap();
    let follow = CrawlChange::Follow { crawl: crawl.clone(), settings, version, round };
    let delete = AdminChange::DeleteCrawl { crawl: crawl.clone(), number: Some(Time(version + 1)) };
    let (followed, _, deleted, _) = tokio::join!(
        router.ask::<u64>(here, follow),
        look_often(router, here, &crawl),
        router.ask::<(u64, Time)>(here, delete),
        frontier.put(vec![fetched(&crawl, here, 1), fetched(&crawl, here, 2)]),
    );
    assert_eq!((followed.unwrap(), deleted.unwrap().0), (0, 2));
    frontier.delete_crawl(crawl.clone()).await.unwrap();
    frontier.set_crawl(crawl.clone(), three(), false).await.unwrap();
    assert_eq!(handed_out(&frontier, &crawl, others[1]).await, 3);
}

/// What went wrong once: those that stayed missing were looked for again and again, and no others.
#[test]
fn ledgers_that_stay_missing_keep_back_no_others() {
    let all = 3 * LEDGERS_A_LOOK;
    let unsure = (0..all as u32).map(CrawlNo).collect();
    let (mut ledgers, mut seen) = (OpenLedgers { unsure, check_at: None }, std::collections::BTreeSet::new());
    for _ in 0..3 {
        let some = ledgers.next_ones();
        ledgers.put_back(&some);
        seen.extend(some);
    }
    assert_eq!((seen.len(), ledgers.unsure.len()), (all, all));
}
