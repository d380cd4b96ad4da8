//! Rounds of probes: who is due, and results that come too late.

use wayleave_core::limits::{PROBE_INTERVAL, PROBES_AT_ONCE_MAX};

use super::*;

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
        world.state.probed(&late, &ProbeOutcome::Missed, world.now, &mut Vec::new());
        let gone = Probe { id: "gone".into(), ..late.clone() };
        world.state.probed(&gone, &ProbeOutcome::Missed, world.now, &mut Vec::new());
    }
    assert_eq!(world.state.view(&"s".into(), world.now).unwrap().judged, Judged::Healthy);
    (0..3).for_each(|_| world.probed("s", false));
    assert_eq!(world.state.view(&"s".into(), world.now).unwrap().judged, Judged::Suspect);
}

#[test]
fn an_owner_that_follows_the_timer_ticks_no_more_than_necessary() {
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

#[test]
fn a_forbidden_probe_is_reported_and_does_not_count_against_the_machine() {
    let mut world = World::new();
    world.beat("s", &report(Kind::Server)).unwrap();
    let reason = |world: &World| world.state.view(&"s".into(), world.now).unwrap().reason;
    (0..2).for_each(|_| world.probed("s", false));
    for _ in 0..5 {
        world.probed_as("s", &ProbeOutcome::NotAllowed("10.0.0.1 is not allowed".into()));
    }
    assert!(reason(&world).contains("not probed: 10.0.0.1 is not allowed"), "{}", reason(&world));
    assert_eq!(world.state.view(&"s".into(), world.now).unwrap().judged, Judged::Healthy);
    (0..2).for_each(|_| world.probed("s", false));
    assert_eq!(world.store["s"].judged, Judged::Healthy, "the two misses from before it was barred are forgotten");
    assert!(!reason(&world).contains("not probed"), "it is probed again");
    world.probed("s", false);
    assert_eq!(world.store["s"].judged, Judged::Suspect);
}

#[test]
fn only_a_new_address_clears_the_probe_results_of_a_machine() {
    let mut world = World::new();
    let first = Report { from: Some([10, 0, 0, 7].into()), ..report(Kind::Server) };
    world.beat("s", &first).unwrap();
    let probe = world.state.probes_due(world.now).remove(0);
    assert_eq!((probe.from, probe.also_from), (first.from, None));
    (0..3).for_each(|_| world.probed("s", false));
    assert_eq!(world.store["s"].judged, Judged::Suspect);
    let elsewhere = Report { from: Some([10, 0, 0, 8].into()), ..first.clone() };
    assert_eq!(world.beat("s", &elsewhere).unwrap().judged, Judged::Suspect);
    world.now = world.now.after(PROBE_INTERVAL);
    let probe = world.state.probes_due(world.now).remove(0);
    assert_eq!((probe.from, probe.also_from), (elsewhere.from, first.from));
    let moved = Report { address: "10.0.0.8:80".into(), ..elsewhere };
    assert_eq!(world.beat("s", &moved).unwrap().judged, Judged::Healthy);
    (0..3).for_each(|_| world.state.probed(&probe, &ProbeOutcome::Missed, world.now, &mut Vec::new()));
    assert_eq!(world.state.view(&"s".into(), world.now).unwrap().judged, Judged::Healthy, "of where it was before");
}

/// The owner was stalled. Results of probes are in its inbox before the reports that waited with them.
#[test]
fn a_probe_result_read_before_delayed_reports_fails_no_machine() {
    for ok in [true, false] {
        let mut world = World::new();
        for id in ["s", "t"] {
            world.beat(id, &report(Kind::Server)).unwrap();
        }
        world.now = world.now.after(Millis(30_000));
        world.probed("s", ok);
        assert_eq!(world.store["s"].judged, Judged::Healthy);
        for id in ["s", "t"] {
            assert_eq!(world.beat(id, &report(Kind::Server)).unwrap().judged, Judged::Healthy);
        }
    }
}
