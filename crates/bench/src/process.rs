//! The resource usage of a process, from `/proc`.

use std::time::Duration;

/// Clock ticks per second in `/proc`; a constant of the kernel's interface.
const TICKS: f64 = 100.0;

/// How long processes are observed to see whether they are idle, and how long they get to become so.
const LOOK: Duration = Duration::from_millis(250);
const LOOKS_MAX: usize = 240;
/// Less than this share of one core is idle.
const QUIET_SHARE: f64 = 0.1;

/// Waits until processes have finished earlier work, up to a limit.
pub async fn quiet(pids: &[u32]) {
    if pids.is_empty() {
        return;
    }
    let used = || pids.iter().filter_map(|pid| cpu_secs(*pid)).sum::<f64>();
    let mut before = used();
    for _ in 0..LOOKS_MAX {
        tokio::time::sleep(LOOK).await;
        let now = used();
        if now - before < QUIET_SHARE * LOOK.as_secs_f64() {
            return;
        }
        before = now;
    }
}

/// CPU time so far, in seconds.
pub fn cpu_secs(pid: u32) -> Option<f64> {
    cpu_of(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The same of several processes, if any is known.
pub fn cpu_secs_of(pids: &[u32]) -> Option<f64> {
    pids.iter().filter_map(|pid| cpu_secs(*pid)).reduce(|a, b| a + b)
}

/// Resident memory of several processes, in MiB, if any is known.
pub fn rss_mib_of(pids: &[u32]) -> Option<f64> {
    pids.iter().filter_map(|pid| rss_mib(*pid)).reduce(|a, b| a + b)
}

/// Resident memory, in MiB.
pub fn rss_mib(pid: u32) -> Option<f64> {
    rss_of(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

fn cpu_of(stat: &str) -> Option<f64> {
    // The process name may contain spaces; what follows its bracket does not.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS)
}

fn rss_of(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024.0)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn only_processes_that_are_known_are_waited_for() {
        assert!(quiet(&[]).now_or_never().is_some());
    }

    #[test]
    fn the_kernels_words_are_read() {
        let stat = "42 (a b) c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0";
        assert_eq!(cpu_of(stat), Some(2.0));
        assert_eq!(rss_of("Name:\tx\nVmRSS:\t    2048 kB\n"), Some(2.0));
        assert!(rss_mib(std::process::id()).is_some_and(|mib| mib > 0.1));
        assert!(cpu_secs(std::process::id()).is_some());
    }
}
