//! Ends processes and reports their exit.
//!
//! Process ids are reused, so no process is signalled by its id alone. A group is signalled only while its leader is known to
//! run. What is left of a run whose leader has ended is found by the run's mark or group, and signalled through a pidfd,
//! once the process behind it is known to be the one that was found.

use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::process::{
    PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, pidfd_send_signal, waitid,
};
use wayleave_core::matches::Exit;

use super::record::Process;
use super::system::{self, Stat};

/// Signals a process and its children. The caller knows that it runs.
pub fn signal_group(process: Process, signal: Signal) {
    if let Some(pid) = system::pid(process.pid) {
        _ = kill_process_group(pid, signal);
    }
}

/// What all processes of a run have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The mark in their environment, unless they have cleared it.
    pub mark: String,
    /// The leader of their group, unless they have left it; none if the run is of another boot.
    pub leader: Option<Process>,
}

/// A process that is left of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Leftover {
    pub pid: i32,
    started: u64,
    /// Whether it is still in the run's group, which signals to the run reach.
    pub in_group: bool,
}

impl Trace {
    /// The processes of the run that have not ended. Reads `/proc`, also the environment of every process, which may wait
    /// for a process that is stuck: not to be called with a lock held. Fails if that is unknown: something may be
    /// left.
    pub fn left(&self) -> io::Result<Vec<Leftover>> {
        let group = self.group()?;
        let mut left = Vec::new();
        for (pid, stat) in system::running()? {
            let in_group = group.is_some_and(|leader| {
                stat.group == leader.pid && Some(stat.session) == leader.session && stat.started >= leader.started
            });
            if in_group || system::is_marked(pid, &self.mark)? {
                left.push(Leftover { pid, started: stat.started, in_group });
            }
        }
        Ok(left)
    }

    /// The leader whose group may still have members. The kernel does not reuse its id while the group has any, so a
    /// process of that id that was started later says that the group is gone.
    fn group(&self) -> io::Result<Option<Process>> {
        let Some(leader) = self.leader else { return Ok(None) };
        let reused = match Stat::of(leader.pid) {
            // It is not known to be another one.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => false,
            stat => stat?.is_some_and(|stat| stat.started != leader.started),
        };
        Ok((!reused).then_some(leader))
    }

    /// Kills what is left of the run; returns how many there were.
    pub fn kill(&self) -> io::Result<usize> {
        let left = self.left()?;
        left.iter().for_each(|process| process.signal(Signal::KILL));
        Ok(left.len())
    }
}

impl Leftover {
    /// Whether it dies shows in the next look: one of another user cannot be signalled.
    pub fn signal(self, signal: Signal) {
        let Some(pidfd) = system::pid(self.pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
            return;
        };
        if matches!(Stat::of(self.pid), Ok(Some(stat)) if stat.started == self.started)
            && let Err(Errno::PERM) = pidfd_send_signal(&pidfd, signal)
        {
            tracing::debug!(pid = self.pid, "a process of a worker runs as another user and may not be signalled");
        }
    }
}

/// Asks how a process ended. `None` if it is not a child of this server, so that only another process knows.
pub fn reap(pidfd: &impl AsFd) -> Option<Exit> {
    let status = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG).ok().flatten()?;
    Some(match (status.exit_status(), status.terminating_signal()) {
        (Some(0), _) => Exit::Clean,
        (Some(code), _) => Exit::Error(format!("it exited with code {code}").into()),
        (None, Some(signal)) => Exit::Error(format!("it was ended by {}", signal_name(signal)).into()),
        (None, None) => Exit::Error("it ended in an unknown way".into()),
    })
}

/// A signal as people know it.
pub fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL (perhaps out of memory)",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        other => return format!("signal {other}"),
    };
    format!("signal {signal}, {name}")
}
