//! Workers as machines of the fleet.

use super::stage::Stage;
use crate::prelude::*;

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
async fn a_second_worker_of_the_same_name_and_folder_is_refused_while_the_first_runs() {
    let stage = Stage::start(1, 1).await;
    let online = |shown: &Value| shown["state"] == "online";
    for kind in ["crawl", "build"] {
        let first = stage.spawn(kind, kind, &stage.server.url, &[]);
        wait(&stage, kind, "it registers", online);
        let second = stage.run(kind, kind, &["--until-idle"]).await;
        assert_eq!(second.code, 4, "{}", second.err);
        let folder = stage.folder(kind).to_str().unwrap().to_owned();
        let process = format!("process {} on ", first.0.id());
        for part in [&folder, &process, kind, "another --id or --store"] {
            assert!(second.err.contains(part), "{part}: {}", second.err);
        }
        let nothing = ["--once", "--crawl", "other", "--lease", "200ms"];
        let other = [&nothing[..], &["--id", "other"]].concat();
        assert_eq!(stage.run(kind, kind, &other).await.code, 3, "another name may share the folder");
        first.kill();
        assert_eq!(stage.run(kind, kind, &nothing).await.code, 3, "after kill -9");
    }
    let first = stage.index("i0", "0", &stage.server.url);
    wait(&stage, "i0", "it registers", online);
    let folder = stage.folder("i0").to_str().unwrap().to_owned();
    let second = stage.server.run(&["index", "--data", &folder, "--id", "i1"]);
    assert_eq!(second.code, 4, "{}", second.err);
    for part in [&folder, "'i0', process ", "another --data"] {
        assert!(second.err.contains(part), "{part}: {}", second.err);
    }
    first.kill();
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
