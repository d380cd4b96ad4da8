//! Balance and movement in figures: `cargo test -p wayleave-core --test decisions placement::balance -- --nocapture`.

use wayleave_core::limits::SLICE_ROWS;

use super::*;

const CHUNKS: u64 = 1_000;

/// Sizes between 1 and 100 MB, mixed.
fn bytes(chunk: u64) -> u64 {
    let mixed = (chunk + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    1_000_000 + (mixed ^ (mixed >> 29)) % 99_000_000
}

fn filled(servers: usize) -> World {
    let mut world = World::with_servers(servers);
    (0..CHUNKS).for_each(|chunk| world.build(chunk, bytes(chunk)));
    world.settled();
    world
}

fn moved(before: &BTreeMap<ChunkId, MachineId>, after: &BTreeMap<ChunkId, MachineId>) -> Vec<ChunkId> {
    assert_eq!(before.len(), after.len());
    before.iter().filter(|(chunk, home)| after[*chunk] != **home).map(|(chunk, _)| *chunk).collect()
}

#[test]
fn a_thousand_chunks_are_spread_evenly_over_ten_servers() {
    let world = filled(10);
    let spread = world.spread(0);
    println!("largest to smallest of 10 servers after {CHUNKS} chunks: {spread:.4}");
    assert!(spread < 1.1, "{spread}");
    assert_eq!(world.homes(0).len() as u64, CHUNKS);
}

#[test]
fn servers_get_bytes_in_proportion_to_their_capacity() {
    let mut world = World::new(Config::default());
    for (i, capacity) in [1, 1, 2, 3, 10, 10, 4, 1, 2, 7].into_iter().enumerate() {
        world.join(&format!("s{i}"), 0, capacity);
    }
    (0..CHUNKS).for_each(|chunk| world.build(chunk, bytes(chunk)));
    world.settled();
    let spread = world.spread(0);
    println!("largest to smallest by capacity (1 to 10): {spread:.4}");
    assert!(spread < 1.1, "{spread}");
}

#[test]
fn empty_chunks_are_spread_as_well() {
    let mut world = World::with_servers(4);
    (0..100).for_each(|chunk| world.build(chunk, 0));
    world.settled();
    let mut count: BTreeMap<MachineId, usize> = BTreeMap::new();
    world.homes(0).into_values().for_each(|home| *count.entry(home).or_default() += 1);
    assert_eq!(count.into_values().collect::<Vec<_>>(), [25; 4]);
}

/// Whichever way a server leaves, its chunks move and no others.
#[test]
fn only_the_chunks_of_a_server_that_leaves_move() {
    type Leave = fn(&mut World);
    let ways: [(&str, Leave); 3] = [
        ("drained", |world| world.desire("s3", Desired::Drain)),
        ("deleted", |world| world.leave("s3")),
        ("failed", |world| {
            world.judge("s3", Judged::Failed);
            world.pass(REPLACE_AFTER_DEFAULT.0);
        }),
    ];
    for (how, leave) in ways {
        let mut world = filled(10);
        let before = world.homes(0);
        let least: Vec<ChunkId> = before.iter().filter(|(_, home)| &***home == "s3").map(|(chunk, _)| *chunk).collect();
        leave(&mut world);
        world.settle();
        world.pass(600_000);
        world.settled();
        let moved = moved(&before, &world.homes(0));
        world.fleet.remove("s3");
        let (ratio, spread) = (moved.len() as f64 / least.len() as f64, world.spread(0));
        println!("{how}: moved {} of least possible {}: {ratio:.3}; spread {spread:.4}", moved.len(), least.len());
        assert_eq!(moved, least, "{how}");
        assert!(spread < 1.1, "{how}: {spread}");
        assert_eq!(world.state.map().missing_count, 0);
    }
}

#[test]
fn a_new_server_is_filled_by_bounded_moves_while_old_copies_serve() {
    let mut world = filled(10);
    world.config.moves_per_minute = 20;
    world.state = world.store.load(world.config);
    let before = world.homes(0);
    world.join("s_new", 0, 1);
    let mut minutes = 0;
    loop {
        let homes = world.homes(0);
        world.pass(0);
        world.commit();
        assert!(moved(&homes, &world.homes(0)).len() <= 20, "at most 20 moves a minute");
        assert_eq!(world.state.map().missing_count, 0, "the old copies serve");
        world.settled();
        let next = world.state.next_tick(world.now);
        let Some(next) = next else { break };
        assert!(next > world.now);
        minutes += 1;
        world.pass(next.since(world.now).0);
        world.commit();
    }
    world.settled();
    let moved = moved(&before, &world.homes(0));
    let bytes: u64 = moved.iter().map(|chunk| bytes(chunk.0)).sum();
    let least = (0..CHUNKS).map(self::bytes).sum::<u64>() / 11;
    let (ratio, spread) = (bytes as f64 / least as f64, world.spread(0));
    println!(
        "joined: moved {} chunks in {minutes} minutes, bytes to least possible {ratio:.3}; spread {spread:.4}",
        moved.len()
    );
    assert!(moved.iter().all(|chunk| &*world.homes(0)[chunk] == "s_new"), "chunks move only to the new server");
    assert!(spread < 1.1 && ratio <= 1.0, "{spread} {ratio}");
}

#[test]
fn a_new_row_is_filled_in_slices_and_placing_alone_moves_nothing() {
    let mut world = World::with_servers(3);
    let chunks = 5 * SLICE_ROWS as u64;
    (0..chunks).for_each(|chunk| world.build(chunk, bytes(chunk)));
    world.settled();
    let before = world.homes(0);
    world.join("t0", 1, 1);
    world.join("t1", 1, 1);
    world.commit();
    let mut ticks = 0;
    loop {
        let mut out = Vec::new();
        let more = world.state.tick(world.now, &mut out).more;
        let copies = out.iter().filter(|write| matches!(write, Write::Placement(..))).count();
        assert!(copies <= SLICE_ROWS, "{copies} copies in one tick");
        world.out.append(&mut out);
        ticks += 1;
        if !more {
            break;
        }
    }
    assert!(ticks >= 5);
    world.settled();
    assert_eq!((world.homes(0), world.homes(1).len() as u64), (before, chunks));
    assert!(world.spread(1) < 1.01);
}

/// Two rows, each with a full server and one that has just joined.
fn two_rows() -> World {
    let mut world = World::new(Config { moves_per_minute: 20, ..Config::default() });
    for (id, row) in [("a0", 0), ("b0", 1)] {
        world.join(id, row, 1);
    }
    (0..200).for_each(|chunk| world.build(chunk, 1_000));
    world.settle();
    world.join("a1", 0, 1);
    world.join("b1", 1, 1);
    world
}

/// A server that reports every copy gone before it is ready, as with a full disk; the others fetch at once. Returns how many
/// chunks it was given.
fn refuse_all(world: &mut World, broken: &str, minutes: u64) -> usize {
    let mut given = 0;
    for _ in 0..minutes * 6 {
        world.pass(10_000);
        for copy in world.list(None) {
            let (chunk, server) = (copy.chunk.0, copy.server.to_string());
            match copy.state {
                PlacementState::Assigned if server == broken => {
                    given += 1;
                    world.report(chunk, &server, CopyReport::Gone).unwrap();
                }
                PlacementState::Assigned => drop(world.report(chunk, &server, CopyReport::Ready).unwrap()),
                PlacementState::Draining => drop(world.report(chunk, &server, CopyReport::Gone).unwrap()),
                _ => {}
            }
        }
        world.commit();
        world.state.self_check().unwrap();
    }
    given
}

/// A regression: it was given 600 chunks every minute, later rows got no moves, and each refusal counted towards giving
/// up a chunk that another server had.
#[test]
fn a_server_that_keeps_nothing_rests_and_the_other_rows_are_balanced() {
    let mut world = two_rows();
    world.commit();
    let given = refuse_all(&mut world, "a1", 60);
    println!("chunks given in an hour to a server that keeps none: {given}");
    assert!((1..40).contains(&given), "one burst, then one at a time with back-off: {given}");
    let of = |world: &World, id: &str| world.list(Some(id)).len();
    assert!(of(&world, "b1") > 90, "{}", of(&world, "b1"));
    assert_eq!((of(&world, "a0"), of(&world, "a1")), (200, 0));
    assert!(world.store.chunks.values().all(|row| row.unfetched == 0), "a0 has them all");
    let why = world.state.explain_rest(&"a1".into(), world.now).unwrap();
    assert!(why.contains("times in a row") && why.contains("gets the next one in "), "{why}");
    // Its disk has room again: after one chunk on trial it is filled.
    let mut ticks = 0;
    while of(&world, "a1") < 90 {
        world.pass(60_000);
        world.settled();
        ticks += 1;
        assert!(ticks < 200, "{}", of(&world, "a1"));
    }
    assert_eq!(world.state.explain_rest(&"a1".into(), world.now), None);
}

#[test]
fn rows_take_turns_in_the_moves_of_a_minute() {
    let mut world = two_rows();
    world.settle();
    let moved = ["a1", "b1"].map(|id| world.list(Some(id)).len());
    assert_eq!(moved, [10, 10]);
}

#[test]
fn a_drain_waits_for_a_resting_server_but_not_for_an_unserved_chunk() {
    let mut world = World::with_servers(2);
    (0..20).for_each(|chunk| world.build(chunk, 1_000));
    world.settled();
    world.desire("s0", Desired::Drain);
    let given = refuse_all(&mut world, "s1", 60);
    assert!((1..30).contains(&given), "{given}");
    // The other one is lost: now the resting server is asked for all of them.
    world.judge("s0", Judged::Failed);
    world.pass(REPLACE_AFTER_DEFAULT.0);
    world.settled();
    assert_eq!(world.homes(0).into_values().filter(|home| &**home == "s1").count(), 20);
}

/// A regression: nothing more was moved from a drained server once the chunk on trial was deleted.
#[test]
fn a_trial_that_ends_without_a_verdict_is_followed_by_another() {
    let mut world = World::with_servers(2);
    (0..20).for_each(|chunk| world.build(chunk, 1_000));
    world.settle();
    world.desire("s0", Desired::Drain);
    refuse_all(&mut world, "s1", 5);
    for _ in 0..3 {
        while world.list(Some("s1")).iter().all(|copy| copy.state != PlacementState::Assigned) {
            world.pass(600_000);
            assert!(world.now < Time(100_000_000), "no chunk is tried any more");
        }
        world.list(Some("s1")).iter().for_each(|copy| world.gone(copy.chunk.0));
        world.work("s1");
    }
    world.settled();
    let moved = world.homes(0).into_values().filter(|home| &**home == "s1").count();
    assert!(moved > 0 && moved == world.store.chunks.len(), "{moved}");
}
