//! One server process and its folder; blocking, because a server outlives the runtime of the test that started it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::Options;
use crate::cleanup::Cleanup;
use crate::ports::free_port;
use crate::{template, tools};

const PATIENCE: Duration = Duration::from_secs(60);
const GLANCE: Duration = Duration::from_millis(20);

/// A server, running or not. Dropping it stops it and removes its folder.
pub(crate) struct Server {
    bin: PathBuf,
    pub(crate) port: u16,
    pub(crate) options: Options,
    process: Mutex<Option<Child>>,
    // The guard is dropped first: it must not race with the removal of the folder.
    _cleanup: Cleanup,
    folder: TempDir,
}

impl Server {
    /// Creates and starts a new, empty server.
    pub(crate) fn create(options: Options) -> Self {
        let server = Self::lay_out(options);
        template::copy_to(&server.data());
        server.start();
        server
    }

    /// Creates a standby of `primary` and makes it synchronous. With its own options it runs elsewhere and connects
    /// over the network.
    pub(crate) fn follow(primary: &Self, elsewhere: Option<Options>, name: &str) -> Self {
        let way = match &elsewhere {
            Some(_) => primary.options.listen.clone(),
            None => primary.folder.path().display().to_string(),
        };
        let beside = || Options { port: 0, ..primary.options.clone() };
        let standby = Self::lay_out(elsewhere.unwrap_or_else(beside));
        let origin = format!("host={way} port={} user=postgres application_name={name}", primary.port);
        let mut copy = standby.tool("pg_basebackup");
        tools::run(copy.args(["--checkpoint=fast", "--write-recovery-conf", "-d", &origin, "-D"]).arg(standby.data()));
        standby.start();
        primary.sql("postgres", &format!("alter system set synchronous_standby_names = '{name}'"));
        primary.sql("postgres", "select pg_reload_conf()");
        let synchronous = format!(
            "select count(*) from pg_stat_replication where application_name = '{name}' and sync_state = 'sync'"
        );
        wait_until("the standby is synchronous", || primary.sql("postgres", &synchronous) == "1");
        standby
    }

    fn lay_out(options: Options) -> Self {
        let folder = tempfile::Builder::new().prefix("wayleave-pg-").tempdir().unwrap();
        tools::give(folder.path());
        let port = if options.port == 0 { free_port() } else { options.port };
        let cleanup = Cleanup::start(folder.path());
        Self { bin: tools::programs(), port, options, process: Mutex::new(None), _cleanup: cleanup, folder }
    }

    /// Starts the process and waits until it responds.
    pub(crate) fn start(&self) {
        let log = File::options().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        let mut command = self.tool("postgres");
        command.arg("-D").arg(self.data()).arg("-k").arg(self.folder.path());
        command.args(["-h", &self.options.listen, "-p", &self.port.to_string()]);
        let fsync = if self.options.fsync { "fsync=on" } else { "fsync=off" };
        let fixed = [fsync, "max_connections=300", "shared_buffers=64MB", "logging_collector=off"];
        for setting in fixed.iter().copied().chain(self.options.settings.iter().map(String::as_str)) {
            command.args(["-c", setting]);
        }
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let mut process = self.lock();
        assert!(process.is_none(), "the server runs already");
        *process = Some(command.spawn().unwrap());
        wait_until("the server answers", || {
            let ended = process.as_mut().and_then(|child| child.try_wait().unwrap());
            assert!(ended.is_none(), "the server did not start: {}", self.log());
            self.client("pg_isready").arg("-q").status().unwrap().success()
        });
    }

    /// Sends a signal that ends the server, and waits for its end.
    pub(crate) fn stop(&self, signal: Signal) {
        let mut process = self.lock();
        signal_first(&process, signal);
        if let Some(mut child) = process.take() {
            child.wait().unwrap();
        }
    }

    /// Every process of the server: pausing the postmaster alone would let the others continue.
    pub(crate) fn signal_all(&self, signal: Signal) {
        let process = self.lock();
        let Some(first) = process.as_ref().map(Child::id) else { return };
        let children = std::fs::read_to_string(format!("/proc/{first}/task/{first}/children")).unwrap_or_default();
        for pid in children.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
            _ = kill_process(pid, signal);
        }
        signal_first(&process, signal);
    }

    /// Runs SQL and returns the result, without headings.
    pub(crate) fn sql(&self, database: &str, text: &str) -> String {
        tools::run(self.client("psql").args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-d", database, "-c", text]))
    }

    /// Overwrites a page of a file with what is no page.
    pub(crate) fn damage(&self, file: &str, page: u64) {
        const PAGE: usize = 8192;
        let file = File::options().write(true).open(self.data().join(file)).unwrap();
        file.write_all_at(&[0x5a; PAGE], page * PAGE as u64).unwrap();
    }

    /// What the server wrote to its log.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn client(&self, program: &str) -> Command {
        let mut command = self.tool(program);
        command.arg("-h").arg(self.folder.path()).args(["-p", &self.port.to_string(), "-U", "postgres"]);
        command
    }

    fn tool(&self, program: &str) -> Command {
        tools::command(&self.options.prefix, &self.bin.join(program))
    }

    fn data(&self) -> PathBuf {
        Path::join(self.folder.path(), "data")
    }

    fn lock(&self) -> MutexGuard<'_, Option<Child>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.signal_all(Signal::CONT);
        self.stop(Signal::QUIT);
    }
}

fn signal_first(process: &Option<Child>, signal: Signal) {
    if let Some(pid) = process.as_ref().and_then(|child| Pid::from_raw(child.id().cast_signed())) {
        _ = kill_process(pid, signal);
    }
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "timed out after {PATIENCE:?} waiting until {what}");
        std::thread::sleep(GLANCE);
    }
}
