//! Finds and kills all descendants of a command, including those that left its group or were orphaned.
//!
//! The guardian is a subreaper: orphans of its descendants become its children. So once the command is dead, the rest
//! of it are the guardian's own children, and in turn their children when they die. If the guardian is killed, they are
//! reparented to elect, also where elect is PID 1 of a container.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Kills every child but `kept` (which another task waits for, or which stays a zombie so that its pid is not reused)
/// until there is none, or `patience` is over. True if none is left.
pub fn end(kept: Pid, patience: Duration) -> bool {
    let begun = Instant::now();
    loop {
        let strays: Vec<Pid> = children().into_iter().filter(|child| *child != kept).collect();
        if strays.is_empty() {
            return true;
        }
        if begun.elapsed() >= patience {
            return false;
        }
        for stray in strays {
            _ = kill_process(stray, Signal::KILL);
            _ = waitpid(Some(stray), WaitOptions::NOHANG);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Reaps dead children except `kept`: orphans that were reparented to this process would otherwise stay zombies for as
/// long as it lives.
pub fn bury(kept: Option<Pid>) {
    for child in children().into_iter().filter(|child| Some(*child) != kept) {
        _ = waitpid(Some(child), WaitOptions::NOHANG);
    }
}

/// This process's children, as the kernel lists them per thread; empty where it has no such list.
fn children() -> Vec<Pid> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let pids = lists.flat_map(|list| list.split_whitespace().map(str::parse::<i32>).collect::<Vec<_>>());
    pids.flatten().filter_map(Pid::from_raw).collect()
}
