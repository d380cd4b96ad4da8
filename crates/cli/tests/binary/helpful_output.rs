//! Output for first-time users: where an error is, what was created, how long, how large.

use crate::prelude::*;

/// A server with one URL, and the token of its reservation.
fn reserved(server: &Server, url: &str) -> String {
    server.run(&["put", url]).ok();
    server.run(&["get", "--json"]).json()[0]["token"].as_str().unwrap().to_owned()
}

#[test]
fn a_body_that_cannot_be_read_is_told_with_field_place_and_example() {
    let (keep, server) = Server::fresh();
    let token = reserved(&server, "http://a.example/");
    let file = keep.path().join("body.json");
    std::fs::write(&file, "{\n \"results\": [{\"url\": \"http://a.example/\", \"outcome\": \"lost\"}]}").unwrap();
    let ended = server.run(&["release", &token, "--body", file.to_str().unwrap()]);
    assert_eq!(ended.code, 2, "{}", ended.err);
    for part in ["line 2, column", "results[0].outcome: 'lost' is none of fetched", "example: {\"results\""] {
        assert!(ended.err.contains(part), "{part}: {}", ended.err);
    }
    // The example itself is accepted.
    let example = ended
        .err
        .split_once("example: ")
        .unwrap()
        .1
        .trim()
        .replace("https://example.com/\", \"out", "http://a.example/\", \"out");
    std::fs::write(&file, example).unwrap();
    server.run(&["release", &token, "--body", file.to_str().unwrap()]).ok();
}

#[test]
fn found_links_that_are_rejected_are_told_with_their_reasons_and_by_the_exit_code() {
    let (keep, server) = Server::fresh();
    let file = keep.path().join("body.json");
    for (n, found, code) in [
        (1, json!([{"url": "http://b.example/"}]), 0),
        (2, json!([{"url": "http://c.example/"}, {"url": "nonsense"}]), 6),
        (3, json!([{"url": "nonsense"}]), 4),
    ] {
        let url = format!("http://a{n}.example/");
        let token = reserved(&server, &url);
        let held = server.run(&["reservations", "--json"]).json()[0]["host"].as_str().unwrap().to_owned();
        let body = json!({"results": [{"url": format!("http://{held}/"), "outcome": "fetched", "found": found}]});
        std::fs::write(&file, body.to_string()).unwrap();
        let ended = server.run(&["release", &token, "--body", file.to_str().unwrap()]);
        assert_eq!(ended.code, code, "{}{}", ended.out, ended.err);
        assert!(ended.out.contains("released "), "{}", ended.out);
        assert_eq!(ended.err.contains("nonsense: url: 'nonsense' is not a URL"), code != 0, "{}", ended.err);
    }
}

#[test]
fn a_first_wait_over_the_longest_is_refused_with_both_names() {
    let (_keep, server) = Server::fresh();
    server.run(&["crawls", "set", "news", "--retry-max", "1m"]).ok();
    let ended = server.run(&["crawls", "set", "news", "--retry-first", "2m"]);
    assert_eq!(ended.code, 4, "{}", ended.err);
    assert!(ended.err.contains("retry.first_ms") && ended.err.contains("retry.max_ms"), "{}", ended.err);
}

#[test]
fn what_is_made_is_told_from_what_is_changed() {
    let (_keep, server) = Server::fresh();
    server.run(&["put", "http://example.com/"]).ok();
    for (args, said) in [
        (&["hosts", "set", "example.com", "--delay", "5s"][..], "changed host example.com"),
        (&["hosts", "set", "exmaple.com", "--delay", "5s"], "created host exmaple.com, which was unknown"),
        (&["hosts", "set", "exmaple.com", "--pause"], "changed host exmaple.com"),
        (&["groups", "set", "empty", "--parallel", "2"], "created group empty without hosts"),
        (&["groups", "set", "pair", "--host", "example.com"], "created group pair"),
        (&["groups", "set", "pair", "--delay", "1s"], "changed group pair"),
    ] {
        let ended = server.run(args);
        assert!(ended.code == 0 && ended.err.contains(said), "{args:?}: {}", ended.err);
    }
}

#[test]
fn how_a_role_stands_is_told_in_units_that_people_use() {
    let (_keep, server) = Server::fresh();
    let show = format!("{} roles show indexer", env!("CARGO_BIN_EXE_wayleave"));
    let ended = server.run(&["elect", "indexer", "--once", "--", "sh", "-c", &show]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let state = ended.out.lines().find(|line| line.starts_with("state")).unwrap().to_owned();
    assert!(state.contains(" s more unless it renews") && !state.contains(" ms"), "{state}");
}

#[test]
fn an_election_that_does_not_wait_ends_without_a_server() {
    let ended = run(wayleave(&["elect", "r", "--no-wait", "--server", "http://127.0.0.1:1", "--", "true"]), "");
    assert_eq!(ended.code, 5, "{}", ended.err);
    assert!(ended.err.contains("no server has answered") && ended.err.contains("not waiting"), "{}", ended.err);
}

#[test]
fn a_slot_that_was_run_leaves_nobody_standing_by() {
    let (_keep, server) = Server::fresh();
    for times in 0..2 {
        let ended = server.run(&["elect", "nightly", "--once", "--slot", "2026-11-17", "--", "true"]);
        assert_eq!(ended.code, 0, "{}", ended.err);
        assert!(!ended.err.contains("standing by"), "{times}: {}", ended.err);
        assert_eq!(ended.err.contains("the slot was already run; nothing left to do"), times == 1, "{}", ended.err);
    }
}

#[test]
fn a_snapshot_takes_no_files_place_unasked_and_tells_its_size() {
    let (keep, server) = Server::fresh();
    server.run(&["put", "http://example.com/"]).ok();
    let file = keep.path().join("copy.snapshot");
    let taken = server.run(&["snapshot", file.to_str().unwrap()]).ok();
    assert!(taken.contains(" KiB, as of ") || taken.contains(" bytes, as of "), "{taken}");
    let before = std::fs::read(&file).unwrap();
    let refused = server.run(&["snapshot", file.to_str().unwrap()]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(refused.err.contains("--overwrite"), "{}", refused.err);
    assert_eq!(std::fs::read(&file).unwrap(), before);
    server.run(&["snapshot", "--overwrite", file.to_str().unwrap()]).ok();
}

#[test]
fn why_is_true_after_an_alias_was_deleted() {
    let (_keep, server) = Server::fresh();
    server.run(&["groups", "set", "pair", "--host", "a.example", "--host", "b.example", "--delay", "1h"]).ok();
    server.run(&["put", "http://a.example/1", "http://a.example/2", "http://b.example/"]).ok();
    server.run(&["get", "--release", "fetched"]).ok();
    server.run(&["groups", "delete", "pair"]);
    for host in ["a.example", "b.example"] {
        let why = server.run(&["why", host]).ok();
        assert!(!why.contains("came from another group"), "{why}");
    }
}
