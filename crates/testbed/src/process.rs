//! One process with its log in a file, which is killed and started again.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// How much of a log is shown when a test fails.
const LOG_LINES: usize = 30;

/// A process, running or not.
pub struct Process {
    words: Vec<String>,
    variables: Vec<(String, OsString)>,
    log: PathBuf,
    child: Option<Child>,
}

impl Process {
    /// A process that is started with these words.
    pub fn new(words: Vec<String>, log: &Path) -> Self {
        Self { words, variables: Vec::new(), log: log.to_owned(), child: None }
    }

    /// Gives it a variable.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.variables.push((name.to_owned(), value.into()));
        self
    }

    /// From its next start on it runs another binary.
    pub fn replace(&mut self, binary: &Path, by: &Path) {
        let binary = binary.display().to_string();
        let words = self.words.iter_mut().filter(|word| **word == binary);
        words.for_each(|word| *word = by.display().to_string());
    }

    /// Starts the process; it is ready some moments later.
    pub fn start(&mut self) {
        assert!(self.child.is_none(), "{:?} runs already", self.words);
        let log = File::options().create(true).append(true).open(&self.log).unwrap();
        let mut command = Command::new(&self.words[0]);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WAYLEAVE_")) {
            command.env_remove(name);
        }
        // The process's user may lack access to the test's working directory.
        command.args(&self.words[1..]).envs(self.variables.iter().cloned()).current_dir("/").stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        self.child = Some(command.spawn().unwrap());
    }

    /// Ends it as a power cut would.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("the process runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("the process runs");
        kill_process(Pid::from_raw(child.id().cast_signed()).unwrap(), signal).unwrap();
    }

    /// How the process ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.as_mut()?.try_wait().unwrap()?;
        self.child = None;
        Some(status)
    }

    /// The end of its log.
    pub fn last_words(&self) -> String {
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
