//! The binary as a process that is killed or stopped.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use wayleave_testbed::free_port;

/// A clean stop that takes longer hangs: unfinished connections are closed after ten seconds.
const STOP_MAX: Duration = Duration::from_secs(30);

/// The binary: the one that cargo built for this test, or another one for a longer run.
pub fn binary() -> PathBuf {
    let given = std::env::var_os("WAYLEAVE_BIN").map(PathBuf::from);
    let path = given.unwrap_or_else(|| env!("CARGO_BIN_EXE_wayleave").into());
    assert!(path.is_file(), "{} is not there: build it, or point WAYLEAVE_BIN at another binary", path.display());
    path
}

/// An address that nobody listens on.
pub fn free_address() -> String {
    format!("127.0.0.1:{}", free_port())
}

/// How a server is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// SIGKILL, as by a power cut.
    Kill,
    /// SIGTERM: a clean stop, which must end with code 0.
    Stop,
}

/// A server that is restarted whenever it was ended.
pub struct Server {
    binary: PathBuf,
    folder: PathBuf,
    pub address: String,
    child: Child,
    /// The longest time that a start took.
    pub slowest: Duration,
}

impl Server {
    /// Starts it in a folder and waits until it is ready.
    pub fn start(folder: &Path) -> Self {
        let (binary, address) = (binary(), free_address());
        let child = spawn(&binary, folder, &address);
        Self { binary, folder: folder.into(), address, child, slowest: Duration::ZERO }
    }

    /// Ends it, and starts it again in the same folder.
    pub fn restart(&mut self, end: End) {
        match end {
            End::Kill => {
                self.child.kill().unwrap();
                self.child.wait().unwrap();
            }
            End::Stop => self.stop(),
        }
        let start = Instant::now();
        self.child = spawn(&self.binary, &self.folder, &self.address);
        self.slowest = self.slowest.max(start.elapsed());
    }

    fn stop(&mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let asked = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(asked.elapsed() < STOP_MAX, "a clean stop must end");
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "a clean stop ends with code 0");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn spawn(binary: &Path, folder: &Path, address: &str) -> Child {
    let mut command = Command::new(binary);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WAYLEAVE_")) {
        command.env_remove(name);
    }
    // The smallest memtable: rows are flushed, and the journal is rotated, many times between two ends.
    let words = ["serve", "--listen", address, "--shards", "4", "--memtable-mb", "1", "--data"];
    command.args(words).arg(folder.join("data"));
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut seen = Vec::new();
    loop {
        let Some(line) = lines.next() else { panic!("the server ended: {:?} {seen:#?}", child.wait()) };
        let line = line.unwrap();
        if line.contains(" ready on ") {
            break;
        }
        seen.push(line);
    }
    // Keep draining its log, or it would block on a full pipe.
    std::thread::spawn(move || lines.for_each(drop));
    child
}
