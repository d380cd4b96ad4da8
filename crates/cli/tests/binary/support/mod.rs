//! The built binary: a separate server for each test, and commands against it.

pub mod python;

use crate::prelude::*;

/// The binary: the one that cargo built for this test, or another one for a longer run.
pub fn binary() -> PathBuf {
    std::env::var_os("WAYLEAVE_BIN").map_or_else(|| env!("CARGO_BIN_EXE_wayleave").into(), PathBuf::from)
}

/// A command of the binary, with a clean environment.
pub fn wayleave(args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WAYLEAVE_")) {
        command.env_remove(name);
    }
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The result of a command.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ended {
    /// The output of a command that must have succeeded.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "{}{}", self.out, self.err);
        self.out
    }

    /// The lines of JSON of a command that must have succeeded.
    #[track_caller]
    pub fn json(self) -> Vec<Value> {
        self.ok().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Runs a command to its end.
pub fn run(mut command: Command, stdin: &str) -> Ended {
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let text = stdin.to_owned();
    let writing = std::thread::spawn(move || _ = input.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

/// A server in a separate process; killed on drop.
pub struct Server {
    child: Child,
    pub url: String,
    log: Arc<Mutex<String>>,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    /// Starts a server on a free port and waits until it says that it is ready.
    pub fn start(data: &Path) -> Self {
        Self::start_on(data, "127.0.0.1:0")
    }

    /// Starts a server in a folder of its own, which goes with what is returned beside it.
    pub fn fresh() -> (tempfile::TempDir, Self) {
        let (keep, data) = folder();
        (keep, Self::start(&data))
    }

    /// Starts a server on an address.
    pub fn start_on(data: &Path, listen: &str) -> Self {
        Self::spawn(wayleave(&["serve", "--data", data.to_str().unwrap(), "--listen", listen, "--shards", "4"]))
    }

    /// Starts a server on a free port with more arguments.
    pub fn start_with(data: &Path, args: &[&str]) -> Self {
        let mut command =
            wayleave(&["serve", "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0", "--shards", "4"]);
        command.args(args);
        Self::spawn(command)
    }

    /// The same after a line of shell, which may set limits or mount something.
    pub fn start_limited(data: &Path, args: &[&str], shell: &str) -> Self {
        let mut command = Command::new("sh");
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WAYLEAVE_")) {
            command.env_remove(name);
        }
        command.args(["-c", &format!("{shell}; exec \"$@\""), "sh"]).arg(binary()).arg("serve");
        command.args(["--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0", "--shards", "4"]).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self::spawn(command)
    }

    /// Starts a server by a command and waits until it reports that it is ready, or serves at least.
    pub fn spawn(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::new(Mutex::new(String::new()));
        let url = loop {
            let line = lines.next().unwrap_or_else(|| panic!("it ended: {}", log.lock().unwrap())).unwrap();
            let word = |(_, rest): (&str, &str)| rest.split(' ').next().unwrap().to_owned();
            let ready = line.split_once(" ready on ").map(word);
            let not_ready = line.split_once("not ready: ").and_then(|(_, rest)| rest.split_once("listen.address="));
            let ready = ready.or_else(|| not_ready.map(|at| format!("http://{}", word(at))));
            *log.lock().unwrap() += &format!("{line}\n");
            if let Some(url) = ready {
                break url;
            }
        };
        // Keep draining its log, or it would block on a full pipe.
        let reading = log.clone();
        let reader = std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                *reading.lock().unwrap() += &format!("{line}\n");
            }
        });
        Self { child, url, log, reader: Some(reader) }
    }

    /// Waits until it ends by itself. Returns its exit code and all that it logged.
    pub fn wait(mut self) -> (i32, String) {
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        self.reader.take().into_iter().for_each(|reader| reader.join().unwrap());
        (code, self.log())
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Its exit code, if it has ended.
    pub fn ended(&mut self) -> Option<i32> {
        self.child.try_wait().unwrap().map(|status| status.code().unwrap_or(-1))
    }

    /// Runs a command against it.
    pub fn run(&self, args: &[&str]) -> Ended {
        self.run_with(args, "")
    }

    /// Runs a command with something on its standard input.
    pub fn run_with(&self, args: &[&str], stdin: &str) -> Ended {
        let mut command = wayleave(args);
        command.env("WAYLEAVE_SERVER", &self.url);
        run(command, stdin)
    }

    /// The totals.
    pub fn stats(&self) -> Value {
        self.run(&["stats", "--json"]).json().remove(0)
    }

    /// Ends it as a power cut would.
    pub fn kill(mut self) {
        self.cut_off();
    }

    /// The same, for one that will be replaced.
    pub fn cut_off(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    /// Asks it to stop and waits for its exit code.
    pub fn stop(mut self) -> i32 {
        self.signal(rustix::process::Signal::TERM);
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// A folder of its own with a path in it.
pub fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    (folder, path)
}
