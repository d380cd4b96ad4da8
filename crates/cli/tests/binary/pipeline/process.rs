//! A worker as a process that is killed and started again with the same name, folder and port.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use super::killer::Kind;
use crate::support::wayleave;
use wayleave_testbed::free_port;

/// How much of a log is shown when a test fails.
const LOG_LINES: usize = 15;
/// The exit code of a worker whose server does not answer when it starts.
const UNAVAILABLE: i32 = 5;

/// A worker, running or not.
pub struct Process {
    pub kind: Kind,
    pub name: String,
    /// Where it keeps its files.
    pub folder: PathBuf,
    words: Vec<String>,
    log: PathBuf,
    child: Option<Child>,
}

impl Process {
    /// Starts a worker with its folders below `place`.
    pub fn start(kind: Kind, name: &str, place: &Path, words: &[&str]) -> Self {
        let (folder, log) = (place.join(name), place.join(format!("{name}.log")));
        let (listen, path) = (format!("127.0.0.1:{}", free_port()), folder.to_str().unwrap());
        let (command, store) = match kind {
            Kind::Crawler => ("crawl", "--store"),
            Kind::Builder => ("build", "--store"),
            Kind::Index => ("index", "--data"),
            Kind::Node => panic!("a node is no worker"),
        };
        // The site is on loopback, and so is each of several nodes.
        let allow = ["--allow-net", "127.0.0.0/8"];
        let mut all = vec![command, "--id", name, "--listen", &listen, store, path];
        all.extend(allow);
        all.extend(words);
        let words = all.into_iter().map(str::to_owned).collect();
        let mut process = Self { kind, name: name.to_owned(), folder, words, log, child: None };
        process.run();
        process
    }

    /// Starts it again.
    pub fn run(&mut self) {
        assert!(self.child.is_none(), "{} runs already", self.name);
        let log = File::options().create(true).append(true).open(&self.log).unwrap();
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        let mut command = wayleave(&words);
        // What a killed process leaves in a folder for temporary files goes with the test.
        command.env("TMPDIR", self.log.parent().unwrap()).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().unwrap());
    }

    /// Ends it as a power cut would.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// A worker never ends by itself, unless its server was away when it started: then a service manager starts it again.
    pub fn check(&mut self) {
        let Some(child) = self.child.as_mut() else { return };
        if let Some(status) = child.try_wait().unwrap() {
            assert_eq!(
                status.code(),
                Some(UNAVAILABLE),
                "{} ended by itself; its log: {}",
                self.name,
                self.last_words()
            );
            self.child = None;
            self.run();
        }
    }

    fn last_words(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            _ = child.kill();
            _ = child.wait();
        }
        if std::thread::panicking() {
            println!("== {} ==\n{}", self.log.display(), self.last_words());
        }
    }
}
