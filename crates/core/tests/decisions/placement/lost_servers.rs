//! Servers that fail, return, or are many at once.

use wayleave_core::names;

use super::*;

/// Two rows of three servers and some chunks, all ready.
fn filled() -> World {
    let mut world = World::with_servers(3);
    (0..3).for_each(|i| world.join(&format!("t{i}"), 1, 1));
    (0..30).for_each(|chunk| world.build(chunk, 100));
    world.settled();
    world
}

fn states(world: &World, id: &str) -> Vec<PlacementState> {
    let mut states: Vec<PlacementState> = world.list(Some(id)).iter().map(|copy| copy.state).collect();
    states.sort_unstable();
    states.dedup();
    states
}

/// What went wrong: its copies said that the server deletes them, which a dead one never does.
#[test]
fn a_pending_delete_on_a_failed_server_names_what_it_waits_for() {
    let mut world = filled();
    world.judge("s0", Judged::Failed);
    world.pass(60_000);
    world.settle();
    let copies = world.list(Some("s0"));
    assert!(!copies.is_empty());
    for copy in copies {
        assert_eq!(copy.state, PlacementState::Draining);
        assert!(copy.reason.contains("has failed") && copy.reason.contains("operator removes"), "{}", copy.reason);
    }
    // An operator does: drained, it may be removed with them.
    world.desire("s0", Desired::Drain);
    assert_eq!(world.state.holdings(&names::machine("s0").unwrap()).needed, 0);
    world.leave("s0");
    world.settle();
    assert!(world.list(None).iter().all(|copy| &*copy.server != "s0"));
}

#[test]
fn a_server_that_returns_in_time_keeps_all_it_has() {
    let mut world = filled();
    let (homes, map) = (world.homes(0), world.unversioned());
    world.judge("s0", Judged::Failed);
    world.pass(59_000);
    world.judge("s0", Judged::Probation);
    world.pass(600_000);
    world.settled();
    assert_eq!((world.homes(0), world.unversioned()), (homes, map));
}

#[test]
fn a_server_that_returns_before_the_new_copies_are_ready_cancels_them() {
    let mut world = filled();
    let homes = world.homes(0);
    world.judge("s0", Judged::Failed);
    world.pass(60_000);
    world
        .report(
            world.list(Some("s1")).iter().find(|c| c.state == PlacementState::Assigned).unwrap().chunk.0,
            "s1",
            CopyReport::Fetching,
        )
        .unwrap();
    world.judge("s0", Judged::Probation);
    world.pass(0);
    assert!(states(&world, "s1").contains(&PlacementState::Draining), "the new copies go");
    assert_eq!(states(&world, "s0"), [PlacementState::Ready]);
    world.settled();
    assert_eq!(world.homes(0), homes);
}

/// The return is durable, what follows from it is not: the next owner must find it.
#[test]
fn a_takeover_right_after_a_return_still_cancels_the_new_copies() {
    let mut world = filled();
    let homes = world.homes(0);
    world.judge("s0", Judged::Failed);
    world.pass(60_000);
    world.judge("s0", Judged::Probation);
    world.commit();
    world.state = world.store.load(world.config);
    world.publish_to_servers();
    world.settled();
    assert_eq!(world.homes(0), homes);
}

#[test]
fn a_failed_server_that_the_operator_drains_is_replaced_at_once() {
    let mut world = filled();
    world.judge("s0", Judged::Failed);
    world.desire("s0", Desired::Drain);
    world.settle();
    assert_eq!(world.state.map().missing_count, 0);
}

#[test]
fn a_row_of_drained_servers_needs_none_of_them() {
    let mut world = filled();
    (0..3).for_each(|i| world.desire(&format!("s{i}"), Desired::Drain));
    world.settle();
    assert_eq!(world.state.holdings(&"s0".into()).needed, 0, "there is nowhere to move to");
    (0..3).for_each(|i| world.leave(&format!("s{i}")));
    world.settle();
    let map = world.state.map();
    assert_eq!((map.rows.len(), map.rows[0].row, map.missing_count), (1, RowNo(1), 0));
}

#[test]
fn while_frozen_nothing_moves_but_new_chunks_and_new_rows_are_placed() {
    let mut world = filled();
    world.judge("s0", Judged::Failed);
    world.judge("s1", Judged::Failed);
    world.freeze(true);
    world.desire("t0", Desired::Drain);
    world.commit();
    let (homes, others) = (world.homes(0), world.homes(1));
    world.join("u0", 2, 1);
    world.join("s_new", 0, 1);
    world.build(99, 100);
    world.settle();
    world.pass(600_000);
    world.settled();
    let mut after = world.homes(0);
    assert_eq!(&*after.remove(&ChunkId(99)).unwrap(), "s_new");
    assert_eq!((after, world.homes(1).len(), world.homes(2).len()), (homes, 31, 31));
    assert!(others.iter().all(|(chunk, home)| world.homes(1)[chunk] == *home));

    // After the thaw the failed servers get their delay once more, because others have just come back as well.
    world.freeze(false);
    world.pass(59_999);
    world.settle();
    assert_eq!(world.state.map().rows[0].served, 11);
    world.pass(1);
    world.settle();
    assert_eq!(world.state.map().missing_count, 0);
}

#[test]
fn a_machine_that_registers_again_under_a_deleted_name_starts_empty() {
    let mut world = filled();
    world.leave("s0");
    // Its old copies are not forgotten yet when the new machine comes, in another row.
    world.join("s0", 1, 1);
    assert_eq!(world.list(Some("s0")).len(), 10);
    world.pass(0);
    world.commit();
    assert!(world.store.placements.iter().all(|((_, id), copy)| &**id != "s0" || copy.row == RowNo(1)));
    assert_eq!(world.store.servers["s0"].row, RowNo(1));
    world.settle();
    assert_eq!(world.state.map().missing_count, 0);
}

/// A regression: the only copy that was ready last was drained in favour of one on a server that had failed long before.
#[test]
fn of_two_lost_copies_the_one_that_was_ready_last_is_kept() {
    let mut world = World::with_servers(2);
    world.build(1, 10);
    world.settled();
    let first = world.homes(0)[&ChunkId(1)].to_string();
    let second = if first == "s0" { "s1" } else { "s0" };
    world.judge(&first, Judged::Failed);
    world.pass(REPLACE_AFTER_DEFAULT.0);
    assert_eq!(world.list(Some(second)).len(), 1, "it is to be fetched there");
    world.judge(second, Judged::Failed);
    world.report(1, second, CopyReport::Ready).unwrap();
    world.pass(REPLACE_AFTER_DEFAULT.0);
    world.commit();
    let states = |world: &World, id: &str| world.list(Some(id)).iter().map(|copy| copy.state).collect::<Vec<_>>();
    assert_eq!(
        (states(&world, &first), states(&world, second)),
        (vec![PlacementState::Ready], vec![PlacementState::Ready])
    );
    // A third server fetches it: the second one's copy is the one that may serve until then.
    world.join("s2", 0, 1);
    world.pass(1);
    assert_eq!(
        (states(&world, "s2"), states(&world, second)),
        (vec![PlacementState::Assigned], vec![PlacementState::Ready])
    );
}
