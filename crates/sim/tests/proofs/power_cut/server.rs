//! The binary as a process, on a folder of the disk.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The binary under test.
///
/// # Panics
/// If it has not been built.
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("WAYLEAVE_BIN") {
        return std::fs::canonicalize(path).unwrap();
    }
    // This test is in target/PROFILE/deps, the binary in target/PROFILE.
    let mine = std::env::current_exe().unwrap();
    let path = mine.parent().and_then(Path::parent).unwrap().join("wayleave");
    assert!(path.exists(), "there is no binary: build it with `cargo build -p wayleave-cli`");
    path
}

/// A running server.
pub struct Server(Child);

impl Server {
    /// Starts it and waits until it is ready.
    pub fn start(binary: &Path, data: &Path, address: &str) -> Self {
        let mut command = Command::new(binary);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WAYLEAVE_")) {
            command.env_remove(name);
        }
        // Little memory: memtables are flushed and journal files removed many times between two cuts.
        command.args(["serve", "--listen", address, "--shards", "4", "--memtable-mb", "1", "--data"]).arg(data);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut seen = Vec::new();
        while !seen.last().is_some_and(|line: &String| line.contains(" ready on ")) {
            let Some(line) = lines.next() else { panic!("the server ended: {:?} {seen:#?}", child.wait()) };
            seen.push(line);
        }
        // Keep draining its log, or it would block on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Self(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}
