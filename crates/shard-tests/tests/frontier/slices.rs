//! Listings yield: they are served in slices, visits go in between, and a disconnected reader requests no more.

use crate::faulty::{Faulty, Step};
use crate::prelude::*;
use crate::support::*;

/// A store of one shard with this many hosts, one URL each.
async fn store(hosts: usize, change: impl Fn(&mut Config)) -> (Arc<Faulty>, Frontier) {
    let engine = Faulty::new();
    let mut config = Config { clock_step: Millis(0), ..Config::new(1) };
    change(&mut config);
    let frontier = Frontier::open(engine.clone(), config, &tokio::runtime::Handle::current()).await.unwrap();
    frontier.put((0..hosts).map(|n| disc(&format!("http://h{n}.example/"))).collect()).await;
    // Wait for the filter rebuild, which scans as well.
    pass(1_000).await;
    engine.steps.lock().unwrap().clear();
    engine.scans.store(0, Ordering::Release);
    (engine, frontier)
}

async fn list_all(frontier: Frontier) -> usize {
    let (mut count, mut after) = (0, None);
    loop {
        let page = frontier.urls(&UrlFilter::default(), after.as_deref(), 1_000).await.unwrap();
        count += page.items.len();
        after = page.next;
        if after.is_none() {
            return count;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_visit_waits_for_one_slice_at_most_however_many_list() {
    let (engine, frontier) = store(2_000, |config| config.listings_max = 8).await;
    engine.hold_scans(true);
    let readers: Vec<_> = (0..8).map(|_| tokio::spawn(list_all(frontier.clone()))).collect();
    pass(1).await;
    let visit = tokio::spawn({
        let frontier = frontier.clone();
        async move { frontier.reserve(want(1, 1)).await.unwrap().len() }
    });
    pass(1).await;
    engine.hold_scans(false);
    assert_eq!(visit.await.unwrap(), 1);
    for reader in readers {
        assert_eq!(reader.await.unwrap(), 2_000);
    }
    let steps = engine.steps.lock().unwrap().clone();
    let before = steps.iter().take_while(|step| **step == Step::Scan).count();
    assert_eq!(before, 1, "scans before the visit was committed, of {}", steps.len());
}

#[tokio::test(start_paused = true)]
async fn reading_all_urls_takes_as_many_scans_as_there_are_slices_not_hosts() {
    let (engine, frontier) = store(3_000, |_| {}).await;
    assert_eq!(list_all(frontier).await, 3_000);
    let scans = engine.scans.load(Ordering::Acquire);
    assert!(scans < 30, "{scans} scans for 3,000 hosts");
}

#[tokio::test(start_paused = true)]
async fn a_listing_whose_reader_has_gone_asks_for_no_more_slices() {
    let (engine, frontier) = store(2_000, |_| {}).await;
    engine.hold_scans(true);
    let mut reading = Box::pin(list_all(frontier.clone()));
    let mut waiting = Box::pin(list_all(frontier.clone()));
    assert!(reading.as_mut().now_or_never().is_none());
    pass(1).await;
    assert!(waiting.as_mut().now_or_never().is_none());
    drop((reading, waiting));
    engine.hold_scans(false);
    pass(1_000).await;
    assert_eq!(
        engine.scans.load(Ordering::Acquire),
        1,
        "the one that was under way, and none for who waited behind it"
    );
    assert_eq!(list_all(frontier).await, 2_000, "their places are free again");
}

#[tokio::test(start_paused = true)]
async fn listings_past_the_bound_are_refused_with_the_reason_and_visits_are_not() {
    let (engine, frontier) = store(10, |config| (config.listings_max, config.listings_waiting_max) = (1, 2)).await;
    engine.hold_scans(true);
    let readers: Vec<_> = (0..3).map(|_| tokio::spawn(list_all(frontier.clone()))).collect();
    pass(1).await;
    let refused = frontier.urls(&UrlFilter::default(), None, 10).await;
    assert_eq!(refused.as_ref().err(), Some(&Refusal::ManyListings(3)));
    assert!(refused.unwrap_err().to_string().contains("visits go first"));
    engine.hold_scans(false);
    assert_eq!(frontier.reserve(want(1, 1)).await.unwrap().len(), 1);
    for reader in readers {
        assert_eq!(reader.await.unwrap(), 10, "they waited their turn");
    }
}
