//! Random histories of builds, reports, failures, drains, joins, freezes, failed commits and takeovers.
//!
//! Interleavings that could break a law: a server fails, returns or leaves while its chunk is being fetched by another;
//! that other one fails as well; a server reports a copy that was cancelled in the same batch; a chunk is gone and built
//! anew while servers still have it; a name is deleted and registers again before its copies are forgotten; all of it
//! cut off by a takeover between any two commits, or by a commit that fails.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const SERVERS: u8 = 6;
const CHUNKS: u64 = 8;

#[derive(Clone, Debug)]
enum Step {
    Built(u64, u64),
    Gone(u64),
    GiveUp(u64),
    /// Pipelines hear what is given up.
    ReportToPipeline,
    Judged(u8, Judged),
    /// Its probes are missed.
    Suspected(u8),
    Desire(u8, Desired),
    Accepts(u8, bool),
    Join(u8),
    Leave(u8),
    Freeze(bool),
    Report(u64, u8, CopyReport),
    Work(u8),
    Pass(u64),
    Tick,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Commit,
    /// The commit is lost, the owner reloads.
    Fail,
    /// Another owner takes over after the commit.
    Takeover,
}

fn step() -> impl Strategy<Value = Step> {
    let (chunk, server) = (0..CHUNKS, 0..SERVERS);
    let judged = prop_oneof![3 => Just(Judged::Failed), 3 => Just(Judged::Healthy), 1 => Just(Judged::Probation), 1 => Just(Judged::Suspect)];
    let desired = prop_oneof![2 => Just(Desired::Online), 2 => Just(Desired::Drain), 1 => Just(Desired::Paused)];
    let reported = prop_oneof![
        1 => Just(CopyReport::Fetching),
        3 => Just(CopyReport::Ready),
        1 => Just(CopyReport::Gone),
        1 => Just(CopyReport::Unable),
    ];
    prop_oneof![
        6 => (chunk.clone(), 0..200u64).prop_map(|(chunk, bytes)| Step::Built(chunk, bytes)),
        1 => chunk.clone().prop_map(Step::Gone),
        1 => chunk.clone().prop_map(Step::GiveUp),
        2 => Just(Step::ReportToPipeline),
        4 => (server.clone(), judged).prop_map(|(server, judged)| Step::Judged(server, judged)),
        2 => server.clone().prop_map(Step::Suspected),
        2 => (server.clone(), desired).prop_map(|(server, desired)| Step::Desire(server, desired)),
        1 => (server.clone(), any::<bool>()).prop_map(|(server, accepts)| Step::Accepts(server, accepts)),
        3 => server.clone().prop_map(Step::Join),
        1 => server.clone().prop_map(Step::Leave),
        1 => any::<bool>().prop_map(Step::Freeze),
        8 => (chunk, server.clone(), reported).prop_map(|(chunk, server, reported)| Step::Report(chunk, server, reported)),
        4 => server.prop_map(Step::Work),
        4 => prop_oneof![1..1_000u64, 30_000..61_000u64, 599_000..700_000u64].prop_map(Step::Pass),
        4 => Just(Step::Tick),
    ]
}

fn batch() -> impl Strategy<Value = (Vec<Step>, End)> {
    let end = prop_oneof![6 => Just(End::Commit), 1 => Just(End::Fail), 2 => Just(End::Takeover)];
    (prop::collection::vec(step(), 1..6), end)
}

/// Servers 0 to 3 are in row 0, the others in row 1.
fn name(server: u8) -> String {
    format!("s{server}")
}

fn run(world: &mut World, step: &Step) {
    match *step {
        Step::Built(chunk, bytes) => {
            let (index, artifact) = (world.index(chunk), artifact(chunk, bytes));
            let built = world.state.chunk_built(ChunkId(chunk), &artifact, index, world.now, &mut world.out);
            assert!(matches!(built, Ok(_) | Err(Refusal::AnotherArtifact(_))));
        }
        Step::Gone(chunk) => world.gone(chunk),
        Step::GiveUp(chunk) => {
            let index = world.index(chunk);
            world.state.give_up((ChunkId(chunk), index), GiveUpReason::BuildAgain, world.now, &mut world.out);
        }
        Step::ReportToPipeline => world.report_to_pipeline(),
        Step::Judged(server, judged) => world.judge(&name(server), judged),
        Step::Suspected(server) => world.suspect(&name(server)),
        Step::Desire(server, desired) => world.desire(&name(server), desired),
        Step::Accepts(server, accepts) => {
            world.fleet.entry(name(server)).and_modify(|server| server.accepts = accepts);
            world.publish_to_servers();
        }
        Step::Join(server) if world.fleet.contains_key(&name(server)) => {}
        Step::Join(server) => world.join(&name(server), u8::from(server > 3), u32::from(server % 3) + 1),
        Step::Leave(server) => world.leave(&name(server)),
        Step::Freeze(frozen) => world.freeze(frozen),
        Step::Report(chunk, server, reported) => drop(world.report(chunk, &name(server), reported)),
        Step::Work(server) if world.fleet.contains_key(&name(server)) => drop(world.work(&name(server))),
        Step::Work(_) => {}
        Step::Pass(ms) => world.now = world.now.after(Millis(ms)),
        Step::Tick => drop(world.state.tick(world.now, &mut world.out)),
    }
}

/// What a command may not have decided, whatever was asked.
fn check_writes(world: &World, before: &Before, writes: &[Write]) -> Result<(), TestCaseError> {
    // As of each write: a server that has lost its copy may be assigned it again.
    let mut copies = before.copies.clone();
    for write in writes {
        let Write::Placement(chunk, id, copy) = write else { continue };
        let was = copies.remove(&(*chunk, id.to_string()));
        let Some(copy) = copy else { continue };
        copies.insert((*chunk, id.to_string()), *copy);
        if copy.state == PlacementState::Assigned {
            let server = &world.fleet[&**id];
            let open = |server: &ServerRow| server.desired == Desired::Online && server.accepts;
            let healthy = |server: &ServerRow| server.judged == Judged::Healthy && open(server);
            let is_suspect = open(server) && server.judged == Judged::Suspect && server.unanswered;
            // One that registers again under its name is not there before its old copies are forgotten.
            let here = |id: &str, other: &ServerRow| before.servers.contains(id) && other.row == server.row;
            let alone = !world.fleet.iter().any(|(id, other)| here(id, other) && healthy(other));
            prop_assert!(healthy(server) || (is_suspect && alone), "chunk {} was assigned to {:?}", chunk, server);
            prop_assert!(was.is_none(), "chunk {} was assigned to '{}', which has it", chunk, id);
        }
        if copy.role != CopyRole::Chosen && was.is_none_or(|was| was.role == CopyRole::Chosen) {
            prop_assert!(!world.frozen, "chunk {} moves while frozen", chunk);
            let server = &world.fleet[&**id];
            let lost = server.judged == Judged::Failed && world.now.since(server.since) >= world.config.replace_after;
            let drained = server.desired == Desired::Drain;
            let rebalanced = copy.role == CopyRole::Leaving && server.judged == Judged::Healthy;
            prop_assert!(lost || drained || rebalanced, "chunk {} moves from {:?}", chunk, server);
        }
    }
    Ok(())
}

struct Before {
    servers: BTreeSet<MachineId>,
    copies: BTreeMap<(ChunkId, String), PlacementRow>,
    map: Map,
}

fn snapshot(world: &World) -> Before {
    let copies = world.state.rows().into_iter().filter_map(|row| match row {
        Write::Placement(chunk, id, Some(copy)) => Some(((chunk, id.to_string()), copy)),
        _ => None,
    });
    let servers = world.state.rows().into_iter().filter_map(|row| match row {
        Write::Server(id, Some(server)) if !server.removed => Some(id),
        _ => None,
    });
    Before { servers: servers.collect(), copies: copies.collect(), map: world.state.map() }
}

/// The laws of copies and of the map.
fn check_state(world: &World, before: &Before) -> Result<(), TestCaseError> {
    prop_assert_eq!(world.state.self_check(), Ok(()));
    let now = snapshot(world);
    let mut cells: BTreeMap<(ChunkId, RowNo), Vec<(&str, PlacementRow)>> = BTreeMap::new();
    for ((chunk, id), copy) in now.copies.iter().filter(|(_, copy)| copy.state != PlacementState::Draining) {
        cells.entry((*chunk, copy.row)).or_default().push((id, *copy));
    }
    for ((chunk, _), copies) in &cells {
        let chosen = copies.iter().filter(|(_, copy)| copy.role == CopyRole::Chosen).count();
        prop_assert_eq!(chosen, 1, "chunk {} has {:?}", chunk, copies);
        prop_assert!(copies.len() <= 2);
        let former = copies.iter().find(|(_, copy)| copy.role != CopyRole::Chosen);
        prop_assert!(former.is_none_or(|(_, copy)| copy.state == PlacementState::Ready));
    }
    let map = &now.map;
    let mut missing = 0;
    for row in &map.rows {
        let mut seen: Vec<ChunkId> = row.servers.iter().flat_map(|server| server.chunks.to_vec()).collect();
        seen.sort_unstable();
        prop_assert_eq!(seen.len(), row.served);
        missing += row.chunks - row.served;
        seen.dedup();
        prop_assert_eq!(seen.len(), row.served, "a chunk appears once per row");
        for server in &row.servers {
            prop_assert!(world.fleet[&*server.server].judged != Judged::Failed);
            for chunk in server.chunks.iter() {
                let copy = now.copies[&(*chunk, server.server.to_string())];
                prop_assert_eq!((copy.state, copy.row), (PlacementState::Ready, row.row));
            }
        }
    }
    prop_assert_eq!(map.missing.len(), missing);
    prop_assert_eq!(map.missing_count, missing);
    for row in &map.rows {
        let best = map.rows.iter().map(|row| row.served).max().unwrap_or_default();
        let nearly = row.served > 0 && row.served * 100 >= best * 97;
        prop_assert_eq!(row.serving, nearly || row.chunks == 0, "of the best row's chunks");
    }
    let same = Map { version: 0, ..map.clone() } == Map { version: 0, ..before.map.clone() };
    prop_assert!(map.version > before.map.version || same, "the map changed and kept version {}", map.version);
    prop_assert!(map.version == before.map.version || !same, "version {} is like the one before", map.version);
    prop_assert!(map.version >= before.map.version);
    for copy in world.list(None) {
        prop_assert!(!copy.reason.is_empty());
    }
    Ok(())
}

fn reload(world: &mut World) -> Result<(), TestCaseError> {
    world.state = world.store.load(world.config);
    prop_assert_eq!(world.state.self_check(), Ok(()));
    world.out.clear();
    // The pipeline's number grew only if that was committed as well.
    for (chunk, index) in &mut world.indexes {
        let left = world.store.returns.get(&ChunkId(*chunk)).filter(|row| row.taken).map(|row| row.index + 1);
        let here = world.store.chunks.get(&ChunkId(*chunk)).map(|row| row.index);
        *index = here.or(left).unwrap_or(*index).min(*index);
    }
    Ok(())
}

/// All servers are well, nothing is frozen: every chunk gets to every row.
fn check_liveness(world: &mut World) -> Result<(), TestCaseError> {
    world.frozen = false;
    for server in world.fleet.values_mut() {
        (server.judged, server.desired, server.accepts) = (Judged::Healthy, Desired::Online, true);
        server.unanswered = false;
    }
    world.publish_to_servers();
    for _ in 0..3 {
        world.pass(61_000);
        world.settled();
    }
    let map = world.state.map();
    prop_assert_eq!(map.missing_count, 0, "{:?}", map.missing);
    prop_assert!(map.rows.iter().all(|row| row.serving));
    prop_assert_eq!(world.list(None).len(), map.rows.len() * world.state.chunk_count(), "no surplus copy is left");
    let rows: std::collections::BTreeSet<RowNo> = world.fleet.values().map(|server| server.row).collect();
    prop_assert!(map.rows.iter().map(|row| row.row).eq(rows));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]
    #[test]
    fn the_laws_of_placement_hold_whatever_happens(batches in prop::collection::vec(batch(), 1..40)) {
        let mut world = World::new(Config { moves_per_minute: 3, ..Config::default() });
        (0..3).for_each(|server| world.join(&name(server), 0, 1));
        world.commit();
        let mut versions: BTreeMap<u64, Map> = BTreeMap::new();
        for (steps, end) in batches {
            for step in steps {
                let (before, decided) = (snapshot(&world), world.out.len());
                run(&mut world, &step);
                check_writes(&world, &before, &world.out[decided..])?;
                check_state(&world, &before)?;
            }
            match end {
                End::Fail => reload(&mut world)?,
                End::Commit | End::Takeover => {
                    world.commit();
                    let loaded = world.store.load(world.config);
                    prop_assert_eq!(loaded.rows(), world.state.rows());
                    prop_assert_eq!(loaded.map(), world.state.map());
                    if matches!(end, End::Takeover) {
                        reload(&mut world)?;
                    }
                }
            }
            let map = world.state.map();
            let known = versions.entry(map.version).or_insert_with(|| map.clone());
            prop_assert_eq!(&map, known, "equal versions are equal maps");
            // The owner of a loaded state passes the fleet's servers.
            let before = snapshot(&world);
            world.publish_to_servers();
            world.commit();
            check_state(&world, &before)?;
        }
        check_liveness(&mut world)?;
    }
}
