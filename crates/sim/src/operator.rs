//! The operator of a run: changes settings, aliases and pauses, and occasionally deletes a crawl.

use std::collections::BTreeSet;
use std::rc::Rc;

use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::names::HostName;
use wayleave_core::settings::{Change, CrawlChanges, PaceChanges};
use wayleave_core::time::Millis;
use wayleave_shard::Frontier;

use crate::chance::Chance;
use crate::clients::{CRAWLS, HOSTS, host_name};
use crate::move_oracle::Moved;
use crate::world::{World, pass};

/// A host without URLs, which is queued by time alone.
pub const BARE: &str = "bare.example";

/// Changes settings until the calm phase, then lifts all restrictions.
pub async fn operator(world: Rc<World>, name: u64) {
    let chance = Chance::new(world.seed, name);
    while !world.calm.get() {
        pass(200 + chance.below(1_500)).await;
        act(&world, &chance).await;
    }
}

async fn act(world: &World, chance: &Chance) {
    let host: HostName = host_name(chance.below(HOSTS)).into();
    let set = async |changes: PaceChanges| {
        world.ask(async |frontier| frontier.set_host(host.clone(), changes, false, None).await).await
    };
    // A deletion between nodes whose response is lost leaves little to judge, so most runs of nodes make none.
    let kinds = if world.cluster.is_some() && !world.seed.is_multiple_of(3) { 8 } else { 9 };
    match chance.below(kinds) {
        0 | 1 => {
            let delay = chance.below(3_000);
            let changes = PaceChanges { delay: Change::Set(Millis(delay)), ..PaceChanges::default() };
            let answer = set(changes).await;
            world.check("an operator's call", &answer);
            world.log("operator", &format!("delay {host} {delay} {}", answer.is_ok()));
            let mut oracle = world.oracle.borrow_mut();
            // A lost response leaves two possible values: neither is certain.
            match answer {
                Ok(_) => oracle.delays.insert(host.to_string(), delay),
                Err(_) => oracle.delays.remove(&*host),
            };
        }
        2 => {
            let changes = PaceChanges { paused: Change::Set(chance.once_in(2)), ..PaceChanges::default() };
            let answer = set(changes).await;
            world.check("an operator's call", &answer);
            world.log("operator", &format!("pause {host} {}", answer.is_ok()));
        }
        3 => {
            let until = world.now().after(Millis(chance.below(4_000)));
            let changes = PaceChanges { blocked_until: Change::Set(until), ..PaceChanges::default() };
            let answer = set(changes).await;
            world.check("an operator's call", &answer);
            world.log("operator", &format!("block {host} {}", answer.is_ok()));
        }
        4 | 5 => {
            let alias = chance.pick(["left", "right"]);
            let wanted = hosts_of(alias).into_iter().filter(|_| chance.once_in(2)).collect();
            change_group(world, alias, wanted).await;
        }
        6 => {
            let crawl = chance.pick(["DEFAULT", "news"]);
            let changes = CrawlChanges { paused: Change::Set(chance.once_in(2)), ..CrawlChanges::default() };
            let answer = world.ask(async |frontier| frontier.set_crawl(crawl.into(), changes, false).await).await;
            world.check("an operator's call", &answer);
            world.log("operator", &format!("pause crawl {crawl} {}", answer.is_ok()));
        }
        7 => {
            let at = world.now().after(Millis(chance.below(2_000)));
            let ask = async |frontier: Frontier| {
                frontier.set_host(BARE.into(), PaceChanges::default(), false, Some(at)).await
            };
            let answer = world.ask(ask).await;
            world.check("an operator's call", &answer);
            world.log("operator", &format!("queue {BARE} {}", answer.is_ok()));
        }
        _ => {
            world.oracle.borrow_mut().deleting("doomed", world.now());
            let answer = world.ask(async |frontier| frontier.delete_crawl("doomed".into()).await).await;
            world.oracle.borrow_mut().deleting("doomed", world.now());
            if world.cluster.is_some() && answer.is_err() {
                world.oracle.borrow_mut().unsure(world.now());
            }
            let mut oracle = world.oracle.borrow_mut();
            // A host that is forgotten with its last queue loses its settings.
            oracle.delays.clear();
            world.check("an operator's call", &answer);
            world.log("operator", &format!("delete crawl {answer:?}"));
        }
    }
}

/// The alias that a host may become a member of.
const fn alias_of(host: u64) -> &'static str {
    if host.is_multiple_of(2) { "left" } else { "right" }
}

/// The hosts that may become members of an alias.
fn hosts_of(alias: &str) -> BTreeSet<String> {
    (0..HOSTS).filter(|n| alias_of(*n) == alias).map(host_name).collect()
}

/// Moves a host into its alias or out of it, if it is certain which.
pub async fn move_host(world: &World, host: &str) {
    let alias = (0..HOSTS).find(|n| host_name(*n) == host).map_or("left", alias_of);
    let wanted = world.oracle.borrow().moves.toggled(alias, host);
    if let Some(wanted) = wanted {
        change_group(world, alias, wanted).await;
    }
}

/// Changes the members of an alias.
async fn change_group(world: &World, alias: &'static str, wanted: BTreeSet<String>) {
    let all = hosts_of(alias);
    let hosts: Vec<HostName> = wanted.iter().map(|host| host.as_str().into()).collect();
    let begins = (world.now(), world.clock.elapsed());
    let number = world.oracle.borrow_mut().moves.begin(alias, (all, wanted), begins);
    let members = Some(hosts.clone());
    let answer = world
        .ask(async |frontier| frontier.set_group(alias.into(), members, PaceChanges::default(), false).await)
        .await;
    let moved = match &answer {
        Ok(_) => Moved::Done,
        Err(Refusal::OutcomeUnknown(_) | Refusal::Internal(_) | Refusal::Corrupt(_)) if world.cluster.is_some() => {
            Moved::Lingers
        }
        Err(Refusal::OutcomeUnknown(_) | Refusal::Internal(_) | Refusal::Corrupt(_)) => Moved::Perhaps,
        Err(_) => Moved::Nothing,
    };
    world.oracle.borrow_mut().moves.end(number, moved, (world.now(), world.clock.elapsed()));
    world.check("an operator's call", &answer);
    world.log("operator", &format!("group {alias} {hosts:?} {:?}", answer.err()));
}

/// Lifts all restrictions: no pauses, no blocks, small delays.
pub async fn set_free(world: &World) -> Result<(), String> {
    for crawl in CRAWLS {
        let changes = CrawlChanges { paused: Change::Set(false), ..CrawlChanges::default() };
        let set = world.ask(async |frontier| frontier.set_crawl(crawl.into(), changes, false).await).await;
        set.map_err(|refusal| refusal.to_string())?;
    }
    for n in 0..HOSTS {
        let changes = PaceChanges {
            delay: Change::Set(Millis(20)),
            blocked_until: Change::Clear,
            paused: Change::Set(false),
            ..PaceChanges::default()
        };
        let ask = async |frontier: Frontier| frontier.set_host(host_name(n).into(), changes, false, None).await;
        let set = world.ask(ask).await;
        set.map_err(|refusal| refusal.to_string())?;
    }
    Ok(())
}
