//! Faults of several nodes: nodes that die, leave or are paused, and links that lose calls.

use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::chance::Chance;
use crate::fleet::{Fleet, NODES, Node, TTL};
use crate::switchboard::Fate;
use crate::world::{Kind, World, pass};

/// Keeps one node running, and ends or pauses it now and then until the calm phase.
pub async fn keeper(world: Rc<World>, slot: usize, name: u64) {
    let Some(fleet) = &world.fleet else { return };
    let chance = Chance::new(world.seed, name);
    let mut address = None;
    while !world.done.get() {
        let Some(node) = fleet.node(slot) else {
            let node = fleet.start(&world, slot, address.take()).await;
            address = chance.once_in(2).then(|| node.address.clone());
            continue;
        };
        if world.calm.get() {
            pass(50).await;
            continue;
        }
        pass(chance.below(8_000)).await;
        // A power cut may have come first.
        if world.calm.get() || node.is_gone() {
            continue;
        }
        fleet.faults.set(fleet.faults.get() + 1);
        strike(&world, fleet, &chance, (slot, &node)).await;
        fleet.faults.set(fleet.faults.get() - 1);
    }
}

async fn strike(world: &World, fleet: &Fleet, chance: &Chance, (slot, node): (usize, &Node)) {
    if world.kind == Kind::HandOvers {
        // A node must remain to take the shards.
        if fleet.nodes().len() == NODES {
            fleet.leave(world, slot, node).await;
        }
        return;
    }
    let longer_than_its_lease = TTL.0 / 2 + chance.below(3 * TTL.0);
    match chance.below(7) {
        0 | 1 => {
            fleet.kill(world, slot, node);
            pass(chance.below(2 * TTL.0)).await;
        }
        2 => {
            fleet.leave(world, slot, node).await;
            pass(chance.below(TTL.0)).await;
        }
        3 | 4 => fleet.stand_still(world, node, true, longer_than_its_lease).await,
        5 => fleet.stand_still(world, node, false, longer_than_its_lease).await,
        _ => {}
    }
}

/// Cuts links and loses calls between nodes until the calm phase.
pub async fn bad_lines(world: Rc<World>, name: u64) {
    let Some(fleet) = &world.fleet else { return };
    let chance = Chance::new(world.seed, name);
    while !world.calm.get() {
        pass(chance.below(3_000)).await;
        let span = chance.below(3_000);
        if chance.once_in(2) {
            cut_two(&world, fleet, &chance, span).await;
        } else {
            lose_calls(&world, fleet, &chance, span).await;
        }
    }
}

async fn cut_two(world: &World, fleet: &Fleet, chance: &Chance, span: u64) {
    let slot = chance.below(NODES as u64) as usize;
    let (Some(one), Some(other)) = (fleet.node(slot), fleet.node((slot + 1) % NODES)) else { return };
    world.tell("fault", &format!("link cut between {} and {}", one.id, other.id));
    fleet.board.cut(one.id, other.id, true);
    pass(span).await;
    fleet.board.cut(one.id, other.id, false);
    world.tell("fault", "link mended");
}

async fn lose_calls(world: &World, fleet: &Fleet, chance: &Chance, span: u64) {
    world.tell("fault", "calls are lost");
    let of_calls = Mutex::new(Chance::new(world.seed, chance.draw()));
    fleet.board.set_fates(Some(Arc::new(move |_, _| {
        let chance = of_calls.lock().unwrap_or_else(PoisonError::into_inner);
        match chance.below(10) {
            0 => Fate::NotSent,
            1 => Fate::AnswerLost,
            2 => Fate::Late(Duration::from_millis(chance.below(3_000))),
            3 => Fate::Late(Duration::from_millis(chance.below(50))),
            _ => Fate::Arrives,
        }
    })));
    pass(span).await;
    fleet.board.set_fates(None);
    world.tell("fault", "calls arrive");
}
