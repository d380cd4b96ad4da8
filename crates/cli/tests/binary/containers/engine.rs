//! A separate container engine: dockerd with its own data folder, socket and network namespace, so that neither its
//! bridges and packet filters nor its published ports interfere with this machine. What it publishes on 127.0.0.1 is
//! reached from inside that namespace.

use std::process::Output;

use crate::prelude::*;

/// A start takes seconds; a container becomes healthy after its first check, which comes after ten.
const PATIENCE: Duration = Duration::from_secs(180);

/// The workspace, where the documented lines are run.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Polls until there is an answer.
pub fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Result<T, String>) -> T {
    let since = Instant::now();
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(why) => assert!(since.elapsed() < PATIENCE, "waited in vain for {what}: {why}"),
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A running engine; stopped with all its containers on drop.
pub struct Engine {
    dockerd: Child,
    folder: tempfile::TempDir,
}

impl Engine {
    /// Starts dockerd and waits until it answers.
    pub fn start() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let script = r#"ip link set lo up; exec dockerd --data-root "$1/data" --exec-root "$1/run" --pidfile "$1/pid" \
            --host "unix://$1/docker.sock""#;
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount", "sh", "-ec", script, "sh"]).arg(folder.path());
        let dockerd = command.stdin(Stdio::null()).stderr(log).spawn().unwrap();
        let mut engine = Self { dockerd, folder };
        wait_for("dockerd", || {
            let ended = engine.dockerd.try_wait().unwrap();
            assert!(ended.is_none(), "dockerd cannot run here ({ended:?}); it needs root:\n{}", engine.log());
            engine.try_run(&["docker", "version"], Stdio::null())
        });
        engine
    }

    fn log(&self) -> String {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    /// A command that uses this docker, in the network namespace of its published ports.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.dockerd.id())).args(words).current_dir(root());
        command.env("DOCKER_HOST", format!("unix://{}/docker.sock", self.folder.path().display()));
        // Ignore the user's settings, such as a remote engine.
        command.env("DOCKER_CONFIG", self.folder.path()).env_remove("DOCKER_CONTEXT").env_remove("DOCKER_BUILDKIT");
        command
    }

    /// Runs a command to its end; returns its output, or why it failed.
    pub fn try_run(&self, words: &[&str], stdin: impl Into<Stdio>) -> Result<String, String> {
        let output = self.command(words).stdin(stdin).output().map_err(|e| format!("{}: {e}", words[0]))?;
        let Output { status, stdout, stderr } = output;
        let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        if status.success() { Ok(out.trim().to_owned()) } else { Err(format!("{words:?}: {status}\n{out}{err}")) }
    }

    /// Runs a command that must succeed.
    #[track_caller]
    pub fn run(&self, words: &[&str]) -> String {
        self.try_run(words, Stdio::null()).unwrap_or_else(|why| panic!("{why}"))
    }

    /// Runs a line of a document.
    #[track_caller]
    pub fn shell(&self, line: &str) -> String {
        println!("$ {line}");
        self.run(&["sh", "-ec", line])
    }

    /// Waits until a container is healthy.
    pub fn healthy(&self, container: &str) {
        wait_for(&format!("{container} to be healthy"), || {
            let words = ["docker", "inspect", "--format", "{{.State.Health.Status}}", container];
            match self.try_run(&words, Stdio::null())?.as_str() {
                "healthy" => Ok(()),
                other => {
                    let log = self.command(&["docker", "logs", "--tail", "20", container]).output().unwrap();
                    Err(format!("{other}\n{}", String::from_utf8_lossy(&log.stderr)))
                }
            }
        });
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        _ = kill_process(Pid::from_child(&self.dockerd), Signal::TERM);
        _ = self.dockerd.wait();
    }
}
