//! The processes that do the work, for those that must kill them as a last resort.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};

use super::strays;

/// How long killed processes may take to die.
const DYING: Duration = Duration::from_millis(200);

/// The guardian and the command's process group. While the guardian lives, the pid of the group is not reused.
#[derive(Debug, Default)]
pub struct Pids(Mutex<Known>);

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    guardian: Option<Pid>,
    group: Option<Pid>,
}

impl Pids {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The guardian has been started.
    pub fn guardian(&self, pid: Option<Pid>) {
        *self.known() = Known { guardian: pid, group: None };
    }

    /// The guardian has started the command.
    pub fn group(&self, pid: Option<Pid>) {
        self.known().group = pid;
    }

    /// The guardian, while there is one.
    pub fn guardian_now(&self) -> Option<Pid> {
        self.known().guardian
    }

    /// All are dead.
    pub fn forget(&self) {
        *self.known() = Known::default();
    }

    /// Kills all of them, and waits briefly for their death. If the command's pid is not known yet, killing the
    /// guardian kills the command.
    pub fn kill(&self) {
        let Known { guardian, group } = std::mem::take(&mut *self.known());
        if let Some(group) = group {
            _ = kill_process_group(group, Signal::KILL);
        }
        if let Some(guardian) = guardian {
            _ = kill_process(guardian, Signal::KILL);
        }
        let begun = Instant::now();
        while group.is_some_and(|group| test_kill_process_group(group).is_ok()) && begun.elapsed() < DYING {
            std::thread::sleep(Duration::from_millis(2));
        }
        // Processes that had left the group are reparented to this one when the guardian is dead.
        if let Some(guardian) = guardian
            && !strays::end(guardian, DYING)
        {
            eprintln!("wayleave: a process started by the command does not die");
        }
    }
}
