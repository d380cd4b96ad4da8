//! A pool over three real nodes that share a PostgreSQL; two of them can start processes.
//!
//! Interleavings that could break a promise, all of which occur here: clients ask different nodes at the same time for
//! workers that two others start; a node is killed while clients wait and while its workers serve; another node takes over
//! the pool and does not know what the first had ordered last; the node comes back and finds workers of the pool.

use std::sync::atomic::AtomicBool;

use crate::pools::{kill, marked, until, worker};
use crate::prelude::*;
use crate::strangers;

const MAX: usize = 4;

struct Nodes {
    engine: String,
    folder: tempfile::TempDir,
    nodes: Vec<Option<Server>>,
    mark: String,
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.nodes.clear();
        marked(&self.mark).into_iter().for_each(kill);
    }
}

impl Nodes {
    async fn start() -> Self {
        let (folder, engine) = (tempfile::tempdir().unwrap(), Cluster::shared().await.fresh_database().await);
        // Nothing can be recorded below a file, so the third node starts no workers.
        std::fs::write(folder.path().join("file"), "").unwrap();
        let mark = format!("STAGE={}", folder.path().display());
        let mut nodes = Self { engine, folder, nodes: Vec::new(), mark };
        nodes.nodes = (0..3).map(|n| Some(nodes.node(n))).collect();
        nodes
    }

    fn makers(&self, n: usize) -> PathBuf {
        let below: &Path = self.folder.path();
        if n == 2 { below.join("file").join("makers") } else { below.join(format!("makers-{n}")) }
    }

    fn node(&self, n: usize) -> Server {
        let (makers, name) = (self.makers(n), format!("node-{n}"));
        let place = ["serve", "--insecure", "--engine", &self.engine, "--listen", "127.0.0.1:0", "--node", &name];
        let more = ["--shards", "8", "--node-ttl-ms", "2000", "--makers", makers.to_str().unwrap(), "--docker", "off"];
        Server::spawn(wayleave(&[&place[..], &more[..]].concat()))
    }

    /// Runs a command that knows all nodes that are there, this one first.
    fn run(&self, first: usize, args: &[&str]) -> Ended {
        let order = (0..3).map(|n| (first + n) % 3);
        let urls: Vec<&str> = order.filter_map(|n| self.nodes[n].as_ref().map(|node| node.url.as_str())).collect();
        let mut command = wayleave(args);
        command.env("WAYLEAVE_SERVER", urls.join(","));
        run(command, "")
    }

    /// What all these clients are told, asked at the same time at different nodes.
    fn ask(&self, clients: std::ops::Range<usize>, wait: &str) -> Vec<(i32, Value)> {
        let ask = |n: usize| self.run(n, &["match", &format!("c{n}"), "--pool", "p", "--wait", wait, "--json"]);
        std::thread::scope(|scope| {
            let asks: Vec<_> = clients.map(|n| scope.spawn(move || ask(n))).collect();
            let ended = asks.into_iter().map(|ask| ask.join().unwrap());
            ended.map(|ended| (ended.code, serde_json::from_str(&ended.out).expect(&ended.err))).collect()
        })
    }

    fn workers(&self, node: usize) -> Vec<Value> {
        self.run(node, &["pools", "workers", "p", "--json"]).json()
    }
}

fn names(found: &[Value], field: &str) -> BTreeSet<String> {
    found.iter().map(|it| it[field].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_of_several_nodes_counts_its_workers_once_and_loses_no_client_when_a_node_is_killed() {
    let mut nodes = Nodes::start().await;
    // How many workers there ever were at the same time.
    let (most, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let watching = std::thread::spawn({
        let (most, over, mark) = (most.clone(), over.clone(), nodes.mark.clone());
        move || {
            while !over.load(Ordering::Relaxed) {
                most.fetch_max(marked(&mark).len(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    });
    let set = ["pools", "set", "p", "--slots", "2", "--max", "4", "--idle", "1s", "--match-max", "45s"];
    let env = ["--env", "SLOTS=2", "--env", &nodes.mark.clone(), "--", worker()];
    // The node that has no runtime of its own takes every call as the others do.
    nodes.run(2, &[&set[..], &env[..]].concat()).ok();
    let first = nodes.ask(0..8, "60s");
    for (code, found) in &first {
        assert_eq!((*code, &found["state"]), (0, &"matched".into()), "{found}");
    }
    for node in 0..3 {
        let workers = nodes.workers(node);
        // A node whose Maker has not asked yet is no site, so on a busy machine one node may have all of them.
        let sites = names(&workers, "site").len();
        assert!(workers.len() == MAX && (1..=2).contains(&sites), "{workers:?}");
    }
    // More clients than slots ask the other nodes while a node is killed that has workers, and perhaps the pool.
    let waiting = std::thread::scope(|scope| {
        let (alive, first_node) = {
            let killed = nodes.nodes[0].take();
            (&nodes, killed)
        };
        let asking = scope.spawn(move || alive.ask(8..14, "1s"));
        first_node.unwrap().kill();
        asking.join().unwrap()
    });
    for (code, found) in &waiting {
        assert!(matches!(*code, 0 | 3 | 4), "{found}");
        assert!(found["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{found}");
    }
    assert_eq!(marked(&nodes.mark).len(), MAX, "workers outlive their node");
    // It comes back after its shards were taken over.
    until("the others have taken over", || nodes.run(1, &["pools", "show", "p"]).code == 0);
    nodes.nodes[0] = Some(nodes.node(0));
    // Half of the clients that were matched give their workers back; the others are still served, or get another worker.
    for n in 0..4 {
        until(&format!("c{n} gives its slot back"), || {
            matches!(nodes.run(1, &["matches", "cancel", &format!("c{n}"), "--pool", "p"]).code, 0 | 3)
        });
    }
    for (code, found) in nodes.ask(4..14, "100s") {
        let ended = [(0, "matched"), (4, "failed")];
        assert!(ended.contains(&(code, found["state"].as_str().unwrap())), "code {code}: {found}");
        assert!(found["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{found}");
    }
    for n in 4..14 {
        until("it is ended", || {
            matches!(nodes.run(n, &["matches", "cancel", &format!("c{n}"), "--pool", "p"]).code, 0 | 3)
        });
    }
    until("no worker is left", || marked(&nodes.mark).is_empty() && nodes.workers(2).is_empty());
    over.store(true, Ordering::Relaxed);
    watching.join().unwrap();
    assert_eq!(most.load(Ordering::Relaxed), MAX, "creations are counted once for all nodes");
}

/// `CREATE DATABASE … TEMPLATE` repeats everything, also the pools.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_on_a_copy_of_a_database_pauses_all_pools_and_says_so_once() {
    let (cluster, keep) = (Cluster::shared().await, tempfile::tempdir().unwrap());
    let original = cluster.fresh_database().await;
    let name = |url: &str| url.rsplit('/').next().unwrap().to_owned();
    let copied = format!("{}_copy", name(&original));
    let (script, log) = (keep.path().join("w.sh"), keep.path().join("runs"));
    std::fs::write(&script, format!("#!/bin/sh\necho run >> {}\nexec sleep 1000\n", log.display())).unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let runs = || std::fs::read_to_string(&log).unwrap_or_default().lines().count();
    let node = |engine: &str, makers: &str| {
        let makers = keep.path().join(makers);
        let place = ["serve", "--engine", engine, "--listen", "127.0.0.1:0", "--makers", makers.to_str().unwrap()];
        Server::spawn(wayleave(&[&place[..], &["--shards", "8", "--node-ttl-ms", "1000", "--docker", "off"]].concat()))
    };
    let mark = strangers::Ended(format!("STAGE={}", keep.path().display()));
    // Nothing can be recorded below a file, so this node starts no workers.
    std::fs::write(keep.path().join("file"), "").unwrap();
    let first = node(&original, "file/makers");
    for pool in ["p", "q"] {
        let set = ["pools", "set", pool, "--min", "1", "--max", "1", "--start-max", "1h", "--env", &mark.0, "--"];
        first.run(&[&set[..], &[script.to_str().unwrap()]].concat()).ok();
    }
    assert_eq!(first.stop(), 0);
    cluster.sql(&format!("CREATE DATABASE {copied} TEMPLATE {}", name(&original))).await;
    let copy = node(&cluster.url_of(&copied), "other-makers");
    let paused = |node: &Server| {
        let pools = node.run(&["pools", "--json"]).json();
        assert_eq!(pools.len(), 2);
        pools.iter().filter(|pool| pool["paused"] == true).count()
    };
    until("it says so", || copy.log().contains("all pools of this copied or moved store are paused"));
    assert!(
        copy.log().contains("wayleave pools resume --all") && copy.log().contains("pools.paused=2"),
        "{}",
        copy.log()
    );
    until("its Maker is there", || copy.log().contains("this server starts workers"));
    let again = node(&original, "makers");
    until("the original's run", || runs() == 2);
    assert_eq!((paused(&copy), paused(&again)), (2, 0));
    assert!(!again.log().contains("copied"), "a restart is nothing unusual: {}", again.log());
    // Told to, it may.
    copy.run(&["pools", "resume", "--all"]).ok();
    until("the copy's run too", || runs() == 4);
    assert_eq!(copy.stop(), 0);
    let copy = node(&cluster.url_of(&copied), "other-makers");
    until("its Maker is there", || copy.log().contains("this server starts workers"));
    assert_eq!(paused(&copy), 0, "said once: {}", copy.log());
}
