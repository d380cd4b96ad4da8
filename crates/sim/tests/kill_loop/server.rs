//! The binary as a process.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The binary to kill, if it has been built.
pub fn binary() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("WAYLEAVE_BIN") {
        return Some(path.into());
    }
    // This test lies in target/PROFILE/deps, the binary in target/PROFILE.
    let mine = std::env::current_exe().ok()?;
    let path = mine.parent()?.parent()?.join("wayleave");
    path.exists().then_some(path)
}

/// An address that nobody listens on.
pub fn free_address() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// A running server.
pub struct Server(Child);

impl Server {
    /// Starts it and waits until it is ready.
    pub fn start(binary: &Path, folder: &Path, address: &str) -> Self {
        let mut command = Command::new(binary);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WAYLEAVE_")) {
            command.env_remove(name);
        }
        // Little memory, so that rows go to tables, and journals away, many times between two kills.
        command
            .args(["serve", "--listen", address, "--shards", "4", "--memtable-mb", "1", "--data"])
            .arg(folder.join("data"));
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
        // Its log is read on, else it would stand still once the pipe is full.
        std::thread::spawn(move || lines.for_each(drop));
        Self(child)
    }

    /// Ends it as a power cut would.
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}
