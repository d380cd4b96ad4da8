//! Runs a test binary and fails if it leaves processes behind: servers, browsers, workers that a test has started and not
//! ended.
//!
//! Each binary runs below a process of its own that is a subreaper: every process that loses its parent becomes its
//! child, even one that has left its group and session and cleared its environment. It reaps them, as the first
//! process of a machine does: some wait until another one is gone, and a zombie never goes.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};

/// The command of this program that does it.
pub const WORD: &str = "leaves-nothing";

/// What waits for the end of a test process to clean up after it gets this long.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Runs a program to its end; its exit code. For a process of its own: it reaps all children. Fails if the program has
/// left processes: they are named, and killed.
pub fn run(words: &[String]) -> Result<u8> {
    run_for(words, PATIENCE)
}

fn run_for(words: &[String], patience: Duration) -> Result<u8> {
    let (program, args) = words.split_first().context("no program is named")?;
    set_child_subreaper(Some(getpid())).context("cannot become the reaper of orphans")?;
    let child = Command::new(program).args(args).spawn().with_context(|| format!("cannot start {program}"))?;
    let child = Pid::from_child(&child);
    let code = loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == child => break code(ExitStatus::from_raw(status.as_raw())),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).with_context(|| format!("cannot wait for {program}")),
        }
    };
    let left = ended(patience, || {})?;
    if left.is_empty() {
        return Ok(code);
    }
    let named: Vec<String> = left.iter().map(|pid| format!("  {pid} {}", command_line(*pid))).collect();
    ended(patience, kill_all)?;
    bail!("{program} has left {} processes, which were killed now:\n{}", named.len(), named.join("\n"))
}

/// Waits until nothing is left, at most for a while; what is left then.
fn ended(patience: Duration, each_time: impl Fn()) -> Result<Vec<i32>> {
    let begun = Instant::now();
    loop {
        each_time();
        while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {}
        let left = descendants()?;
        if left.is_empty() || begun.elapsed() >= patience {
            return Ok(left);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn kill_all() {
    for pid in descendants().unwrap_or_default().into_iter().filter_map(Pid::from_raw) {
        _ = kill_process(pid, Signal::KILL);
    }
}

fn code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// All processes that descend from this one.
fn descendants() -> Result<Vec<i32>> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").context("/proc is not mounted")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // One that cannot be read has just ended.
        let parent = std::fs::read(format!("/proc/{pid}/stat")).ok().and_then(|stat| parent(&stat));
        children.entry(parent.unwrap_or(0)).or_default().push(pid);
    }
    let (mut found, mut parents) = (Vec::new(), vec![getpid().as_raw_nonzero().get()]);
    while let Some(parent) = parents.pop() {
        let of = children.remove(&parent).unwrap_or_default();
        parents.extend(&of);
        found.extend(of);
    }
    Ok(found)
}

/// The parent in a line of `/proc/PID/stat`. The name, in parentheses, may hold any bytes.
fn parent(stat: &[u8]) -> Option<i32> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    std::str::from_utf8(stat.get(end + 1..)?).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn command_line(pid: i32) -> String {
    let line = std::fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline")).unwrap_or_default();
    let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    words.join(" ").replace('\n', " ").chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<u8> {
        run_for(&["sh", "-c", script].map(str::to_owned), Duration::from_secs(2))
    }

    /// It reaps all children of its process, so it has one to itself.
    #[test]
    #[ignore = "started by the test after it"]
    fn alone() {
        let left = shell("setsid env -i sleep 4242 & (sleep 4343 &) & sleep 0.2; exit 3").unwrap_err().to_string();
        assert!(left.contains("2 processes") && left.contains("sleep 4242") && left.contains("sleep 4343"), "{left}");
        assert!(descendants().unwrap().is_empty(), "they are killed");
        assert_eq!(shell("(sleep 0.3 &) & exit 3").unwrap(), 3, "what ends soon after is not left");
        // As the one that stops a database after its tests does.
        let waits = "sleep 0.3 & (while kill -0 $! 2> /dev/null; do sleep 0.02; done) & kill -9 $$";
        assert_eq!(shell(waits).unwrap(), 128 + 9, "a zombie would be waited for without end");
        println!("all well");
    }

    #[test]
    fn a_process_that_left_parent_session_and_environment_is_found_and_killed() {
        let mut alone = Command::new(std::env::current_exe().unwrap());
        let done = alone.args(["--ignored", "--exact", "leftovers::tests::alone", "--nocapture"]).output().unwrap();
        let output = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success() && output.contains("all well"), "{output}");
    }
}
