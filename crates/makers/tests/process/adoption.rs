//! A server ends in any way, and the next one finds its workers.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::time::timeout;
use wayleave_core::matches::{Exit, Instance, Verdict};
use wayleave_makers::runtime::process::{ProcessRuntime, Settings};
use wayleave_makers::{Runtime, await_listening};

use super::support::{OWNER, POOL, ask, eventually, is_alive, key, make, recipe, soon, worker};
use super::{open, opened};

const STATE: &str = "STATE_OF_A_SERVER_THAT_IS_KILLED";

fn kill(pid: &str) {
    let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

fn record(state: &Path) -> PathBuf {
    state.join("workers").join(POOL).join(format!("{:016x}-1", 0xabc)).join("record.json")
}

fn edit(state: &Path, change: impl FnOnce(&mut Value)) {
    let path = record(state);
    let mut value: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut value);
    std::fs::write(path, value.to_string()).unwrap();
}

#[tokio::test]
async fn a_second_runtime_adopts_what_the_first_one_has_started() {
    let (state, first) = opened().await;
    let instance = first.create(&key(1), &worker(1, &[]), soon()).await.unwrap();
    let why = ProcessRuntime::open(Settings::new(state.path().to_owned())).await.unwrap_err();
    assert!(why.to_string().starts_with("another server uses the state folder"), "{why}");
    drop(first);
    let second = open(state.path()).await;
    let mut events = second.events();
    let listed = second.list(&POOL.into(), OWNER, soon()).await.unwrap();
    assert_eq!((listed[0].instance.as_ref(), &listed[0].exit), (Some(&instance), &None));
    assert_eq!(second.create(&key(1), &worker(1, &[]), soon()).await.as_ref(), Ok(&instance), "repeated after a crash");
    kill(&instance.id);
    let ended = timeout(Duration::from_secs(20), events.recv()).await.unwrap().unwrap();
    assert_eq!(ended.instance, instance);
    assert!(
        matches!(&ended.exit, Exit::Error(why) if why.starts_with("it was ended by signal 9, SIGKILL")),
        "{ended:?}"
    );
    second.remove(&key(1), soon()).await.unwrap();
}

/// A second server on a copy would end what the first one has started.
#[tokio::test]
async fn a_copy_of_the_folder_is_refused_while_a_server_uses_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let (state, copy) = (folder.path().join("state"), folder.path().join("copy"));
    let first = open(&state).await;
    let instance = first.create(&key(1), &worker(1, &[]), soon()).await.unwrap();
    let copied = Command::new("cp").arg("-r").args([&state, &copy]).status().unwrap();
    assert!(copied.success());
    let why = ProcessRuntime::open(Settings::new(copy.clone())).await.unwrap_err().to_string();
    assert!(why.contains("is a copy of one that another server of this machine uses"), "{why}");
    assert!(is_alive(&instance.id));
    drop(first);
    // As after a backup is restored: there is no other owner of the workers.
    let second = open(&copy).await;
    let listed = second.list(&POOL.into(), OWNER, soon()).await.unwrap();
    assert_eq!(listed[0].instance.as_ref(), Some(&instance));
    second.remove(&key(1), soon()).await.unwrap();
    assert!(!is_alive(&instance.id));
}

/// A server that dies between start and record would leave an unknown process.
#[tokio::test]
async fn a_run_is_recorded_before_its_process_starts() {
    let state = tempfile::tempdir().unwrap();
    let (runtime, seen) = (open(state.path()).await, state.path().join("seen"));
    let (from, to) = (state.path().display(), seen.display());
    let script = format!("cat {from}/workers/*/*/record.json > {to}.new; mv {to}.new {to}; exec sleep 60");
    let order = make(1, recipe(&["/bin/sh", "-c", &script], &[]));
    runtime.create(&key(1), &order, soon()).await.unwrap();
    let first = eventually("it has looked", || async { std::fs::read(&seen).ok() }).await;
    let first: Value = serde_json::from_slice(&first).unwrap();
    let written: Value = serde_json::from_slice(&std::fs::read(record(state.path())).unwrap()).unwrap();
    assert_eq!(first["mark"], written["mark"], "{first}");
    assert!(first["mark"].is_string() && written["process"].is_object(), "{written}");
    runtime.remove(&key(1), soon()).await.unwrap();
}

/// The server of the next test. It creates a worker, says which, and waits to be killed.
#[tokio::test]
#[ignore = "started by the test after it"]
async fn server_that_is_killed() {
    let state = std::env::var(STATE).unwrap();
    let runtime = open(Path::new(&state)).await;
    let Instance { id, started, address } = runtime.create(&key(1), &worker(1, &[]), soon()).await.unwrap();
    println!("\nworker {id} {started} {address}");
    std::future::pending::<()>().await;
}

/// Its worker is then not a child that this process could wait for.
#[tokio::test]
async fn after_kill_9_of_the_server_its_worker_is_adopted_and_its_exit_noticed() {
    let state = tempfile::tempdir().unwrap();
    let mut server = Command::new(std::env::current_exe().unwrap());
    server.args(["--ignored", "--exact", "adoption::server_that_is_killed", "--nocapture"]);
    let mut server = server.env(STATE, state.path()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let line = lines.map(Result::unwrap).find_map(|line| line.strip_prefix("worker ").map(str::to_owned)).unwrap();
    let words: Vec<&str> = line.split(' ').collect();
    let instance = Instance { id: words[0].into(), started: words[1].parse().unwrap(), address: words[2].into() };
    let calls = crate::support::calls();
    await_listening(&calls, &instance.address, soon()).await.unwrap();
    let anna = ask("anna", &instance, 1);
    assert_eq!(calls.reserve(&anna, soon()).await, Verdict::Yes);
    server.kill().unwrap();
    server.wait().unwrap();

    assert!(is_alive(&instance.id));
    let runtime = open(state.path()).await;
    let mut events = runtime.events();
    let listed = runtime.list(&POOL.into(), OWNER, soon()).await.unwrap();
    assert_eq!((listed[0].instance.as_ref(), &listed[0].exit), (Some(&instance), &None));
    assert_eq!(calls.check(&anna, soon()).await, Verdict::Yes);
    kill(&instance.id);
    let ended = timeout(Duration::from_secs(20), events.recv()).await.unwrap().unwrap();
    assert_eq!(ended.instance, instance);
    assert!(matches!(&ended.exit, Exit::Error(why) if why.contains("how is not known")), "{ended:?}");
    runtime.remove(&key(1), soon()).await.unwrap();
}

/// The server of the next test, whose worker starts children that clear their environment.
#[tokio::test]
#[ignore = "started by the test after it"]
async fn server_of_a_worker_with_children_that_is_killed() {
    let state = std::env::var(STATE).unwrap();
    let runtime = open(Path::new(&state)).await;
    for no in [1, 2] {
        let script = "env -i sleep 1000 & echo child $!; wait";
        let instance = runtime.create(&key(no), &make(no, recipe(&["sh", "-c", script], &[])), soon()).await.unwrap();
        let child = eventually("the child", || async {
            let log = runtime.logs(&key(no), 1_000, soon()).await.ok()?;
            log.lines().find_map(|line| line.strip_prefix("child ")).map(str::to_owned)
        });
        println!("\nworker {} {}", instance.id, child.await);
    }
    std::future::pending::<()>().await;
}

/// A regression: they were found by their environment alone, and outlived their worker.
#[tokio::test]
async fn the_descendants_of_an_adopted_worker_end_with_it_without_a_mark() {
    let state = tempfile::tempdir().unwrap();
    let mut server = Command::new(std::env::current_exe().unwrap());
    let name = "adoption::server_of_a_worker_with_children_that_is_killed";
    server.args(["--ignored", "--exact", name, "--nocapture"]);
    let mut server = server.env(STATE, state.path()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(server.stdout.take().unwrap()).lines().map(Result::unwrap);
    let words = lines.filter_map(|line| line.strip_prefix("worker ").map(str::to_owned)).take(2);
    let pairs: Vec<Vec<String>> = words.map(|line| line.split(' ').map(str::to_owned).collect()).collect();
    server.kill().unwrap();
    server.wait().unwrap();
    // One ends while no server runs, the other under the next one.
    kill(&pairs[0][0]);
    let runtime = open(state.path()).await;
    kill(&pairs[1][0]);
    for (no, pair) in [(1, &pairs[0]), (2, &pairs[1])] {
        eventually("its end", || async {
            let listed = runtime.list(&POOL.into(), OWNER, soon()).await.unwrap();
            listed.into_iter().find(|found| found.worker.0 == no)?.exit
        })
        .await;
        assert!(!is_alive(&pair[1]), "the child of worker {no}");
        runtime.remove(&key(no), soon()).await.unwrap();
    }
}

#[tokio::test]
async fn a_process_started_but_not_recorded_is_found_by_its_mark() {
    let (state, first) = opened().await;
    let instance = first.create(&key(1), &worker(1, &[]), soon()).await.unwrap();
    drop(first);
    edit(state.path(), |record| record["process"] = Value::Null);
    let second = open(state.path()).await;
    let listed = second.list(&POOL.into(), OWNER, soon()).await.unwrap();
    assert_eq!(listed[0].instance.as_ref(), Some(&instance));
    second.remove(&key(1), soon()).await.unwrap();
    assert!(!is_alive(&instance.id));
}

#[tokio::test]
async fn a_server_that_died_before_the_start_left_nothing() {
    let (state, first) = opened().await;
    first.create(&key(1), &worker(1, &[]), soon()).await.unwrap();
    let written = std::fs::read(record(state.path())).unwrap();
    first.remove(&key(1), soon()).await.unwrap();
    drop(first);
    std::fs::create_dir_all(record(state.path()).parent().unwrap()).unwrap();
    std::fs::write(record(state.path()), written).unwrap();
    edit(state.path(), |record| record["process"] = Value::Null);
    let second = open(state.path()).await;
    assert!(second.list(&POOL.into(), OWNER, soon()).await.unwrap().is_empty());
    assert!(second.create(&key(1), &worker(1, &[]), soon()).await.is_ok(), "the order is repeated, and starts it");
    second.remove(&key(1), soon()).await.unwrap();
}

/// A process that was started later, as the kernel counts: in steps of some milliseconds.
fn start_after(started: u64) -> std::process::Child {
    loop {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        let since: u64 = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap();
        if since > started {
            return child;
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// The id of a worker's process belongs to a stranger now: the worker has ended, and the stranger is left alone.
#[tokio::test]
async fn a_process_id_that_is_used_again_is_not_taken_for_the_worker() {
    let (state, first) = opened().await;
    let instance = first.create(&key(1), &worker(1, &[]), soon()).await.unwrap();
    drop(first);
    kill(&instance.id);
    let mut stranger = start_after(instance.started);
    edit(state.path(), |record| record["process"]["pid"] = json!(stranger.id()));
    let second = open(state.path()).await;
    let listed = second.list(&POOL.into(), OWNER, soon()).await.unwrap();
    assert_eq!(listed[0].exit, Some(Exit::Error("it ended while no server ran".into())));
    second.stop(&key(1), soon()).await.unwrap();
    second.remove(&key(1), soon()).await.unwrap();
    assert!(stranger.try_wait().unwrap().is_none(), "the stranger still runs");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[tokio::test]
async fn a_worker_of_another_boot_has_ended() {
    let (state, first) = opened().await;
    let instance = first.create(&key(1), &worker(1, &[]), soon()).await.unwrap();
    drop(first);
    edit(state.path(), |record| record["boot"] = json!("another"));
    let second = open(state.path()).await;
    let listed = second.list(&POOL.into(), OWNER, soon()).await.unwrap();
    assert_eq!(listed[0].exit, Some(Exit::Error("the machine was started anew".into())));
    second.remove(&key(1), soon()).await.unwrap();
    assert!(!is_alive(&instance.id), "what carries its mark is ended all the same");
}
