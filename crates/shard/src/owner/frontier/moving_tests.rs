//! Requests of a stale mover, after another mover has moved the host.

use std::sync::Arc;

use wayleave_core::frontier::request::{Put, PutKind, PutOutcome, Reservation, Reserve};
use wayleave_core::metadata::Metadata;
use wayleave_core::names::Alias;
use wayleave_core::settings::PaceChanges;
use wayleave_core::time::Millis;
use wayleave_engine::Memory;
use wayleave_engine::clock::ManualClock;

use super::*;
use crate::routing::router::home;
use crate::{Config, Frontier};

const SHARDS: u16 = 3;

fn named(pattern: &str, shard: u16, n: usize) -> String {
    let names = (0..).map(|i| pattern.replace('?', &i.to_string()));
    names.filter(|name| home(name, SHARDS).0 == shard).nth(n).unwrap()
}

struct World {
    frontier: Frontier,
    /// Its home is shard 0.
    host: HostName,
    /// Homed at shards 1, 2 and 1.
    aliases: [Alias; 3],
}

impl World {
    async fn new() -> Self {
        let engine = Arc::new(Memory::new(ManualClock::new(Time(1_000_000))));
        let runtime = tokio::runtime::Handle::current();
        let frontier = Frontier::open(engine, Config::new(SHARDS), &runtime).await.unwrap();
        let alias = |shard, n| Alias::from(named("alias?", shard, n).as_str());
        let host = HostName::from(named("h?.example", 0, 0).as_str());
        Self { frontier, host, aliases: [alias(1, 0), alias(2, 0), alias(1, 1)] }
    }

    async fn set(&self, alias: usize, hosts: &[&HostName]) {
        let hosts = Some(hosts.iter().copied().cloned().collect());
        self.frontier.set_group(self.aliases[alias].clone(), hosts, PaceChanges::default(), false).await.unwrap();
    }

    async fn add(&self, path: &str) {
        let put = Put {
            url: format!("http://{}/{path}", self.host).as_str().into(),
            host: self.host.clone(),
            crawl: "DEFAULT".into(),
            kind: PutKind::Discovered { at: None, priority: 5, depth: 0 },
            metadata: Metadata::default(),
        };
        assert_eq!(self.frontier.put(vec![put]).await, [PutOutcome::Added]);
    }

    async fn reserve(&self) -> Vec<Reservation> {
        let (crawl, request) = (None, None);
        let (lease, wait) = (Millis(60_000), Millis(0));
        let want = Reserve { holder: "worker".into(), groups: 5, urls: 1, crawl, lease, wait, request };
        self.frontier.reserve(want).await.unwrap()
    }

    /// The request of a mover that knows nothing newer than its own start.
    async fn give_late(&self, from: u16, way: Way, to: u16) -> Result<(), Refusal> {
        let give = HostMove::Give { hosts: vec![self.host.clone()], way, to: ShardId(to) };
        self.frontier.router.ask(ShardId(from), give).await
    }

    async fn members(&self, alias: usize) -> Vec<HostName> {
        self.frontier.group(&self.aliases[alias]).await.unwrap().hosts
    }
}

#[tokio::test]
async fn a_host_does_not_come_home_from_an_alias_that_it_has_left() {
    // The alias it lives with now is at another shard than the one it left, or at the same shard.
    for now_in in [1, 2] {
        let world = World::new().await;
        world.add("1").await;
        world.set(0, &[&world.host]).await;
        world.set(0, &[]).await;
        world.set(now_in, &[&world.host]).await;
        assert_eq!(world.reserve().await.len(), 1, "it is being visited");
        let late = world.give_late(1, Way::OutOf(world.aliases[0].clone()), 0).await;
        assert!(matches!(late, Err(Refusal::Unavailable(_))), "{late:?}");
        world.add("2").await;
        assert_eq!(world.reserve().await, [], "nobody else visits it");
        assert_eq!(world.members(now_in).await, std::slice::from_ref(&world.host));
        world.set(now_in, &[]).await;
        world.set(0, &[&world.host]).await;
        assert_eq!(world.members(0).await, std::slice::from_ref(&world.host), "it can still be moved");
    }
}

#[tokio::test]
async fn a_home_takes_nothing_from_an_alias_that_the_host_does_not_live_with() {
    let world = World::new().await;
    world.add("1").await;
    world.set(1, &[&world.host]).await;
    assert_eq!(world.reserve().await.len(), 1, "it is being visited");
    let moving = vec![Moving { name: world.host.clone(), luggage: None, jobs: Vec::new() }];
    let take = HostMove::Take { moving, way: Way::OutOf(world.aliases[0].clone()), part: Batch::default() };
    let late = world.frontier.router.ask::<()>(ShardId(0), take).await;
    assert!(matches!(late, Err(Refusal::Unavailable(_))), "{late:?}");
    world.add("2").await;
    assert_eq!(world.reserve().await, [], "nobody else visits it");
}

#[tokio::test]
async fn a_host_does_not_join_an_alias_while_it_lives_with_another() {
    let world = World::new().await;
    world.add("1").await;
    world.set(1, &[&world.host]).await;
    let late = world.give_late(0, Way::Into(world.aliases[0].clone()), 1).await;
    assert!(matches!(late, Err(Refusal::HostTaken { .. })), "{late:?}");
    assert_eq!(world.members(1).await, std::slice::from_ref(&world.host));
    assert_eq!(world.reserve().await.len(), 1);
    assert_eq!(world.reserve().await, []);
}
