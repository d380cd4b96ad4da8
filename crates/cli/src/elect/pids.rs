//! The processes that do the work, for those that must kill them as a last resort.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, getpgid, getpgrp, kill_process_group, pidfd_open, pidfd_send_signal};

use super::strays::{self, LOOK_AGAIN, Survivor};

/// How long killed processes may take to die.
const DYING: Duration = Duration::from_millis(200);

/// The guardian and the command's process group. While the guardian lives, the pid of the group is not reused.
#[derive(Debug, Default)]
pub struct Pids(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    guardian: Option<Guardian>,
    group: Option<Pid>,
    /// Processes that no command of ours has started, and when they began: `sidecar & exec wayleave elect …`, and what a sidecar
    /// has started. While the guardian lives, orphans of the command become its children, so whatever becomes ours is one
    /// of them. Once it is dead, one that was never looked at while its parent lived counts as the command's.
    strangers: HashMap<Pid, Option<u64>>,
    /// When the last guardian began: nothing of the command is older.
    since: Option<u64>,
    /// What was killed and has not died.
    left: Vec<Survivor>,
}

#[derive(Debug)]
struct Guardian {
    pid: Pid,
    /// Its pid may be reused once it was waited for.
    handle: Option<OwnedFd>,
}

impl Known {
    /// The guardian and the command have groups of their own, so what is in this process's group is another one's.
    fn is_not_ours(&self, pid: Pid) -> bool {
        let began = strays::began(pid);
        self.strangers.get(&pid) == Some(&began)
            || self.since.zip(began).is_some_and(|(since, began)| began < since)
            || self.guardian.as_ref().is_some_and(|guardian| guardian.pid == pid)
            || getpgid(Some(pid)).is_ok_and(|group| group == getpgrp())
    }

    /// Updates the strangers.
    fn look(&mut self) {
        let children = strays::children();
        // A pid may be used again. That of a process which /proc hides is kept as long as it is a child.
        self.strangers.retain(|stranger, began| {
            strays::began(*stranger) == *began && (began.is_some() || children.contains(stranger))
        });
        // What a stranger has started becomes a child of this process when the stranger ends, also while something of the
        // command is left.
        let mut found: Vec<Pid> = self.strangers.keys().flat_map(|stranger| strays::family(*stranger)).collect();
        // Asked after the list was read: a guardian that lives now had all orphans of the command then.
        let only_strangers = match &self.guardian {
            Some(guardian) => strays::is_alive(guardian.pid),
            None => self.left.is_empty(),
        };
        if only_strangers {
            let guardian = self.guardian.as_ref().map(|guardian| guardian.pid);
            found.extend(children.into_iter().filter(|child| Some(*child) != guardian));
        }
        self.strangers.extend(found.into_iter().map(|stranger| (stranger, strays::began(stranger))));
    }
}

impl Pids {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the guardian: all children that there are before are strangers. Nobody looks while it is started, or it and what it
    /// starts would be taken for strangers too.
    pub fn start<T>(&self, start: impl FnOnce() -> io::Result<(T, Option<Pid>)>) -> io::Result<T> {
        let mut known = self.known();
        known.look();
        let (started, pid) = start()?;
        let handle = |pid| pidfd_open(pid, PidfdFlags::empty()).ok();
        known.since = pid.and_then(strays::began);
        (known.guardian, known.group) = (pid.map(|pid| Guardian { pid, handle: handle(pid) }), None);
        Ok(started)
    }

    /// The guardian has started the command.
    pub fn group(&self, pid: Option<Pid>) {
        self.known().group = pid;
    }

    /// All are dead.
    pub fn forget(&self) {
        let mut known = self.known();
        (known.guardian, known.group) = (None, None);
    }

    /// Notes strangers, and reaps dead children, except the guardian, which another task waits for.
    pub fn bury(&self) {
        let mut known = self.known();
        let guardian = known.guardian.as_ref().map(|guardian| guardian.pid);
        strays::bury(&|child| Some(child) == guardian);
        known.look();
    }

    /// Kills all of them, and waits briefly for their death; returns those that have not died. If the command's pid is
    /// not known yet, killing the guardian kills the command.
    pub fn kill(&self) -> Vec<Survivor> {
        let mut known = self.known();
        known.look();
        let group = known.group.take();
        if let Some(Guardian { pid, handle: Some(handle) }) = &known.guardian {
            if let Some(group) = group.filter(|_| strays::is_alive(*pid)) {
                _ = kill_process_group(group, Signal::KILL);
            }
            _ = pidfd_send_signal(handle, Signal::KILL);
        }
        known.end(DYING)
    }

    /// What was killed and has not died until now; it is killed again.
    pub fn left(&self) -> Vec<Survivor> {
        let mut known = self.known();
        if known.left.is_empty() {
            return Vec::new();
        }
        known.look();
        known.end(Duration::ZERO)
    }
}

impl Known {
    /// Waits for the death of the guardian, and kills what becomes a child of this process with it: the command, and what
    /// it has started.
    fn end(&mut self, patience: Duration) -> Vec<Survivor> {
        let begun = Instant::now();
        let guardian = self.guardian.as_ref().map(|guardian| guardian.pid);
        let lives = || guardian.filter(|pid| strays::is_alive(*pid));
        while lives().is_some() && begun.elapsed() < patience {
            std::thread::sleep(LOOK_AGAIN);
        }
        let mut left = strays::end(&|pid| self.is_not_ours(pid), patience);
        match lives() {
            Some(guardian) => left.push(Survivor::of(guardian, None)),
            None => self.guardian = None,
        }
        self.left.clone_from(&left);
        left
    }
}
