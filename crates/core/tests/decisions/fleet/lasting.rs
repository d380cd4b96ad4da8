//! What lasts and what does not: tokens that were not presented yet, addresses that alternate, corpses.

use super::*;

const DAY: Millis = Millis(86_400_000);

#[test]
fn a_repeated_registration_gets_the_token_only_soon_and_from_one_place() {
    let mut world = World::new();
    let first = Report { from: Some([10, 0, 0, 7].into()), ..report(Kind::Server) };
    let token = world.report("s", &first).unwrap().token;
    let missing = Err(Refusal::TokenMissing("s".into()));
    for from in [None, Some([10, 0, 0, 8].into())] {
        assert_eq!(world.report("s", &Report { from, ..first.clone() }).map(|answer| answer.token), missing);
    }
    world.now = world.now.after(FAILED_AFTER).before(Millis(1));
    assert_eq!(world.report("s", &first).map(|answer| answer.token), Ok(token));
    world.now = world.now.after(Millis(1));
    assert_eq!(world.report("s", &first).map(|answer| answer.token), missing);
    assert!(world.report("s", &Report { token: Some(token), ..first }).is_ok());
}

/// The answer to its registration was lost, and it was away for a while.
#[test]
fn an_unused_registration_is_replaced_once_its_machine_has_failed() {
    let mut world = World::new();
    let first = Report { from: Some([10, 0, 0, 7].into()), ..report(Kind::Server) };
    let lost = world.report("s", &first).unwrap().token;
    world.pass(60_000);
    world.pass(60_000);
    assert_eq!(world.store["s"].judged, Judged::Failed);
    let answer = world.report("s", &first).unwrap();
    assert_ne!(answer.token, lost);
    let with = |token| Report { token: Some(token), ..first.clone() };
    assert_eq!(world.report("s", &with(lost)).map(drop), Err(Refusal::AnothersToken("s".into())));
    assert!(world.report("s", &with(answer.token)).is_ok());
    // From now on it is confirmed, and stays its own.
    world.pass(60_000);
    world.pass(60_000);
    assert_eq!(world.report("s", &first).map(drop), Err(Refusal::TokenMissing("s".into())));
}

/// A machine with two ways out, or behind several.
#[test]
fn an_address_that_alternates_keeps_its_probe_results_and_writes_seldom() {
    let mut world = World::new();
    let from = |n: u8| Report { from: Some([10, 0, 0, n].into()), ..report(Kind::Server) };
    (0..3).for_each(|n| drop(world.beat("s", &from(n % 2)).unwrap()));
    world.state.take_servers_changed();
    (0..3).for_each(|_| world.probed("s", false));
    assert_eq!(world.store["s"].judged, Judged::Suspect);
    world.state.take_servers_changed();
    for n in 0..20 {
        world.now = world.now.after(Millis(1_000));
        assert_eq!(world.beat("s", &from(n % 2)).unwrap().judged, Judged::Suspect, "its misses are remembered");
        assert_eq!(world.written, [], "both are known");
    }
    // Ten more, in turn.
    let mut writes = 0;
    for n in 0..120u64 {
        world.now = world.now.after(Millis(5_000));
        assert_eq!(world.beat("s", &from((n % 10) as u8)).unwrap().judged, Judged::Suspect);
        writes += world.written.len();
    }
    assert!(writes <= 11, "{writes} rows in ten minutes");
    assert!(!world.state.take_servers_changed(), "placement does not know where reports come from");
    let moved = Report { address: "10.0.0.2:80".into(), ..from(0) };
    assert_eq!(world.beat("s", &moved).unwrap().judged, Judged::Healthy, "the results are of another address");
    assert!(world.state.take_servers_changed());
}

#[test]
fn a_barred_probe_is_reported_only_while_it_is_barred() {
    let mut world = World::new();
    let from = |n: u8| Report { from: Some([10, 0, 0, n].into()), ..report(Kind::Server) };
    world.beat("s", &from(1)).unwrap();
    world.beat("s", &from(1)).unwrap();
    let early = world.state.probes_due(world.now).remove(0);
    world.beat("s", &from(2)).unwrap();
    world.state.probed(&early, &ProbeOutcome::NotAllowed("barred".into()), world.now, &mut Vec::new());
    assert!(
        !world.state.view(&"s".into(), world.now).unwrap().reason.contains("barred"),
        "it reports from elsewhere too"
    );
}

#[test]
fn what_placement_does_not_use_does_not_wake_it() {
    let mut world = World::new();
    world.beat("s", &report(Kind::Server)).unwrap();
    world.state.take_servers_changed();
    world.beat("s", &Report { version: Some("2".into()), ..report(Kind::Server) }).unwrap();
    assert!(!world.written.is_empty() && !world.state.take_servers_changed());
    for change in [
        Report { capacity: 2, ..report(Kind::Server) },
        Report { capacity: 2, state: Reported::Paused, ..report(Kind::Server) },
    ] {
        world.beat("s", &change).unwrap();
        assert!(world.state.take_servers_changed());
    }
    world.desire("s", Desired::Drain).unwrap();
    assert!(world.state.take_servers_changed());
}

fn register(state: &mut State, id: usize, now: Time, out: &mut Vec<Write>) -> Result<(), Refusal> {
    let id = format!("m{id:05}").as_str().into();
    state.report(&id, &report(Kind::Crawler), (ShardId(0), 1), now, out).map(drop)
}

/// Ticks until nothing is due; the writes of the largest tick.
fn settle(state: &mut State, now: Time) -> usize {
    let mut most = 0;
    loop {
        let mut out = Vec::new();
        let more = state.tick(now, &mut out).more;
        most = most.max(out.len());
        if !more {
            return most;
        }
    }
}

#[test]
fn lost_crawlers_make_room_for_others_and_are_forgotten_after_a_day() {
    let mut now = Time(1_000_000);
    let mut state = State::load(Config::default(), Vec::new(), now);
    let mut out = Vec::new();
    (0..MACHINES_MAX).for_each(|id| register(&mut state, id, now, &mut out).unwrap());
    assert!(matches!(register(&mut state, MACHINES_MAX, now, &mut out), Err(Refusal::OverLimit(_))), "all are well");
    for _ in 0..8 {
        now = now.after(Millis(5_000));
        settle(&mut state, now);
    }
    out.clear();
    register(&mut state, MACHINES_MAX, now, &mut out).unwrap();
    assert!(
        matches!(&out[..], [Write::Machine(gone, None), Write::Machine(_, Some(_))] if &**gone == "m00000"),
        "{out:?}"
    );
    assert_eq!(state.len(), MACHINES_MAX);
    let died = now;
    while now < died.after(DAY).before(Millis(60_000)) {
        now = now.after(Millis(5_000));
        settle(&mut state, now);
    }
    assert_eq!(state.len(), MACHINES_MAX);
    let mut most = 0;
    while now < died.after(DAY) {
        now = now.after(Millis(5_000));
        most = most.max(settle(&mut state, now));
    }
    assert_eq!(state.len(), 1, "the one that came later, and is failed for less than a day");
    assert!(most <= 1_000, "{most} rows in one tick");
}

#[test]
fn what_an_operator_paused_or_what_may_have_copies_is_not_forgotten() {
    let mut world = World::new();
    for (id, kind) in [("c", Kind::Crawler), ("d", Kind::Crawler), ("s", Kind::Server)] {
        world.beat(id, &report(kind)).unwrap();
    }
    world.desire("d", Desired::Paused).unwrap();
    world.pass(2 * DAY.0);
    let left: Vec<&str> = world.store.keys().map(|id| &**id).collect();
    assert_eq!(left, ["d", "s"]);
}

/// A machine that came back while there was no owner has more than a report interval to say so.
#[test]
fn a_new_owner_forgets_no_machine_before_it_could_report() {
    let mut world = World::new();
    world.beat("c", &report(Kind::Crawler)).unwrap();
    world.pass(60_000);
    world.now = world.now.after(DAY);
    world.reload();
    world.pass(FAILED_AFTER.0 - 1);
    assert_eq!(world.beat("c", &report(Kind::Crawler)).unwrap().judged, Judged::Probation);
    world.pass(2 * DAY.0);
    assert!(world.store.is_empty());
}

#[test]
fn a_prober_that_reaches_hardly_anybody_is_not_believed() {
    let mut world = World::new();
    let ids: Vec<String> = (0..5).map(|n| format!("s{n}")).collect();
    let judged = |world: &World| world.store.values().filter(|row| row.judged == Judged::Suspect).count();
    let reason = |world: &World, id: &str| world.state.view(&id.into(), world.now).unwrap().reason;
    for round in 0..12 {
        world.pass(5_000);
        ids.iter().for_each(|id| drop(world.beat(id, &report(Kind::Server)).unwrap()));
        // First two miss their probes, then all do, then two again.
        let misses = match round {
            0..4 => 2,
            4..8 => 5,
            _ => 2,
        };
        ids.iter().enumerate().for_each(|(n, id)| world.probed(id, n >= misses));
        world.pass(1);
        match round {
            3 => assert_eq!(judged(&world), 2),
            7 => {
                assert_eq!(judged(&world), 0);
                let why = reason(&world, "s0");
                assert!(why.contains("5 of 5 servers miss theirs at once"), "{why}");
            }
            11 => assert_eq!(judged(&world), 2, "{}", reason(&world, "s0")),
            _ => {}
        }
    }
    assert!(!reason(&world, "s0").contains("at once"));
}

/// A machine keeps to the last interval that it got, even if the owner that judges it has another one.
#[test]
fn a_shorter_interval_does_not_make_machines_on_the_longer_one_silent() {
    let every = |ms| Config { report_interval: Millis(ms), ..Config::default() };
    let mut world = World::new();
    world.state = State::load(every(60_000), Vec::new(), world.now);
    assert_eq!(world.beat("s", &report(Kind::Server)).unwrap().interval, Millis(60_000));
    assert_eq!(world.beat("dead", &report(Kind::Server)).unwrap().interval, Millis(60_000));
    let judged = |world: &World| ["s", "dead"].map(|id| world.store[id].judged);
    // A restart with another setting, or another owner.
    world.state = State::load(every(5_000), world.store.clone(), world.now);
    world.pass(59_999);
    assert_eq!(judged(&world), [Judged::Healthy; 2]);
    world.pass(1);
    assert_eq!(world.beat("s", &report(Kind::Server)).unwrap().interval, Millis(5_000));
    // That answer is lost, so it reports a minute later again.
    world.pass(60_000);
    assert_eq!(judged(&world), [Judged::Healthy; 2]);
    assert_eq!(world.beat("s", &report(Kind::Server)).unwrap().interval, Millis(5_000));
    assert_eq!(world.written.len(), 1, "its row has the interval that it got");
    // From now on it is judged like others, also by the next owner.
    world.state = State::load(every(5_000), world.store.clone(), world.now);
    world.pass(29_999);
    assert_eq!(judged(&world), [Judged::Suspect, Judged::Healthy]);
    world.pass(1);
    assert_eq!(judged(&world), [Judged::Failed, Judged::Healthy]);
    // A machine that does not report at all has failed after six of the intervals that it got.
    world.pass(329_999);
    assert_eq!(judged(&world), [Judged::Failed, Judged::Suspect]);
    world.pass(1);
    assert_eq!(judged(&world), [Judged::Failed, Judged::Failed]);
}

/// The other way round nothing is to be waited for: the owner judges by its own, longer interval.
#[test]
fn a_longer_interval_counts_at_once() {
    let mut world = World::new();
    world.beat("s", &report(Kind::Server)).unwrap();
    let slow = Config { report_interval: Millis(60_000), ..Config::default() };
    world.state = State::load(slow, world.store.clone(), world.now);
    world.pass(5_000);
    assert_eq!(world.beat("s", &report(Kind::Server)).unwrap().interval, Millis(60_000));
    // It gets the longer interval, and the next owner has the shorter one again, before it has reported to this one
    // twice.
    world.state = State::load(Config::default(), world.store.clone(), world.now);
    world.pass(60_000);
    assert_eq!(world.store["s"].judged, Judged::Healthy);
}
