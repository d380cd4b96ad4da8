//! The container image and the compose files, by the very commands that the documents show, in a separate container
//! engine: the image builds from source, serves on a reachable address, keeps its data on its volume whatever happens
//! to the container, and reports its health; compose starts one server, or three nodes over a database with a
//! synchronous standby.
//!
//! It needs root, dockerd, debootstrap and minutes, so an ordinary run ignores it; `cargo xtask prove
//! deploy` runs it. The image's settings are also tested without a container engine, in `image.rs`.

mod bases;
mod compose;
mod engine;

use std::time::Instant;

use compose::Compose;
pub use engine::Engine;
use engine::{root, wait_for};

const URL: &str = "http://site.example/kept";

/// The lines of docs/operating.md that start with a word, in order.
fn documented(word: &str) -> Vec<String> {
    let page = std::fs::read_to_string(root().join("docs/operating.md")).unwrap();
    page.lines().filter(|line| line.starts_with(word)).map(str::to_owned).collect()
}

/// The built binary as a client from outside the containers.
fn client(engine: &Engine, words: &[&str]) -> Result<String, String> {
    let binary = crate::support::binary();
    engine.try_run(&[&[binary.to_str().unwrap()], words].concat(), std::process::Stdio::null())
}

#[test]
#[ignore = "needs root, dockerd and minutes: `cargo xtask prove deploy`"]
fn the_documented_lines_build_and_run_containers_that_keep_their_data() {
    let engine = Engine::start();
    bases::for_building(&engine);
    let [build, run, exec] = documented("docker ").try_into().expect("docs/operating.md has three lines with docker");
    let begun = Instant::now();
    engine.shell(&build);
    let built = begun.elapsed();
    let size = engine.run(&["docker", "image", "inspect", "--format", "{{.Size}}", "wayleave"]);
    println!(
        "seen: the image builds in {:.0} s and has {} MB",
        built.as_secs_f64(),
        size.parse::<u64>().unwrap() >> 20
    );
    a_container_keeps_its_data(&engine, &run, &exec);
    compose_starts_one_server(&engine);
    bases::database(&engine);
    compose_starts_three_nodes(&engine);
}

fn a_container_keeps_its_data(engine: &Engine, run: &str, exec: &str) {
    engine.shell(run);
    engine.healthy("wayleave");
    engine.shell(exec);
    client(engine, &["put", URL]).unwrap();
    let kept = || wait_for("the URL", || client(engine, &["urls", "lookup", URL]));
    engine.run(&["docker", "restart", "wayleave"]);
    kept();
    engine.run(&["docker", "stop", "wayleave"]);
    assert_eq!(engine.run(&["docker", "inspect", "--format", "{{.State.ExitCode}}", "wayleave"]), "0");
    engine.run(&["docker", "rm", "wayleave"]);
    assert!(client(engine, &["stats"]).is_err(), "nobody listens any more");
    engine.shell(run);
    kept();
    engine.run(&["docker", "kill", "wayleave"]);
    engine.run(&["docker", "start", "wayleave"]);
    kept();
    assert_eq!(engine.run(&["docker", "exec", "wayleave", "id", "--user"]), "7071", "it does not run as root");
    engine.run(&["docker", "rm", "--force", "wayleave"]);
    println!(
        "seen: docker run: reachable, healthy, and a URL outlives restart, stop, removal and kill of its container"
    );
}

fn compose_starts_one_server(engine: &Engine) {
    let compose = Compose::new(engine, "deploy/single.yaml");
    compose.documented("docker compose -f deploy/single.yaml up --build --detach --wait");
    engine.healthy(&compose.container("wayleave"));
    compose.documented("docker compose -f deploy/single.yaml exec wayleave wayleave stats");
    client(engine, &["put", URL]).unwrap();
    compose.run(&["down"]);
    assert!(client(engine, &["stats"]).is_err(), "nobody listens any more");
    compose.documented("docker compose -f deploy/single.yaml up --build --detach --wait");
    wait_for("the URL", || client(engine, &["urls", "lookup", URL]));
    println!("seen: {}: one server is healthy, and a URL outlives `down`", compose.version());
}

fn compose_starts_three_nodes(engine: &Engine) {
    let compose = Compose::new(engine, "deploy/compose.yaml");
    compose.run(&["up", "--detach", "--build"]);
    for node in ["node-1", "node-2", "node-3"] {
        engine.healthy(&compose.container(node));
    }
    let nodes = wait_for("three nodes", || {
        let nodes = compose.documented("docker compose -f deploy/compose.yaml exec node-1 wayleave nodes");
        let all = ["node-1:7071", "node-2:7071", "node-3:7071"].iter().all(|node| nodes.contains(node));
        if all { Ok(nodes) } else { Err(nodes) }
    });
    println!("{nodes}");
    let query = "SELECT application_name || ' ' || sync_state FROM pg_stat_replication";
    wait_for("the standby", || {
        let state =
            compose.run(&["exec", "db-1", "psql", "--username", "wayleave", "--tuples-only", "--command", query]);
        if state.trim() == "db_2 sync" { Ok(()) } else { Err(state) }
    });
    client(engine, &["--server", "http://127.0.0.1:7071", "put", URL]).unwrap();
    client(engine, &["--server", "http://127.0.0.1:7073", "urls", "lookup", URL]).unwrap();
    compose.run(&["kill", "node-1"]);
    wait_for("the others to take over", || {
        client(engine, &["--server", "http://127.0.0.1:7072", "urls", "lookup", URL])
    });
    println!("seen: {}: three nodes over a synchronous standby; a URL put at one is known to all", compose.version());
}
