//! What operators and scripts are told when something goes wrong with a pool: reasons, logs of the dead, JSON and exit codes.

use crate::pools::{Stage, until};
use crate::prelude::*;

fn json(text: &str) -> Value {
    serde_json::from_str(text.trim()).unwrap_or_else(|_| panic!("no JSON: {text}"))
}

#[test]
fn scripts_get_json_and_exit_codes_also_when_a_match_fails_is_cancelled_or_explained() {
    let stage = Stage::new();
    stage.pool("render", 1, &["--max", "1", "--match-max", "1s"]).ok();
    stage.matched("one", "render");
    let failed = stage.run(&["match", "two", "--pool", "render", "--wait", "10s", "--json"]);
    let found = json(&failed.out);
    assert_eq!((failed.code, &found["state"], &found["client"]), (4, &"failed".into(), &"two".into()), "{found}");
    assert!(found["reason"].as_str().unwrap().contains("no slot is free"), "{found}");
    let why = stage.listed(&["why", "--pool", "render"]).remove(0);
    assert_eq!((&why["workers"], why["worker_list"].as_array().unwrap().len()), (&1.into(), 1), "{why}");
    let cancelled = stage.listed(&["matches", "cancel", "one", "--pool", "render"]).remove(0);
    assert_eq!(cancelled, serde_json::json!({"client": "one", "pool": "render", "cancelled": true}));
    for (args, says) in [
        (&["--min", "3", "--max", "2"], "is 2, which is below `min`"),
        (&["--max", "1", "--buffer", "9"], "is 9, but 1 worker"),
    ] {
        let refused = stage.pool("wrong", 1, args);
        assert_eq!(refused.code, 2, "{}", refused.err);
        assert!(refused.err.contains(says), "{}", refused.err);
    }
}

#[test]
fn the_output_of_workers_that_died_is_shown_with_the_reason() {
    let stage = Stage::new();
    let script = "echo there is no display >&2; exit 3";
    stage.run(&["pools", "set", "quits", "--match-max", "5s", "--", "/bin/sh", "-c", script]).ok();
    assert_eq!(stage.run(&["match", "c", "--pool", "quits", "--wait", "20s"]).code, 4);
    until("its workers are removed", || stage.listed(&["pools", "workers", "quits"]).is_empty());
    let logs = stage.run(&["pools", "logs", "quits"]).ok();
    assert!(logs.contains("there is no display") && logs.contains("exited with code 3"), "{logs}");
    let why = stage.run(&["why", "--pool", "quits"]).ok();
    assert!(why.contains("was removed") && why.contains("code 3"), "{why}");
    let removed = stage.listed(&["why", "--pool", "quits"]).remove(0)["removed"][0]["worker"].clone();
    let one = stage.run(&["pools", "logs", "quits", removed.as_str().unwrap()]).ok();
    assert!(one.contains("there is no display"), "{one}");
}

/// A regression: it took nine seconds to be told that there is no such worker.
#[test]
fn logs_of_a_command_that_never_started_say_why_at_once() {
    let stage = Stage::new();
    stage.run(&["pools", "set", "missing", "--match-max", "5s", "--", "/no/such/program"]).ok();
    assert_eq!(stage.run(&["match", "c", "--pool", "missing", "--wait", "20s"]).code, 4);
    let removed = stage.listed(&["why", "--pool", "missing"]).remove(0)["removed"][0]["worker"].clone();
    let begun = std::time::Instant::now();
    let logs = stage.run(&["pools", "logs", "missing"]).ok();
    let one = stage.run(&["pools", "logs", "missing", removed.as_str().unwrap()]);
    assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(one.code, 0, "{}", one.err);
    for told in [logs, one.err] {
        assert!(told.contains("command '/no/such/program' does not exist"), "{told}");
    }
}

/// The pool's owner forgets its removed workers when it ends; their files are kept.
#[test]
fn the_output_of_workers_that_died_is_shown_after_a_restart_and_found_when_their_pool_is_gone() {
    let mut stage = Stage::new();
    let script = "echo there is no display >&2; exit 3";
    stage.run(&["pools", "set", "quits", "--match-max", "5s", "--", "/bin/sh", "-c", script]).ok();
    assert_eq!(stage.run(&["match", "c", "--pool", "quits", "--wait", "20s"]).code, 4);
    until("its workers are removed", || stage.listed(&["pools", "workers", "quits"]).is_empty());
    let removed = |stage: &Stage| -> Vec<String> {
        let why = stage.listed(&["why", "--pool", "quits"]).remove(0);
        let names = why["removed"].as_array().unwrap().iter().map(|gone| gone["worker"].as_str().unwrap().to_owned());
        names.collect()
    };
    let before = removed(&stage);
    stage.server.take().unwrap().kill();
    stage.server = Some(Server::start_with(&stage.data, &[]));
    let after = removed(&stage);
    assert!(before.iter().all(|worker| after.contains(worker)), "{before:?} {after:?}");
    let logs = stage.run(&["pools", "logs", "quits"]).ok();
    let head = format!("==> {}, removed: it exited with code 3", before[0]);
    assert!(logs.contains(&head) && logs.contains("there is no display"), "{logs}");
    stage.run(&["pools", "remove", "quits"]).ok();
    until("the pool is gone", || stage.run(&["pools", "show", "quits"]).code == 3);
    let gone = stage.run(&["pools", "logs", "quits"]);
    assert_eq!((gone.code, &*gone.out), (3, ""), "{}", gone.err);
    let place = gone.err.trim().rsplit_once("keeps the output of its last workers in ").unwrap().1;
    let place = place.trim_end_matches(" (unknown_pool)");
    let folder = std::path::Path::new(place).join(before[0].strip_prefix("quits-").unwrap());
    let log = std::fs::read_to_string(folder.join("log")).unwrap();
    assert!(log.contains("there is no display"), "{place}: {log}");
}

#[test]
fn a_client_that_waits_while_its_pool_is_removed_is_told_so() {
    let stage = Stage::with(&["--docker", "/nonexistent/docker.sock"]);
    stage.run(&["pools", "set", "gone", "--image", "browser:1", "--port", "80"]).ok();
    let waits = stage.run(&["match", "c", "--pool", "gone"]);
    assert_eq!(waits.code, 3, "it waits");
    assert!(waits.err.contains("end the request with `wayleave matches cancel 'c' --pool gone`"), "{}", waits.err);
    let waiting = std::thread::scope(|scope| {
        let waits = scope.spawn(|| stage.run(&["match", "c", "--pool", "gone", "--wait", "30s"]));
        stage.run(&["pools", "remove", "gone"]).ok();
        waits.join().unwrap()
    });
    assert!(waiting.err.contains("pool 'gone' was removed"), "{}", waiting.err);
    let why = stage.run(&["why", "c", "--pool", "gone"]);
    assert_eq!(why.code, 3);
    assert!(why.err.contains("pool 'gone' was removed"), "{}", why.err);
}

#[test]
fn a_docker_engine_that_does_not_answer_is_named_with_the_remedy_in_pools_and_in_the_log() {
    let stage = Stage::with(&["--docker", "/nonexistent/docker.sock"]);
    stage.run(&["pools", "set", "browsers", "--image", "browser:1", "--port", "80"]).ok();
    let says = "the Docker engine at /nonexistent/docker.sock does not answer";
    until("the client is told", || stage.run(&["match", "c", "--pool", "browsers"]).err.contains(says));
    let why = stage.run(&["why", "--pool", "browsers"]).ok();
    assert!(why.contains(says) && why.contains("start it"), "{why}");
    let log = stage.server().log();
    assert_eq!(log.matches(says).count(), 1, "{log}");
}

#[test]
fn an_export_carries_settings_of_pools_and_an_import_takes_values_of_variables_from_its_environment() {
    let (from, to) = (Stage::new(), Stage::new());
    from.pool("render", 3, &["--max", "4", "--idle", "7s"]).ok();
    from.run(&["pools", "set", "plain", "--", "worker", "--fast"]).ok();
    let file = from.data.with_extension("jsonl");
    let path = file.to_str().unwrap();
    let refused = from.run(&["export", path]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(refused.err.contains("the values of variables of 1 pool"), "{}", refused.err);
    from.run(&["export", "--partial", path]).ok();
    let text = std::fs::read_to_string(&file).unwrap();
    let secret = from.data.parent().unwrap().to_str().unwrap();
    assert!(text.contains("\"SLOTS\"") && !text.contains(secret), "{text}");
    let without = to.run(&["import", path]);
    assert_eq!(without.code, 4, "{}", without.err);
    let unwanted = "2 pools would run their commands or images on the server (plain, render): look at them";
    assert!(without.err.contains(unwanted) && without.err.contains("2 of "), "{}", without.err);
    assert_eq!(without.err.matches("--pools").count(), 1, "{}", without.err);
    let partly = to.run(&["import", "--pools", path]);
    assert_eq!(partly.code, 6, "{}", partly.err);
    assert!(partly.err.contains("pool 'render' needs the values of SLOTS, STAGE"), "{}{}", partly.out, partly.err);
    let mut again = wayleave(&["import", "--pools", path]);
    again.env("WAYLEAVE_SERVER", &to.server().url).env("SLOTS", "3").env("STAGE", "x");
    run(again, "").ok();
    for pool in ["render", "plain"] {
        let [before, after] = [&from, &to].map(|stage| stage.pool_of(pool));
        for field in ["command", "env", "slots", "max", "idle_ms", "runtime", "reservation_ms"] {
            assert_eq!(before[field], after[field], "{pool}: {field}");
        }
    }
}
