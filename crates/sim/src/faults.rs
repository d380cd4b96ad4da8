//! The faults of a run: crashes, restarts, delayed durability, outages, lost responses, clock steps.

use std::rc::Rc;

use wayleave_engine::Error;
use wayleave_engine::memory::LostAnswer;

use crate::chance::Chance;
use crate::world::{World, pass};

/// Makes batches durable, late and few at a time during faults, at once in the calm phase.
pub async fn disk(world: Rc<World>, name: u64) {
    let chance = Chance::new(world.seed, name);
    while !world.done.get() {
        if world.calm.get() {
            pass(1).await;
            world.engine().make_durable(usize::MAX);
        } else {
            pass(1 + chance.below(20)).await;
            world.engine().make_durable(chance.below(6) as usize);
        }
    }
}

/// Injects faults until the calm phase.
pub async fn gremlin(world: Rc<World>, name: u64) {
    let chance = Chance::new(world.seed, name);
    while !world.calm.get() {
        pass(chance.below(3_000)).await;
        let engine = world.engine();
        match chance.below(9) {
            0 => world.crash().await,
            1 => world.restart().await,
            2 => {
                world.tell("fault", "outage");
                engine.begin_outage("an outage of the simulation");
                pass(chance.below(1_500)).await;
                engine.end_outage();
                world.tell("fault", "outage over");
            }
            3 | 4 => {
                let truth = if chance.once_in(2) { LostAnswer::Applied } else { LostAnswer::Dropped };
                world.tell("fault", &format!("lost answer, {truth:?}"));
                engine.lose_next_answer(truth);
            }
            5 => {
                world.tell("fault", "a refusal");
                engine.fail_next(Error::Unavailable("a refusal of the simulation".to_owned()));
            }
            // Node leases end by the store's clock: where it steps, a node may act that has lost its lease.
            6 | 7 if !world.clock_steps() => {}
            6 => {
                let step = chance.below(4_000) as i64;
                world.tell("fault", &format!("clock forward {step}"));
                world.clock.step(step);
            }
            7 => {
                let step = chance.below(1_500) as i64;
                world.tell("fault", &format!("clock back {step}"));
                world.clock.step(-step);
            }
            _ => {}
        }
    }
    world.engine().end_outage();
}
