//! Workers as machines of the fleet.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::stage::Stage;

/// Waits until a machine is so.
fn wait(stage: &Stage, id: &str, what: &str, good: impl Fn(&Value) -> bool) {
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        let shown = stage.server.run(&["fleet", "show", id, "--json"]);
        if shown.code == 0 && good(&shown.json()[0]) {
            return;
        }
        assert!(Instant::now() < patience, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_is_in_the_fleet_and_obeys_pause_and_drain() {
    let stage = Stage::start(2, 2).await;
    let spawn = |kind: &str, name: &str| {
        let mut command = stage.worker(kind, name, &stage.server.url, &["--json", "--crawl", "other"]);
        command.stdout(Stdio::piped()).stderr(Stdio::inherit());
        command.spawn().unwrap()
    };
    for (kind, machine) in [("crawl", "crawler"), ("build", "builder")] {
        let worker = spawn(kind, machine);
        wait(&stage, machine, "it registers", |shown| shown["type"] == machine && shown["state"] == "online");
        stage.server.run(&["fleet", "set", machine, "--desired", "paused"]).ok();
        wait(&stage, machine, "it says that it is paused", |shown| shown["state"] == "paused");
        stage.server.run(&["fleet", "remove", machine]).ok();
        wait(&stage, machine, "it registers anew", |shown| shown["state"] == "paused");
        wait(&stage, machine, "nobody wants a new machine paused", |shown| shown["state"] == "online");
        stage.server.run(&["fleet", "set", machine, "--desired", "paused"]).ok();
        wait(&stage, machine, "it is paused again", |shown| shown["state"] == "paused");
        if kind == "crawl" {
            // A claim that was made before may still be waiting, for a quarter of its lease.
            tokio::time::sleep(Duration::from_millis(600)).await;
            let seed = stage.site.url(0, "/").unwrap().to_string();
            stage.server.run(&["put", "--crawl", "other", &seed]).ok();
            let chunk = stage.server.run(&["chunks", "claim", "--crawl", "other", "--wait", "10s", "--json"]).json();
            assert_eq!(chunk[0]["links"][0]["url"], seed.as_str(), "the crawler has left it to others");
        }
        stage.server.run(&["fleet", "set", machine, "--desired", "drain"]).ok();
        let ended = tokio::task::spawn_blocking(move || worker.wait_with_output().unwrap()).await.unwrap();
        assert_eq!(ended.status.code(), Some(0));
        let told: Value = serde_json::from_slice(&ended.stdout).unwrap();
        assert_eq!(told["pages"], 0, "{told}");
        assert_eq!(stage.server.run(&["fleet", "show", machine]).code, 3, "it has left in good order");
    }
    assert!(stage.site.log().entries().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_another_machine_has_is_refused() {
    let stage = Stage::start(1, 1).await;
    let first = stage.spawn("crawl", "same", &stage.server.url, &[]);
    // The token must have been presented once: with the second report.
    let seen = |shown: &Value| shown["seen_at"] != shown["registered_at"];
    wait(&stage, "same", "it reports again", seen);
    let refused = stage.run("build", "elsewhere", &["--until-idle", "--id", "same"]).await;
    assert_eq!(refused.code, 4, "{}", refused.err);
    first.kill();
}
