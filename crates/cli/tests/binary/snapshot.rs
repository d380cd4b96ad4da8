//! `snapshot` and `restore` through the real binary: a copy of a busy server, and a server on the copy.

use std::sync::atomic::AtomicBool;

use wayleave_api::roles::{GetRoleQuery, HeartbeatRequest};

use crate::prelude::*;

fn restore(file: &Path, data: &Path) -> Ended {
    run(wayleave(&["restore", file.to_str().unwrap(), "--data", data.to_str().unwrap()]), "")
}

fn show(server: &Server, what: &str, name: &str) -> Value {
    server.run(&[what, "show", name, "--json"]).json().remove(0)
}

/// Puts batches until it is stopped; counts the acknowledged ones.
fn put_on(server: &Server, n: usize, acknowledged: &AtomicUsize, over: &AtomicBool) {
    for batch in 0.. {
        if over.load(Ordering::SeqCst) {
            return;
        }
        let urls: String = (0..50).map(|i| format!("http://w{n}-{}.example/{batch}/{i}\n", i % 7)).collect();
        assert!(server.run_with(&["seed"], &urls).ok().starts_with("50 added"));
        acknowledged.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_snapshot_taken_under_load_restores_all_that_was_acknowledged_before_it() {
    let ((keep, data), (_keep_other, other)) = (folder(), folder());
    let file = keep.path().join("copy.snapshot");
    let server = Server::start_with(&data, &["--memtable-mb", "1"]);
    server.run(&["put", "http://leased.example/a", "http://leased.example/b"]).ok();
    server.run(&["hosts", "set", "slow.example", "--delay", "7s"]).ok();
    server.run(&["roles", "set", "writer", "--ttl", "10m"]).ok();
    let leased = server.run(&["get", "--lease", "1h", "--json"]).json().remove(0);
    let token = leased["token"].as_str().unwrap().to_owned();
    for _ in 0..2 {
        assert_eq!(server.run(&["elect", "indexer", "--once", "--", "true"]).code, 0);
    }
    let acknowledged: Vec<AtomicUsize> = (0..3).map(|_| AtomicUsize::new(0)).collect();
    let over = AtomicBool::new(false);
    let before = std::thread::scope(|scope| {
        for (n, acknowledged) in acknowledged.iter().enumerate() {
            let (server, over) = (&server, &over);
            scope.spawn(move || put_on(server, n, acknowledged, over));
        }
        // All of them are busy.
        while acknowledged.iter().any(|count| count.load(Ordering::SeqCst) < 3) {
            std::thread::yield_now();
        }
        let before: Vec<usize> = acknowledged.iter().map(|count| count.load(Ordering::SeqCst)).collect();
        let taken = server.run(&["snapshot", file.to_str().unwrap()]);
        over.store(true, Ordering::SeqCst);
        let said = taken.ok();
        assert!(said.contains("4 shards"), "{said}");
        before
    });
    assert!(!file.with_extension("snapshot.part").exists());
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600, "it holds tokens");
    server.kill();

    let said = restore(&file, &other).ok();
    assert!(said.contains("4 shards"), "{said}");
    let restored = Server::start(&other);
    let lines = restored.run(&["urls", "list", "--all", "--json"]).json();
    for (n, batches) in before.iter().enumerate() {
        let mine = format!("http://w{n}-");
        let found = lines.iter().filter(|url| url["url"].as_str().unwrap().starts_with(&mine)).count();
        assert!(found >= batches * 50, "client {n}: {found} URLs of {batches} batches");
    }
    assert_eq!(show(&restored, "hosts", "slow.example")["delay_ms"], 7_000);
    assert_eq!(show(&restored, "roles", "writer")["ttl_ms"], 600_000);
    // The lease continues, and ends as it would have.
    assert_eq!(show(&restored, "hosts", "leased.example")["state"], "busy");
    restored.run(&["renew", &token, "--lease", "1h"]).ok();
    // Epochs continue above those that the original store may have granted since.
    let epoch = show(&restored, "roles", "indexer")["epoch"].as_u64().unwrap();
    assert!(epoch >= 2, "{epoch}");
    restored.run(&["seed"]).ok();
    assert_eq!(restored.stop(), 0);
}

/// Stands for a role until it is primary, releases it and returns the epoch.
fn elect(server: &Server) -> u64 {
    let client = Client::new(&server.url).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        loop {
            let request = HeartbeatRequest::new("candidate");
            let told = client.heartbeat("indexer", &request, Duration::from_secs(5)).await.unwrap();
            if told.primary {
                client.release_role("indexer", "candidate", told.token.as_deref()).await.unwrap();
                return told.epoch;
            }
            let vacancy = GetRoleQuery { wait_ms: Some(100), min_epoch: Some(1 << 53), wait_for: None };
            client.role("indexer", &vacancy).await.unwrap();
        }
    })
}

#[test]
fn the_next_primary_after_a_restore_has_an_epoch_that_the_first_store_has_not_granted_since() {
    let ((keep, data), (_keep_other, other)) = (folder(), folder());
    let file = keep.path().join("copy.snapshot");
    let server = Server::start(&data);
    server.run(&["roles", "set", "indexer", "--ttl", "500ms"]).ok();
    assert_eq!(elect(&server), 1);
    server.run(&["snapshot", file.to_str().unwrap()]).ok();
    let since: Vec<u64> = (0..3).map(|_| elect(&server)).collect();
    server.kill();
    restore(&file, &other).ok();
    let restored = Server::start(&other);
    let next = elect(&restored);
    assert!(since.iter().all(|epoch| *epoch < next), "{since:?}, then {next}");
}

#[test]
fn a_bad_file_and_a_folder_in_use_are_refused_by_name() {
    let ((keep, data), (_keep_other, other)) = (folder(), folder());
    let file = keep.path().join("copy.snapshot");
    let server = Server::start(&data);
    server.run(&["put", "http://a.example/"]).ok();
    server.run(&["snapshot", file.to_str().unwrap()]).ok();

    let used = restore(&file, &data);
    assert_eq!(used.code, 4, "{}", used.err);
    assert!(used.err.contains(data.to_str().unwrap()) && used.err.contains("not empty"), "{}", used.err);

    let whole = std::fs::read(&file).unwrap();
    let bad = keep.path().join("bad.snapshot");
    let mut damaged = whole.clone();
    let middle = whole.len() / 2;
    damaged[middle] ^= 1;
    for (bytes, said) in
        [(&whole[..whole.len() - 5], "truncated"), (&damaged[..], "damaged at byte"), (b"hello", "not a snapshot")]
    {
        std::fs::write(&bad, bytes).unwrap();
        let ended = restore(&bad, &other);
        assert_eq!(ended.code, 1, "{}", ended.err);
        assert!(ended.err.contains(bad.to_str().unwrap()) && ended.err.contains(said), "{}", ended.err);
        assert!(!other.exists(), "nothing is left behind");
    }
    let missing = restore(&keep.path().join("nowhere"), &other);
    assert!(missing.code == 1 && missing.err.contains("nowhere"), "{}", missing.err);
}

#[test]
fn a_store_that_cannot_be_copied_says_what_to_use_instead() {
    let (keep, data) = folder();
    let server = Server::start_with(&data, &["--engine", "memory"]);
    let file = keep.path().join("copy.snapshot");
    let refused = server.run(&["snapshot", file.to_str().unwrap()]);
    assert_eq!(refused.code, 1, "{}", refused.err);
    assert!(refused.err.contains("wayleave export") && refused.err.contains("not_supported"), "{}", refused.err);
    assert!(!file.exists() && !keep.path().join("copy.snapshot.part").exists());
}
