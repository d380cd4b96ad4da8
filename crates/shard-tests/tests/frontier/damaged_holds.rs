//! Holds that cannot be read: a sweep passes over them for good, and they concern the calls of their own host alone.

use wayleave_engine::rows::hold;

use crate::faulty::{DAMAGE, Faulty};
use crate::prelude::*;
use crate::support::*;

/// The number of the host of a hold: hosts are numbered in the order of their first URL.
fn hold_host(row: &Row) -> Option<u64> {
    let is_hold = row.key.get(2) == Some(&(Kind::Hold as u8));
    is_hold.then(|| hold::parse_key(&row.key).unwrap().1.host.counter() - 1)
}

/// Hosts with a URL each.
async fn with_hosts(count: usize) -> (Arc<Faulty>, Frontier) {
    let (engine, frontier) = Faulty::opened(1).await;
    let puts = (0..count).map(|n| disc(&format!("http://h{n:03}.example/1"))).collect();
    assert_eq!(frontier.put(puts).await, vec![PutOutcome::Added; count]);
    (engine, frontier)
}

fn is_damaged(refusal: &Refusal, named: &str) -> bool {
    matches!(refusal, Refusal::Damaged { host, cause } if host == named && cause.starts_with(DAMAGE))
}

#[tokio::test(start_paused = true)]
async fn what_ended_behind_an_unreadable_hold_is_not_read_again() {
    let (engine, frontier) = with_hosts(60).await;
    for _ in 0..60 {
        assert_eq!(frontier.hand_out(paced(1, 1)).await.unwrap().len(), 1);
        pass(300).await;
    }
    assert_eq!(engine.damage(|row| hold_host(row) == Some(0)).await, 1);
    pass(60_000).await;
    assert_eq!(frontier.stats().await.unwrap().holds, 1, "all others have ended");
    let passed = engine.passed.load(Ordering::Acquire);
    let scans = engine.scans.load(Ordering::Acquire);
    pass(3_600_000).await;
    let passed = engine.passed.load(Ordering::Acquire) - passed;
    assert!(passed < 60, "{passed} tombstones in an hour");
    let scans = engine.scans.load(Ordering::Acquire) - scans;
    assert!((10..400).contains(&scans), "it is retried with back-off: {scans} scans");
    engine.repair();
    pass(600_000).await;
    assert_eq!(frontier.stats().await.unwrap().holds, 0);
}

/// A regression: the hosts of the shard shared the fate of one.
#[tokio::test(start_paused = true)]
async fn an_unreadable_hold_concerns_its_own_host_alone() {
    for over in [false, true] {
        let (engine, frontier) = with_hosts(3).await;
        assert_eq!(frontier.hand_out(paced(3, 1)).await.unwrap().len(), 3);
        assert_eq!(engine.damage(|row| hold_host(row) == Some(0)).await, 1);
        if over {
            pass(31_000).await;
            assert_eq!(frontier.hand_out(paced(3, 1)).await.unwrap().len(), 2, "the others have ended");
        }
        assert_eq!(frontier.in_hand(&"h001.example".into()).await.unwrap().len(), 1);
        assert_eq!(frontier.in_hand(&"h000.example".into()).await.unwrap(), [], "of those that can be read");
        assert_eq!(frontier.revoke(Revoke::Host("h001.example".into())).await, Ok((0, 1)));
        let refused = frontier.revoke(Revoke::Host("h000.example".into())).await.unwrap_err();
        assert!(is_damaged(&refused, "h000.example"), "{refused}");
        let join = |host: &str| {
            let (frontier, host) = (frontier.clone(), host.into());
            async move { frontier.set_group("alias".into(), Some(vec![host]), delay(0), false).await }
        };
        assert_eq!(join("h002.example").await.unwrap().hosts.len(), 1);
        let refused = join("h000.example").await.unwrap_err();
        assert!(is_damaged(&refused, "h000.example"), "{refused}");
        assert_eq!(engine.owns.load(Ordering::Acquire), 1, "the shard was not reloaded");
        engine.repair();
        pass(61_000).await;
        assert_eq!(frontier.stats().await.unwrap().holds, 0, "nothing is left behind");
        join("h000.example").await.unwrap();
    }
}

/// A regression: the sweep began at the deadline again, and never got behind the gaps that one read passes over at most.
#[tokio::test(start_paused = true)]
async fn a_sweep_gets_past_any_number_of_unreadable_holds_that_end_at_once() {
    const COUNT: usize = 400;
    let (engine, frontier) = with_hosts(COUNT).await;
    assert_eq!(frontier.hand_out(paced(COUNT, 1)).await.unwrap().len(), COUNT);
    let bad = engine.damage(|row| hold_host(row).is_some_and(|host| host.is_multiple_of(2))).await;
    assert_eq!(bad, COUNT / 2);
    // The others cannot be ended either, so they stay between the gaps.
    engine.damage(|row| row.key.get(2) == Some(&(Kind::Url as u8))).await;
    let scans = engine.scans.load(Ordering::Acquire);
    // A sweep that spins lets no time pass.
    tokio::time::advance(Duration::from_secs(31)).await;
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert!(engine.scans.load(Ordering::Acquire) - scans < 10 * COUNT, "it does not spin");
    assert_eq!(frontier.damage().stranded_urls, COUNT as u64 / 2, "all that can be read were met");
    // Many times, with fewer gaps to remember than there are.
    pass(600_000).await;
    engine.repair();
    pass(601_000).await;
    assert_eq!(frontier.stats().await.unwrap().holds, 0);
}

/// A regression: where a listing had passed over many gaps it ended, because it could not continue at a key that no row has.
#[tokio::test(start_paused = true)]
async fn a_listing_continues_past_more_damage_than_one_read_skips() {
    const COUNT: usize = 200;
    let (engine, frontier) = with_hosts(COUNT).await;
    let bad = |row: &Row| {
        let is_url = row.key.get(2) == Some(&(Kind::Url as u8));
        is_url && wayleave_engine::rows::url::parse_key(&row.key).unwrap().0.host.counter().is_multiple_of(2)
    };
    assert_eq!(engine.damage(bad).await, COUNT / 2);
    let (mut listed, mut after) = (BTreeSet::new(), None);
    loop {
        let page = frontier.urls(&UrlFilter::default(), after.as_deref(), 1_000).await.unwrap();
        assert!(page.items.into_iter().all(|url| listed.insert(url.url)), "each once");
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(listed.len(), COUNT / 2);
}
