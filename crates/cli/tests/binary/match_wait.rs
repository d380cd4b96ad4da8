//! `wayleave match --wait` goes on until its time is over, whatever is in the way meanwhile.
//!
//! Interleavings: the server dies before the request, and comes back; the queue is full when the client asks, and has room
//! later; it is full all the time.

use crate::pools::{Stage, until};
use crate::prelude::*;

/// Starts a request, and waits until it says what it waits for.
fn ask(stage: &str, args: &[&str], says: &str) -> (Child, BufReader<std::process::ChildStderr>) {
    let mut command = wayleave(args);
    let mut child = command.env("WAYLEAVE_SERVER", stage).spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    assert!(line.starts_with(says), "{line}");
    (child, errors)
}

#[test]
fn a_request_that_waits_outlives_a_restart_of_the_server() {
    let mut stage = Stage::new();
    stage.pool("render", 1, &[]).ok();
    let url = stage.server().url.clone();
    stage.server.take().unwrap().kill();
    let args = ["match", "one", "--pool", "render", "--wait", "60s"];
    let (child, _errors) = ask(&url, &args, "waiting for the server: cannot reach ");
    stage.server = Some(Server::start_on(&stage.data, url.strip_prefix("http://").unwrap()));
    let ended = child.wait_with_output().unwrap();
    let address = String::from_utf8(ended.stdout).unwrap();
    assert_eq!(ended.status.code(), Some(0), "{address}");
    assert!(address.starts_with("127.0.0.1:"), "{address}");
}

#[test]
fn a_server_that_stays_away_is_told_when_the_time_is_over() {
    let stage = Stage::new();
    let url = stage.server().url.clone();
    drop(stage);
    let begun = Instant::now();
    let mut command = wayleave(&["match", "one", "--pool", "render", "--wait", "4s"]);
    let ended = command.env("WAYLEAVE_SERVER", &url).output().unwrap();
    let err = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(5), "{err}");
    assert!(begun.elapsed() >= Duration::from_secs(4), "it gave up after {:?}: {err}", begun.elapsed());
    assert!(err.contains("error: cannot reach "), "{err}");
}

#[test]
fn a_full_queue_is_told_at_once_and_waited_for_on_request() {
    let stage = Stage::new();
    stage.pool("render", 1, &["--max", "1", "--queue-max", "1"]).ok();
    stage.matched("one", "render");
    assert_eq!(stage.run(&["match", "two", "--pool", "render"]).code, 3, "it waits");
    // Asked again after each Retry-After, it would take three seconds.
    let begun = Instant::now();
    let full = stage.run(&["match", "three", "--pool", "render"]);
    assert!(begun.elapsed() < Duration::from_secs(3), "after {:?}", begun.elapsed());
    assert_eq!(full.code, 5, "{}", full.err);
    let says = "error: 1 client waits in pool 'render', which is its limit";
    assert!(full.err.starts_with(says), "{}", full.err);
    let over = stage.run(&["match", "three", "--pool", "render", "--wait", "2s"]);
    assert_eq!(over.code, 5, "{}", over.err);
    assert!(over.err.contains(says) && !over.err.contains("the server"), "{}", over.err);
    let args = ["match", "three", "--pool", "render", "--wait", "60s"];
    let (child, _errors) = ask(&stage.server().url, &args, "waiting for a place in the queue: 1 client waits");
    stage.run(&["matches", "cancel", "two", "--pool", "render"]).ok();
    until("it is queued", || stage.run(&["matches", "show", "three", "--pool", "render"]).code == 0);
    stage.run(&["matches", "cancel", "one", "--pool", "render"]).ok();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0));
    assert!(ended.stdout.starts_with(b"127.0.0.1:"));
}
