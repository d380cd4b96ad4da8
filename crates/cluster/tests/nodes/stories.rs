//! What users of a cluster rely on.

use wayleave_core::frontier::request::HandOut;
use wayleave_core::frontier::view::{HostFilter, UrlFilter};

use crate::prelude::*;
use crate::support::{refs, urls};

#[tokio::test(start_paused = true)]
async fn any_node_takes_any_call_and_answers_for_all() {
    let (_world, [a, b, c]) = World::with().await;
    let all = urls(200);
    assert!(a.put(&refs(&all)).await.iter().all(|outcome| *outcome == PutOutcome::Added));
    assert!(b.put(&refs(&all)).await.iter().all(|outcome| *outcome == PutOutcome::Known));
    let stats = c.frontier.stats().await.unwrap();
    assert_eq!((stats.hosts, stats.urls.queued), (200, 200));
    let mut listed = BTreeSet::new();
    let mut after = None;
    loop {
        let page = b.frontier.urls(&UrlFilter::default(), after.as_deref(), 17).await.unwrap();
        listed.extend(page.items.into_iter().map(|view| view.url.to_string()));
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!(listed, all.iter().cloned().collect());
    let hosts = c.frontier.hosts(&HostFilter::default(), None, 1_000).await.unwrap();
    assert_eq!(hosts.items.len(), 200);
    let here: u64 = {
        let parts = [&a, &b, &c].map(|node| node.frontier.only_here());
        let mut sum = 0;
        for part in parts {
            sum += part.stats().await.unwrap().hosts;
        }
        sum
    };
    assert_eq!(here, 200, "each host is one node's own");
}

#[tokio::test(start_paused = true)]
async fn a_reservation_comes_from_all_nodes_and_may_be_released_at_any() {
    let (_world, [a, b]) = World::with().await;
    a.put(&refs(&urls(40))).await;
    pass(Duration::from_millis(100)).await;
    let granted = a.reserve(40).await;
    let groups: BTreeSet<_> = granted.iter().map(|one| one.group.clone()).collect();
    assert_eq!(groups.len(), 40, "every group once, from both nodes");
    assert!(b.reserve(40).await.is_empty(), "none is given twice");
    for one in &granted {
        b.release(one.token).await.unwrap();
    }
    let late = a.release(granted[0].token).await.unwrap_err();
    assert!(late.contains("not current"), "{late}");
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_is_woken_by_a_group_of_another_node() {
    let (_world, [a, b]) = World::with().await;
    pass(Duration::from_millis(100)).await;
    let foreign = (0..).map(|n| format!("http://h{n}.example/")).find(|url| {
        let host = url.split('/').nth(2).unwrap();
        b.frontier.owns(wayleave_shard::home(host, b.frontier.shards()))
    });
    let foreign = foreign.unwrap();
    let polling = tokio::spawn({
        let frontier = a.frontier.clone();
        async move { (frontier.reserve(ask(1, 30_000)).await.unwrap(), tokio::time::Instant::now()) }
    });
    pass(Duration::from_secs(1)).await;
    let added = tokio::time::Instant::now();
    b.put(&[foreign.as_str()]).await;
    let (granted, woken) = polling.await.unwrap();
    assert_eq!(granted.len(), 1);
    assert!(woken - added < Duration::from_millis(500), "{:?}", woken - added);
}

#[tokio::test(start_paused = true)]
async fn the_paced_form_serves_all_nodes_and_obeys_one_switch() {
    let (_world, [a, b]) = World::with().await;
    a.put(&refs(&urls(30))).await;
    pass(Duration::from_millis(100)).await;
    let ask = HandOut { host: None, crawl: None, queues: 100, urls: 1, held_below: None, hold: Millis(30_000) };
    a.frontier.set_active(false).await.unwrap();
    assert!(b.frontier.hand_out(ask.clone()).await.unwrap().is_empty());
    assert!(!b.frontier.is_active().await.unwrap());
    b.frontier.set_active(true).await.unwrap();
    assert_eq!(b.frontier.hand_out(ask).await.unwrap().len(), 30);
}

#[tokio::test(start_paused = true)]
async fn a_killed_node_is_replaced_at_its_deadline_and_its_leases_live_on() {
    let (world, [a, mut b]) = World::with().await;
    a.put(&refs(&urls(60))).await;
    pass(Duration::from_millis(100)).await;
    let granted = a.reserve(30).await;
    assert_eq!(granted.len(), 30);
    let killed = tokio::time::Instant::now();
    b.kill(&world);
    world.settle(&[&a]).await;
    let took = killed.elapsed();
    assert!(took < Duration::from_millis(TTL.0 + 1_000), "{took:?}");
    assert_eq!(a.reserve(100).await.len(), 30, "what was reserved stays so, the rest is offered");
    for one in granted {
        a.release(one.token).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_leaving_node_hands_over_at_once_and_nothing_fails_meanwhile() {
    let (world, [a, b]) = World::with().await;
    let writer = tokio::spawn({
        let frontier = a.frontier.clone();
        async move {
            let mut failed = 0;
            for n in 0..200 {
                let url = format!("http://w{n}.example/");
                let outcome = frontier.put(vec![crate::support::put(&url)]).await;
                failed += usize::from(outcome != [PutOutcome::Added]);
                pass(Duration::from_millis(2)).await;
            }
            failed
        }
    });
    pass(Duration::from_millis(50)).await;
    let before = tokio::time::Instant::now();
    b.leave(&world).await;
    world.settle(&[&a]).await;
    assert!(before.elapsed() < Duration::from_millis(300), "{:?}", before.elapsed());
    assert_eq!(writer.await.unwrap(), 0);
    assert_eq!(a.frontier.stats().await.unwrap().urls.queued, 200);
}

#[tokio::test(start_paused = true)]
async fn a_joining_node_gets_its_share_under_load() {
    let world = World::new();
    let a = world.start().await;
    a.put(&refs(&urls(100))).await;
    let granted = a.reserve(50).await;
    let b = world.start().await;
    world.settle(&[&a, &b]).await;
    let c = world.start().await;
    world.settle(&[&a, &b, &c]).await;
    pass(Duration::from_millis(100)).await;
    assert_eq!(c.reserve(100).await.len(), 50, "the other fifty");
    for one in granted {
        c.release(one.token).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_lost_its_lease_decides_nothing_that_counts() {
    let (world, [a, b]) = World::with().await;
    let stale = b.frontier.clone();
    // Everything of b is paused but its owners: they would still decide.
    b.tasks.kill();
    world.settle_one(&a).await;
    let outcomes = stale.only_here().put(vec![crate::support::put("http://late.example/")]).await;
    let known = a.put(&["http://late.example/"]).await;
    let truth = matches!(
        (&outcomes[0], &known[0]),
        (PutOutcome::Added, PutOutcome::Known) | (PutOutcome::Failed(_), PutOutcome::Added)
    );
    assert!(truth, "the stale node answered what the store has: {outcomes:?} {known:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_lost_its_seat_cannot_take_the_shard_back() {
    let (world, [a, b]) = World::with().await;
    let all = urls(40);
    // Its owners continue and retry, but it does not see that its seats are gone.
    b.tasks.stand_still(true);
    world.settle(&[&a]).await;
    let home = |url: &&str| wayleave_shard::home(url.split('/').nth(2).unwrap(), b.frontier.shards());
    let lost: Vec<&str> = refs(&all).into_iter().filter(|url| b.frontier.owns(home(url))).collect();
    assert!(!lost.is_empty());
    for try_ in 0..3 {
        let outcomes = b.put(&lost).await;
        assert!(outcomes.iter().all(|o| matches!(o, PutOutcome::Failed(_))), "try {try_}: {outcomes:?}");
    }
    assert!(a.put(&lost).await.iter().all(|o| *o == PutOutcome::Added), "the new owner was not fenced out");
    b.tasks.stand_still(false);
    world.settle(&[&a, &b]).await;
    assert!(b.put(&lost).await.iter().all(|o| *o == PutOutcome::Known));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_lost_its_lease_refuses_nothing_by_what_it_used_to_know() {
    let (world, [a, b]) = World::with().await;
    b.tasks.stand_still(true);
    world.settle(&[&a]).await;
    a.put(&refs(&urls(20))).await;
    let granted = a.reserve(20).await;
    let foreign = granted.iter().find(|one| b.frontier.owns(one.token.shard())).unwrap();
    let refused = b.release(foreign.token).await.unwrap_err();
    assert!(!refused.contains("not current"), "the token is good, b only has not heard of it: {refused}");
    let host = foreign.host.clone();
    assert!(b.frontier.host(host).await.is_err(), "b does not know and does not say that it knows");
    a.release(foreign.token).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_renew_its_lease_gives_up_its_shards() {
    let (world, [a]) = World::with().await;
    world.engine.begin_outage("the store is away");
    pass(Duration::from_millis(TTL.0 - 500)).await;
    assert!(a.member.as_ref().unwrap().is_alive());
    pass(Duration::from_millis(600)).await;
    assert!(!a.member.as_ref().unwrap().is_alive() && a.owned() == 0, "before others may take them");
    world.engine.end_outage();
    world.settle(&[&a]).await;
}

#[tokio::test(start_paused = true)]
async fn trouble_with_a_shard_is_forgotten_when_the_shard_goes_to_another_node() {
    let (world, [_a, b]) = World::with().await;
    let lost = (0..b.frontier.shards()).map(wayleave_core::ids::ShardId).find(|shard| b.frontier.owns(*shard)).unwrap();
    b.tasks.stand_still(true);
    world.engine.begin_outage("the store is away");
    b.frontier.close_shard(lost).await;
    b.frontier.open_shard(lost, vec![(vec![0], Some(b"what never was there".to_vec()))]);
    pass(Duration::from_millis(100)).await;
    assert!(b.frontier.readiness().unwrap_err().contains("cannot be opened"));
    world.engine.end_outage();
    pass(Duration::from_secs(1)).await;
    assert!(!b.frontier.owns(lost));
    assert_eq!(b.frontier.readiness(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn hosts_move_into_an_alias_across_nodes_with_their_reservations() {
    let (_world, [a, b, c]) = World::with().await;
    a.put(&refs(&urls(12))).await;
    pass(Duration::from_millis(100)).await;
    let granted = c.reserve(3).await;
    assert_eq!(granted.len(), 3);
    let members: Vec<wayleave_core::names::HostName> =
        (0..12).map(|n| format!("h{n}.example").as_str().into()).collect();
    let group = b.frontier.set_group("big".into(), Some(members.clone()), PaceChanges::default(), false).await.unwrap();
    assert_eq!(group.hosts.len(), 12);
    assert!(a.reserve(12).await.is_empty(), "the alias is busy with the three visits that it took over");
    for one in &granted {
        a.release(one.token).await.unwrap();
    }
    let late = c.frontier.host("h3.example".into()).await.unwrap();
    assert_eq!(&*late.group, "big", "every node finds the host where it lives now");
    assert_eq!(a.put(&["http://h3.example/new"]).await, [PutOutcome::Added]);
    pass(Duration::from_secs(2)).await;
    assert_eq!(b.reserve(12).await.len(), 1, "one visit at a time");
    a.frontier.delete_group("big".into()).await.unwrap();
    pass(Duration::from_secs(2)).await;
    assert_eq!(c.reserve(12).await.len(), 11, "all but the one that is visited");
}

#[tokio::test(start_paused = true)]
async fn a_put_finds_a_moved_host_from_every_node_at_the_second_try() {
    let (_world, [a, b, c]) = World::with().await;
    let nodes = [&a, &b, &c];
    for node in nodes {
        node.put(&refs(&urls(12))).await;
    }
    let members: Vec<wayleave_core::names::HostName> =
        (0..12).map(|n| format!("h{n}.example").as_str().into()).collect();
    a.frontier.set_group("big".into(), Some(members), PaceChanges::default(), false).await.unwrap();
    for (n, node) in nodes.into_iter().enumerate() {
        let new: Vec<String> = (0..12).map(|host| format!("http://h{host}.example/{n}")).collect();
        node.put(&refs(&new)).await;
        let again = node.put(&refs(&new)).await;
        let stored = |outcome: &PutOutcome| matches!(outcome, PutOutcome::Added | PutOutcome::Known);
        assert!(again.iter().all(stored), "node {n} still looks for hosts where they were: {again:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_that_cannot_hear_each_other_serve_what_they_own() {
    let (world, [a, b]) = World::with().await;
    a.put(&refs(&urls(40))).await;
    pass(Duration::from_millis(100)).await;
    world.board.cut(a.id, b.id, true);
    pass(Duration::from_secs(2)).await;
    let (mine, yours) = (a.reserve(40).await.len(), b.reserve(40).await.len());
    assert_eq!(mine + yours, 40, "together all, none twice");
    assert!(mine > 0 && yours > 0);
    let refused = a.frontier.stats().await.unwrap_err().to_string();
    assert!(refused.contains("unavailable, try again"), "{refused}");
    world.board.cut(a.id, b.id, false);
    assert_eq!(a.frontier.stats().await.unwrap().reservations, 40);
}

#[tokio::test(start_paused = true)]
async fn a_restarted_process_regains_its_shards_before_its_lease_expires() {
    let world = World::new();
    let mut a = world.start().await;
    a.put(&["http://a.example/"]).await;
    a.kill(&world);
    let before = tokio::time::Instant::now();
    let again = world.start_at(NodeId(77), "http://node-1").await;
    world.settle(&[&again]).await;
    assert!(before.elapsed() < Duration::from_millis(500), "{:?}", before.elapsed());
    assert_eq!(again.put(&["http://a.example/"]).await, [PutOutcome::Known]);
}

#[tokio::test(start_paused = true)]
async fn a_second_node_at_a_living_nodes_address_is_refused() {
    let (world, [a]) = World::with().await;
    let refused = world.try_start_on(world.engine.clone(), NodeId(77), "http://node-1").await.err().unwrap();
    let text = refused.to_string();
    assert!(text.contains("http://node-1") && text.contains("'n1'") && text.contains("--advertise"), "{text}");
    pass(Duration::from_millis(2 * TTL.0)).await;
    assert!(a.member.as_ref().unwrap().is_alive());
    assert_eq!(a.member.as_ref().unwrap().nodes().unwrap().len(), 1, "the refused one has left no row");
    world.settle(&[&a]).await;
}

/// The address leads to the new node, so the old one does not answer there although it is alive: one of the two must
/// stop, and it is the one that others cannot reach.
#[tokio::test(start_paused = true)]
async fn a_living_node_whose_address_leads_to_another_one_gives_up() {
    let (world, [a]) = World::with().await;
    world.board.cut(NodeId(77), a.id, true);
    let b = world.start_at(NodeId(77), "http://node-1").await;
    pass(Duration::from_millis(2 * TTL.0)).await;
    assert!(!a.member.as_ref().unwrap().is_alive(), "two nodes would answer at one address");
    assert!(b.member.as_ref().unwrap().is_alive());
    assert_eq!(b.member.as_ref().unwrap().nodes().unwrap().len(), 1);
    world.settle(&[&b]).await;
    assert_eq!(a.owned(), 0);
    let replaced = a.member.as_ref().unwrap().replaced();
    let text = tokio::time::timeout(Duration::from_secs(1), replaced).await.expect("its process must end").to_string();
    assert!(
        text.contains("another process") && text.contains("http://node-1") && text.contains("--advertise"),
        "{text}"
    );
    let other = b.member.as_ref().unwrap().replaced();
    assert!(tokio::time::timeout(Duration::from_millis(2 * TTL.0), other).await.is_err(), "the other one stays");
}
