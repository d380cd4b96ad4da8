//! The processes of a demonstration: each a command of this binary, with its log in a file.
//!
//! They die with their parent, however that ends: each asks the kernel for a signal at its parent's death before it
//! becomes the command ([`crate::exec`]). The kernel means the thread that started it, so all are started on the
//! main thread, which lives as long as the process.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};

use crate::exec;

/// How long a process may take to stop in good order.
const STOPPING: Duration = Duration::from_secs(5);
/// How much of a log is shown.
const TAIL_LINES: usize = 15;

/// A process.
struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

/// All of them, in the order in which they were started. They are killed when this is dropped.
pub struct Children {
    folder: PathBuf,
    running: Vec<Process>,
}

impl Children {
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), running: Vec::new() }
    }

    /// Starts a command of this binary. Not from a task: see the module.
    pub fn start(&mut self, name: &str, args: &[&str]) -> anyhow::Result<PathBuf> {
        let log = self.folder.join(format!("{name}.log"));
        let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let exe = std::env::current_exe().context("cannot find this program")?;
        let mut command = exec::tied_to(std::process::id());
        command.arg(exe).args(args);
        for (setting, _) in std::env::vars_os() {
            // Settings of the user's own server are not for this one.
            if setting.to_string_lossy().starts_with("WAYLEAVE_") {
                command.env_remove(setting);
            }
        }
        command.current_dir(&self.folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        self.running.push(Process { name: name.to_owned(), child, log: log.clone() });
        Ok(log)
    }

    /// Fails if one of them has ended, with the end of its log.
    pub fn check(&mut self) -> anyhow::Result<()> {
        for process in &mut self.running {
            if let Some(status) = process.child.try_wait()? {
                let log = std::fs::read_to_string(&process.log).unwrap_or_default();
                let lines: Vec<_> = log.lines().collect();
                let tail = lines.get(lines.len().saturating_sub(TAIL_LINES)..).unwrap_or_default().join("\n  ");
                anyhow::bail!("{} has ended ({status}); it said:\n  {tail}", process.name);
            }
        }
        Ok(())
    }

    /// Stops them in good order, workers first.
    pub async fn stop(mut self) {
        for process in self.running.iter_mut().rev() {
            let _ = kill_process(Pid::from_child(&process.child), Signal::TERM);
            let patience = tokio::time::Instant::now() + STOPPING;
            while matches!(process.child.try_wait(), Ok(None)) && tokio::time::Instant::now() < patience {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for process in &mut self.running {
            let _ = process.child.kill();
        }
        for process in &mut self.running {
            let _ = process.child.wait();
        }
    }
}
