//! Listings examine a bounded number of items per slice, and each item once.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::frontier::request::{Put, PutKind};
use crate::frontier::view::State as Is;
use crate::ids::ShardId;
use crate::metadata::Metadata;

const NOW: Time = Time(1_000_000);
const ROOM: Room = Room { items: 1_000, bytes: 1 << 20 };

fn put(state: &mut State, host: &str, crawl: &str) {
    let kind = PutKind::Discovered { at: None, priority: 5, depth: 0 };
    let url = format!("http://{host}/");
    let put = Put { url: url.into(), host: host.into(), crawl: crawl.into(), kind, metadata: Metadata::default() };
    let target = state.put_target(&put);
    state.put(put, target, None, NOW, &mut Vec::new());
}

fn state(hosts: usize) -> State {
    let mut state = State::new(ShardId(3));
    (0..hosts).for_each(|n| put(&mut state, &format!("h{n}"), "c"));
    state
}

/// All slices of a listing.
fn slices<T, P: Clone>(mut slice: impl FnMut(Option<P>) -> (Vec<T>, Option<P>)) -> Vec<Vec<T>> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let (items, next) = slice(after);
        all.push(items);
        assert!(all.len() < 10_000, "it never ends");
        match next {
            Some(next) => after = Some(next),
            None => return all,
        }
    }
}

#[test]
fn a_slice_looks_at_few_hosts_also_if_none_of_them_fits() {
    let state = state(1_000);
    let none = HostFilter { state: Some(Is::Blocked), crawl: None };
    let slices = slices(|after| state.list_hosts(&none, after, ROOM, NOW));
    assert_eq!(slices.len(), 1_000_usize.div_ceil(LISTING_LOOKS));
    assert!(slices.iter().all(Vec::is_empty));
}

#[test]
fn every_host_is_listed_once_under_concurrent_changes() {
    let mut state = state(1_000);
    let room = Room { items: 7, ..ROOM };
    let (mut after, mut seen, mut n) = (None, Vec::new(), 0);
    loop {
        let (hosts, next) = state.list_hosts(&HostFilter::default(), after, room, NOW);
        seen.extend(hosts.into_iter().map(|view| view.host.to_string()));
        // Two listed hosts are deleted, one is created.
        for gone in seen.iter().filter(|host| !host.starts_with("new")).skip(n * 2).take(2) {
            state.delete_queue(&gone.as_str().into(), &"c".into(), NOW, &mut Vec::new());
        }
        put(&mut state, &format!("new{n}"), "c");
        n += 1;
        after = next;
        if after.is_none() {
            break;
        }
    }
    let old = seen.iter().filter(|host| !host.starts_with("new")).count();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!((old, seen.iter().filter(|host| host.starts_with('h')).count()), (1_000, 1_000));
}

#[test]
fn a_walk_through_all_queues_looks_at_each_host_once() {
    let mut state = state(3_000);
    for n in 0..2_000 {
        state.delete_queue(&format!("h{n}").as_str().into(), &"c".into(), NOW, &mut Vec::new());
    }
    (0..10).for_each(|n| put(&mut state, &format!("h{}", 2_000 + n), "other"));
    for (crawl, want) in [(None, 1_010), (Some("c"), 1_000), (Some("other"), 10)] {
        let filter = UrlFilter { crawl: crawl.map(Into::into), ..UrlFilter::default() };
        let (mut at, mut found, mut used) = (None, 0, 0);
        loop {
            let mut looks = LISTING_LOOKS;
            let next = state.next_queue(at, &filter, &mut looks);
            used += LISTING_LOOKS - looks;
            match next {
                Next::Found(queue) => {
                    assert!(at < Some(queue));
                    (at, found) = (Some(queue), found + 1);
                }
                Next::Later(host) => at = Some(QueueId { host, no: u32::MAX }),
                Next::End => break,
            }
        }
        assert_eq!(found, want, "{crawl:?}");
        assert!(used <= 1_000 + 3_000 / PROBES_A_LOOK + 2, "{crawl:?}: {used} looks");
    }
}

#[test]
fn the_bytes_of_a_slice_are_bounded_but_one_host_is_always_shown() {
    let mut state = State::new(ShardId(0));
    for n in 0..20 {
        (0..500).for_each(|crawl| put(&mut state, &format!("h{n}"), &format!("crawl-{crawl}")));
    }
    let room = Room { items: 1_000, bytes: 200_000 };
    let slices = slices(|after| state.list_hosts(&HostFilter::default(), after, room, NOW));
    assert!(slices.iter().all(|slice| slice.len() <= 3), "{:?}", slices.iter().map(Vec::len).collect::<Vec<_>>());
    assert_eq!(slices.iter().map(Vec::len).sum::<usize>(), 20);
    let (one, _) = state.list_hosts(&HostFilter::default(), None, Room { items: 9, bytes: 1 }, NOW);
    assert_eq!(one.len(), 1);
}

#[test]
fn crawls_come_by_name_and_no_more_of_them_than_asked_for() {
    let mut state = State::new(ShardId(0));
    (0..700).for_each(|n| put(&mut state, "h", &format!("crawl-{n:03}")));
    let (one, more) = state.list_crawls(None, 1);
    assert_eq!((one.len(), &*one[0].crawl, more), (1, "crawl-000", true));
    let (slice, more) = state.list_crawls(Some(&"crawl-650".into()), usize::MAX);
    assert_eq!((slice.len(), &*slice[0].crawl, more), (49, "crawl-651", false));
    assert_eq!(state.list_crawls(None, usize::MAX).0.len(), LISTING_LOOKS);
    state.delete_crawl(&"crawl-651".into(), NOW, NOW, &mut Vec::new());
    assert_eq!(&*state.list_crawls(Some(&"crawl-650".into()), 1).0[0].crawl, "crawl-652");
}

/// A regression: a salvaged shard numbers new hosts far above the old ones, and a listing looked at each of the
/// unused ones.
#[test]
fn unused_numbers_between_two_hosts_cost_few_slices() {
    let mut state = state(300);
    state.shard_row.next_host += 1 << 40;
    put(&mut state, "late", "c");
    state.shard_row.next_host += 1 << 40;
    let slices = slices(|after| state.list_hosts(&HostFilter::default(), after, ROOM, NOW));
    assert!(slices.len() <= 4, "{}", slices.len());
    let hosts: Vec<_> = slices.into_iter().flatten().collect();
    assert_eq!((hosts.len(), hosts.last().map(|view| view.host.to_string())), (301, Some("late".to_owned())));
}
