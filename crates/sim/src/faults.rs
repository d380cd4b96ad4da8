//! The faults of a run: crashes, restarts, delayed durability, outages, lost responses, clock steps.

use std::rc::Rc;

use wayleave_engine::Error;
use wayleave_engine::memory::LostAnswer;

use crate::chance::Chance;
use crate::damage;
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
        match chance.below(12) {
            0 => world.crash().await,
            1 => world.restart().await,
            2 => {
                world.log("fault", "outage");
                engine.begin_outage("an outage of the simulation");
                pass(chance.below(1_500)).await;
                engine.end_outage();
                world.log("fault", "outage over");
            }
            3 | 4 => {
                let truth = if chance.once_in(2) { LostAnswer::Applied } else { LostAnswer::Dropped };
                world.log("fault", &format!("lost answer, {truth:?}"));
                engine.lose_next_answer(truth);
            }
            5 => {
                world.log("fault", "a refusal");
                engine.fail_next(Error::Unavailable("a refusal of the simulation".to_owned()));
            }
            // Node leases end by the store's clock: where it steps, a node may act that has lost its lease.
            6 | 7 if !world.clock_steps() => {}
            6 => {
                let step = chance.below(4_000) as i64;
                world.log("fault", &format!("clock forward {step}"));
                world.clock.step(step);
            }
            7 => {
                let step = chance.below(1_500) as i64;
                world.log("fault", &format!("clock back {step}"));
                world.clock.step(-step);
            }
            9 | 10 => {
                let (kind, n) = (damage::draw(&world, &chance), chance.below(5));
                let sum = |key: &[u8]| key.iter().map(|byte| u64::from(*byte)).sum::<u64>();
                let rows = engine.damage(|key| damage::is_kind(key, kind) && sum(key) % 5 == n);
                world.log("fault", &format!("{rows} rows of kind {kind:?} cannot be read"));
                world.damage.begin(&[kind]);
                if chance.once_in(2) {
                    // Their owners read them anew.
                    engine.lose_next_answer(LostAnswer::Applied);
                }
            }
            11 => world.mend(),
            _ => {}
        }
    }
    world.engine().end_outage();
    world.mend();
}
