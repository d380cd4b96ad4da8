//! Servers that fail, return, or are many at once.

use wayleave_core::fleet::{Desired, Judged, RowNo};
use wayleave_core::ids::ChunkId;
use wayleave_core::limits::REPLACE_AFTER_DEFAULT;
use wayleave_core::names;
use wayleave_core::placement::{CopyReport, PlacementState};

use super::world::World;

/// Two rows of three servers and some chunks, all ready.
fn filled() -> World {
    let mut world = World::with_servers(3);
    (0..3).for_each(|i| world.join(&format!("t{i}"), 1, 1));
    (0..30).for_each(|chunk| world.build(chunk, 100));
    world.settle();
    world.commit();
    world
}

fn states(world: &World, id: &str) -> Vec<PlacementState> {
    let mut states: Vec<PlacementState> = world.list(Some(id)).iter().map(|copy| copy.state).collect();
    states.sort_unstable();
    states.dedup();
    states
}

#[test]
fn a_failed_server_is_replaced_after_the_delay_and_not_before() {
    let mut world = filled();
    world.judge("s0", Judged::Failed);
    let map = world.state.map();
    assert_eq!((map.missing_count, map.rows[0].served, map.rows[0].serving), (10, 20, false));
    assert!(map.missing.iter().all(|missing| missing.row == RowNo(0) && missing.also_in == [RowNo(1)]));
    let given_up = world.now.0 + 60_000;
    assert_eq!(world.list(Some("s0"))[0].changes_at.unwrap().0, given_up);
    world.commit();
    let homes = world.homes(0);
    world.pass(59_999);
    world.settle();
    world.commit();
    assert_eq!(world.homes(0), homes);
    assert_eq!(world.state.next_tick(world.now).unwrap().0, given_up);
    world.pass(1);
    world.settle();
    world.commit();
    assert!(world.homes(0).values().all(|home| &**home != "s0"));
    let map = world.state.map();
    assert_eq!((map.missing_count, map.rows[0].complete(), map.rows[0].serving), (0, 1.0, true));
}

/// What went wrong: its copies said that the server deletes them, which a dead one never does.
#[test]
fn what_a_failed_server_should_delete_says_that_it_waits_for_the_server_or_its_removal() {
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
    world.settle();
    world.commit();
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
    world.settle();
    world.commit();
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
    world.tell_servers();
    world.settle();
    world.commit();
    assert_eq!(world.homes(0), homes);
}

#[test]
fn a_server_that_returns_after_the_new_copies_are_ready_gives_up_its_own() {
    let mut world = filled();
    world.judge("s0", Judged::Failed);
    world.pass(60_000);
    world.settle();
    assert_eq!(states(&world, "s0"), [PlacementState::Draining]);
    world.judge("s0", Judged::Healthy);
    world.settle();
    world.commit();
    assert_eq!(world.state.map().missing_count, 0);
    // It is then a server like a new one, and is filled again.
    assert!(world.spread(0) < 1.3, "{}", world.spread(0));
}

#[test]
fn a_drained_server_serves_until_the_new_copies_are_ready() {
    let mut world = filled();
    world.desire("s0", Desired::Drain);
    world.pass(0);
    assert_eq!((world.state.map().missing_count, states(&world, "s0")), (0, vec![PlacementState::Ready]));
    let holds = world.state.holdings(&"s0".into());
    assert_eq!((holds.needed, holds.surplus), (10, 0));
    world.work("s1");
    world.work("s1");
    assert_eq!(world.state.map().missing_count, 0);
    world.work("s2");
    world.work("s2");
    let holds = world.state.holdings(&"s0".into());
    assert_eq!((holds.needed, holds.surplus), (0, 10));
    world.work("s0");
    assert_eq!(world.state.holdings(&"s0".into()).surplus, 0);
    assert_eq!(world.state.map().missing_count, 0);
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
    world.settle();
    world.commit();
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
    world.settle();
    world.commit();
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
