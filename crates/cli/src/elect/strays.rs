//! All that a command has started, also what left its group or its parent.
//!
//! The guardian is the one to whom orphans of its descendants fall. So once the command is dead, what is left of it are the
//! guardian's own children, and the children of those when they die in turn. If the guardian is killed, they fall to elect, also
//! where elect is the first process of a container.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Kills every child but `kept` (which somebody else waits for, or nobody, so that its number is not used again) until there
/// is none, or `patience` is over. True if none is left.
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

/// Buries the dead among the children, but for `kept`: orphans that fell to this process would else stay in the kernel's
/// table for as long as it lives.
pub fn bury(kept: Option<Pid>) {
    for child in children().into_iter().filter(|child| Some(*child) != kept) {
        _ = waitpid(Some(child), WaitOptions::NOHANG);
    }
}

/// This process's children, as the kernel lists them for each of its threads; none where it keeps no such list.
fn children() -> Vec<Pid> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let pids = lists.flat_map(|list| list.split_whitespace().map(str::parse::<i32>).collect::<Vec<_>>());
    pids.flatten().filter_map(Pid::from_raw).collect()
}
