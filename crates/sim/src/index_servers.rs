//! Index servers of a run, two in each of two rows, and a reader of the map. Servers die for a while, with or without their
//! files; in some runs one dies for good, and its chunks must move to the other server of its row.

use std::collections::BTreeSet;
use std::rc::Rc;

use wayleave_core::fleet::{Kind, Report, Reported};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::ids::{ChunkId, Token};
use wayleave_core::names::MachineId;
use wayleave_core::placement::{CopyReport, Filter, PlacementState, PlacementView};
use wayleave_core::time::Millis;
use wayleave_shard::fleet::Fleet;

use crate::chance::Chance;
use crate::run::{fail, verdict};
use crate::world::{World, pass};

/// Rows of index servers.
pub const ROWS: u64 = 2;
/// Names of the tasks of index servers; the last digit is the row.
pub const SERVERS: std::ops::Range<u64> = 90..94;

struct Server {
    id: MachineId,
    row: u64,
    address: String,
    token: Option<Token>,
    files: BTreeSet<ChunkId>,
}

/// Whether a server dies for good. Until it is judged failed takes simulated minutes, so few runs have one.
fn dies_for_good(world: &World, name: u64) -> bool {
    world.seed.is_multiple_of(8) && name == SERVERS.start
}

fn server_id(name: u64) -> MachineId {
    format!("server {name}").as_str().into()
}

/// Reports, fetches what is placed on it, and deletes what drains.
pub async fn index_server(world: Rc<World>, name: u64) {
    let chance = Chance::new(world.seed, name);
    let mut server = Server {
        id: server_id(name),
        row: name % ROWS,
        address: format!("10.0.0.{name}:9000"),
        token: None,
        files: BTreeSet::new(),
    };
    let dies_at = dies_for_good(&world, name).then(|| 5_000 + chance.below(20_000));
    while !world.done.get() {
        pass(500 + chance.below(2_500)).await;
        if dies_at.is_some_and(|at| world.clock.elapsed() > at) {
            return world.log("server dies", &format!("{} for good", server.id));
        }
        if !world.calm.get() && chance.once_in(10) {
            let lost = chance.once_in(2);
            world.log("server dies", &format!("{} with its files: {lost}", server.id));
            if lost {
                server.files.clear();
            }
            pass(chance.below(9_000)).await;
            continue;
        }
        server.report(&world).await;
        server.round(&world, &chance).await;
    }
}

impl Server {
    async fn report(&mut self, world: &World) {
        let report = Report {
            kind: Kind::Server,
            address: self.address.as_str().into(),
            from: None,
            capacity: 1,
            row: Some(self.row),
            state: Reported::Online,
            version: None,
            token: self.token,
        };
        let id = self.id.clone();
        match world.ask(async |frontier| Fleet::new(frontier).report(id, report).await).await {
            Ok(answer) => {
                if answer.reason.is_empty() {
                    fail(world, &format!("law 10: {} is {:?} without a reason", self.id, answer.judged));
                }
                self.token = Some(answer.token);
            }
            Err(refusal) => {
                world.log("server", &format!("{} {refusal}", self.id));
                world.check::<()>("a report of a machine", &Err(refusal));
            }
        }
    }

    /// Does what the placements say. A server that has lost a chunk says so.
    async fn round(&mut self, world: &World, chance: &Chance) {
        let filter = Filter { server: Some(self.id.clone()), ..Filter::default() };
        let listed = world.ask(async |frontier| Fleet::new(frontier).placements(filter, None, 1_000).await).await;
        let Ok(page) = listed else { return };
        for copy in page.placements {
            let PlacementView { chunk, state, reason, .. } = copy;
            if reason.is_empty() {
                fail(world, &format!("law 10: the copy of {chunk} on {} is {state:?} without a reason", self.id));
            }
            match state {
                PlacementState::Assigned | PlacementState::Fetching => {
                    if chance.once_in(2) && self.say(world, chunk, CopyReport::Fetching).await.is_err() {
                        continue;
                    }
                    pass(chance.below(300)).await;
                    if !world.calm.get() && chance.once_in(12) {
                        // It died while it fetched.
                        return;
                    }
                    self.files.insert(chunk);
                    world.oracle.borrow_mut().copies.ready(&self.id, chunk);
                    _ = self.say(world, chunk, CopyReport::Ready).await;
                }
                PlacementState::Ready if !self.files.contains(&chunk) => self.let_go(world, chunk).await,
                PlacementState::Draining if chance.once_in(2) => {
                    self.files.remove(&chunk);
                    self.let_go(world, chunk).await;
                }
                PlacementState::Ready | PlacementState::Draining => {}
            }
        }
    }

    async fn let_go(&self, world: &World, chunk: ChunkId) {
        if self.say(world, chunk, CopyReport::Gone).await.is_ok() {
            world.oracle.borrow_mut().copies.gone(&self.id, chunk, world.clock.elapsed());
        }
    }

    async fn say(&self, world: &World, chunk: ChunkId, report: CopyReport) -> Result<(), Refusal> {
        let (server, token) = (self.id.clone(), self.token);
        let call =
            async |frontier| Fleet::new(frontier).report_copy(chunk, server, (report, Some([7; 32])), token).await;
        let answer = world.ask(call).await;
        world.log("copy", &format!("{} {chunk} {report:?} {answer:?}", self.id));
        match answer {
            Ok(_) => Ok(()),
            Err(refusal) => {
                // Ordered meanwhile: the chunk is to be elsewhere.
                if !matches!(refusal, Refusal::Placement(_)) {
                    world.check::<()>("a report of a copy", &Err(refusal.clone()));
                }
                Err(refusal)
            }
        }
    }
}

/// Follows the map.
pub async fn map_reader(world: Rc<World>, name: u64) {
    let chance = Chance::new(world.seed, name);
    while !world.done.get() {
        pass(1 + chance.below(2_000)).await;
        let (asked, since) = (world.clock.elapsed(), world.oracle.borrow().copies.version());
        let wait = Millis(if chance.once_in(2) { chance.below(3_000) } else { 0 });
        match world.ask(async |frontier| Fleet::new(frontier).map(since, wait).await).await {
            Ok(Some(map)) => {
                world.log("map", &format!("{name} version {}", map.version));
                let judged = world.oracle.borrow_mut().copies.read(map, asked);
                verdict(&world, judged);
            }
            Ok(None) => {}
            Err(refusal) => world.check::<()>("a map", &Err(refusal)),
        }
    }
}

/// All copies, in order.
pub async fn copies(world: &World) -> Result<Vec<(ChunkId, u64, MachineId, PlacementState)>, Refusal> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let call = async |frontier| Fleet::new(frontier).placements(Filter::default(), after, 13).await;
        let page = world.ask(call).await?;
        all.extend(page.placements.into_iter().map(|copy| (copy.chunk, copy.row.0.into(), copy.server, copy.state)));
        after = page.next;
        if after.is_none() {
            all.sort();
            return Ok(all);
        }
    }
}

/// Which of these built chunks are not yet served once in every row, and nothing else; none if all are.
pub async fn unplaced(world: &World, built: &[ChunkId]) -> Option<String> {
    let all = match copies(world).await {
        Ok(all) => all,
        Err(refusal) => return Some(refusal.to_string()),
    };
    let dead: Vec<MachineId> = SERVERS.filter(|name| dies_for_good(world, *name)).map(server_id).collect();
    // No search needs a chunk that is to be built anew, or was skipped.
    if let Some(stray) = all.iter().find(|copy| !built.contains(&copy.0) && !dead.contains(&copy.2)) {
        return Some(format!("chunk {} is not built, and {} still has it: {:?}", stray.0, stray.2, stray.3));
    }
    for &chunk in built {
        for row in 0..ROWS {
            let here = all.iter().filter(|copy| (copy.0, copy.1) == (chunk, row));
            // A dead server cannot say that it has deleted what it is to delete.
            let here = here.filter(|copy| copy.3 != PlacementState::Draining || !dead.contains(&copy.2));
            let there: Vec<_> = here.map(|copy| copy.3).collect();
            if there != [PlacementState::Ready] {
                return Some(format!("chunk {chunk} in row {row}: {there:?}"));
            }
        }
    }
    None
}
