//! Ends processes, and says how they ended.
//!
//! Process ids are reused, so no process is signalled by its id alone. A group is signalled only while its leader is known to
//! run, or is our zombie, which keeps the id allocated. Remaining processes of a run are found by its mark and signalled
//! through a pidfd that was opened before the mark was read.

use std::io;
use std::os::fd::AsFd;

use rustix::process::{
    PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, pidfd_send_signal, waitid,
};
use wayleave_core::matches::Exit;

use super::record::Process;
use super::system;

/// Signals a process and its children. The caller knows that it runs.
pub fn signal_group(process: Process, signal: Signal) {
    if let Some(pid) = system::pid(process.pid) {
        _ = kill_process_group(pid, signal);
    }
}

/// Kills what carries a run's mark; returns how many there were.
///
/// # Errors
/// If that cannot be told: something may be left.
pub fn kill_marked(mark: &str) -> io::Result<usize> {
    let marked = system::marked(mark)?;
    for raw in &marked {
        let Some(pid) = system::pid(*raw) else { continue };
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        if system::is_marked(*raw, mark)? {
            _ = pidfd_send_signal(&pidfd, Signal::KILL);
        }
    }
    Ok(marked.len())
}

/// After a process has ended: ends its children, then asks how it ended. `None` if it is not a child of this server, so
/// that only another process knows.
pub fn reap(process: Process, pidfd: &impl AsFd) -> Option<Exit> {
    let ask = |options| waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG | options);
    if matches!(ask(WaitIdOptions::NOWAIT), Ok(Some(_))) {
        signal_group(process, Signal::KILL);
    }
    let status = ask(WaitIdOptions::empty()).ok().flatten()?;
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
