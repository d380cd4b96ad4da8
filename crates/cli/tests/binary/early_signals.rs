//! A server that is stopped before it is ready, while it opens its store or joins the others; and one that gets the signal twice.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::OFlags;

use crate::prelude::*;

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

fn node(engine: &str, makers: &Path) -> Command {
    let mut command = wayleave(&["serve", "--listen", "127.0.0.1:0", "--shards", "4", "--log-level", "debug"]);
    command.args(["--engine", engine, "--node-ttl-ms", "600000", "--makers", makers.to_str().unwrap()]);
    command
}

/// Tells a server to stop, and waits for its end: its exit code, how long it took, and what it logged.
fn stop(mut server: Child) -> (Option<i32>, Duration, String) {
    let told = Instant::now();
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    let status = loop {
        if let Some(status) = server.try_wait().unwrap() {
            break status;
        }
        if told.elapsed() > PATIENCE {
            server.kill().unwrap();
            break server.wait().unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let mut log = String::new();
    server.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    (status.code(), told.elapsed(), log)
}

#[track_caller]
fn check(server: Child) {
    let (code, took, log) = stop(server);
    assert_eq!(code, Some(0), "{log}");
    assert!(took < Duration::from_secs(10), "{took:?}: {log}");
    assert!(log.contains("stopped while it was starting"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_store_does_not_answer_hears_a_signal() {
    let (cluster, keep) = (Cluster::start().await, tempfile::tempdir().unwrap());
    let engine = cluster.fresh_database().await;
    cluster.pause().await;
    let server = node(&engine, keep.path()).spawn().unwrap();
    tokio::time::sleep(Duration::from_millis(800)).await;
    check(server);
    cluster.resume().await;
}

/// Where a pipe stands in for a file of the store, loading lasts until the test says so.
#[test]
fn a_server_that_loads_its_folder_hears_a_signal_and_leaves_the_folder_as_it_is() {
    let (keep, data) = folder();
    let server = Server::start(&data);
    server.run_with(&["seed"], "http://a.example/\n").ok();
    assert_eq!(server.stop(), 0);
    let (file, aside) = (current(&data.join("db")).unwrap(), keep.path().join("aside"));
    std::fs::rename(&file, &aside).unwrap();
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    let serve = ["serve", "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let server = wayleave(&serve).spawn().unwrap();
    let begun = Instant::now();
    // Refused while nobody has opened the other end.
    let writer = loop {
        match OpenOptions::new().write(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(&file) {
            Ok(writer) => break writer,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "it does not load: {error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    check(server);
    drop(writer);
    std::fs::rename(&aside, &file).unwrap();
    let server = Server::start(&data);
    assert_eq!(server.run(&["urls", "--json"]).json().len(), 1);
    assert_eq!(server.stop(), 0);
}

/// The file of this name below a folder.
fn current(folder: &Path) -> Option<PathBuf> {
    let found = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    found.into_iter().find_map(|path| if path.ends_with("current") { Some(path) } else { current(&path) })
}

/// `timeout 60 wayleave serve` signals the process, and then its group.
#[test]
fn two_signals_in_one_moment_are_one() {
    let (_keep, server) = Server::fresh();
    for _ in 0..2 {
        server.signal(Signal::TERM);
        std::thread::sleep(Duration::from_millis(1));
    }
    let (code, log) = server.wait();
    assert_eq!(code, 0, "{log}");
    assert!(log.contains("stopped") && !log.contains("stopped at once"), "{log}");
}

/// A regression: the server of a copied store tries for half a minute to pause its pools, and heard no signal meanwhile.
#[test]
fn a_server_that_cannot_pause_the_pools_of_a_copy_hears_a_signal() {
    let (keep, data) = folder();
    let small = ["--docker", "off", "--memtable-mb", "1"];
    let server = Server::start_with(&data, &small);
    // In every shard, so that some are listed and some are not.
    for n in 0..16 {
        server.run(&["pools", "set", &format!("p{n}"), "--", "true"]).ok();
    }
    let urls: String = (0..30_000).map(|n| format!("http://h{}.example/{n}/{}\n", n % 300, "x".repeat(60))).collect();
    server.run_with(&["seed", "-"], &urls).ok();
    assert_eq!(server.stop(), 0);
    let copied = keep.path().join("copied");
    assert!(Command::new("cp").arg("-r").args([&data, &copied]).status().unwrap().success());
    let table = crate::copy::largest(&copied);
    let mut bytes = std::fs::read(&table).unwrap();
    // The first block has rows without which a shard stays closed.
    bytes[100] ^= 1;
    std::fs::write(&table, bytes).unwrap();
    let _original = Server::start_with(&data, &small);
    let serve = ["serve", "--data", copied.to_str().unwrap(), "--listen", "127.0.0.1:0", "--docker", "off"];
    let mut server = wayleave(&[&serve[..], &["--log-level", "info,wayleave_cli=debug"]].concat()).spawn().unwrap();
    let mut lines = BufReader::new(server.stderr.as_mut().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("a pool of a copied store is not paused yet")), "it ended");
    drop(lines);
    let (code, took, log) = stop(server);
    assert_eq!(code, Some(0), "{log}");
    assert!(took < Duration::from_secs(10), "{took:?}: {log}");
}

/// It held signals back until it had joined.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_cannot_join_hears_a_signal() {
    let (cluster, keep) = (Cluster::shared().await, tempfile::tempdir().unwrap());
    let engine = cluster.fresh_database().await;
    // Its tables are made.
    assert_eq!(Server::spawn(node(&engine, keep.path())).stop(), 0);
    let database = engine.rsplit('/').next().unwrap().split('?').next().unwrap().to_owned();
    let lock = "BEGIN; LOCK TABLE wayleave_rows IN EXCLUSIVE MODE; SELECT pg_sleep(25); COMMIT";
    let (locker, name) = (cluster.clone(), database.clone());
    let locking = tokio::spawn(async move { locker.sql_in(&name, lock).await });
    let locked = "SELECT count(*) FROM pg_locks WHERE mode = 'ExclusiveLock' AND granted AND relation = 'wayleave_rows'::regclass";
    while cluster.sql_in(&database, locked).await == "0" {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let server = node(&engine, keep.path()).spawn().unwrap();
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'wayleave_rows'::regclass";
    let begun = Instant::now();
    while cluster.sql_in(&database, waiting).await == "0" {
        assert!(begun.elapsed() < PATIENCE, "it does not wait for the lock");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    check(server);
    locking.abort();
}
