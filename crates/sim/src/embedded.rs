//! The embedded store of a run: the production journal, group commit and flush on a simulated disk, whose steps and
//! faults the run controls.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use wayleave_engine::clock::Clock;
use wayleave_engine::rows::Kind;
use wayleave_engine_fjall::simulated::{Fault, Reading, SimDisk, SimTables, Simulated};

use crate::chance::Chance;
use crate::clock::SteppedClock;
use crate::damage;
use crate::run::fail;
use crate::world::{World, pass};

const FOLDER: &str = "/data";

/// The disk, its tables, and the process that has them open.
pub struct Embedded {
    disk: SimDisk,
    tables: SimTables,
    clock: SteppedClock,
    shards: u16,
    engine: RefCell<Arc<Simulated>>,
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By a clean shutdown.
    Stop,
    /// By `kill -9`.
    Kill,
    /// With the machine.
    PowerCut,
}

impl Embedded {
    pub fn new(seed: u64, shards: u16, clock: SteppedClock) -> Self {
        let (disk, tables) = (SimDisk::new(seed), SimTables::default());
        #[expect(clippy::expect_used, reason = "without a store nothing can be simulated")]
        let engine = open(&disk, &tables, shards, &clock).expect("a new disk without faults");
        Self { disk, tables, clock, shards, engine: RefCell::new(Arc::new(engine)) }
    }

    pub fn engine(&self) -> Arc<Simulated> {
        self.engine.borrow().clone()
    }

    /// Ends the process and reopens the store, on a disk that works.
    pub fn reopen(&self, world: &World, end: End) {
        self.disk.heal();
        let end = if self.disk.has_power() { end } else { End::PowerCut };
        if end == End::Stop {
            self.engine().close();
        }
        self.engine().kill();
        match end {
            End::Stop | End::Kill => self.disk.kill(),
            End::PowerCut => self.disk.power_cut(),
        }
        match open(&self.disk, &self.tables, self.shards, &self.clock) {
            Ok(engine) => *self.engine.borrow_mut() = Arc::new(engine),
            Err(error) => fail(world, &format!("law 3: the store does not open after {end:?}: {error}")),
        }
    }

    /// Makes all rows of tables readable again.
    pub fn heal(&self) {
        self.tables.heal();
    }

    /// Whether a fault has occurred from which the store does not recover by itself.
    pub fn has_failed(&self) -> bool {
        self.engine().has_failed()
    }
}

fn open(
    disk: &SimDisk,
    tables: &SimTables,
    shards: u16,
    clock: &SteppedClock,
) -> Result<Simulated, wayleave_engine_fjall::OpenError> {
    let clock = clock.clone();
    let read = move || {
        let ns = |ms: u64| u128::from(ms) * 1_000_000;
        Reading { wall_ns: ns(clock.read().0), boot_ns: ns(clock.elapsed()) }
    };
    Simulated::open(disk, tables, Path::new(FOLDER), shards, read)
}

/// Carries out writes and flushes: late, few at a time and in any order during faults, at once in the calm phase.
pub async fn disk(world: Rc<World>, name: u64) {
    let chance = Chance::new(world.seed, name);
    let Some(embedded) = &world.embedded else { return };
    // Until the run ends: its last clients still wait for their commits.
    loop {
        let calm = world.calm.get();
        pass(if calm { 1 } else { 1 + chance.below(20) }).await;
        let engine = embedded.engine();
        for _ in 0..if calm { 1 } else { chance.below(6) } {
            match chance.below(9) {
                0 => _ = engine.step_flush(),
                8 => engine.merge(),
                1..4 => _ = engine.begin_write(),
                _ => engine.end_write(chance.below(engine.writes() as u64) as usize),
            }
        }
        while calm && (engine.begin_write() || engine.writes() > 0) {
            engine.end_write(0);
        }
    }
}

/// Injects faults until the calm phase: in the process, the machine, the disk, the tables and the clock. A failed store
/// is restarted, as a service manager does.
pub async fn gremlin(world: Rc<World>, name: u64) {
    let chance = Chance::new(world.seed, name);
    let Some(embedded) = &world.embedded else { return };
    while !world.calm.get() {
        pass(chance.below(2_000)).await;
        if embedded.has_failed() {
            world.end_embedded(End::Kill).await;
            continue;
        }
        match chance.below(12) {
            0 => world.end_embedded(End::PowerCut).await,
            1 => world.end_embedded(End::Kill).await,
            2 => world.end_embedded(End::Stop).await,
            3..6 => {
                let fault = chance.pick([Fault::Io, Fault::NoSpace, Fault::ReadOnly, Fault::PowerCut]);
                let after = chance.below(60);
                world.log("fault", &format!("{fault:?} after {after} operations of the disk"));
                embedded.disk.fail_after(after, fault);
            }
            6 => {
                world.log("fault", "a table that cannot be written");
                embedded.tables.fail_next();
            }
            7 => {
                let step = chance.below(4_000) as i64 - 1_500;
                world.log("fault", &format!("clock {step:+}"));
                world.clock.step(step);
            }
            8 => {
                let kind = damage::draw(&world, &chance);
                if embedded.tables.damage(|bound| chance.below(bound), |key| damage::is_kind(key, kind)).is_some() {
                    world.log("fault", &format!("a block of kind {kind:?} cannot be read"));
                    // The block may have rows of other kinds too.
                    world.damage.begin(&[kind, Kind::Shard]);
                }
            }
            9 => {
                world.log("fault", "a merge that finds no room");
                embedded.tables.fill_up_next_merge();
            }
            10 if chance.once_in(2) => world.mend(),
            _ => {}
        }
    }
    embedded.disk.heal();
    world.mend();
    if embedded.has_failed() {
        world.end_embedded(End::Kill).await;
    }
}
