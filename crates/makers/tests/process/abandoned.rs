//! Orders whose caller goes away, and a system that has no descriptors left.

use std::process::Command;
use std::time::Duration;

use futures::FutureExt;
use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process, setrlimit};
use tokio::time::Instant;
use wayleave_makers::Runtime;

use super::support::{OWNER, POOL, eventually, is_alive, key, make, recipe, soon};
use super::{open, opened};

/// The Maker ends the making of a worker that is to be removed.
#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_is_given_up_starts_nothing_after_the_removal() {
    let (state, runtime) = opened().await;
    for no in 1..=100 {
        let (key, make) = (key(no), make(no, recipe(&["sleep", "1000"], &[])));
        let given_up = runtime.create(&key, &make, soon()).now_or_never();
        assert!(given_up.is_none());
        runtime.remove(&key, soon()).await.unwrap();
    }
    // The folder is free once everything that was begun has ended.
    drop(runtime);
    let runtime = open(state.path()).await;
    let listed = runtime.list(&POOL.into(), OWNER, soon()).await.unwrap();
    for found in &listed {
        runtime.remove(&key(found.worker.0), soon()).await.unwrap();
    }
    assert!(listed.is_empty(), "{} workers were left", listed.len());
}

/// Changes how many descriptors this process may have, so it is a process of its own.
#[tokio::test]
#[ignore = "started by the test after it"]
async fn without_descriptors() {
    let (state, runtime) = opened().await;
    // The child itself says so: by then it has left the group of its parent, and does not end with it.
    let script = "setsid sh -c 'echo child $$; exec sleep 1000' & wait";
    let instance = runtime.create(&key(1), &make(1, recipe(&["sh", "-c", script], &[])), soon()).await.unwrap();
    let child = eventually("the child", || async {
        let log = runtime.logs(&key(1), 1_000, soon()).await.ok()?;
        log.lines().find_map(|line| line.strip_prefix("child ")).map(str::to_owned)
    })
    .await;
    let mut events = runtime.events();
    let before = getrlimit(Resource::Nofile);
    let mut none = before;
    none.current = Some(0);
    setrlimit(Resource::Nofile, none).unwrap();
    kill_process(Pid::from_raw(instance.id.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
    let ended = events.recv().await;
    let removed = runtime.remove(&key(1), Instant::now() + Duration::from_millis(300)).await;
    setrlimit(Resource::Nofile, before).unwrap();
    let left = is_alive(&child);
    let record = state.path().join("workers").join(POOL).join(format!("{:016x}-1", 0xabc)).join("record.json");
    let recorded = record.exists();
    runtime.remove(&key(1), soon()).await.unwrap();
    let after = is_alive(&child);
    _ = kill_process(Pid::from_raw(child.parse().unwrap()).unwrap(), Signal::KILL);
    assert!(ended.is_some());
    assert!(left && removed.is_err(), "a child was left: {removed:?}");
    assert!(recorded, "the child is found only by its record: {removed:?}");
    assert!(!after, "it is ended once it can be found");
    println!("all well");
}

#[tokio::test]
async fn a_process_that_cannot_be_searched_for_is_not_taken_for_absent() {
    let mut alone = Command::new(std::env::current_exe().unwrap());
    alone.args(["--ignored", "--exact", "abandoned::without_descriptors", "--nocapture"]);
    let done = alone.output().unwrap();
    let output = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && output.contains("all well"), "{output}");
}
