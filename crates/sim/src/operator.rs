//! The operator of a run: changes settings, aliases and pauses, and deletes a crawl now and then.

use std::rc::Rc;

use wayleave_core::invariants::Span;
use wayleave_core::names::HostName;
use wayleave_core::settings::{Change, CrawlChanges, PaceChanges};
use wayleave_core::time::Millis;

use crate::chance::Chance;
use crate::clients::{CRAWLS, HOSTS, host_name};
use crate::world::{World, pass};

/// Changes things until it is calm, then sets everything free.
pub async fn operator(world: Rc<World>, name: u64) {
    let chance = Chance::new(world.seed, name);
    while !world.calm.get() {
        pass(200 + chance.below(1_500)).await;
        act(&world, &chance).await;
    }
}

async fn act(world: &World, chance: &Chance) {
    let host: HostName = host_name(chance.below(HOSTS)).into();
    let frontier = world.frontier().await;
    match chance.below(8) {
        0 | 1 => {
            let delay = chance.below(3_000);
            let changes = PaceChanges { delay: Change::Set(Millis(delay)), ..PaceChanges::default() };
            let answer = frontier.set_host(host.clone(), changes, false, None).await;
            world.tell("operator", &format!("delay {host} {delay} {}", answer.is_ok()));
            let mut oracle = world.oracle.borrow_mut();
            // A lost answer leaves two possible values: none is promised.
            match answer {
                Ok(_) => oracle.delays.insert(host.to_string(), delay),
                Err(_) => oracle.delays.remove(&*host),
            };
        }
        2 => {
            let changes = PaceChanges { paused: Change::Set(chance.once_in(2)), ..PaceChanges::default() };
            let answer = frontier.set_host(host.clone(), changes, false, None).await;
            world.tell("operator", &format!("pause {host} {}", answer.is_ok()));
        }
        3 => {
            let until = world.now().after(Millis(chance.below(4_000)));
            let changes = PaceChanges { blocked_until: Change::Set(until), ..PaceChanges::default() };
            let answer = frontier.set_host(host.clone(), changes, false, None).await;
            world.tell("operator", &format!("block {host} {}", answer.is_ok()));
        }
        4 | 5 => {
            let alias = ["left", "right"][chance.below(2) as usize];
            let half = |n: &u64| (n % 2 == 0) == (alias == "left") && chance.once_in(2);
            let hosts = (0..HOSTS).filter(half).map(|n| host_name(n).into()).collect::<Vec<HostName>>();
            let start = world.now();
            let answer = frontier.set_group(alias.into(), Some(hosts.clone()), PaceChanges::default(), false).await;
            world.oracle.borrow_mut().moved(alias, Span { start, end: world.now() });
            world.tell("operator", &format!("group {alias} {hosts:?} {:?}", answer.err()));
        }
        6 => {
            let crawl = CRAWLS[chance.below(2) as usize];
            let changes = CrawlChanges { paused: Change::Set(chance.once_in(2)), ..CrawlChanges::default() };
            let answer = frontier.set_crawl(crawl.into(), changes, false).await;
            world.tell("operator", &format!("pause crawl {crawl} {}", answer.is_ok()));
        }
        _ => {
            world.oracle.borrow_mut().deleting("doomed", world.now());
            let answer = frontier.delete_crawl("doomed".into()).await;
            world.oracle.borrow_mut().deleting("doomed", world.now());
            let mut oracle = world.oracle.borrow_mut();
            // A host that is forgotten with its last queue takes its settings along.
            oracle.delays.clear();
            world.tell("operator", &format!("delete crawl {answer:?}"));
        }
    }
}

/// Lets everything go on: no pauses, no blocks, small delays.
pub async fn set_free(world: &World) -> Result<(), String> {
    let frontier = world.frontier().await;
    for crawl in CRAWLS {
        let changes = CrawlChanges { paused: Change::Set(false), ..CrawlChanges::default() };
        frontier.set_crawl(crawl.into(), changes, false).await.map_err(|refusal| refusal.to_string())?;
    }
    for n in 0..HOSTS {
        let changes = PaceChanges {
            delay: Change::Set(Millis(20)),
            blocked_until: Change::Clear,
            paused: Change::Set(false),
            ..PaceChanges::default()
        };
        let set = frontier.set_host(host_name(n).into(), changes, false, None).await;
        set.map_err(|refusal| refusal.to_string())?;
    }
    Ok(())
}
