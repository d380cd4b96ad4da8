//! Pools and matches through the real binary, with real workers as processes: what clients and operators see, and what dies
//! in between.
//!
//! Interleavings that could break a promise, all of which occur here: the server dies while a client is matched, and
//! while clients wait; a worker dies under its client; many clients ask at the same time for fewer slots; a pool is
//! removed while it has clients; workers that never become one.

use std::sync::OnceLock;

use crate::prelude::*;

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// The worker of the examples. It belongs to another crate, so cargo builds it only where all tests are built.
pub fn worker() -> &'static str {
    static BUILT: OnceLock<String> = OnceLock::new();
    BUILT.get_or_init(|| {
        let beside = Path::new(env!("CARGO_BIN_EXE_wayleave")).with_file_name("example-worker");
        if beside.is_file() {
            // Another cargo may be at work in this folder, and hold the build up for minutes.
            return beside.to_str().unwrap().to_owned();
        }
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", "wayleave-makers", "--bin", "example-worker"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let beside = Path::new(env!("CARGO_BIN_EXE_wayleave")).parent().unwrap();
        let release = if beside.ends_with("release") { "../debug/example-worker" } else { "example-worker" };
        beside.join(release).canonicalize().unwrap().to_str().unwrap().to_owned()
    })
}

/// A server whose workers carry a mark in their environment, so that none outlives the test.
pub struct Stage {
    pub server: Option<Server>,
    pub data: PathBuf,
    mark: String,
    _folder: tempfile::TempDir,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.server = None;
        self.workers().into_iter().for_each(kill);
    }
}

pub fn kill(process: i32) {
    let process = rustix::process::Pid::from_raw(process).unwrap();
    _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
}

impl Stage {
    pub fn new() -> Self {
        Self::with(&[])
    }

    pub fn with(args: &[&str]) -> Self {
        let (folder, data) = folder();
        let mark = format!("STAGE={}", folder.path().display());
        let server = Some(Server::start_with(&data, args));
        Self { server, data, mark, _folder: folder }
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    pub fn run(&self, args: &[&str]) -> Ended {
        self.server().run(args)
    }

    /// Sets up a pool of example workers.
    pub fn pool(&self, name: &str, slots: u32, args: &[&str]) -> Ended {
        let (slots_env, slots) = (format!("SLOTS={slots}"), slots.to_string());
        let set = ["pools", "set", name, "--slots", &slots, "--env", &slots_env, "--env", &self.mark];
        self.run(&[&set[..], args, &["--", worker()]].concat())
    }

    /// Processes of workers.
    pub fn workers(&self) -> Vec<i32> {
        marked(&self.mark)
    }

    pub fn matched(&self, client: &str, pool: &str) -> Value {
        let found = self.run(&["match", client, "--pool", pool, "--wait", "30s", "--json"]).json().remove(0);
        assert_eq!(found["state"], "matched", "{found}");
        found
    }

    pub fn listed(&self, args: &[&str]) -> Vec<Value> {
        self.run(&[args, &["--json"]].concat()).json()
    }

    pub fn pool_of(&self, name: &str) -> Value {
        self.listed(&["pools", "show", name]).remove(0)
    }
}

/// Processes that carry a variable in their environment.
pub fn marked(mark: &str) -> Vec<i32> {
    let carries = |process: &i32| {
        let read = std::fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        read.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(carries).collect()
}

#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_client_gets_a_worker_and_scripts_get_its_address_and_nothing_else() {
    let stage = Stage::new();
    let unknown = stage.run(&["match", "c", "--pool", "render"]);
    assert_eq!((unknown.code, &*unknown.out), (3, ""), "{}", unknown.err);
    stage.pool("render", 2, &["--idle", "1s"]).ok();
    let asked = stage.run(&["match", "a/b c", "--pool", "render", "--wait", "30s"]);
    assert_eq!((asked.code, &*asked.err), (0, ""), "{}", asked.out);
    let address = asked.out.strip_suffix('\n').unwrap();
    assert!(get(address, "/").contains("\"used\":1"));
    assert_eq!(stage.workers().len(), 1);
    let listed = stage.listed(&["matches", "--pool", "render"]);
    assert_eq!((&listed[0]["client"], &listed[0]["address"]), (&"a/b c".into(), &address.into()));
    let workers = stage.listed(&["pools", "workers", "render"]);
    assert_eq!((&workers[0]["state"], &workers[0]["used"]), (&"running".into(), &1.into()), "{workers:?}");
    let logs = stage.run(&["pools", "logs", "render"]).ok();
    assert!(logs.contains(workers[0]["worker"].as_str().unwrap()), "{logs}");
    let why = stage.run(&["why", "a/b c", "--pool", "render"]).ok();
    assert!(why.contains("client a/b c of pool render has a worker"), "{why}");
    let why = stage.run(&["why", "--pool", "render"]).ok();
    assert!(why.contains("1 is matched") && why.contains("running, 1 of 2 slots used"), "{why}");
    for table in
        [&["pools"][..], &["pools", "show", "render"], &["matches"], &["matches", "show", "a/b c", "--pool", "render"]]
    {
        assert!(stage.run(table).ok().contains("render"), "{table:?}");
    }
    let page = get(stage.server().url.strip_prefix("http://").unwrap(), "/metrics");
    assert!(page.contains("wayleave_pool_matched{pool=\"render\"} 1\n"), "{page}");
    stage.run(&["matches", "cancel", "a/b c", "--pool", "render"]).ok();
    assert_eq!(stage.run(&["matches", "show", "a/b c", "--pool", "render"]).code, 3);
    until("an idle worker is stopped", || stage.workers().is_empty());
}

#[test]
fn after_kill_9_of_the_server_workers_are_adopted_with_their_reservations() {
    let mut stage = Stage::new();
    stage.pool("render", 1, &["--max", "2"]).ok();
    let before = stage.matched("one", "render");
    let other = stage.matched("two", "render");
    let processes = stage.workers();
    assert_eq!(processes.len(), 2);
    assert_eq!(stage.run(&["match", "three", "--pool", "render"]).code, 3, "it waits");
    stage.server.take().unwrap().kill();
    assert_eq!(stage.workers(), processes, "workers outlive the server");
    stage.server = Some(Server::start_with(&stage.data, &[]));
    let after = stage.matched("one", "render");
    for field in ["address", "token", "worker"] {
        assert_eq!(after[field], before[field], "{after}");
    }
    assert_eq!((&after["verified"], stage.workers()), (&true.into(), processes), "{after}");
    let waits = stage.listed(&["matches", "show", "three", "--pool", "render"]).remove(0);
    assert_eq!((&waits["state"], &waits["position"]), (&"queued".into(), &1.into()), "{waits}");
    stage.run(&["matches", "cancel", "two", "--pool", "render"]).ok();
    let third = stage.matched("three", "render");
    assert_eq!(third["address"], other["address"], "the slot that was given back");
    let logs = stage.run(&["pools", "logs", "render"]);
    assert_eq!(logs.code, 0, "{}", logs.err);
    assert_eq!(stage.server.take().unwrap().stop(), 0);
    assert_eq!(stage.workers().len(), 2, "also a clean stop leaves them");
}

#[test]
fn a_client_whose_worker_was_killed_gets_another() {
    let stage = Stage::new();
    stage.pool("render", 1, &["--max", "1"]).ok();
    let before = stage.matched("one", "render");
    let processes = stage.workers();
    processes.iter().copied().for_each(kill);
    let mut after = Value::Null;
    until("it has another worker", || {
        after = stage.matched("one", "render");
        after["worker"] != before["worker"] || after["address"] != before["address"]
    });
    assert!(get(after["address"].as_str().unwrap(), "/").contains("\"used\":1"), "{after}");
    assert!(!stage.workers().iter().any(|process| processes.contains(process)));
}

#[test]
fn of_forty_clients_at_once_each_is_matched_or_queued_with_a_reason_and_no_slot_is_given_twice() {
    let stage = Stage::new();
    stage.pool("render", 5, &["--max", "4"]).ok();
    let asked: Vec<Ended> = std::thread::scope(|scope| {
        let ask = |n: usize| {
            let stage = &stage;
            scope.spawn(move || {
                stage.run(&["match", &format!("client-{n}"), "--pool", "render", "--wait", "20s", "--json"])
            })
        };
        let asks: Vec<_> = (0..40).map(ask).collect();
        asks.into_iter().map(|ask| ask.join().unwrap()).collect()
    });
    let said: Vec<Value> = asked.iter().map(|ended| serde_json::from_str(&ended.out).expect(&ended.err)).collect();
    let with = |state: &str| said.iter().filter(|found| found["state"] == state).count();
    assert_eq!((with("matched"), with("queued")), (20, 20), "{said:?}");
    for (ended, found) in asked.iter().zip(&said) {
        assert_eq!(ended.code, if found["state"] == "matched" { 0 } else { 3 }, "{ended:?}");
        assert!(found["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{found}");
    }
    let tokens: std::collections::BTreeSet<&str> = said.iter().filter_map(|found| found["token"].as_str()).collect();
    assert_eq!(tokens.len(), 20, "each match has a token of its own");
    let workers = stage.listed(&["pools", "workers", "render"]);
    let used = |address: &Value| {
        let text = get(address.as_str().unwrap(), "/");
        serde_json::from_str::<Value>(text.split_once("\r\n\r\n").unwrap().1).unwrap()["used"].as_u64().unwrap()
    };
    let booked: u64 = workers.iter().map(|worker| worker["used"].as_u64().unwrap()).sum();
    let held: u64 = workers.iter().map(|worker| used(&worker["address"])).sum();
    assert_eq!((workers.len(), booked, held), (4, 20, 20), "slots booked, held by workers, and matched are the same");
    let why = stage.pool_of("render");
    assert!(why["reason"].as_str().unwrap().contains("20 clients are waiting: no slot is free"), "{why}");
}

#[test]
fn a_pool_that_is_removed_keeps_its_clients_takes_no_others_and_goes_with_its_workers() {
    let stage = Stage::new();
    stage.pool("render", 1, &["--max", "2"]).ok();
    stage.matched("one", "render");
    stage.run(&["pools", "remove", "render"]).ok();
    stage.matched("one", "render");
    let refused = stage.run(&["match", "two", "--pool", "render"]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(refused.err.contains("being deleted"), "{}", refused.err);
    stage.run(&["matches", "cancel", "one", "--pool", "render"]).ok();
    until("the pool is gone", || stage.run(&["pools", "show", "render"]).code == 3);
    until("its workers are gone", || stage.workers().is_empty());
}

#[test]
fn a_pool_whose_workers_never_become_one_says_why_and_others_do_not_notice() {
    let stage = Stage::new();
    let quick = ["--match-max", "8s", "--start-max", "1s"];
    for (name, misdeed) in
        [("fails", "error"), ("lies", "other"), ("deaf", "deaf"), ("quits", "exit:3"), ("hangs", "hang")]
    {
        stage.pool(name, 1, &[&quick[..], &["--env", &format!("MISBEHAVE={misdeed}")]].concat()).ok();
    }
    stage.run(&[&["pools", "set", "missing"], &quick[..], &["--", "/nonexistent/worker"]].concat()).ok();
    stage.pool("fine", 1, &[]).ok();
    let all = ["fails", "lies", "deaf", "quits", "hangs", "missing"];
    let ended: Vec<Ended> = std::thread::scope(|scope| {
        let ask = |pool: &'static str| {
            let stage = &stage;
            scope.spawn(move || stage.run(&["match", "c", "--pool", pool, "--wait", "30s"]))
        };
        let asks: Vec<_> = all.into_iter().map(ask).collect();
        stage.matched("c", "fine");
        for (pool, said) in [("quits", "code 3"), ("missing", "/nonexistent/worker"), ("deaf", "listen")] {
            until(&format!("{pool} says {said}"), || {
                stage.pool_of(pool)["reason"].as_str().is_some_and(|reason| reason.contains(said))
            });
        }
        asks.into_iter().map(|ask| ask.join().unwrap()).collect()
    });
    for ((pool, ended), said) in all.iter().zip(&ended).zip([
        "500",
        "another reservation",
        "listen",
        "code 3",
        "did not answer",
        "/nonexistent/worker",
    ]) {
        assert_eq!((ended.code, &*ended.out), (4, ""), "{pool}: {}", ended.err);
        assert!(ended.err.contains(said), "{pool}: {}", ended.err);
    }
    assert_eq!(stage.server().run(&["stats"]).code, 0, "nothing of it is fatal");
}

#[test]
fn pools_of_the_settings_file_are_there_at_once_and_others_may_not_bring_commands() {
    let (folder, data) = folder();
    let (file, mark) = (folder.path().join("wayleave.toml"), format!("{}", folder.path().display()));
    let text = format!(
        "[pools.render]\ncommand = ['{}']\nslots = 2\nenv = {{ STAGE = '{mark}', KEY = 'hunter2', SLOTS = '2' }}\n",
        worker()
    );
    std::fs::write(&file, text).unwrap();
    let args = ["--config", file.to_str().unwrap(), "--insecure"];
    let start = || {
        let listen = ["serve", "--data", data.to_str().unwrap(), "--listen", "0.0.0.0:0", "--shards", "4"];
        let mut server = Server::spawn(crate::support::wayleave(&[&listen[..], &args].concat()));
        server.url = server.url.replace("0.0.0.0", "127.0.0.1");
        server
    };
    let mut stage = Stage { server: Some(start()), data: data.clone(), mark: format!("STAGE={mark}"), _folder: folder };
    let shown = stage.run(&["pools", "show", "render"]).ok();
    assert!(shown.contains("KEY, SLOTS, STAGE") && !shown.contains("hunter2"), "{shown}");
    let version = stage.pool_of("render")["version"].clone();
    stage.matched("c", "render");
    let refused = stage.run(&["pools", "set", "mine", "--", "id"]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(refused.err.contains("--allow-pool-commands") && refused.err.contains("[pools.mine]"), "{}", refused.err);
    stage.server.take().unwrap().kill();
    stage.server = Some(start());
    let again = stage.pool_of("render");
    assert_eq!(again["matched"], 1, "{again}");
    assert!(version.as_u64() <= again["version"].as_u64());
    assert!(!stage.server().log().contains("hunter2"));
}

/// The server raises its own limit, and workers used to inherit that.
#[test]
fn a_worker_has_the_limit_of_descriptors_that_the_server_was_started_with() {
    let (folder, data) = folder();
    let file = folder.path().join("limit");
    let mark = format!("STAGE={}", folder.path().display());
    let server = Server::start_limited(&data, &[], "ulimit -Sn 700");
    assert!(server.log().contains("raised the file descriptor limit"), "{}", server.log());
    let stage = Stage { server: Some(server), data, mark, _folder: folder };
    let script = format!("ulimit -Sn > {0}.new; mv {0}.new {0}; exec sleep 600", file.display());
    let command = ["--", "sh", "-c", &script];
    stage.run(&[&["pools", "set", "limited", "--min", "1", "--env", &stage.mark][..], &command].concat()).ok();
    until("the worker has begun", || file.exists());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "700\n");
}

#[test]
fn a_store_in_memory_takes_its_workers_along() {
    let mut stage = Stage::with(&["--engine", "memory"]);
    stage.pool("render", 1, &[]).ok();
    stage.matched("c", "render");
    assert_eq!(stage.workers().len(), 1);
    assert!(!stage.data.exists(), "it does not use a data folder");
    assert!(!stage.server().log().contains("other users"), "it has made the folder itself: {}", stage.server().log());
    assert_eq!(stage.server.take().unwrap().stop(), 0);
    assert!(stage.workers().is_empty());
}
