//! Rounds of probes: who is due, and results that come too late.

use wayleave_core::fleet::{Judged, Kind, Probe, Report};
use wayleave_core::limits::{MACHINES_MAX, PROBE_INTERVAL, PROBES_AT_ONCE_MAX};
use wayleave_core::time::Millis;

use super::world::{World, report};

#[test]
fn every_machine_is_probed_once_per_interval_in_bounded_rounds() {
    let mut world = World::new();
    let machines = 2 * PROBES_AT_ONCE_MAX + 10;
    assert!(machines < MACHINES_MAX);
    for i in 0..machines {
        world.report(&format!("m{i}"), &report(Kind::Server)).unwrap();
    }
    for _ in 0..3 {
        let rounds: Vec<usize> = (0..4).map(|_| world.state.probes_due(world.now).len()).collect();
        assert_eq!(rounds, [PROBES_AT_ONCE_MAX, PROBES_AT_ONCE_MAX, 10, 0]);
        world.now = world.now.after(PROBE_INTERVAL);
        assert_eq!(world.state.next_probe(), Some(world.now));
    }
}

#[test]
fn a_result_of_an_address_that_the_machine_has_left_says_nothing() {
    let mut world = World::new();
    let first = Report { address: "old:1".into(), ..report(Kind::Server) };
    world.beat("s", &first).unwrap();
    world.beat("s", &first).unwrap();
    let late = world.state.probes_due(world.now).remove(0);
    world.beat("s", &Report { address: "new:1".into(), ..first }).unwrap();
    for _ in 0..5 {
        world.state.probed(&late, false, world.now, &mut Vec::new());
        world.state.probed(&Probe { id: "gone".into(), ..late.clone() }, false, world.now, &mut Vec::new());
    }
    assert_eq!(world.state.view(&"s".into(), world.now).unwrap().judged, Judged::Healthy);
    (0..3).for_each(|_| world.probed("s", false));
    assert_eq!(world.state.view(&"s".into(), world.now).unwrap().judged, Judged::Suspect);
}

#[test]
fn an_owner_that_ticks_as_told_is_never_called_more_often_than_it_must() {
    let mut world = World::new();
    world.beat("a", &report(Kind::Crawler)).unwrap();
    let mut ticks = 0;
    let end = world.now.after(Millis(100_000));
    while world.now < end {
        world.now = world.state.next_tick().unwrap();
        world.beat("a", &report(Kind::Crawler)).unwrap();
        world.tick();
        ticks += 1;
    }
    assert!(ticks <= 21, "{ticks} ticks in 100 s");
}
