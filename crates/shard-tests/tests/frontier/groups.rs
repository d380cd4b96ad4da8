//! Aliases: several hosts, one visitor, over shards.

use wayleave_core::names;

use crate::prelude::*;
use crate::support::*;

const SHARDS: u16 = 4;

/// Two hosts and an alias homed in these shards, each host with three URLs.
async fn village(alias: u16, homes: [u16; 2]) -> (World, String, [String; 2]) {
    let world = World::new(SHARDS).await;
    let hosts = [host_in(homes[0], SHARDS, 0), host_in(homes[1], SHARDS, 1)];
    for host in &hosts {
        let urls: Vec<String> = (0..3).map(|n| format!("http://{host}/{n}")).collect();
        world.add(&urls.iter().map(String::as_str).collect::<Vec<_>>()).await;
    }
    (world, alias_in(alias, SHARDS), hosts)
}

fn names_of(hosts: &[String; 2]) -> [&str; 2] {
    [&hosts[0], &hosts[1]]
}

/// Reserves and releases until nothing is left; returns all reservations.
async fn drain(world: &World) -> Vec<Reservation> {
    let mut visits = Vec::new();
    for _ in 0..200 {
        for visit in world.reserve(9, 1).await {
            world.fetched(&visit).await;
            visits.push(visit);
        }
        pass(500).await;
    }
    visits
}

#[tokio::test(start_paused = true)]
async fn hosts_of_an_alias_are_visited_one_at_a_time_across_shards() {
    for (alias, homes) in [(0, [0, 0]), (0, [1, 2]), (3, [3, 1]), (2, [1, 1])] {
        let (mut world, alias, hosts) = village(alias, homes).await;
        let view = world.set_group(&alias, &names_of(&hosts), PaceChanges::default()).await;
        assert_eq!((view.hosts.len(), view.counts.queued), (2, 6));
        world.survives_a_restart().await;
        assert_eq!(world.reserve(9, 1).await.len(), 1, "{homes:?}");
        pass(60_000).await;
        let visits = drain(&world).await;
        assert_eq!(visits.len(), 6, "every URL comes exactly once: {homes:?}");
        for pair in visits.windows(2) {
            assert!(pair[1].granted_at.0 >= pair[0].granted_at.0 + 1_000, "{pair:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_of_an_alias_takes_new_urls_also_where_both_have_one_home() {
    for (alias, homes) in [(0, [0, 0]), (0, [1, 2])] {
        let (world, alias, hosts) = village(alias, homes).await;
        world.set_group(&alias, &names_of(&hosts), PaceChanges::default()).await;
        let url = format!("http://{}/later", hosts[0]);
        assert_eq!(world.put(vec![disc(&url)]).await, [PutOutcome::Added], "{homes:?}");
        assert_eq!(world.put(vec![disc(&url)]).await, [PutOutcome::Known], "{homes:?}");
        assert_eq!(world.set_host(&hosts[0], delay(77)).await.settings.delay.unwrap().0, 77);
        assert_eq!(world.lookup(&url).await.unwrap().state, UrlState::Queued);
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_purged_elsewhere_is_new_when_the_host_is_back() {
    let (world, alias, hosts) = village(0, [1, 2]).await;
    let puts = || (0..3).map(|n| disc(&format!("http://{}/{n}", hosts[0]))).collect();
    assert_eq!(world.put(puts()).await, vec![PutOutcome::Known; 3]);
    world.set_group(&alias, &names_of(&hosts), PaceChanges::default()).await;
    pass(1_000).await;
    let of_host = Some(hosts[0].as_str().into());
    assert_eq!(world.frontier.purge(names::DEFAULT_CRAWL.into(), of_host, world.now()).await, Ok(3));
    world.frontier.delete_group(alias.as_str().into()).await.unwrap();
    assert_eq!(world.put(puts()).await, vec![PutOutcome::Added; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_joins_while_it_is_visited_binds_the_group() {
    let (world, alias, hosts) = village(0, [1, 2]).await;
    world.set_host(&hosts[1], paused(true)).await;
    let visit = world.next().await.unwrap();
    assert_eq!(*visit.host, hosts[0]);
    world.set_host(&hosts[1], paused(false)).await;
    world.set_group(&alias, &names_of(&hosts), PaceChanges::default()).await;
    assert_eq!(world.group(&alias).await.standing.state, State::Busy);
    assert!(world.next().await.is_none(), "the other host must wait for the visit that was under way");
    let released = world.fetched(&visit).await;
    assert_eq!((&*released.group, released.ready_at), (&*alias, Time(world.now().0 + 1_000)));
    assert!(world.next().await.is_none());
    pass(1_000).await;
    assert!(world.next().await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_host_that_leaves_takes_its_visit_and_the_pace_along() {
    for restart in [false, true] {
        let (mut world, alias, hosts) = village(0, [1, 2]).await;
        world.set_group(&alias, &names_of(&hosts), delay(5_000)).await;
        for host in &hosts {
            world.set_delay(host, 5_000).await;
        }
        let visit = world.next().await.unwrap();
        let (visited, other) = if *visit.host == hosts[0] { (&hosts[0], &hosts[1]) } else { (&hosts[1], &hosts[0]) };
        world.frontier.delete_group(alias.as_str().into()).await.unwrap();
        if restart {
            world.survives_a_restart().await;
        }
        assert_eq!(world.state(visited).await, State::Busy);
        let released = world.fetched(&visit).await;
        assert_eq!(&*released.group, visited.as_str(), "the token goes with the host");
        assert_eq!(released.ready_at, Time(world.now().0 + 5_000));
        assert_eq!(world.state(other).await, State::Ready);
        let left = drain(&world).await;
        assert_eq!(left.len(), 5);
    }
}

#[tokio::test(start_paused = true)]
async fn a_leaver_remembers_the_groups_last_visit() {
    let (world, alias, hosts) = village(0, [1, 2]).await;
    world.set_group(&alias, &names_of(&hosts), PaceChanges::default()).await;
    let visit = world.next().await.unwrap();
    world.fetched(&visit).await;
    world.frontier.delete_group(alias.as_str().into()).await.unwrap();
    assert!(world.reserve(9, 1).await.is_empty(), "neither host may be visited before the delay has passed");
    pass(1_000).await;
    assert_eq!(world.reserve(9, 1).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_went_and_came_back_serves_nothing_twice_and_loses_nothing() {
    let (world, alias, hosts) = village(0, [1, 2]).await;
    let first = &hosts[0];
    // A first visit, so that the home shard has cached the front of the queue.
    let mut seen: Vec<String> = Vec::new();
    for visit in world.reserve(9, 1).await {
        seen.push(visit.urls[0].url.to_string());
        world.fetched(&visit).await;
    }
    pass(1_000).await;
    world.set_group(&alias, &[first], PaceChanges::default()).await;
    let early = format!("http://{first}/0early");
    world.put(vec![known(&early, Some(Time(1)))]).await;
    for _ in 0..2 {
        pass(1_000).await;
        for visit in world.reserve(9, 1).await {
            seen.push(visit.urls[0].url.to_string());
            world.fetched(&visit).await;
        }
    }
    world.frontier.delete_group(alias.as_str().into()).await.unwrap();
    seen.extend(drain(&world).await.iter().map(|v| v.urls[0].url.to_string()));
    seen.sort();
    let mut once = seen.clone();
    once.dedup();
    assert_eq!(seen, once, "a URL was served twice");
    assert_eq!(seen.len(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_ran_out_on_the_move_still_ends() {
    for restart in [false, true] {
        let (mut world, alias, hosts) = village(0, [1, 2]).await;
        // A hold of its own in the alias's shard, so that the sweep there has already passed.
        let there = host_in(0, SHARDS, 5);
        world.add(&[&format!("http://{there}/")]).await;
        let short = |host: &str| wayleave_core::frontier::request::HandOut {
            host: Some(host.into()),
            hold: wayleave_core::time::Millis(1_000),
            ..paced(1, 1)
        };
        assert_eq!(world.frontier.hand_out(short(&there)).await.unwrap().len(), 1);
        pass(500).await;
        let held = world.frontier.hand_out(short(&hosts[0])).await.unwrap().pop().unwrap();
        pass(400).await;
        world.set_group(&alias, &names_of(&hosts), PaceChanges::default()).await;
        if restart {
            world.reopen().await;
        }
        pass(5_000).await;
        let view = world.lookup(&held.url).await.unwrap();
        assert_eq!((view.state, view.held_until), (UrlState::Queued, None));
        assert_eq!(world.frontier.stats().await.unwrap().holds, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn f11_names_map_both_ways_and_a_host_belongs_to_one_alias() {
    let (world, alias, hosts) = village(0, [1, 2]).await;
    world.set_group(&alias, &names_of(&hosts), PaceChanges::default()).await;
    let view = world.group(&alias).await;
    let mut sorted = hosts.clone();
    sorted.sort();
    assert_eq!(view.hosts.iter().map(|h| h.to_string()).collect::<Vec<_>>(), sorted);
    for host in &hosts {
        let view = world.host(host).await;
        assert_eq!((&*view.group, view.aliased), (alias.as_str(), true));
        assert_eq!(*world.group(host).await.group, *alias, "the group of a host can be asked for by its name");
    }
    let other = alias_in(3, SHARDS);
    let before = world.portrait().await;
    let taken =
        world.frontier.set_group(other.as_str().into(), Some(vec![hosts[0].as_str().into()]), delay(9), false).await;
    assert_eq!(taken, Err(Refusal::HostTaken { host: hosts[0].clone(), alias: alias.clone() }));
    assert_eq!(world.portrait().await, before, "nothing changed");
    for bad in ["a.example", "a b", "", "127.0.0.1", "ä"] {
        assert!(names::alias(bad).is_err(), "{bad} could be taken for a host");
    }
}

#[tokio::test(start_paused = true)]
async fn f7_thousands_of_hosts_of_one_alias_do_not_churn() {
    let world = World::new(SHARDS).await;
    let hosts: Vec<String> = (0..2_000).map(|n| format!("h{n}.example")).collect();
    let puts = hosts.iter().map(|host| disc(&format!("http://{host}/"))).collect();
    world.put(puts).await;
    let members: Vec<&str> = hosts.iter().map(String::as_str).collect();
    world.set_group("kommune", &members, delay(10)).await;
    let stats = world.frontier.stats().await.unwrap();
    assert_eq!(stats.ready + stats.waiting, 1, "the group is scheduled, not its hosts");
    let mut last = Time(0);
    for _ in 0..50 {
        let visit = world.next().await.unwrap();
        let due = world.lookup(&visit.urls[0].url).await.unwrap().due_at.unwrap();
        assert!(due >= last, "the most overdue host is next");
        last = due;
        world.fetched(&visit).await;
        pass(10).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_may_join_before_anybody_has_met_it() {
    let world = World::new(SHARDS).await;
    let stranger = host_in(1, SHARDS, 0);
    let alias = alias_in(0, SHARDS);
    world.set_group(&alias, &[&stranger], delay(0)).await;
    world.add(&[&format!("http://{stranger}/")]).await;
    let visit = world.next().await.unwrap();
    assert_eq!((&*visit.group, &*visit.host), (alias.as_str(), stranger.as_str()));
    world.frontier.delete_group(alias.as_str().into()).await.unwrap();
    world.fetched(&visit).await;
    let url = format!("http://{stranger}/");
    assert_eq!(world.put(vec![disc(&url)]).await, [PutOutcome::Known], "it is known at home too");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_joins_or_leaves_keeps_the_longest_wait_of_any_crawl() {
    let world = World::new(SHARDS).await;
    let (hosts, alias) = ([host_in(0, SHARDS, 0), host_in(1, SHARDS, 1)], alias_in(2, SHARDS));
    let slow = CrawlChanges { delay: Change::Set(Millis(60_000)), ..CrawlChanges::default() };
    world.frontier.set_crawl("slow".into(), slow, false).await.unwrap();
    let of = |crawl: &str, host: &str, n: u8| of_crawl(crawl, disc(&format!("http://{host}/{n}")));
    world.put(vec![of("slow", &hosts[0], 1), of("slow", &hosts[0], 2), of("quick", &hosts[1], 1)]).await;
    for visit in world.reserve(9, 1).await.into_iter().rev() {
        world.fetched(&visit).await;
        pass(10).await;
    }
    let slow_until = world.host(&hosts[0]).await.standing.ready_at.unwrap();
    assert!(slow_until.0 > world.now().0 + 50_000);
    world.put(vec![of("quick", &hosts[1], 2)]).await;
    // The quick crawl's visit ended later, but its delay is shorter.
    world.set_group(&alias, &names_of(&hosts), PaceChanges::default()).await;
    assert_eq!(world.group(&alias).await.standing.ready_at, Some(slow_until));
    world.set_group(&alias, &[&hosts[0]], PaceChanges::default()).await;
    assert_eq!(world.host(&hosts[1]).await.standing.ready_at, Some(slow_until), "it takes the wait along");
}

#[tokio::test(start_paused = true)]
async fn an_alias_and_a_key_never_share_a_name() {
    let world = World::new(SHARDS).await;
    world.add(&["http://a.example/1"]).await;
    let keyed = |key: &str, url: &str| wayleave_core::frontier::request::Put { host: key.into(), ..disc(url) };
    world.put(vec![keyed("big", "http://b.example/1")]).await;
    let set = |alias: &str| world.frontier.set_group(alias.into(), None, PaceChanges::default(), false);
    assert_eq!(set("big").await.unwrap_err(), Refusal::NameInUse("big".to_owned()));
    set("small").await.unwrap();
    let host = world.frontier.set_host("small".into(), PaceChanges::default(), false, None).await;
    assert_eq!(host.unwrap_err(), Refusal::NameInUse("small".to_owned()));
    let own = world.frontier.set_group("other".into(), Some(vec!["small".into()]), PaceChanges::default(), false).await;
    assert_eq!(own.unwrap_err(), Refusal::NameInUse("small".to_owned()));
    let itself = world.frontier.set_group("new".into(), Some(vec!["new".into()]), PaceChanges::default(), false).await;
    assert_eq!(itself.unwrap_err(), Refusal::NameInUse("new".to_owned()));
    assert!(world.frontier.group("new").await.is_err(), "nothing was made");
    let refused = world.put(vec![keyed("small", "http://b.example/2")]).await;
    assert!(matches!(&refused[..], [PutOutcome::Rejected(why)] if why.contains("alias")), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_block_and_a_back_off_can_be_lifted_after_a_host_has_moved() {
    let (world, alias, hosts) = village(0, [1, 2]).await;
    let until = Time(world.now().0 + 1_000_000_000);
    let blocked = PaceChanges { blocked_until: Change::Set(until), ..PaceChanges::default() };
    world.set_group(&alias, &[&hosts[0]], blocked).await;
    let visit = world.next().await.unwrap();
    assert_eq!(*visit.host, *hosts[1]);
    world.release(&visit, |r| UrlResult { retry_after: Some(Millis(80_000_000)), ..r }).await.unwrap();
    world.set_group(&alias, &names_of(&hosts), PaceChanges::default()).await;
    pass(2_000).await;
    assert_eq!(world.reserve(9, 1).await, []);
    let lift = PaceChanges { blocked_until: Change::Clear, ..PaceChanges::default() };
    world.set_group(&alias, &names_of(&hosts), lift).await;
    assert_eq!(world.reserve(9, 1).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_group_whose_only_work_is_at_a_blocked_host_says_so() {
    let world = World::new(4).await;
    world.add(&["http://a.example/1"]).await;
    world.set_group("pair", &["a.example", "b.example"], delay(0)).await;
    let until = Time(world.now().0 + 60_000);
    let blocked = PaceChanges { blocked_until: Change::Set(until), ..PaceChanges::default() };
    world.set_host("a.example", blocked).await;
    let standing = world.group("pair").await.standing;
    assert_eq!((standing.state, standing.ready_at), (State::Blocked, Some(until)));
    assert!(standing.reason.contains("host 'a.example'") && standing.reason.contains("blocked"), "{}", standing.reason);
    world.add(&["http://b.example/1"]).await;
    assert_eq!(world.group("pair").await.standing.state, State::Ready, "the other has work now");
}

#[tokio::test(start_paused = true)]
async fn why_says_that_the_paced_form_is_switched_off() {
    let world = World::new(2).await;
    world.add(&["http://a.example/1"]).await;
    assert!(!world.host("a.example").await.standing.reason.contains("SetActive"));
    world.frontier.set_active(false).await.unwrap();
    let standing = world.host("a.example").await.standing;
    assert!(standing.reason.contains("SetActive"), "{}", standing.reason);
    assert_eq!(standing.state, State::Ready, "reservations go on");
}
