//! More clients than slots ask an empty pool at the same time, and the server is killed three times meanwhile: every client
//! ends matched or failed with a reason, the slots that are booked are those of the clients that were matched, and no worker
//! is left in the end.
//!
//! Interleavings, all of which occur here: the server dies while the first workers are being made, as soon as it is back, and
//! while some clients are matched and others wait.
//!
//! An ordinary run uses few clients and workers as processes; `cargo xtask prove matches` uses 200 clients, and containers
//! too.

use crate::containers::Engine;
use crate::pools::{kill, marked, until, worker};
use crate::prelude::*;

const IMAGE: &str = "wayleave-example:1";

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Where a rush takes place: how to start the server and its clients there, and how many workers there are.
struct Place<'a> {
    command: &'a (dyn Fn(&[&str]) -> Command + Sync),
    left_over: &'a (dyn Fn() -> usize + Sync),
    /// What makes a worker.
    recipe: Vec<&'a str>,
}

impl Place<'_> {
    fn serve(&self, data: &str, listen: &str) -> Server {
        Server::spawn((self.command)(&["serve", "--data", data, "--listen", listen, "--shards", "4"]))
    }

    fn run(&self, url: &str, args: &[&str]) -> Ended {
        let mut command = (self.command)(args);
        command.env("WAYLEAVE_SERVER", url);
        run(command, "")
    }

    fn listed(&self, url: &str, args: &[&str]) -> Vec<Value> {
        self.run(url, &[args, &["--json"]].concat()).json()
    }

    fn rush(&self, what: &str) {
        let (clients, workers, slots) =
            (number("WAYLEAVE_RUSH_CLIENTS", 24), number("WAYLEAVE_RUSH_WORKERS", 2), number("WAYLEAVE_RUSH_SLOTS", 4));
        let (_keep, data) = folder();
        let data = data.to_str().unwrap();
        let mut server = self.serve(data, "127.0.0.1:0");
        let url = server.url.clone();
        let listen = url.strip_prefix("http://").unwrap();
        let (most, room, room_env) = (workers.to_string(), slots.to_string(), format!("SLOTS={slots}"));
        let set = ["pools", "set", "p", "--max", &most, "--slots", &room, "--env", &room_env, "--idle", "1s"];
        // Nobody confirms: matches must outlast the rush. Whoever finds no room fails when its time is over.
        let match_max = format!("{}s", number("WAYLEAVE_RUSH_SECONDS", 15));
        let times = ["--reservation", "10m", "--match-max", &match_max];
        self.run(&url, &[&set[..], &times, &self.recipe].concat()).ok();
        let begun = Instant::now();
        let ended: Vec<Ended> = std::thread::scope(|scope| {
            let url = &url;
            let ask =
                move |n: usize| self.run(url, &["match", &format!("c{n}"), "--pool", "p", "--wait", "5m", "--json"]);
            let asked: Vec<_> = (0..clients).map(|n| scope.spawn(move || ask(n))).collect();
            until("a worker is being made", || !self.listed(url, &["pools", "workers", "p"]).is_empty());
            server.cut_off();
            server = self.serve(data, listen);
            server.cut_off();
            server = self.serve(data, listen);
            let matched = ["matches", "--pool", "p", "--state", "matched", "--limit", "1000"];
            until("a client is matched", || !self.listed(url, &matched).is_empty());
            server.cut_off();
            server = self.serve(data, listen);
            asked.into_iter().map(|client| client.join().unwrap()).collect()
        });
        let took = begun.elapsed();
        let mut matched = Vec::new();
        for (n, ended) in ended.iter().enumerate() {
            let found: Value = serde_json::from_str(&ended.out).unwrap_or_else(|_| panic!("c{n}: {ended:?}"));
            let told = (ended.code, found["state"].as_str().unwrap());
            assert!([(0, "matched"), (4, "failed")].contains(&told), "c{n}: {ended:?}");
            assert!(found["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "c{n}: {found}");
            if ended.code == 0 {
                matched.push(format!("c{n}"));
            }
        }
        let list = self.listed(&url, &["pools", "workers", "p"]);
        let booked: u64 = list.iter().map(|worker| worker["used"].as_u64().unwrap()).sum();
        assert_eq!((booked, list.len()), (matched.len() as u64, workers), "slots booked, and workers: {list:?}");
        assert_eq!(matched.len(), clients.min(workers * slots), "every slot is used");
        for client in &matched {
            self.run(&url, &["matches", "cancel", client, "--pool", "p"]).ok();
        }
        until("the pool has scaled to zero", || self.listed(&url, &["pools", "workers", "p"]).is_empty());
        assert_eq!((self.left_over)(), 0, "workers left over");
        println!(
            "seen: {what}: of {clients} clients {} matched and {} failed with a reason within {:.0} s and 3 kills; {booked} slots booked; 0 workers left over",
            matched.len(),
            clients - matched.len(),
            took.as_secs_f64()
        );
    }
}

#[test]
fn a_rush_on_a_pool_of_processes_strands_no_client_though_the_server_is_killed() {
    let (folder, _) = folder();
    let mark = format!("STAGE={}", folder.path().display());
    let workers = || marked(&mark).len();
    let place = Place { command: &wayleave, left_over: &workers, recipe: vec!["--env", &mark, "--", worker()] };
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| place.rush("processes")));
    marked(&mark).into_iter().for_each(kill);
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

#[test]
#[ignore = "needs root, dockerd and minutes: `cargo xtask prove matches`"]
fn a_rush_on_a_pool_of_containers_strands_no_client_though_the_server_is_killed() {
    let engine = Engine::start();
    // An image from nothing: the worker, and the shared libraries that it names.
    let files = "cp \"$1\" \"$2/worker\"; ldd \"$1\" | grep -o '/[^ ]*' | while read -r lib; do cp --parents \"$lib\" \"$2\"; done; \
                 tar -C \"$2\" -c . | docker import - \"$3\"";
    let image = tempfile::tempdir().unwrap();
    engine.run(&["sh", "-ec", files, "sh", worker(), image.path().to_str().unwrap(), IMAGE]);
    let command = |args: &[&str]| {
        let binary = binary();
        let mut command = engine.command(&[&[binary.to_str().unwrap()], args].concat());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let containers = || engine.run(&["docker", "ps", "--all", "--quiet"]).lines().count();
    let recipe = vec!["--image", IMAGE, "--port", "8080", "--pull", "never", "--", "/worker"];
    Place { command: &command, left_over: &containers, recipe }.rush("containers");
}
