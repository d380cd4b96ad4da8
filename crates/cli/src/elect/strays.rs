//! Finds and ends all descendants of a command, including those that left its group or were orphaned.
//!
//! The guardian is a subreaper: orphans of its descendants become its children. So once the command is dead, the rest
//! of it are the guardian's own children, and in turn their children when they die. If the guardian is killed, they are
//! reparented to elect, also where elect is PID 1 of a container.
//!
//! That a signal was sent proves nothing: a process of another user cannot be signalled, and one that waits for a broken
//! disk does not die. Only a process that is gone is dead.

use std::fmt;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, waitid, waitpid};

/// The pause between two looks at processes that are dying.
pub const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// A process that was killed and has not died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survivor {
    pub pid: i32,
    name: String,
    refused: Option<Errno>,
}

impl Survivor {
    /// One that was killed; `refused` is what the kernel said.
    pub fn of(pid: Pid, refused: Option<Errno>) -> Self {
        let pid = pid.as_raw_nonzero().get();
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        // Any process may choose its name.
        let name = name.trim().chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect();
        Self { pid, name, refused }
    }
}

impl fmt::Display for Survivor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({}) ", self.pid, self.name)?;
        match self.refused {
            Some(Errno::PERM) => f.write_str("runs as another user and may not be killed"),
            Some(error) => write!(f, "cannot be killed: {error}"),
            None => f.write_str("does not die"),
        }
    }
}

/// Several of them, as one sentence with the remedy.
pub fn describe(left: &[Survivor]) -> String {
    let each: Vec<String> = left.iter().map(ToString::to_string).collect();
    let pids: Vec<String> = left.iter().map(|survivor| survivor.pid.to_string()).collect();
    format!("{}; end it as root: kill -9 {}", each.join(", "), pids.join(" "))
}

/// Kills every child but those that are `kept` (which another task waits for, which belong to others, or which stay
/// zombies so that their pids are not reused) until there is none, or `patience` is over. Returns those that are left.
pub fn end(kept: &impl Fn(Pid) -> bool, patience: Duration) -> Vec<Survivor> {
    let begun = Instant::now();
    loop {
        let strays = living(kept);
        let refused: Vec<Option<Errno>> = strays.iter().map(|stray| kill_process(*stray, Signal::KILL).err()).collect();
        bury(kept);
        // The kernel's list may miss one if another one ends while it is read.
        if strays.is_empty() && living(kept).is_empty() {
            return Vec::new();
        }
        if begun.elapsed() >= patience {
            let left = strays.into_iter().zip(refused).filter(|(stray, _)| is_alive(*stray));
            return left.map(|(stray, refused)| Survivor::of(stray, refused)).collect();
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Children that run and are not `kept`.
pub fn living(kept: &impl Fn(Pid) -> bool) -> Vec<Pid> {
    children().into_iter().filter(|child| !kept(*child) && is_alive(*child)).collect()
}

/// Reaps dead children except those that are `kept`: orphans that were reparented to this process would otherwise stay
/// zombies for as long as it lives.
pub fn bury(kept: &impl Fn(Pid) -> bool) {
    for child in children().into_iter().filter(|child| !kept(*child)) {
        _ = waitpid(Some(child), WaitOptions::NOHANG);
    }
}

/// Whether a process has not ended; a zombie has. One that cannot be looked at has not.
pub fn is_alive(pid: Pid) -> bool {
    match std::fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())) {
        Ok(stat) => !is_dead(&stat),
        Err(error) => {
            let gone = error.raw_os_error() == Some(Errno::SRCH.raw_os_error());
            // Mounted with `hidepid`, /proc hides processes of other users, also those that this one has started.
            !(gone || error.kind() == std::io::ErrorKind::NotFound) || is_running_child(pid)
        }
    }
}

/// When a process began, in ticks since the boot: a later process of the same pid began later. None if it cannot be looked at.
pub fn began(pid: Pid) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    std::str::from_utf8(fields(&stat).nth(19)?).ok()?.parse().ok()
}

/// The fields of `/proc/PID/stat` after the name, which is in parentheses and may hold any bytes.
fn fields(stat: &[u8]) -> impl Iterator<Item = &[u8]> {
    let fields = stat.iter().rposition(|byte| *byte == b')').and_then(|end| stat.get(end + 1..)).unwrap_or_default();
    fields.split(|byte| byte.is_ascii_whitespace()).filter(|field| !field.is_empty())
}

/// Whether a process is a child that has not ended, as the kernel says.
fn is_running_child(pid: Pid) -> bool {
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::Pid(pid), how), Ok(None))
}

/// Whether a line of `/proc/PID/stat` is that of a process that has ended. Its first thread may end before the others, and
/// is a zombie from then on; the process and its children live as long as there is another thread.
fn is_dead(stat: &[u8]) -> bool {
    let mut fields = fields(stat);
    let is_zombie = matches!(fields.next(), Some(b"Z" | b"X" | b"x"));
    is_zombie && matches!(fields.nth(16), Some(b"0" | b"1") | None)
}

/// This process's children, as the kernel lists them per thread; empty where it has no such list.
pub fn children() -> Vec<Pid> {
    children_of("self")
}

fn children_of(parent: impl fmt::Display) -> Vec<Pid> {
    let threads = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let pids = lists.flat_map(|list| list.split_whitespace().map(str::parse::<i32>).collect::<Vec<_>>());
    pids.flatten().filter_map(Pid::from_raw).collect()
}

/// A process and all that descend from it; none is missed but one whose parent ends meanwhile.
pub fn family(of: Pid) -> Vec<Pid> {
    let mut found = vec![of];
    let mut next = 0;
    while let Some(parent) = found.get(next) {
        found.extend(children_of(parent.as_raw_nonzero()));
        next += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A regression: orphans of a guardian that was being killed were not seen, and so taken for dead.
    #[test]
    fn a_process_whose_first_thread_has_ended_lives_as_long_as_another_thread() {
        let line = |state: &str, threads: u32| {
            format!("7 (a) Z 1 b) {state} 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 {threads} 0 4242 0 0").into_bytes()
        };
        assert!(is_dead(&line("Z", 1)) && is_dead(&line("X", 0)));
        assert!(!is_dead(&line("Z", 2)) && !is_dead(&line("S", 1)) && !is_dead(b""));
    }
}
