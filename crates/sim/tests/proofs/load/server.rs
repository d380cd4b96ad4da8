//! The binary over a data folder, as a process that is ended and started again at the same address.

use wayleave_testbed::free_port;

use crate::prelude::*;

/// A clean stop that takes longer hangs: unfinished connections are closed after ten seconds.
const STOP_MAX: Duration = Duration::from_secs(30);
const GLANCE: Duration = Duration::from_millis(2);

/// The binary under test.
pub fn binary() -> PathBuf {
    // This test is in target/PROFILE/deps, the binary in target/PROFILE.
    let mine = || std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("wayleave");
    let path = std::env::var_os("WAYLEAVE_BIN").map_or_else(mine, PathBuf::from);
    let built = std::fs::canonicalize(&path);
    built.unwrap_or_else(|_| panic!("{} is missing: build it with `cargo build -p wayleave-cli`", path.display()))
}

/// How a server is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// SIGKILL, as by a power cut.
    Kill,
    /// SIGTERM: a clean stop, which must end with code 0.
    Stop,
}

pub struct Server {
    process: Process,
    log: PathBuf,
    pub base: String,
    /// The longest time that a start took.
    pub slowest: Duration,
    _logs: TempDir,
}

impl Server {
    /// Starts it and waits until it is ready. It has little memory: memtables are flushed and journal files removed many times
    /// between two ends.
    pub fn start(data: &Path) -> Self {
        let (logs, address) = (tempfile::tempdir().unwrap(), format!("127.0.0.1:{}", free_port()));
        let (binary, log) = (binary(), logs.path().join("log"));
        let words = ["serve", "--listen", &address, "--shards", "4", "--memtable-mb", "1", "--data"];
        let words = [binary.to_str().unwrap()].into_iter().chain(words).chain([data.to_str().unwrap()]);
        let process = Process::new(words.map(str::to_owned).collect(), &log);
        let base = format!("http://{address}");
        let mut server = Self { process, log, base, slowest: Duration::ZERO, _logs: logs };
        server.run();
        server
    }

    /// Starts it again.
    pub fn run(&mut self) {
        let (start, before) = (Instant::now(), self.log().len());
        self.process.start();
        while !self.log()[before..].contains(" ready on ") {
            if let Some(status) = self.process.ended() {
                panic!("the server ended ({status}): {}", self.process.last_words());
            }
            std::thread::sleep(GLANCE);
        }
        self.slowest = self.slowest.max(start.elapsed());
    }

    pub fn end(&mut self, end: End) {
        if end == End::Kill {
            return self.process.kill();
        }
        self.process.signal(Signal::TERM);
        let asked = Instant::now();
        let status = loop {
            if let Some(status) = self.process.ended() {
                break status;
            }
            assert!(asked.elapsed() < STOP_MAX, "a clean stop must end");
            std::thread::sleep(GLANCE);
        };
        assert_eq!(status.code(), Some(0), "a clean stop ends with code 0");
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}
