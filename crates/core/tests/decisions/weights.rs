//! Visits follow the weights of crawls, whether or not they share hosts, as long as all of them have ready groups.

use crate::support::Shard;
use proptest::prelude::*;
use wayleave_core::frontier::request::{Outcome, Put, PutKind, Release, UrlResult};
use wayleave_core::metadata::Metadata;
use wayleave_core::settings::{Change, CrawlChanges, PaceChanges};
use wayleave_core::time::{Millis, Time};

const START: u64 = 1_000_000;
const TURNS: usize = 240;

/// A crawl: its weight and its range of hosts. Ranges of two crawls may overlap partly, fully or not at all.
#[derive(Clone, Debug)]
struct Crawl {
    weight: u32,
    hosts: std::ops::Range<usize>,
}

fn crawls() -> impl Strategy<Value = Vec<Crawl>> {
    let weight = prop_oneof![Just(1), 2..5u32, Just(1_000)];
    prop::collection::vec((weight, 1..6usize), 2..4).prop_map(|crawls| {
        let mut from = 0;
        let crawl = |(weight, hosts): (u32, usize)| {
            let range = from..from + hosts;
            from += hosts;
            Crawl { weight, hosts: range }
        };
        crawls.into_iter().map(crawl).collect()
    })
}

fn name(crawl: usize) -> String {
    format!("c{crawl}")
}

/// A shard in which every crawl has more URLs at each of its hosts than can be handed out.
fn shard(crawls: &[Crawl]) -> Shard {
    let mut shard = Shard::new(START);
    for (no, crawl) in crawls.iter().enumerate() {
        let weight = CrawlChanges { weight: Change::Set(crawl.weight), ..CrawlChanges::default() };
        shard.state.set_crawl(&name(no).as_str().into(), &weight, false, Time(START));
        for host in crawl.hosts.clone().map(|host| format!("h{host}.example")) {
            let no_delay = PaceChanges { delay: Change::Set(Millis(0)), ..PaceChanges::default() };
            shard.state.set_host(&host.as_str().into(), &no_delay, false, None, Time(START)).unwrap();
            let put = |n: usize| Put {
                url: format!("http://{host}/{n}").into(),
                host: host.as_str().into(),
                crawl: name(no).as_str().into(),
                kind: PutKind::Discovered { at: None, priority: 5, depth: 0 },
                metadata: Metadata::default(),
            };
            shard.put_all((0..TURNS).map(put).collect());
        }
    }
    shard
}

/// One visit, in either form; returns its crawl.
fn visit(shard: &mut Shard, paced: bool) -> usize {
    let crawl = if paced {
        let out = shard.hand_out_uncapped(1, 1);
        out[0].crawl.to_string()
    } else {
        let granted = shard.reserve(1, 1, None, 1_000).remove(0);
        let result = UrlResult { url: granted.urls[0].url.clone(), ..fetched() };
        shard.release(&Release { token: granted.token, results: vec![result], ready_at: None }).unwrap();
        granted.urls[0].crawl.to_string()
    };
    crawl[1..].parse().unwrap()
}

fn fetched() -> UrlResult {
    UrlResult::new("", Outcome::Fetched)
}

/// Every crawl got its share, to within one visit per other crawl.
fn check(crawls: &[Crawl], turns: &[usize], paced: bool) {
    let all: f64 = crawls.iter().map(|crawl| f64::from(crawl.weight)).sum();
    for (no, crawl) in crawls.iter().enumerate() {
        let share = f64::from(crawl.weight) / all * turns.iter().sum::<usize>() as f64;
        let off = (turns[no] as f64 - share).abs();
        assert!(off <= crawls.len() as f64, "{crawls:?}, paced {paced}: {turns:?}, crawl {no} should have {share:.1}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 500, ..ProptestConfig::default() })]

    #[test]
    fn turns_follow_the_weights_of_crawls_that_share_no_host(crawls in crawls(), paced: bool) {
        let mut shard = shard(&crawls);
        let mut turns = vec![0; crawls.len()];
        for _ in 0..TURNS {
            turns[visit(&mut shard, paced)] += 1;
            shard.now = Time(shard.now.0 + 1);
        }
        check(&crawls, &turns, paced);
    }

    #[test]
    fn turns_follow_the_weights_of_crawls_that_share_all_hosts(crawls in crawls(), paced: bool) {
        let all = 0..crawls.iter().map(|crawl| crawl.hosts.len()).max().unwrap();
        let crawls: Vec<Crawl> = crawls.into_iter().map(|crawl| Crawl { hosts: all.clone(), ..crawl }).collect();
        let mut shard = shard(&crawls);
        let mut turns = vec![0; crawls.len()];
        for _ in 0..TURNS {
            turns[visit(&mut shard, paced)] += 1;
            shard.now = Time(shard.now.0 + 1);
        }
        // Each group keeps the shares on its own, so each may be off by one visit.
        let slack = all.len() * crawls.len();
        let weights: f64 = crawls.iter().map(|crawl| f64::from(crawl.weight)).sum();
        for (no, crawl) in crawls.iter().enumerate() {
            let share = f64::from(crawl.weight) / weights * TURNS as f64;
            assert!((turns[no] as f64 - share).abs() <= slack as f64, "{crawls:?}: {turns:?}");
        }
    }
}

#[test]
fn a_crawl_that_comes_back_does_not_catch_up_and_does_not_wait() {
    let crawls = [Crawl { weight: 1, hosts: 0..3 }, Crawl { weight: 1, hosts: 3..4 }];
    let mut shard = shard(&crawls);
    let pause = |shard: &mut Shard, paused| {
        let changes = CrawlChanges { paused: Change::Set(paused), ..CrawlChanges::default() };
        shard.state.set_crawl(&"c1".into(), &changes, false, shard.now);
    };
    pause(&mut shard, true);
    for _ in 0..50 {
        assert_eq!(visit(&mut shard, false), 0);
        shard.now = Time(shard.now.0 + 1);
    }
    pause(&mut shard, false);
    let turns: Vec<usize> = (0..8).map(|_| visit(&mut shard, false)).collect();
    let back = turns.iter().filter(|crawl| **crawl == 1).count();
    assert!((3..=5).contains(&back), "{turns:?}");
}

/// A regression: a call looks at 256 groups whose queues may have too many URLs on hold, and began at the same ones each time.
#[test]
fn a_queue_with_few_urls_on_hold_is_found_behind_many_with_too_many() {
    const FULL: usize = 600;
    let mut shard = Shard::new(START);
    let put = |shard: &mut Shard, host: usize| {
        let put = |n| Put {
            url: format!("http://h{host}.example/{n}").into(),
            host: format!("h{host}.example").as_str().into(),
            crawl: "c".into(),
            kind: PutKind::Discovered { at: None, priority: 5, depth: 0 },
            metadata: Metadata::default(),
        };
        shard.put_all((0..12).map(put).collect());
    };
    (0..FULL).for_each(|host| put(&mut shard, host));
    assert_eq!(shard.hand_out_uncapped(FULL, 10).len(), FULL * 10);
    // The last to become ready has eight on hold: as many as ten in the order of ready groups, and fewer than ten.
    shard.now = shard.now.after(Millis(500));
    put(&mut shard, FULL);
    assert_eq!(shard.hand_out_uncapped(FULL, 8).len(), 8);
    shard.now = shard.now.after(Millis(2_500));
    assert!(shard.hand_out(100, 10, None, 1_000_000).is_empty(), "256 are skipped");
    let first = shard.reserve(1, 1, None, 1_000);
    assert_ne!(&*first[0].host, "h256.example", "without skips the group that is ready longest comes first");
    assert!(first[0].host[1..].split('.').next().is_some_and(|host| host.parse::<usize>().unwrap() < 256), "{first:?}");
    let found = (0..10).map(|_| shard.hand_out(100, 10, None, 1_000_000)).find(|urls| !urls.is_empty());
    let found = found.expect("it is hidden by those with too many on hold");
    assert!(found.iter().all(|url| *url.host == *"h600.example") && found.len() == 4, "{found:?}");
    shard.now = shard.now.after(Millis(1_000_000));
    shard.sweep();
    assert!(!shard.hand_out(1, 10, None, 1_000_000).is_empty(), "the first are looked at again");
}
