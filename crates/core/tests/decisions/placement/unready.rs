//! Copies that are not ready yet: servers that never fetch, that vanish before they did, or whose health is unknown.

use super::*;

const LIMIT: u64 = 600_000;

fn home(world: &mut World, chunk: u64) -> String {
    world.commit();
    world.homes(0)[&ChunkId(chunk)].to_string()
}

fn other(home: &str) -> &'static str {
    if home == "s0" { "s1" } else { "s0" }
}

#[test]
fn a_copy_that_is_never_fetched_is_placed_elsewhere_across_takeovers() {
    for fetching in [false, true] {
        let mut world = World::with_servers(2);
        world.build(1, 10);
        world.pass(0);
        let first = home(&mut world, 1);
        if fetching {
            world.report(1, &first, CopyReport::Fetching).unwrap();
        }
        world.pass(LIMIT - 1_000);
        assert_eq!(home(&mut world, 1), first);
        // A new owner does not know what the one before has heard: it waits anew.
        world.state = world.store.load(world.config);
        world.pass(0);
        world.pass(LIMIT - 1_000);
        assert_eq!(home(&mut world, 1), first);
        assert!(world.state.next_tick(world.now).is_some_and(|at| at.0 <= world.now.0 + 1_000));
        world.pass(1_000);
        assert_eq!(home(&mut world, 1), other(&first), "fetching: {fetching}");
        world.settle();
        assert_eq!(world.state.map().missing_count, 0);
    }
}

/// No machine could report while there was no owner.
#[test]
fn a_new_owner_gives_every_fetch_its_whole_time_again_and_then_no_more() {
    let mut world = World::with_servers(2);
    world.build(1, 10);
    let first = home(&mut world, 1);
    world.report(1, &first, CopyReport::Fetching).unwrap();
    world.commit();
    world.now = wayleave_core::time::Time(world.now.0 + 2 * LIMIT);
    world.state = world.store.load(world.config);
    world.publish_to_servers();
    world.pass(0);
    world.pass(LIMIT - 1_000);
    assert_eq!(home(&mut world, 1), first);
    world.pass(1_000);
    assert_eq!(home(&mut world, 1), other(&first));
}

#[test]
fn news_of_a_fetch_keep_it_and_are_written_seldom() {
    let mut world = World::with_servers(2);
    world.build(1, 10);
    let first = home(&mut world, 1);
    world.report(1, &first, CopyReport::Fetching).unwrap();
    world.commit();
    let mut written = 0;
    for _ in 0..400 {
        world.pass(5_000);
        assert_eq!(world.report(1, &first, CopyReport::Fetching), Ok(Some(PlacementState::Fetching)));
        written += world.out.len();
        world.commit();
    }
    assert!(written <= 2_000 / 60 + 1, "{written} rows in 2,000 s");
    assert_eq!(home(&mut world, 1), first);
    assert_eq!(world.report(1, &first, CopyReport::Ready), Ok(Some(PlacementState::Ready)));
}

/// A new server has a long list, and works through it.
#[test]
fn a_server_that_works_through_a_long_list_keeps_it() {
    let mut world = World::with_servers(2);
    (0..20).for_each(|chunk| world.build(chunk, 10));
    world.commit();
    let mine: Vec<u64> = world.homes(0).iter().filter(|(_, home)| &***home == "s0").map(|(id, _)| id.0).collect();
    for (done, chunk) in mine.iter().enumerate() {
        world.work("s1");
        world.pass(LIMIT / 2);
        world.report(*chunk, "s0", CopyReport::Ready).unwrap();
        world.commit();
        let left = world.homes(0).values().filter(|home| &***home == "s0").count();
        assert_eq!(left, mine.len(), "after {done}");
    }
}

#[test]
fn a_copy_that_is_never_begun_moves_in_the_end_however_busy_its_server_is() {
    const DAY: u64 = 24 * 3_600_000;
    let mut world = World::with_servers(2);
    (0..20).for_each(|chunk| world.build(chunk, 10));
    world.commit();
    let mine: Vec<u64> = world.homes(0).iter().filter(|(_, home)| &***home == "s0").map(|(id, _)| id.0).collect();
    world.work("s1");
    let (left_out, others) = mine.split_first().unwrap();
    let mut passed = 0;
    while home(&mut world, *left_out) == "s0" {
        assert!(passed < DAY + 2 * LIMIT, "it stays on s0");
        for chunk in others {
            world.report(*chunk, "s0", CopyReport::Ready).unwrap();
        }
        world.work("s1");
        world.pass(LIMIT / 2);
        passed += LIMIT / 2;
    }
    assert!(passed >= DAY, "its list might have been long");
    assert!(others.iter().all(|chunk| home(&mut world, *chunk) == "s0"), "what it has stays");
}

/// There is no other server: it may be slow, and must not lose what it has begun.
#[test]
fn a_copy_without_an_alternative_stays_and_moves_when_there_is_one() {
    let mut world = World::with_servers(1);
    world.build(1, 10);
    world.report(1, "s0", CopyReport::Fetching).unwrap();
    for _ in 0..5 {
        world.pass(LIMIT);
        assert_eq!(home(&mut world, 1), "s0");
    }
    world.join("s1", 0, 1);
    world.pass(LIMIT);
    assert_eq!(home(&mut world, 1), "s1");
}

#[test]
fn an_unbegun_copy_leaves_a_server_that_gets_no_work_even_while_frozen() {
    for frozen in [false, true] {
        for change in 0..4 {
            let mut world = World::with_servers(2);
            world.build(1, 10);
            let first = home(&mut world, 1);
            world.freeze(frozen);
            match change {
                0 => world.judge(&first, Judged::Failed),
                1 => world.judge(&first, Judged::Suspect),
                2 => world.desire(&first, Desired::Paused),
                _ => {
                    world.report(1, &first, CopyReport::Fetching).unwrap();
                    world.judge(&first, Judged::Failed);
                }
            }
            world.commit();
            // What the change leaves to do follows from rows.
            world.state = world.store.load(world.config);
            world.publish_to_servers();
            world.pass(0);
            assert_eq!(home(&mut world, 1), other(&first), "change {change}, frozen: {frozen}");
            assert_eq!(world.state.self_check(), Ok(()));
        }
    }
}

#[test]
fn a_copy_that_was_not_begun_leaves_as_soon_as_another_server_takes_it() {
    let mut world = World::with_servers(1);
    world.build(1, 10);
    world.judge("s0", Judged::Failed);
    world.pass(0);
    assert_eq!(home(&mut world, 1), "s0");
    world.join("s1", 0, 1);
    world.pass(0);
    assert_eq!(home(&mut world, 1), "s1");
}

#[test]
fn a_move_to_a_server_that_never_fetches_goes_to_another_or_is_given_up() {
    // Drained: it must go somewhere.
    let mut world = World::with_servers(1);
    world.build(1, 10);
    world.settle();
    world.join("s1", 0, 1);
    world.desire("s0", Desired::Drain);
    world.pass(0);
    assert_eq!(home(&mut world, 1), "s1");
    world.pass(2 * LIMIT);
    assert_eq!(home(&mut world, 1), "s1", "there is no other");
    world.join("s2", 0, 1);
    world.pass(LIMIT);
    assert_eq!(home(&mut world, 1), "s2");
    assert_eq!(world.state.map().missing_count, 0, "the drained one serves until then");
}

/// The node that probes reaches no server of the row, but all report.
#[test]
fn a_first_copy_goes_to_a_suspect_server_if_there_is_no_other() {
    let mut world = World::with_servers(2);
    world.join("t0", 1, 1);
    for id in ["s0", "s1"] {
        world.suspect(id);
    }
    world.build(1, 10);
    world.pass(0);
    let first = home(&mut world, 1);
    world.pass(0);
    assert_eq!(home(&mut world, 1), first, "and not from one to the other");
    assert_eq!(world.state.self_check(), Ok(()));
    world.report(1, &first, CopyReport::Fetching).unwrap();
    // A healthy one is preferred for what comes then, and for what was not begun.
    world.build(2, 10);
    world.judge(other(&first), Judged::Healthy);
    world.build(3, 10);
    world.pass(0);
    let homes = [1, 2, 3].map(|chunk| home(&mut world, chunk));
    assert_eq!(homes, [first.as_str(), other(&first), other(&first)]);
    // Nothing moves towards a doubted server, and chunks that found no server wait without being looked at.
    world.suspect(other(&first));
    world.desire(&first, Desired::Drain);
    world.pass(0);
    assert_eq!(home(&mut world, 1), other(&first), "it was never ready");
    world.settle();
    assert_eq!(world.state.map().missing_count, 0);
    world.desire(&first, Desired::Online);
    world.suspect(&first);
    world.desire(other(&first), Desired::Drain);
    world.pass(0);
    assert_eq!(home(&mut world, 1), other(&first));
}

#[test]
fn a_row_without_a_healthy_server_uses_a_suspect_one() {
    let mut world = World::with_servers(2);
    world.build(1, 10);
    world.settle();
    let first = home(&mut world, 1);
    world.suspect(other(&first));
    world.gone(1);
    world.build(1, 20);
    world.pass(0);
    assert_eq!(world.list(None).len(), 1, "the healthy one must delete its old copy first");
    world.judge(&first, Judged::Suspect);
    world.pass(0);
    assert_eq!(home(&mut world, 1), other(&first));
    assert_eq!(world.state.self_check(), Ok(()));
}
