//! Start, stop, exits, logs, and what cannot be started.

use std::net::TcpListener;
use std::time::Duration;

use tokio::time::timeout;
use wayleave_core::matches::{Exit, Verdict};
use wayleave_makers::runtime::process::{ProcessRuntime, Settings};
use wayleave_makers::{Runtime, await_listening};

use super::support::{OWNER, POOL, ask, eventually, is_alive, key, make, recipe, soon, worker};
use super::{open, opened};

#[tokio::test]
async fn a_worker_is_started_asked_stopped_and_removed() {
    let (_state, runtime) = opened().await;
    let mut events = runtime.events();
    let calls = crate::support::calls();
    let instance = runtime.create(&key(1), &worker(1, &[]), soon()).await.unwrap();
    await_listening(&calls, &instance.address, soon()).await.unwrap();
    let anna = ask("anna", &instance, 1);
    assert_eq!(calls.check(&anna, soon()).await, Verdict::No);
    assert_eq!(calls.reserve(&anna, soon()).await, Verdict::Yes);
    assert_eq!(calls.reserve(&anna, soon()).await, Verdict::Yes, "asking twice is asking once");
    assert_eq!(calls.reserve(&ask("anna", &instance, 2), soon()).await, Verdict::No, "with another token");
    assert_eq!(calls.reserve(&ask("ben", &instance, 3), soon()).await, Verdict::Yes);
    assert_eq!(calls.reserve(&ask("cleo", &instance, 4), soon()).await, Verdict::No, "it has two slots");
    assert_eq!(calls.check(&anna, soon()).await, Verdict::Yes);
    assert_eq!(calls.release(&ask("anna", &instance, 9), soon()).await, Verdict::No, "not its token");
    assert_eq!(calls.release(&anna, soon()).await, Verdict::Yes);
    assert_eq!(calls.check(&anna, soon()).await, Verdict::No);

    let listed = runtime.list(&POOL.into(), OWNER, soon()).await.unwrap();
    assert_eq!(listed.iter().map(|found| found.instance.clone()).collect::<Vec<_>>(), [Some(instance.clone())]);
    assert!(runtime.list(&POOL.into(), "another installation", soon()).await.unwrap().is_empty());
    runtime.stop(&key(1), soon()).await.unwrap();
    assert!(!is_alive(&instance.id));
    let ended = timeout(Duration::from_secs(20), events.recv()).await.unwrap().unwrap();
    assert_eq!((&ended.worker, &ended.instance), (&key(1), &instance));
    assert_eq!(ended.exit, Exit::Clean);
    let listed = runtime.list(&POOL.into(), OWNER, soon()).await.unwrap();
    assert_eq!(listed[0].exit.as_ref(), Some(&ended.exit));
    runtime.remove(&key(1), soon()).await.unwrap();
    runtime.remove(&key(1), soon()).await.unwrap();
    assert!(runtime.list(&POOL.into(), OWNER, soon()).await.unwrap().is_empty());
    let log = runtime.logs(&key(1), 10_000, soon()).await.unwrap();
    assert!(log.contains("listens on 127.0.0.1:"), "the log of a removed worker is kept: {log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_is_repeated_at_the_same_time_starts_one_process() {
    let (_state, runtime) = opened().await;
    let (key, make) = (key(1), worker(1, &[]));
    let made = futures::future::join_all((0..8).map(|_| runtime.create(&key, &make, soon()))).await;
    let first = made[0].clone().unwrap();
    assert!(made.iter().all(|made| made.as_ref() == Ok(&first)), "{made:?}");
    runtime.remove(&key, soon()).await.unwrap();
    assert!(!is_alive(&first.id));
}

#[tokio::test]
async fn a_workers_exit_is_reported_and_a_clean_one_restarts_once() {
    let (_state, runtime) = opened().await;
    let mut events = runtime.events();
    _ = runtime.create(&key(1), &worker(1, &[("MISBEHAVE", "exit:3")]), soon()).await;
    let ended = timeout(Duration::from_secs(20), events.recv()).await.unwrap().unwrap();
    let want = Exit::Error("it exited with code 3; its last output: told to exit with code 3".into());
    assert_eq!(ended.exit, want);
    let again = runtime.create(&key(1), &worker(1, &[]), soon()).await.unwrap_err();
    assert!(again.to_string().starts_with("it exited with code 3"), "a repeated order does not start another: {again}");

    let first = runtime.create(&key(2), &worker(2, &[("MISBEHAVE", "exit:0")]), soon()).await.unwrap();
    let ended = timeout(Duration::from_secs(20), events.recv()).await.unwrap().unwrap();
    assert_eq!((ended.instance, ended.exit), (first.clone(), Exit::Clean));
    let mut restart = worker(2, &[]);
    restart.last = Some(first.clone());
    let second = runtime.restart(&key(2), &restart, soon()).await.unwrap();
    assert!(!second.is_run(&first));
    assert_eq!(runtime.restart(&key(2), &restart, soon()).await.as_ref(), Ok(&second), "it runs, so it is that one");
    runtime.remove(&key(1), soon()).await.unwrap();
    runtime.remove(&key(2), soon()).await.unwrap();
}

#[tokio::test]
async fn a_worker_that_ignores_sigterm_is_not_called_stopped_and_is_killed() {
    let (_state, runtime) = opened().await;
    let script = "trap '' TERM; echo deaf; while :; do sleep 1; done";
    let instance = runtime.create(&key(1), &make(1, recipe(&["sh", "-c", script], &[])), soon()).await.unwrap();
    eventually("the trap is set", || async {
        runtime.logs(&key(1), 100, soon()).await.ok().filter(|log| log.contains("deaf"))
    })
    .await;
    let why = runtime.stop(&key(1), tokio::time::Instant::now() + Duration::from_millis(200)).await.unwrap_err();
    assert_eq!(why.to_string(), format!("it still runs (process {}) after SIGTERM", instance.id));
    assert!(is_alive(&instance.id));
    runtime.remove(&key(1), soon()).await.unwrap();
    assert!(!is_alive(&instance.id));
}

#[tokio::test]
async fn children_end_with_their_worker() {
    let (_state, runtime) = opened().await;
    let child = |no| {
        let runtime = &runtime;
        eventually("the child", move || async move {
            let log = runtime.logs(&key(no), 1_000, soon()).await.ok()?;
            log.lines().find_map(|line| line.strip_prefix("child ")).map(str::to_owned)
        })
    };
    // One whose group is killed with it, and one that has left the group.
    runtime.create(&key(1), &worker(1, &[("MISBEHAVE", "parent")]), soon()).await.unwrap();
    let script = "setsid sleep 1000 & echo child $!; wait";
    runtime.create(&key(2), &make(2, recipe(&["sh", "-c", script], &[])), soon()).await.unwrap();
    for no in [1, 2] {
        let child = child(no).await;
        assert!(is_alive(&child));
        runtime.remove(&key(no), soon()).await.unwrap();
        assert!(!is_alive(&child), "worker {no}");
    }
}

/// `run.sh` without `exec`: the shell dies of TERM at once, its child still cleans up.
#[tokio::test]
async fn children_have_their_grace_though_their_worker_has_ended() {
    let (_state, runtime) = opened().await;
    let mut events = runtime.events();
    let child = r#"trap 'sleep 0.4; echo clean; exit' TERM; echo child $$; while :; do sleep 0.02; done"#;
    let log = |no| {
        let runtime = &runtime;
        async move { runtime.logs(&key(no), 1_000, soon()).await.unwrap() }
    };
    let child_of = |no| {
        let runtime = &runtime;
        eventually("the child", move || async move {
            let log = runtime.logs(&key(no), 1_000, soon()).await.ok()?;
            log.lines().find_map(|line| line.strip_prefix("child ")).map(str::to_owned)
        })
    };
    // In the worker's group, and out of it.
    for (no, before) in [(1, ""), (2, "setsid ")] {
        let script = format!("{before}sh -c '{}' & wait", child.replace('\'', r"'\''"));
        let instance = runtime.create(&key(no), &make(no, recipe(&["sh", "-c", &script], &[])), soon()).await.unwrap();
        let child = child_of(no).await;
        runtime.stop(&key(no), soon()).await.unwrap();
        assert!(!is_alive(&instance.id) && !is_alive(&child));
        assert!(log(no).await.ends_with("clean\n"), "{}", log(no).await);
        timeout(Duration::from_secs(20), events.recv()).await.unwrap().unwrap();
        runtime.remove(&key(no), soon()).await.unwrap();
    }
    // Also if the worker ends by itself. Until its children have ended, it has not; to remove it ends them.
    let deaf = "sh -c 'trap : TERM; echo child $$; while :; do sleep 0.02; done' & sleep 0.3";
    let instance = runtime.create(&key(3), &make(3, recipe(&["sh", "-c", deaf], &[])), soon()).await.unwrap();
    let child = child_of(3).await;
    eventually("the end of the shell", || async { (!is_alive(&instance.id)).then_some(()) }).await;
    let listed = runtime.list(&POOL.into(), OWNER, soon()).await.unwrap();
    assert_eq!((listed[0].exit.as_ref(), is_alive(&child)), (None, true));
    runtime.remove(&key(3), soon()).await.unwrap();
    assert!(!is_alive(&child));
    assert_eq!(timeout(Duration::from_secs(20), events.recv()).await.unwrap().unwrap().exit, Exit::Clean);
}

/// Limits of the server that a worker must not inherit are set back by a launcher, which becomes the worker.
#[tokio::test]
async fn a_launcher_becomes_the_worker_and_a_missing_command_is_reported() {
    let state = tempfile::tempdir().unwrap();
    let launcher = ["sh", "-c", r#"ulimit -Sn 77; exec "$@""#, "sh"].map(str::to_owned).into();
    let settings = Settings { launcher, ..Settings::new(state.path().to_owned()) };
    let runtime = ProcessRuntime::open(settings).await.unwrap();
    let script = "ulimit -Sn; echo port $0; sleep 1000";
    let order = make(1, recipe(&["sh", "-c", script, "{port}"], &[]));
    let instance = runtime.create(&key(1), &order, soon()).await.unwrap();
    let port = instance.address.rsplit(':').next().unwrap();
    eventually("the output", || async {
        let log = runtime.logs(&key(1), 1_000, soon()).await.ok()?;
        (log == format!("77\nport {port}\n")).then_some(())
    })
    .await;
    runtime.remove(&key(1), soon()).await.unwrap();
    assert!(!is_alive(&instance.id));
    let file = state.path().join("file");
    std::fs::write(&file, "not a program").unwrap();
    for (program, want) in [
        ("/no/such/program", "command '/no/such/program' does not exist"),
        ("no-such-program", "command 'no-such-program' does not exist"),
        (file.to_str().unwrap(), "may not be executed"),
    ] {
        let why = runtime.create(&key(2), &make(2, recipe(&[program], &[])), soon()).await.unwrap_err().to_string();
        assert!(why.contains(want), "{why}");
    }
}

#[tokio::test]
async fn the_log_of_a_chatty_worker_is_bounded_and_keeps_its_tail() {
    let (state, runtime) = opened().await;
    runtime.create(&key(1), &worker(1, &[("MISBEHAVE", "chatter")]), soon()).await.unwrap();
    let folder = state.path().join("workers").join(POOL).join(format!("{:016x}-1", 0xabc));
    eventually("the log is cut", || async { folder.join("log.before").exists().then_some(()) }).await;
    runtime.stop(&key(1), soon()).await.unwrap();
    let bytes = |file| std::fs::metadata(folder.join(file)).unwrap().len();
    eventually("the last cut", || async { (bytes("log") <= 256 * 1024).then_some(()) }).await;
    assert!(bytes("log.before") <= 256 * 1024);
    let text = runtime.logs(&key(1), 100_000, soon()).await.unwrap();
    assert!(text.len() <= 100_000 && text.contains("chatter "), "{}", text.len());
    runtime.remove(&key(1), soon()).await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_started_says_why_and_leaves_nothing() {
    let state = tempfile::tempdir().unwrap();
    let mut settings = Settings::new(state.path().join("a"));
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = stranger.local_addr().unwrap().port();
    settings.ports = Some(taken..=taken);
    let crowded = ProcessRuntime::open(settings).await.unwrap();
    let runtime = open(&state.path().join("b")).await;
    let file = state.path().join("file");
    std::fs::write(&file, "not a program").unwrap();
    let mut fixed = recipe(&["sleep", "1"], &[]);
    fixed.port = Some(taken);
    for (runtime, recipe, want) in [
        (&runtime, recipe(&["/no/such/program"], &[]), "command '/no/such/program' does not exist".to_owned()),
        (&runtime, recipe(&[file.to_str().unwrap()], &[]), "may not be executed".to_owned()),
        (&runtime, recipe(&[], &[]), "the pool has no command".to_owned()),
        (&runtime, fixed, format!("port {taken} is taken by another program")),
        (&crowded, recipe(&["sleep", "1"], &[]), format!("no port of {taken} to {taken} is free")),
    ] {
        let why = runtime.create(&key(1), &make(1, recipe), soon()).await.unwrap_err().to_string();
        assert!(why.contains(&want), "{why}");
        assert!(runtime.list(&POOL.into(), OWNER, soon()).await.unwrap().is_empty(), "{want}");
        runtime.remove(&key(1), soon()).await.unwrap();
        let kept = runtime.removed(&POOL.into(), soon()).await.unwrap();
        assert!(kept.is_empty(), "it would take the place of real output: {kept:?}");
    }
    let works = runtime.create(&key(1), &make(1, recipe(&["sleep", "1000"], &[])), soon()).await;
    assert!(works.is_ok(), "an order that failed may be repeated: {works:?}");
    runtime.remove(&key(1), soon()).await.unwrap();
}

#[tokio::test]
async fn a_worker_that_cannot_be_started_again_leaves_what_it_wrote_before() {
    let (_state, runtime) = opened().await;
    let mut events = runtime.events();
    let first = runtime.create(&key(1), &make(1, recipe(&["echo", "hello"], &[])), soon()).await.unwrap();
    timeout(Duration::from_secs(20), events.recv()).await.unwrap().unwrap();
    let mut again = make(1, recipe(&["/no/such/program"], &[]));
    again.last = Some(first);
    runtime.restart(&key(1), &again, soon()).await.unwrap_err();
    runtime.remove(&key(1), soon()).await.unwrap();
    let kept = runtime.removed(&POOL.into(), soon()).await.unwrap();
    assert!(kept.len() == 1 && kept[0].reason.contains("does not exist"), "{kept:?}");
    assert_eq!(runtime.logs(&key(1), 100, soon()).await.as_deref(), Ok("hello\n"));
}

#[tokio::test]
async fn a_worker_gets_what_it_needs_and_none_of_the_servers_environment() {
    let (_state, runtime) = opened().await;
    let make = make(1, recipe(&["sh", "-c", "env; echo argument $0", "--port={port}"], &[("OWN", "a b; $x `y`")]));
    _ = runtime.create(&key(1), &make, soon()).await;
    let log = eventually("the output", || async {
        runtime.logs(&key(1), 10_000, soon()).await.ok().filter(|log| log.contains("argument"))
    })
    .await;
    let value = |name: &str| log.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
    assert_eq!((value("OWN"), value("HOST")), (Some("a b; $x `y`"), Some("127.0.0.1")), "{log}");
    assert_eq!((value("WAYLEAVE_WORKER"), value("WAYLEAVE_RUN")), (Some("browsers-0000000000000abc-1"), Some("1")));
    assert_eq!(value("WAYLEAVE_SECRET"), Some(make.secret.0.to_string().as_str()));
    let port = value("PORT").unwrap();
    assert!(log.contains(&format!("argument --port={port}")), "{log}");
    let foreign = ["CARGO", "CARGO_MANIFEST_DIR", "RUST_BACKTRACE"];
    assert!(foreign.iter().all(|name| value(name).is_none()), "{log}");
    runtime.remove(&key(1), soon()).await.unwrap();
}
