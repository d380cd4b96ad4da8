//! `wayleave match CLIENT --pool POOL -- command`: the command has its worker for as long as it runs, and no longer.
//!
//! Interleavings: the command outlives the reservation time; somebody ends the match under it; the server dies under it; it is
//! told to end.

use crate::elect::stage::lives;
use crate::pools::{Stage, until};
use crate::prelude::*;

/// A stage with a pool of one worker with one slot, and a short reservation time.
fn stage() -> Stage {
    stage_with("2s")
}

fn stage_with(reservation: &str) -> Stage {
    let stage = Stage::new();
    stage.pool("render", 1, &["--max", "1", "--reservation", reservation]).ok();
    stage
}

fn start(stage: &Stage, command: &[&str]) -> Child {
    let args = ["match", "one", "--pool", "render", "--wait", "30s", "--"];
    wayleave(&[&args[..], command].concat()).env("WAYLEAVE_SERVER", &stage.server().url).spawn().unwrap()
}

fn has_match(stage: &Stage) -> bool {
    let shown = stage.run(&["matches", "show", "one", "--pool", "render", "--json"]);
    shown.code == 0 && shown.json()[0]["state"] == "matched"
}

/// A shell that starts processes, one of them in a session of its own and one as an orphan, and prints their ids.
const STRAYS: &str = "sleep 600 >/dev/null 2>&1 & echo $!; setsid sleep 600 >/dev/null 2>&1 & echo $!; \
    sh -c 'sleep 600 >/dev/null 2>&1 & echo $!'; wait";

fn any_lives(pids: &[u8]) -> bool {
    let pids: Vec<i32> = String::from_utf8_lossy(pids).lines().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 3);
    pids.into_iter().any(lives)
}

#[test]
fn what_a_command_leaves_behind_ends_before_the_worker_is_given_back() {
    let stage = stage();
    let ended = start(&stage, &["sh", "-c", &STRAYS.replace("wait", "exit 3")]).wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(3), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(!any_lives(&ended.stdout) && !has_match(&stage));
}

#[test]
fn a_command_has_the_address_of_its_worker_and_the_worker_is_given_back_at_its_end() {
    let stage = stage();
    let begun = Instant::now();
    let shell = "echo at $WAYLEAVE_ADDRESS with ${#WAYLEAVE_TOKEN}; sleep 6; exit 3";
    let mut child = start(&stage, &["sh", "-c", shell]);
    until("it has a worker", || has_match(&stage));
    std::thread::sleep(Duration::from_secs(4));
    assert!(child.try_wait().unwrap().is_none() && has_match(&stage), "it outlives the reservation time");
    let ended = child.wait_with_output().unwrap();
    let out = String::from_utf8(ended.stdout).unwrap();
    assert!(out.starts_with("at 127.0.0.1:") && !out.contains("with 0"), "{out}");
    assert_eq!(ended.status.code(), Some(3), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(begun.elapsed() >= Duration::from_secs(6));
    assert!(!has_match(&stage), "it was given back");
}

#[test]
fn a_command_whose_match_somebody_ends_is_stopped() {
    let stage = stage();
    let child = start(&stage, &["sh", "-c", STRAYS]);
    until("it has a worker", || has_match(&stage));
    std::thread::sleep(Duration::from_millis(500));
    stage.run(&["matches", "cancel", "one", "--pool", "render"]).ok();
    let begun = Instant::now();
    let ended = child.wait_with_output().unwrap();
    assert!(!any_lives(&ended.stdout), "what it has started ends with it");
    let err = String::from_utf8(ended.stderr).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(ended.status.code(), Some(4), "{err}");
    assert!(err.contains("the command was stopped, because its worker may be another client's"), "{err}");
}

#[test]
fn a_command_whose_match_nobody_confirms_is_stopped_before_the_reservation_time_is_over() {
    let mut stage = stage_with("30s");
    let child = start(&stage, &["sleep", "600"]);
    until("it has a worker", || has_match(&stage));
    stage.server.take().unwrap().kill();
    // No confirmation is later than this.
    let begun = Instant::now();
    let ended = child.wait_with_output().unwrap();
    let err = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(4), "{err}");
    assert!(err.contains("no server has confirmed the match in time"), "{err}");
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(30), "stopped {took:?} after the server died");
}

#[test]
fn a_signal_ends_the_command_and_gives_the_worker_back() {
    let stage = stage();
    let child = start(&stage, &["sh", "-c", "trap 'echo told; exit 7' TERM; while :; do sleep 0.1; done"]);
    until("it has a worker", || has_match(&stage));
    std::thread::sleep(Duration::from_millis(500));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), &ended.stdout[..]), (Some(7), &b"told\n"[..]));
    assert!(!has_match(&stage), "it was given back");
}

/// A regression: the command went on, with a worker that is another client's once the reservation time is over.
#[test]
fn a_command_ends_with_the_process_that_confirms_its_match() {
    let stage = stage();
    let mut child = start(&stage, &["sh", "-c", "echo $$; exec sleep 600"]);
    let mut pid = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut pid).unwrap();
    let pid: i32 = pid.trim().parse().unwrap();
    assert!(lives(pid));
    child.kill().unwrap();
    child.wait().unwrap();
    until("the command has ended", || !lives(pid));
}

/// A regression: `nohup` did not work, because the handlers took the place of what it had set.
#[test]
fn a_signal_that_was_ignored_from_the_start_stays_ignored() {
    let stage = stage();
    let shell = format!(
        "trap '' HUP INT; exec {} match one --pool render --wait 30s -- sh -c 'echo begun; read go; echo still here'",
        crate::support::binary().display()
    );
    let mut command = Command::new("sh");
    command.args(["-c", &shell]).env("WAYLEAVE_SERVER", &stage.server().url);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "begun\n");
    for signal in [Signal::HUP, Signal::INT, Signal::INT] {
        kill_process(Pid::from_child(&child), signal).unwrap();
    }
    // Nothing shows that a signal was ignored: one that is not ends the command after its grace at the latest.
    std::thread::sleep(Duration::from_millis(500));
    _ = child.stdin.take().unwrap().write_all(b"go\n");
    line.clear();
    out.read_line(&mut line).unwrap();
    assert_eq!((line.as_str(), child.wait().unwrap().code()), ("still here\n", Some(0)));
}

#[test]
fn a_command_that_cannot_be_run_keeps_no_worker() {
    let stage = stage();
    let ended = start(&stage, &["no-such-program-here"]).wait_with_output().unwrap();
    let err = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(127), "{err}");
    assert!(err.contains("cannot run 'no-such-program-here'"), "{err}");
    assert!(!has_match(&stage));
}

/// As under sudo: the command becomes root's, and the one who started it may not signal it.
#[test]
fn a_command_that_may_not_be_killed_keeps_its_worker() {
    let stage = Stage::new();
    stage.pool("render", 1, &["--max", "1", "--reservation", "60s"]).ok();
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    let (sudo, wayleave) = (folder.path().join("sudo"), folder.path().join("wayleave"));
    std::fs::copy("/usr/bin/setpriv", &sudo).expect("setpriv of util-linux");
    std::fs::copy(crate::support::binary(), &wayleave).unwrap();
    open(folder.path(), 0o755);
    open(&sudo, 0o4755);
    open(&wayleave, 0o755);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&wayleave);
    command.args(["match", "one", "--pool", "render", "--wait", "30s", "--"]).arg(&sudo);
    // It ends with the folder of this test.
    let deaf = format!(
        "exec 2>/dev/null; trap '' TERM; echo $$; while [ -d {} ]; do sleep 0.05; done",
        folder.path().display()
    );
    command.args(["--reuid=0", "--regid=0", "--clear-groups", "sh", "-c", &deaf]);
    command.env("WAYLEAVE_SERVER", &stage.server().url).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut pid = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut pid).unwrap();
    let pid: i32 = pid.trim().parse().unwrap();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{errors}");
    assert!(errors.contains("is not given back") && errors.contains(&format!("kill -9 {pid}")), "{errors}");
    assert!(lives(pid) && has_match(&stage), "the command still uses its worker");
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}
