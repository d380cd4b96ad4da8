//! Other users of the machine read nothing, and text of others steers no terminal: with real processes, under an umask that
//! keeps nothing private.

use std::os::unix::fs::MetadataExt;

use crate::copy::largest;
use crate::pools::{kill, marked, until, worker};
use crate::prelude::*;

/// Everything in a folder on which others have a right.
fn open_to_others(folder: &Path) -> Vec<PathBuf> {
    let (mut left, mut found) = (vec![folder.to_owned()], Vec::new());
    while let Some(path) = left.pop() {
        let Ok(known) = path.symlink_metadata() else { continue };
        if known.mode() & 0o077 != 0 {
            found.push(path.clone());
        }
        if known.is_dir() {
            left.extend(std::fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
    }
    found
}

/// Flips a byte in the middle of the largest table.
fn lose_a_block(data: &Path) {
    let table = largest(data);
    let mut bytes = std::fs::read(&table).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&table, bytes).unwrap();
}

/// The workers that a test started, ended with it.
pub struct Ended(pub String);

impl Drop for Ended {
    fn drop(&mut self) {
        marked(&self.0).into_iter().for_each(kill);
    }
}

#[test]
fn no_other_user_can_read_a_data_folder_whatever_the_umask() {
    let (keep, data) = folder();
    let mark = Ended(format!("STAGE={}", keep.path().display()));
    let makers = keep.path().join("makers");
    let args = ["--makers", makers.to_str().unwrap(), "--memtable-mb", "1"];
    let server = Server::start_limited(&data, &args, "umask 0");
    let pool = ["pools", "set", "p", "--min", "1", "--env", &mark.0, "--env", "KEY=hunter2", "--", worker()];
    server.run(&pool).ok();
    until("it runs", || server.run(&["pools", "workers", "p", "--json"]).out.contains("\"running\""));
    let urls: Vec<String> = (0..20_000).map(|n| format!("http://h{n}.example/{}", "x".repeat(100))).collect();
    server.run_with(&["seed", "-"], &urls.join("\n")).ok();
    let tables = |folder: &Path| std::fs::read_dir(folder.join("db/tables")).map_or(0, Iterator::count);
    until("a table is flushed", || tables(&data) > 1);
    for folder in [&data, &makers] {
        until("all is private", || open_to_others(folder).is_empty());
        println!("seen: {}: {} open to others", folder.display(), open_to_others(folder).len());
    }
    assert!(!server.log().contains("other users"), "it always was: {}", server.log());
    let file = keep.path().join("kept.snapshot");
    server.run(&["snapshot", file.to_str().unwrap()]).ok();
    assert_eq!(server.stop(), 0);
    // What is made of it is private too.
    let restored = keep.path().join("restored");
    let copied = keep.path().join("copied");
    let shell = |command: String| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("umask 0; exec {command}")]).stdout(Stdio::piped()).stderr(Stdio::piped());
        run(shell, "").ok()
    };
    let binary = crate::support::binary();
    shell(format!("{} restore {} --data {}", binary.display(), file.display(), restored.display()));
    shell(format!("{} copy {} {}", binary.display(), data.display(), copied.display()));
    // Of a folder that has lost something, so that there is a list of it.
    let (damaged, saved) = (keep.path().join("damaged"), keep.path().join("saved"));
    assert!(run_shell(&format!("cp -r {} {}", data.display(), damaged.display())));
    lose_a_block(&damaged);
    shell(format!("sh -c '{} salvage {} {}; test $? = 6'", binary.display(), damaged.display(), saved.display()));
    for made in [&file, &restored, &copied, &saved, &saved.with_extension("lost")] {
        assert!(made.exists(), "{}", made.display());
        assert_eq!(open_to_others(made), Vec::<PathBuf>::new());
    }
    // A folder that was made before.
    for path in [&data, &makers] {
        let shared = run_shell(&format!("chmod -R go+rX {}", path.display()));
        assert!(shared && open_to_others(path).len() > 5);
    }
    let server = Server::start_with(&data, &args);
    for path in [&data, &makers] {
        until("it is closed", || open_to_others(path).is_empty());
    }
    let said = server.log().matches("other users of this machine had rights on the folder").count();
    assert_eq!(said, 2, "one line for each: {}", server.log());
    assert_eq!(server.stop(), 0);
    let server = Server::start_with(&data, &args);
    assert!(!server.log().contains("other users"), "told once: {}", server.log());
}

/// Runs of a command so far: it appends a line for each.
fn runs(log: &Path) -> usize {
    std::fs::read_to_string(log).unwrap_or_default().lines().count()
}

/// A server whose pool has started its worker: its folder and data, the log of runs, and what ends the workers.
fn original() -> (tempfile::TempDir, PathBuf, PathBuf, Ended, Server) {
    let (keep, data) = folder();
    let (script, log) = (keep.path().join("w.sh"), keep.path().join("runs"));
    std::fs::write(&script, format!("#!/bin/sh\necho run >> {}\nexec sleep 1000\n", log.display())).unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let mark = Ended(format!("STAGE={}", keep.path().display()));
    let original = Server::start_with(&data, &["--docker", "off"]);
    let set = ["pools", "set", "p", "--min", "1", "--max", "1", "--start-max", "1h", "--env", &mark.0, "--"];
    original.run(&[&set[..], &[script.to_str().unwrap()]].concat()).ok();
    until("it runs", || runs(&log) == 1);
    // Long enough for the pool to have its name.
    std::thread::sleep(std::time::Duration::from_secs(6));
    (keep, data, log, mark, original)
}

#[test]
fn a_plain_copy_beside_the_living_original_runs_no_command_and_says_whose_copy_it_is() {
    let (keep, data, log, _mark, original) = original();
    let copied = keep.path().join("copied");
    assert!(run_shell(&format!("cp -r {} {}", data.display(), copied.display())));
    // With a folder of its own for records of processes, nothing there gives it away.
    let makers = keep.path().join("other-makers");
    let copy = Server::start_with(&copied, &["--docker", "off", "--makers", makers.to_str().unwrap()]);
    until("it says so", || {
        copy.log().contains("this store is a copy of one that another server of this machine has open")
    });
    assert!(copy.log().contains(data.to_str().unwrap()) && copy.log().contains("pool=p"), "by name: {}", copy.log());
    until("the other one says so too", || original.log().contains("has opened a copy of this store"));
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!((runs(&log), copy.run(&["pools", "show", "p"]).ok().contains("pause")), (1, true));
    // Told to, it may.
    assert_eq!(original.stop(), 0);
    let resumed = copy.run(&["pools", "resume", "p"]);
    assert!(resumed.code == 0 && !resumed.err.contains("warning"), "{}", resumed.err);
    // A restart of a store that has no copy is nothing unusual.
    assert_eq!(copy.stop(), 0);
    let again = Server::start_with(&copied, &["--docker", "off", "--makers", makers.to_str().unwrap()]);
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert!(!again.log().contains("is a copy"), "{}", again.log());
    again.kill();
    let killed = Server::start_with(&copied, &["--docker", "off", "--makers", makers.to_str().unwrap()]);
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert!(!killed.log().contains("is a copy"), "{}", killed.log());
}

#[test]
fn the_recipe_for_a_restored_store_runs_no_command_and_a_living_original_is_named() {
    let (keep, data, log, _mark, original) = original();
    let (file, restored) = (keep.path().join("monday.snapshot"), keep.path().join("restored"));
    original.run(&["snapshot", file.to_str().unwrap()]).ok();
    original.run(&["restore", file.to_str().unwrap(), "--data", restored.to_str().unwrap()]).ok();
    let copy = Server::start_with(&restored, &["--docker", "off"]);
    until("it says so", || copy.log().contains("this store is a copy of one that another server"));
    assert!(copy.log().contains(data.to_str().unwrap()), "by name: {}", copy.log());
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(runs(&log), 1);
    let resumed = copy.run(&["pools", "resume", "--all"]);
    assert!(
        resumed.code == 0
            && resumed.err.contains("warning: another server of this machine (process ")
            && resumed.err.contains(data.to_str().unwrap()),
        "{}",
        resumed.err
    );
}

fn run_shell(command: &str) -> bool {
    Command::new("sh").args(["-c", command]).status().unwrap().success()
}

/// Everything that steers a terminal or forges a line.
const BAD: &str = "\u{1b}]0;owned\u{7}\u{1b}[31m\r\nFORGED\u{9b}2J\u{202e}\u{2066}\u{7f}";

#[track_caller]
fn assert_harmless(what: &str, text: &str) {
    let steers = |c: char| {
        c.is_control() && !matches!(c, '\n' | '\t') || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert!(!text.contains(steers), "{what}: {text:?}");
    assert!(!text.lines().any(|line| line.starts_with("FORGED")), "{what}: {text:?}");
}

/// Names take no control characters; marks that turn the direction of writing are text.
const TURNED: &str = "\u{202e}\u{2066}FORGED";

/// Tells a server such text in every field that takes it; returns the id of a chunk.
fn tell_bad_text(server: &Server, keep: &Path) -> String {
    let send = |method: &str, path: &str, body: serde_json::Value| {
        let (url, body) = (format!("{}{path}", server.url), body.to_string());
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-X", method, "-H", "Content-Type: application/json", "-d", &body, &url]);
        let answer = curl.output().unwrap();
        serde_json::from_slice::<serde_json::Value>(&answer.stdout).unwrap_or_default()
    };
    let urls = json!([{"url": "http://a.example/", "metadata": {"note": BAD}}]);
    send("POST", "/v1/urls", json!({"crawl": "c", "urls": urls}));
    send("PUT", "/v1/crawls/c", json!({"retry": {"max_attempts": 1}}));
    let claimed = send("POST", "/v1/chunks/claim", json!({"stage": "crawl", "worker": "w", "wait_ms": 5000}));
    let (id, token) = (claimed["chunks"][0]["id"].as_str().unwrap(), &claimed["chunks"][0]["token"]);
    let reason = format!("{BAD} cannot read s3://key:hunter2@bucket/x");
    let failed = send("POST", &format!("/v1/chunks/{id}/fail"), json!({"token": token, "reason": reason}));
    assert!(failed["state"].is_string(), "{failed}");
    send("POST", "/v1/urls", json!({"crawl": TURNED, "urls": [{"url": "http://b.example/", "key": TURNED}]}));
    let machine = json!({"type": "server", "address": "127.0.0.1:1", "row": 1, "state": "online", "version": TURNED});
    send("PUT", "/v1/fleet/index-1", machine);
    send("POST", "/v1/reservations", json!({"holder": TURNED, "crawl": TURNED}));
    send("POST", "/v1/roles/r/heartbeat", json!({"uuid": "u", "address": "here", "metadata": {"name": BAD}}));
    let script = keep.join("w.sh");
    std::fs::write(&script, format!("#!/bin/sh\nprintf '%s\\n' '{BAD}'\nsleep 1\nexit 3\n")).unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    server.run(&["pools", "set", "p", "--min", "1", "--", script.to_str().unwrap()]).ok();
    until("it has failed", || server.run(&["pools", "logs", "p"]).out.contains("owned"));
    id.to_owned()
}

/// What shows it. `ID` stands for the chunk, `FOLDER` for one that is not there.
const SHOWING: &[&[&str]] = &[
    &["chunks"],
    &["chunks", "show", "ID"],
    &["urls"],
    &["urls", "lookup", "http://a.example/"],
    &["why", "a.example"],
    &["roles"],
    &["roles", "show", "r"],
    &["pools"],
    &["pools", "show", "p"],
    &["pools", "workers", "p"],
    &["pools", "logs", "p"],
    &["crawls"],
    &["crawls", "show", TURNED],
    &["hosts"],
    &["hosts", "show", TURNED],
    &["why", TURNED],
    &["groups"],
    &["reservations"],
    &["fleet"],
    &["fleet", "show", "index-1"],
    &["placements"],
    &["map"],
    &["jobs"],
    &["matches"],
    &["match", TURNED, "--pool", "p"],
    &["why", TURNED, "--pool", "p"],
    &["nodes"],
    &["stats"],
    &["export", "--partial", "-"],
    &["put", BAD],
    &["get", "--crawl", BAD],
    &["crawl", "--once", "--store", "FOLDER", "--crawl", BAD],
    &["urls", "lookup", BAD],
    &["why", BAD],
    &["match", "c", "--pool", BAD],
];

#[test]
fn text_of_others_steers_no_terminal_and_no_log_and_shows_no_credentials() {
    let (keep, server) = Server::fresh();
    let id = tell_bad_text(&server, keep.path());
    let folder = keep.path().join("pages");
    let mut seen = String::new();
    for args in SHOWING {
        let meant = |arg: &&'static str| match *arg {
            "ID" => id.clone(),
            "FOLDER" => folder.to_str().unwrap().to_owned(),
            other => other.to_owned(),
        };
        let args: Vec<String> = args.iter().map(meant).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        for json in [false, true] {
            let all = if json { [&args[..], &["--json"]].concat() } else { args.clone() };
            let ended = server.run(&all);
            println!("seen: {args:?}: {}{}", ended.out, ended.err);
            for text in [&ended.out, &ended.err] {
                // Worker output is shown line by line.
                let lines = if args == ["pools", "logs", "p"] { text.replace("\nFORGED", "") } else { text.clone() };
                assert_harmless(&all.join(" "), &lines);
                assert!(!text.contains("hunter2"), "{all:?}: {text}");
            }
            if json {
                let lines = ended.out.lines().filter(|line| !line.is_empty());
                lines.for_each(|line| _ = serde_json::from_str::<serde_json::Value>(line).expect(line));
            }
            seen += &ended.out;
        }
    }
    assert!(seen.contains("***@bucket") && seen.contains("owned"), "it was there: {seen}");
    assert!(seen.matches("\\u{202e}\\u{2066}FORGED").count() > 8, "in tables: {seen}");
    assert!(seen.matches("\\u202e\\u2066FORGED").count() > 6, "in JSON: {seen}");
    let chunk = server.run(&["chunks", "show", &id, "--json"]).json().remove(0);
    let error = chunk["last_error"].as_str().unwrap();
    assert!(error.contains("s3://***@bucket/x") && !error.contains(char::is_control), "{error:?}");
    assert_harmless("the log", &server.log());
}
