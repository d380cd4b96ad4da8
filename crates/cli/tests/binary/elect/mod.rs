//! `elect` as processes: two candidates, a real server, and commands that must never run concurrently.

mod outage;
mod slots;
pub mod stage;
mod stubborn;

use stage::{Candidate, Stage, elect, lives, now_ns, read};

use crate::prelude::*;

/// The T of most tests, and how late a take-over may be on a busy machine.
const T: &str = "1500ms";
const T_NS: u128 = 1_500_000_000;
const BUSY_NS: u128 = 3_000_000_000;

/// Two candidates, the first of which runs its command.
fn two() -> (Stage, Candidate, Candidate) {
    let stage = Stage::set(T);
    let first = stage.candidate("A");
    assert_eq!(stage.wait_for_begin(1).name, "A");
    let second = stage.candidate("B");
    stage.wait_for("standby", || {
        let role = stage.server.run(&["roles", "show", "duty", "--json"]).json().remove(0);
        (role["standbys_ready"] == 1).then_some(())
    });
    (stage, first, second)
}

#[test]
fn a_killed_primary_is_replaced_when_its_term_has_run_out_and_its_command_dies_before() {
    let (stage, first, _second) = two();
    let killed = now_ns();
    first.signal(Signal::KILL);
    let begun = stage.wait_for_begin(2);
    assert_eq!(begun.name, "B");
    assert!(begun.at_ns - killed < T_NS + BUSY_NS, "{} ms", (begun.at_ns - killed) / 1_000_000);
    assert!(!lives(stage.begins()[0].pid));
    stage.check();
}

#[test]
fn a_t_that_becomes_too_short_stops_the_command_but_not_elect_which_goes_on_when_it_fits() {
    let stage = Stage::set(T);
    let _first = stage.diarist("A", &["--grace", "400ms"]);
    let begun = stage.wait_for_begin(1);
    stage.server.run(&["roles", "set", "duty", "--ttl", "500ms"]).ok();
    stage.wait_for("end of the command", || (!lives(begun.pid)).then_some(()));
    stage.wait_for("a word", || stage.logs().contains("until it fits").then_some(()));
    stage.server.run(&["roles", "set", "duty", "--ttl", T]).ok();
    assert!(stage.wait_for_begin(2).epoch > begun.epoch);
    stage.check();
}

#[test]
fn a_clean_stop_hands_over_at_once() {
    let (stage, mut first, _second) = two();
    let told = now_ns();
    first.signal(Signal::TERM);
    let begun = stage.wait_for_begin(2);
    assert_eq!(first.ended(), 0);
    assert!(begun.at_ns - told < T_NS / 2, "{} ms", (begun.at_ns - told) / 1_000_000);
    assert!(stage.entries().iter().any(|entry| entry.what == "end"), "it was told before it was killed");
    stage.check();
}

#[test]
fn a_primary_that_is_stopped_has_no_command_any_more_when_the_next_one_begins() {
    let (stage, first, second) = two();
    first.signal(Signal::STOP);
    assert_eq!(stage.wait_for_begin(2).name, "B");
    assert!(!lives(stage.begins()[0].pid), "the guardian ends the command though elect sleeps");
    // When it continues, it finds itself replaced and stands again, under a new epoch.
    first.signal(Signal::CONT);
    second.signal(Signal::KILL);
    assert_eq!(stage.wait_for_begin(3).name, "A");
    stage.check();
}

#[test]
fn a_command_dies_with_its_guardian() {
    let (stage, first, _second) = two();
    let command = stage.begins()[0].pid;
    kill_process(first.guardian().unwrap(), Signal::KILL).unwrap();
    stage.wait_for("death of the command", || (!lives(command)).then_some(()));
    stage.wait_for_begin(2);
    stage.check();
}

#[test]
fn what_a_command_has_started_dies_with_it_also_in_a_session_of_its_own() {
    let stage = Stage::set(T);
    let strays = stage.path("strays");
    let script = format!("setsid sleep 600 & echo $! > {0}; sleep 600 & echo $! >> {0}; wait", strays.display());
    let mut first = stage.candidate_with("A", &["--grace", "200ms"], &["sh", "-c", &script]);
    let pids = || read(&strays).lines().filter_map(|pid| pid.parse::<i32>().ok()).collect::<Vec<_>>();
    let pids = stage.wait_for("strays", || (pids().len() == 2).then(pids));
    assert!(pids.iter().all(|pid| lives(*pid)));
    first.signal(Signal::TERM);
    assert_eq!(first.ended(), 0, "{}", stage.logs());
    assert!(pids.iter().all(|pid| !lives(*pid)), "{pids:?}");
}

/// PID 1 of a container, and the guardian, inherit orphans: nothing else would reap them.
#[test]
fn orphans_of_a_command_are_buried_while_it_runs() {
    let stage = Stage::set(T);
    let script = r#"for n in 1 2 3; do sh -c 'sleep 0.05 & echo $! >> "$DIARY.orphans"'; done; sleep 600"#;
    let first = stage.candidate_with("A", &["--grace", "200ms"], &["sh", "-c", script]);
    let orphans = stage.path("diary.orphans");
    let pids = || read(&orphans).lines().filter_map(|pid| pid.parse::<i32>().ok()).collect::<Vec<_>>();
    let pids = stage.wait_for("orphans", || (pids().len() == 3).then(pids));
    // A zombie still has its folder in /proc.
    let gone = |pid: &i32| !std::path::Path::new(&format!("/proc/{pid}")).exists();
    stage.wait_for("burials", || pids.iter().all(gone).then_some(()));
    assert!(first.guardian().is_some(), "the command still runs");
}

#[test]
fn what_a_command_has_started_dies_and_is_buried_also_if_the_guardian_is_killed() {
    let stage = Stage::set(T);
    let strays = stage.path("strays");
    let script = format!("setsid sleep 600 & echo $! > {}; wait", strays.display());
    let first = stage.candidate_with("A", &["--grace", "200ms"], &["sh", "-c", &script]);
    let stray: i32 = stage.wait_for("stray", || read(&strays).trim().parse().ok());
    let guardian = first.guardian().unwrap();
    kill_process(guardian, Signal::KILL).unwrap();
    for pid in [stray, guardian.as_raw_nonzero().get()] {
        let gone = || !std::path::Path::new(&format!("/proc/{pid}")).exists();
        stage.wait_for("burial", || gone().then_some(()));
    }
}

#[test]
fn a_command_that_does_not_stop_is_killed_before_the_end_of_the_term() {
    let stage = Stage::set(T);
    let mut first = stage.candidate_with(
        "A",
        &["--grace", "200ms"],
        &["sh", "-c", "trap '' TERM; echo $$ > $DIARY; while :; do sleep 0.01; done"],
    );
    let pid: i32 = stage.wait_for("command", || read(&stage.diary).trim().parse().ok());
    let told = now_ns();
    first.signal(Signal::TERM);
    assert_eq!(first.ended(), 0);
    assert!(!lives(pid) && now_ns() - told < T_NS + BUSY_NS);
}

#[test]
fn a_command_that_ends_gives_the_role_back_and_is_run_again_in_another_epoch() {
    let stage = Stage::set(T);
    let _first = stage.candidate_with(
        "A",
        &["--grace", "200ms"],
        &["sh", "-c", r#"echo "begin $NAME $WAYLEAVE_EPOCH $$ $(date +%s%N)" >> "$DIARY""#],
    );
    stage.wait_for_begin(2);
    stage.check();
}

#[test]
fn with_once_the_commands_code_is_the_exit_code_and_the_role_is_free_again() {
    let stage = Stage::set(T);
    let options = ["--once", "--grace", "200ms", "--address", "here:1", "--metadata", "zone=a"];
    let ended = elect(&stage, &options, &["sh", "-c", "echo $WAYLEAVE_ROLE $WAYLEAVE_EPOCH; exit 7"]);
    assert_eq!((ended.code, ended.out.as_str()), (7, "duty 1\n"), "{}", ended.err);
    assert!(ended.err.contains("survives"), "the tolerance is told: {}", ended.err);
    let role = stage.server.run(&["roles", "show", "duty", "--json"]).json().remove(0);
    assert!(role["primary"].is_null(), "{role}");
    assert_eq!(elect(&stage, &options, &["sh", "-c", "kill -9 $$"]).code, 128 + 9);
    assert_eq!(elect(&stage, &options, &["true"]).code, 0);
}

#[test]
fn a_term_that_is_too_short_and_a_command_that_is_not_there_are_told_at_once() {
    let stage = Stage::set(T);
    let tight = elect(&stage, &["--once", "--grace", "5s"], &["true"]);
    assert_eq!(tight.code, 2, "{}", tight.err);
    assert!(tight.err.contains("T of 1500 ms is too short") && tight.err.contains("5500 ms"), "{}", tight.err);
    let set = elect(&stage, &["--once", "--ttl", "1s", "--grace", "5s"], &["true"]);
    assert_eq!(set.code, 2, "{}", set.err);
    let role = stage.server.run(&["roles", "show", "duty", "--json"]).json().remove(0);
    assert_eq!(role["ttl_ms"], 1_500, "a T that is refused is not set, or it would end all who stand: {role}");
    let missing = elect(&stage, &["--once"], &["no-such-program-here"]);
    assert_eq!(missing.code, 127, "{}", missing.err);
    let role = stage.server.run(&["roles", "show", "duty", "--json"]).json().remove(0);
    assert!(role["primary"].is_null(), "{role}");
}

/// A measurement; what it checks is checked by other tests too.
#[test]
#[ignore = "measures for a minute: `cargo xtask prove takeovers`"]
fn takeover_times() {
    let (mut killed, mut stopped) = (Vec::new(), Vec::new());
    for _ in 0..10 {
        for (signal, times) in [(Signal::KILL, &mut killed), (Signal::TERM, &mut stopped)] {
            let (stage, first, _second) = two();
            let at = now_ns();
            first.signal(signal);
            times.push((stage.wait_for_begin(2).at_ns - at) / 1_000_000);
            stage.check();
        }
    }
    println!(
        "seen: T = {T}; from the signal to the first line of the next command, ms: kill -9 {killed:?}, TERM {stopped:?}"
    );
}

#[test]
fn a_candidate_that_knows_several_nodes_leads_although_the_first_one_is_gone() {
    let stage = Stage::set(T);
    let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let servers = format!("{dead},{}", stage.server.url);
    let ended = elect(&stage, &["--grace", "200ms", "--once", "--server", &servers], &["sh", "-c", "exit 7"]);
    assert_eq!(ended.code, 7, "{}", ended.err);
}
