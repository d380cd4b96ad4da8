//! Faults of several nodes: nodes that die, leave or are paused, and links that lose calls.

use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::chance::Chance;
use crate::cluster::{Cluster, NODES, Node, TTL};
use crate::switchboard::Fate;
use crate::world::{Kind, World, pass};

/// Keeps one node running, and ends or pauses it now and then until the calm phase.
pub async fn keeper(world: Rc<World>, slot: usize, name: u64) {
    let Some(cluster) = &world.cluster else { return };
    let chance = Chance::new(world.seed, name);
    let mut address = None;
    while !world.done.get() {
        let Some(node) = cluster.node(slot) else {
            let node = cluster.start(&world, slot, address.take()).await;
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
        cluster.faults.set(cluster.faults.get() + 1);
        strike(&world, cluster, &chance, (slot, &node)).await;
        cluster.faults.set(cluster.faults.get() - 1);
    }
}

async fn strike(world: &World, cluster: &Cluster, chance: &Chance, (slot, node): (usize, &Node)) {
    if world.kind == Kind::HandOvers {
        // A node must remain to take the shards.
        if cluster.nodes().len() == NODES {
            cluster.leave(world, slot, node).await;
        }
        return;
    }
    let longer_than_its_lease = TTL.0 / 2 + chance.below(3 * TTL.0);
    match chance.below(7) {
        0 | 1 => {
            cluster.kill(world, slot, node);
            pass(chance.below(2 * TTL.0)).await;
        }
        2 => {
            cluster.leave(world, slot, node).await;
            pass(chance.below(TTL.0)).await;
        }
        3 | 4 => cluster.stand_still(world, node, true, longer_than_its_lease).await,
        5 => cluster.stand_still(world, node, false, longer_than_its_lease).await,
        _ => {}
    }
}

/// Cuts links and loses calls between nodes until the calm phase.
pub async fn bad_lines(world: Rc<World>, name: u64) {
    let Some(cluster) = &world.cluster else { return };
    let chance = Chance::new(world.seed, name);
    while !world.calm.get() {
        pass(chance.below(3_000)).await;
        let span = chance.below(3_000);
        if chance.once_in(2) {
            cut_two(&world, cluster, &chance, span).await;
        } else {
            lose_calls(&world, cluster, &chance, span).await;
        }
    }
}

async fn cut_two(world: &World, cluster: &Cluster, chance: &Chance, span: u64) {
    let slot = chance.below(NODES as u64) as usize;
    let (Some(one), Some(other)) = (cluster.node(slot), cluster.node((slot + 1) % NODES)) else { return };
    world.log("fault", &format!("link cut between {} and {}", one.id, other.id));
    cluster.board.cut(one.id, other.id, true);
    pass(span).await;
    cluster.board.cut(one.id, other.id, false);
    world.log("fault", "link mended");
}

async fn lose_calls(world: &World, cluster: &Cluster, chance: &Chance, span: u64) {
    world.log("fault", "calls are lost");
    let of_calls = Mutex::new(Chance::new(world.seed, chance.draw()));
    cluster.board.set_fates(Some(Arc::new(move |_, _| {
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
    cluster.board.set_fates(None);
    world.log("fault", "calls arrive");
}
